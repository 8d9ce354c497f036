"""Predicted seconds of a mini-batch beside measured ones, for ten plans over a link of 100 Mbit/s and 1 ms.

    python -m bench.training.predictions [--replicated]

Each model is a chain of layers with random times, tensors and parameters. The layers sleep, as those of an accelerator
take no time of the processor; tensors and parameters are real. The planner is given these figures and the link's, and
its plan is run in mode `stash` by workers in network namespaces of their own, over a switch with that rate and latency.
Measured is a mini-batch of the full pipeline. Plans that are no pipeline are left out: DistributedDataParallel would
run them. Writes results/predictions.jsonl. With `--replicated` the layers are such that stages have several workers
(2-1 and 1-2): one part of a model computes most and has few parameters; it writes results/replicated.jsonl.
"""

import argparse
import json
import random
import tempfile
from pathlib import Path
from typing import Any

from bench.training import delayed_network, processes
from bench.training.records import keep

from tdcs_train.plan.options import Level, Options
from tdcs_train.plan.pipeline_plan import Parallelism, PipelinePlan, document, plan_pipeline
from tdcs_train.plan.profile_text import parse

WORKER = "bench.training.predictions_worker"
BITS, LATENCY = 100e6, 0.001


def layers_of(seed: int) -> list[dict[str, Any]]:
    """Times in milliseconds, and numbers of floats."""
    source = random.Random(seed)  # noqa: S311
    most = 60_000 if seed % 3 == 0 else 600_000  # with few parameters some stages are replicated
    return [
        {
            "forward": source.uniform(2, 15),
            "backward": source.uniform(4, 30),
            "output": source.randrange(5_000, 120_000),
            "weights": source.randrange(most // 60, most),
        }
        for _ in range(source.randrange(6, 11))
    ]


def uneven_layers_of(seed: int) -> list[dict[str, Any]]:
    """As `layers_of`, with few parameters in the first two thirds (odd seeds) or the last, and quick layers else."""
    layers = layers_of(seed)
    count = len(layers) * 2 // 3
    for number, layer in enumerate(layers):
        layer["output"] //= 4
        if number < count if seed % 2 else number >= len(layers) - count:
            layer["weights"] //= 30
        else:
            layer["forward"] /= 3
            layer["backward"] /= 3
    return layers


def planned(layers: list[dict[str, Any]], workers: int) -> PipelinePlan:
    """The plan of the chain."""
    lines = [
        "node1 -- Input0 -- forward_compute_time=0, backward_compute_time=0, activation_size=4000, parameter_size=0"
    ]
    lines += [
        f"node{number} -- Asleep -- forward_compute_time={layer['forward']}, backward_compute_time={layer['backward']}"
        f", activation_size={4 * layer['output']}, parameter_size={4 * layer['weights']}"
        for number, layer in enumerate(layers, start=2)
    ]
    lines += [f"\tnode{number} -- node{number + 1}" for number in range(1, len(layers) + 1)]
    level = Level(machines=workers, bandwidth=BITS / 8, latency=LATENCY)
    return plan_pipeline(parse("\n".join(lines) + "\n", source="layers"), Options(levels=(level,)))


def measured(layers: list[dict[str, Any]], plan: PipelinePlan, *, count: int) -> float:
    """Seconds of a mini-batch."""
    network = delayed_network.hosts(plan.workers, bits_per_second=BITS, latency=LATENCY)
    with tempfile.TemporaryDirectory() as name, network as hosts:
        scratch = Path(name)
        (scratch / "layers.json").write_text(json.dumps(layers))
        (scratch / "plan.json").write_text(json.dumps(document(plan)))
        programs = [
            processes.start(
                ["-m", WORKER, f"--count={count}"],
                scratch=scratch,
                namespace=host.namespace,
                sleeps=True,
                environment={
                    "MASTER_ADDR": hosts[0].address,
                    "MASTER_PORT": "29100",
                    "RANK": str(rank),
                    "WORLD_SIZE": str(plan.workers),
                },
            )
            for rank, host in enumerate(hosts)
        ]
        rows = processes.answers(programs, within=300)
    return float(rows[0]["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plans", type=int, default=10)
    parser.add_argument("--count", type=int, default=48, help="mini-batches that are measured (default 48)")
    parser.add_argument(
        "--replicated", action="store_true", help="plans in which a stage has several workers"
    )
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    seed = 0
    while len(rows) < options.plans:
        seed += 1
        layers = uneven_layers_of(seed) if options.replicated else layers_of(seed)
        plan = planned(layers, 3 if options.replicated else 2 + seed % 2)
        if plan.best is not Parallelism.PIPELINE or (options.replicated and max(plan.replicas) == 1):
            continue
        seconds = measured(layers, plan, count=options.count)
        rows.append(
            {
                "seed": seed,
                "layers": len(layers),
                "plan": "-".join(map(str, plan.replicas)),
                "ahead": plan.ahead,
                "bottleneck s": round(plan.bottleneck_seconds, 4),
                "predicted s": round(plan.expected_seconds, 4),
                "measured s": round(seconds, 4),
                "predicted over measured": round(plan.expected_seconds / seconds, 3),
                "within 15 %": abs(plan.expected_seconds / seconds - 1) <= 0.15,
            }
        )
        keep("replicated" if options.replicated else "predictions", rows)


if __name__ == "__main__":
    main()
