"""What it is worth that nodes have labels for their zones: bytes that cross zones, and completion times. One JSON line.

The same jobs are simulated twice on nodes in several zones: with labels, by which copies are placed, pods scored, and
blocks taken from the nearest holder, and without. Owners apply their datasets an hour before the first job, and leave
the number of nodes to the operator (`spec.placement.mode: Auto`). Nothing is slower across zones here, so that the
completion times show what the labels cost.

    python bench/simulation/zones.py                       # jobs of its own
    python bench/simulation/zones.py --trace FILE.csv      # a week of a trace
"""

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.simulation.matrix import window

from tdcs_labs.run import Result, simulate
from tdcs_labs.scenario import Scenario
from tdcs_labs.trace import TraceJob, read_trace
from tdcs_labs.workload import WorkItem, assign_work

BAR = 0.2
"""The largest part of the bytes across zones that may be left with labels."""


def drawn_jobs(*, count: int, gap: float, seed: int = 5) -> list[TraceJob]:
    """Jobs of four tenants, one about every `gap` seconds, most of them small."""
    draw, now, jobs = random.Random(seed), 0.0, list[TraceJob]()  # noqa: S311  (a simulation, no secret)
    for _ in range(count):
        now += draw.expovariate(1 / gap)
        jobs.append(
            TraceJob(
                submitted=round(now),
                duration=round(draw.lognormvariate(8.5, 1.0)) + 60.0,
                gpus=draw.choice([1, 1, 2, 2, 4, 8, 8, 16]),
                tenant=draw.choice("abcd"),
            )
        )
    return jobs


def applied_before(work: Sequence[WorkItem]) -> list[WorkItem]:
    """The same jobs an hour later, and at the beginning a job of a second for each dataset."""
    first = {item.dataset.name: item for item in work}
    applied = [
        replace(item, job=replace(item.job, submitted=0.0, duration=1.0, gpus=1)) for item in first.values()
    ]
    return applied + [
        replace(item, job=replace(item.job, submitted=item.job.submitted + 3600.0)) for item in work
    ]


def compared(*, work: Sequence[WorkItem], scenario: Scenario) -> dict[str, object]:
    """The figures with labels and without, and how they compare."""
    results = {
        "with": simulate(work=work, scenario=scenario, scheme="tdcs"),
        "without": simulate(work=work, scenario=replace(scenario, knows_zones=False), scheme="tdcs"),
    }

    def figures(result: Result) -> dict[str, float]:
        return {
            "crossZoneBytes": round(result.cross_zone_bytes),
            "remoteBytes": round(result.remote_bytes),
            "localFraction": round(result.local_fraction, 4),
            "meanJctSeconds": round(result.mean_jct, 1),
            "p99JctSeconds": round(result.p99_jct, 1),
        }

    blind = max(results["without"].cross_zone_bytes, 1.0)
    return {
        "zones": scenario.zones,
        "nodes": scenario.nodes,
        "jobs": len(work),
        "crossZoneRatio": round(results["with"].cross_zone_bytes / blind, 4),
        "meanJctRatio": round(results["with"].mean_jct / results["without"].mean_jct, 4),
        "bar": BAR,
        **{name: figures(result) for name, result in results.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", type=Path, help="jobs of a trace; default: jobs that are drawn")
    parser.add_argument("--week", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--gap", type=float, default=300.0, help="seconds between two drawn jobs")
    parser.add_argument("--mix", default="image")
    parser.add_argument("--nodes", type=int, default=48)
    parser.add_argument("--zones", type=int, default=3)
    parser.add_argument("--grows", action="store_true", help="copies grow onto the nodes of their jobs")
    options = parser.parse_args()
    if options.trace is None:
        jobs = drawn_jobs(count=options.jobs, gap=options.gap)
    else:
        jobs = window(jobs=read_trace(path=options.trace), first_week=options.week, weeks=1)[: options.jobs]
    scenario = Scenario(nodes=options.nodes, zones=options.zones, auto_placement=True, grows=options.grows)
    work = applied_before(assign_work(jobs=jobs, mix=options.mix))
    figures = compared(work=work, scenario=scenario)
    print(json.dumps({"bench": "zones", **figures}))
    ratio = figures["crossZoneRatio"]
    return 0 if isinstance(ratio, float) and ratio <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
