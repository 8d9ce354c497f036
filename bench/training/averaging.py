"""Gradients by priority beside plain DistributedDataParallel: two workers over gloo on a shaped link.

    python -m bench.training.averaging --profiles ../shared/data/pipedream

Layers sleep for the forward and backward times of a published profile, as layers on an accelerator take no time of the
processor, and have real parameters, all scaled so that the gradients have `--megabytes`. Each worker is in a network
namespace of its own; tbf gives the link a rate at which averaging takes `ratio` times the computation. Both ways run in
turns after the hook's own trial of both; an iteration is the mean of a turn, which ends when all updates are made.
Losses must be equal. Writes results/averaging.jsonl.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from bench.training import network, processes
from bench.training.records import exists, keep, read

from tdcs_train.plan.profile_text import parse

WORKER = "bench.training.averaging_worker"
WAYS = ("plain", "priority")


def measured(profile: Path, ratio: float, *, size: float, steps: int, rounds: int) -> dict[str, Any]:
    """Iterations of both ways."""
    graph = parse(profile.read_text(), source=str(profile))
    rate = size / (graph.seconds * ratio)  # of two workers each sends its gradients once
    with tempfile.TemporaryDirectory() as name, network.hosts(2) as hosts:
        scratch = Path(name)
        (scratch / "profile.txt").write_text(profile.read_text())
        network.shape(hosts, bits_per_second=rate * 8)
        share = f"--share={size / graph.parameter_bytes}"
        programs = [
            processes.start(
                ["-m", WORKER, share, f"--steps={steps}", f"--rounds={rounds}"],
                scratch=scratch,
                namespace=host.namespace,
                sleeps=True,
                environment={
                    "MASTER_ADDR": hosts[0].address,
                    "MASTER_PORT": "29100",
                    "RANK": str(rank),
                    "WORLD_SIZE": "2",
                    "GLOO_SOCKET_IFNAME": network.DEVICE,
                },
            )
            for rank, host in enumerate(hosts)
        ]
        rows = processes.answers(programs, within=500)
    seconds = {way: [row["seconds"] for row in rows if row["way"] == way] for way in WAYS}
    losses = {way: [row["loss"] for row in rows if row["way"] == way] for way in WAYS}
    (trial,) = (row for row in rows if row["way"] == "trial")
    plain, priority = (statistics.median(seconds[way]) for way in WAYS)
    return {
        "profile": profile.stem,
        "averaging over computation": ratio,
        "link Mbit/s": round(rate * 8e-6, 1),
        "computation s": round(graph.seconds, 4),
        "plain s": round(plain, 4),
        "with the hook s": round(priority, 4),
        "plain over hook": round(plain / priority, 3),
        "lowest of the turns": round(min(p / q for p, q in zip(*seconds.values(), strict=True)), 3),
        "chosen": "by priority" if trial["by priority"] else "plain",
        "gain in the trial": round(trial["gain"], 3),
        "trial iterations": trial["iterations"],
        "trial over plain": round(trial["seconds"] / trial["iterations"] / plain, 3),
        "losses differ by": max(abs(p / q - 1) for p, q in zip(*losses.values(), strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profiles", type=Path, required=True)
    parser.add_argument("--names", nargs="*", default=["vgg16", "resnet50", "gnmt", "alexnet"])
    parser.add_argument("--ratios", nargs="*", type=float, default=[0.5, 1.0, 2.0])
    parser.add_argument("--megabytes", type=float, default=32.0, help="of all gradients (default 32)")
    parser.add_argument("--steps", type=int, default=12, help="mini-batches of a turn (default 12)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each way (default 3)")
    options = parser.parse_args()
    for name in options.names:
        for ratio in options.ratios:
            row = measured(
                options.profiles / f"{name}.txt",
                ratio,
                size=options.megabytes * 1e6,
                steps=options.steps,
                rounds=options.rounds,
            )
            records = read("averaging")[1] if exists("averaging") else []
            records = [
                record
                for record in records
                if (record["profile"], record["averaging over computation"]) != (name, ratio)
            ]
            keep("averaging", [*records, row])


if __name__ == "__main__":
    main()
