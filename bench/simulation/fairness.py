"""What taking turns is worth to teams: two weeks of a trace by the queue's order of shares, besides priority and age.

Teams are the values of the trace's column `cluster`. Prints one JSON line: of both orders the mean completion time,
Jain's index of the teams' slowdowns, and the worst of them; and whether the bar holds: a mean at most 2 % worse,
and a worst slowdown of at most half. The two weeks are the trace's last, by which no parameter of the queue was chosen.
From the root of the checkout::

    PYTHONPATH=.:operator:labs python -m bench.simulation.fairness --trace philly.csv
"""

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bench.simulation.matrix import window

from tdcs_labs.run import SCHEMES, Result, simulate
from tdcs_labs.scenario import Scenario
from tdcs_labs.trace import read_trace
from tdcs_labs.workload import MIXES, WorkItem, assign_work

LAST_WEEKS = 7
"""The first of the last two weeks of the trace, counted from 0."""

MEAN_BAR = 1.02
"""So many times as long as by priority and age jobs may take in the mean."""

WORST_BAR = 0.5
"""So many times as large as by priority and age the worst slowdown of a team may be."""

ORDERS = {"priority": False, "fair-share": True}


def run(order: str, work: Sequence[WorkItem], scheme: str) -> Result:
    """Simulate the jobs with the queue in this order."""
    return simulate(work=work, scenario=Scenario(fair_share=ORDERS[order]), scheme=scheme)


def figures(result: Result) -> dict[str, object]:
    """What is compared of a run."""
    return {
        "meanJctSeconds": round(result.mean_jct),
        "p99JctSeconds": round(result.p99_jct),
        **result.fairness(),
        "slowdowns": {tenant: round(value, 2) for tenant, value in sorted(result.slowdowns.items())},
    }


def comparison(*, priority: Result, fair: Result) -> dict[str, object]:
    """How many times as long jobs take by shares, how many times as large the worst slowdown is, and whether both are
    within their bars."""
    mean = fair.mean_jct / priority.mean_jct
    worst = fair.fairness()["worstSlowdown"] / priority.fairness()["worstSlowdown"]
    return {
        "meanRatio": round(mean, 3),
        "worstSlowdownRatio": round(worst, 3),
        "holds": mean <= MEAN_BAR and worst <= WORST_BAR,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--week", type=int, default=LAST_WEEKS, help="the first of the weeks, from 0")
    parser.add_argument("--weeks", type=int, default=2)
    parser.add_argument("--scheme", choices=list(SCHEMES), default="tdcs")
    parser.add_argument("--mix", choices=list(MIXES), default="image")
    options = parser.parse_args()
    jobs = window(jobs=read_trace(path=options.trace), first_week=options.week, weeks=options.weeks)
    work = assign_work(jobs=jobs, mix=options.mix)
    with ProcessPoolExecutor(max_workers=len(ORDERS)) as pool:
        running = {order: pool.submit(run, order, work, options.scheme) for order in ORDERS}
        results = {order: future.result() for order, future in running.items()}
    compared = comparison(priority=results["priority"], fair=results["fair-share"])
    line = {
        "bench": "simulation_fairness",
        "week": options.week,
        "weeks": options.weeks,
        "scheme": options.scheme,
        "jobs": len(work),
        "tenants": len(results["priority"].slowdowns),
        **{order: figures(result) for order, result in results.items()},
        **compared,
    }
    print(json.dumps(line))
    return 0 if compared["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
