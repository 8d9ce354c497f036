"""Orders of transfers, measured: a worker and a parameter server on a shaped link, by a plan and in random orders.

    python -m bench.training.transfers --models VGG16
    python -m bench.training.transfers --models ResNet32 CNN+LSTM

VGG16, ResNet32 and CNN+LSTM on images of 32 x 32 (batch 16, 32, 32). Worker and server are in network namespaces of
their own. The link's rate is set by the worker's own iteration without a server: all transfers in turn, parameters and
gradients, take `ratio` times as long. The planned order runs once beside every random one. An iteration is the time
between the ends of two backwards. Writes results/transfers.jsonl, a model's rows in the place of its former ones.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.training import network, processes

WORKER = "bench.training.transfers_worker"
PUBLISHED = {"VGG16": 0.9348, "ResNet32": 0.7821, "CNN+LSTM": 0.8672}
RATIOS = {"VGG16": 2.0, "ResNet32": 2.0, "CNN+LSTM": 1.0}
EXTREMES = (0.05, 20.0)
"""Ratios at which no order can help."""


def measured(model: str, ratio: float, *, orders: int, rounds: int, steps: int) -> dict[str, Any]:
    """Iterations of a model in the planned order over those in random ones."""
    with tempfile.TemporaryDirectory() as name, network.hosts(2) as hosts:
        scratch = Path(name)
        common = ["-m", WORKER, "--model", model]
        profiled = processes.start([*common, "--profile"], scratch=scratch)
        (profile,) = processes.answers([profiled], within=120)
        rate = 2 * profile["bytes"] / (profile["seconds"] * ratio)
        network.shape(hosts, bits_per_second=rate * 8)
        runs = [
            *common,
            f"--bandwidth={rate}",
            f"--orders={orders}",
            f"--rounds={rounds}",
            f"--steps={steps}",
        ]
        programs = [
            processes.start([*runs, role, hosts[0].address], scratch=scratch, namespace=host.namespace)
            for role, host in zip(("--serve", "--work"), hosts, strict=True)
        ]
        rows = processes.answers(programs, within=280)
    random = [statistics.median(row["seconds"]) for row in rows if row["order"] > 0]
    planned = [statistics.median(row["seconds"]) for row in rows if row["order"] == 0]
    mean = statistics.mean(random)
    return {
        "model": model,
        "parameters": profile["bytes"] // 4,
        "transfers over computation": ratio,
        "link Mbit/s": round(rate * 8e-6, 1),
        "seconds alone": round(profile["seconds"], 4),
        "seconds planned": round(statistics.mean(planned), 4),
        "seconds random (mean)": round(mean, 4),
        "lowest random": round(min(random), 4),
        "highest random": round(max(random), 4),
        "planned over random": round(statistics.mean(planned) / mean, 4),
        "published": PUBLISHED[model] if ratio not in EXTREMES else "",
    }


def kept(name: str) -> list[dict[str, Any]]:
    """The rows that an earlier run left."""
    path = processes.RESULTS / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()[1:]] if path.exists() else []


def cases(models: Sequence[str], extremes: Sequence[str]) -> list[tuple[str, float]]:
    """Models with the ratios at which they are measured."""
    return [(model, RATIOS[model]) for model in models] + [
        (model, ratio) for model in extremes for ratio in EXTREMES
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", choices=list(RATIOS), default=list(RATIOS))
    parser.add_argument(
        "--extremes",
        nargs="*",
        choices=list(RATIOS),
        default=["CNN+LSTM"],
        help="models to measure at the ratios 0.05 and 20, too (default CNN+LSTM)",
    )
    parser.add_argument("--orders", type=int, default=10, help="random orders (default 10)")
    parser.add_argument("--rounds", type=int, default=1, help="visits of each random order (default 1)")
    parser.add_argument("--steps", type=int, default=5, help="iterations of a visit (default 5)")
    options = parser.parse_args()
    for model, ratio in cases(options.models, options.extremes):
        few = ratio == max(EXTREMES)  # an iteration takes seconds
        row = measured(
            model,
            ratio,
            orders=min(options.orders, 4) if few else options.orders,
            rounds=options.rounds,
            steps=min(options.steps, 3) if few else options.steps,
        )
        records = [
            record
            for record in kept("transfers")
            if (record["model"], record["transfers over computation"]) != (model, ratio)
        ]
        processes.keep("transfers", [*records, row])


if __name__ == "__main__":
    main()
