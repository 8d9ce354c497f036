"""What it is worth that copies grow onto the nodes of their jobs: simulated, next to the same without, and the bound.

The owners of the datasets leave the number of nodes to the operator (`spec.placement.mode: Auto`). Prints one JSON
line: the mean completion time and the part of the bytes that jobs read from their own nodes, of both and of the bounds,
and how much of the gap between today's and its bound is closed. `bound` has every byte on the nodes of its job before
it starts; `boundNear`, which is that of locality, no more of them than a node's cache can hold
(`tdcs_labs.schemes.upper_bound`).
`knownEnds` is the same where the queue knows when running jobs end, so that jobs may wait for a place at their data.

`--most-bytes` leaves datasets out that are larger, for no node's cache holds them; `--jobs` takes the first jobs only.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from bench.simulation.matrix import window

from tdcs_labs.run import Result, simulate
from tdcs_labs.scenario import GBIT, Scenario
from tdcs_labs.trace import read_trace
from tdcs_labs.workload import assign_work


def gap_closed(*, before: float, after: float, bound: float) -> float | None:
    """The part of the gap between two values and a bound that the second one closes; None where there is no gap."""
    return None if abs(bound - before) < 1e-9 else round((after - before) / (bound - before), 4)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--week", type=int, default=4)
    parser.add_argument("--jobs", type=int, help="only so many jobs of the week")
    parser.add_argument("--mix", default="language")
    parser.add_argument("--nic-gbit", type=float, default=10.0)
    parser.add_argument("--cache-bytes", type=float, default=2e12, help="of each node")
    parser.add_argument("--most-bytes", type=float, help="datasets that are larger are left out")
    options = parser.parse_args()
    jobs = window(jobs=read_trace(path=options.trace), first_week=options.week, weeks=1)
    work = assign_work(jobs=jobs[: options.jobs], mix=options.mix)
    if options.most_bytes is not None:
        work = [item for item in work if item.dataset.size_bytes <= options.most_bytes]
    scenario = Scenario(
        nic_rate=options.nic_gbit * GBIT, cache_bytes=options.cache_bytes, auto_placement=True
    )
    before = simulate(work=work, scenario=scenario, scheme="tdcs")
    after = simulate(work=work, scenario=replace(scenario, grows=True), scheme="tdcs")
    waits = simulate(work=work, scenario=replace(scenario, grows=True, known_ends=True), scheme="tdcs")
    bound = simulate(work=work, scenario=scenario, scheme="oracle")
    near = simulate(work=work, scenario=scenario, scheme="oracle-near")

    def figures(result: Result) -> dict[str, float]:
        return {
            "meanJctSeconds": round(result.mean_jct, 1),
            "localFraction": round(result.local_fraction, 4),
            "remoteBytes": result.remote_bytes,
            "gpuIdleFraction": round(result.gpu_idle_fraction, 4),
        }

    print(
        json.dumps(
            {
                "bench": "simulation_meeting",
                "jobs": len(work),
                "before": figures(before),
                "after": figures(after),
                "knownEnds": figures(waits),
                "bound": figures(bound),
                "boundNear": figures(near),
                "localityGapClosed": gap_closed(
                    before=before.local_fraction, after=after.local_fraction, bound=near.local_fraction
                ),
                "completionGapClosed": gap_closed(
                    before=before.mean_jct, after=after.mean_jct, bound=bound.mean_jct
                ),
                "knownEndsLocalityGapClosed": gap_closed(
                    before=before.local_fraction, after=waits.local_fraction, bound=near.local_fraction
                ),
                "knownEndsCompletionGapClosed": gap_closed(
                    before=before.mean_jct, after=waits.mean_jct, bound=bound.mean_jct
                ),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
