"""The planner on the profiles that PipeDream published: what it plans, and how long that takes.

    python -m bench.training.plans --profiles ../shared/data/pipedream

Writes results/plans.jsonl.
"""

import argparse
import math
import time
from pathlib import Path
from typing import Any

from bench.training.records import keep

from tdcs_train.plan.options import Level, Options
from tdcs_train.plan.pipeline_plan import plan_pipeline
from tdcs_train.plan.profile_text import parse

ROWS: tuple[tuple[str, tuple[int, ...], tuple[float, ...], dict[str, Any]], ...] = (
    ("vgg16", (2,), (1e9,), {}),
    ("vgg16", (4,), (1e9,), {}),
    ("vgg16", (8,), (1e9,), {}),
    ("vgg16", (4,), (1e8,), {}),
    ("vgg16", (2, 2), (1e10, 1e9), {}),
    ("vgg16", (4,), (1e9,), {"straight": True, "activation_ratio": math.inf}),
    ("alexnet", (4,), (1e9,), {}),
    ("alexnet", (2, 2), (1e10, 1e9), {}),
    ("resnet50", (4,), (1e9,), {}),
    ("gnmt", (4,), (1e9,), {}),
    ("resnet50", (64,), (1e9,), {}),
)


def main() -> None:
    """Plan every row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profiles", type=Path, required=True)
    folder = parser.parse_args().profiles
    rows = []
    for name, counts, bandwidths, choices in ROWS:
        graph = parse((folder / f"{name}.txt").read_text(), source=name)
        levels = tuple(
            Level(machines=count, bandwidth=bandwidth)
            for count, bandwidth in zip(counts, bandwidths, strict=True)
        )
        before = time.process_time()
        plan = plan_pipeline(graph, Options(levels=levels, sync="ps", **choices))
        seconds = time.process_time() - before
        rows.append(
            {
                "profile": name,
                "workers": " x ".join(map(str, counts)),
                "bytes a second": " and ".join(f"{bandwidth:.0e}" for bandwidth in bandwidths),
                "straight": bool(choices),
                "stages": "-".join(str(count) for count in plan.replicas),
                "bottleneck s": round(plan.bottleneck_seconds, 6),
                "vs one worker": round(plan.one_worker_seconds / plan.bottleneck_seconds, 3),
                "vs data parallel": round(plan.data_parallel_seconds / plan.bottleneck_seconds, 3),
                "CPU s to plan": round(seconds, 3),
            }
        )
    keep("plans", rows)


if __name__ == "__main__":
    main()
