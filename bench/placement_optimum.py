"""How near the joint placement of pods and data comes to the optimum. Prints one JSON line.

Random clusters (up to 40 nodes with 4 or 8 GPUs, some of them busy, and caches of different free room) and
batches of up to 30 jobs with one to four pods and shared datasets, of those that fit one after another
(admission lets no others in). The policy is
`tdcs.policy.colocation.plan`; the optimum is that of a mixed-integer program, solved by HiGHS:

    maximise    sum z[g,i,k]                       bytes that the k-th pod of kind g finds on node i
    subject to  z[g,i,k] <= size[d(g)] b[g,i,k]    only where there is a k-th pod
                z[g,i,k] <= y[d(g),i]              only what the node holds
                sum_{i,k} b[g,i,k] <= pods[g]
                sum_{g,k} gpus[g] b[g,i,k] <= free[i],   sum_d y[d,i] <= cache[i]
    and, which  b[g,i,k+1] <= b[g,i,k]
    follows,    sum_{g of d, k} gpus[g] z[g,i,k] <= free[i] y[d,i]

Pods that read the same dataset with the same GPUs are one kind: which of them is where makes no difference,
and a solver that has to find that out proves little. Where HiGHS does not prove the optimum (to 0.1 %)
within its time, its upper bound takes the optimum's place, so the printed ratios are never too good.
With --results an interrupted run goes on where it stopped.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from tdcs.policy.colocation import PodNeed, Site, place_pods, plan

BAR = 0.95
#: How many times as long HiGHS may take where its bound leaves the bar in doubt.
LONGER = 20
#: HiGHS may stop when it is this near to its optimum.
GAP = 1e-3


def instance(*, seed: int) -> tuple[list[Site], list[PodNeed], dict[str, float]]:
    """A random cluster and batch; sizes in GB. The whole range of sizes is drawn, small and large alike."""
    draw = random.Random(seed)  # noqa: S311  (an experiment, no secret)
    sites = [
        Site(
            name=f"n{i:02}",
            gpus=draw.choice([4, 8]) - draw.choice([0, 0, 1, 2]),
            cache_bytes=draw.uniform(50, 600),
        )
        for i in range(draw.randint(2, 40))
    ]
    jobs = draw.randint(2, 30)
    sizes = {f"d{i:02}": draw.uniform(20, 500) for i in range(draw.randint(1, jobs))}
    free = {site.name: site.gpus for site in sites}
    pods: list[PodNeed] = []
    for job in range(jobs):
        dataset, gpus = draw.choice(sorted(sizes)), draw.choice([1, 1, 1, 2, 4, 8])
        gang = [gpus] * draw.choice([1, 1, 1, 2, 4])
        # As in the operator: a job is there to be placed only when admission found that its gang fits.
        nodes = place_pods(pods=gang, free_gpus=free, scores={})
        if nodes is None:
            continue
        for pod, node in enumerate(nodes):
            free[node] -= gpus
            pods.append(PodNeed(name=f"j{job:02}-{pod}", gpus=gpus, dataset=dataset))
    return sites, pods, sizes


class Program:
    """A mixed-integer program under construction: columns with a ceiling and a worth, rows with an upper bound."""

    def __init__(self) -> None:
        self.ceilings: list[float] = []
        self.worths: list[float] = []
        self.whole: list[int] = []
        self.bounds: list[float] = []
        self.entries: tuple[list[float], list[int], list[int]] = ([], [], [])

    def column(self, *, ceiling: float, worth: float = 0.0, whole: bool = False) -> int:
        self.ceilings.append(ceiling)
        self.worths.append(worth)
        self.whole.append(int(whole))
        return len(self.ceilings) - 1

    def row(self, terms: list[tuple[int, float]], *, bound: float = 0.0) -> None:
        values, rows, columns = self.entries
        for column, value in terms:
            values.append(value)
            rows.append(len(self.bounds))
            columns.append(column)
        self.bounds.append(bound)

    def solve(self, *, seconds: float) -> tuple[float | None, bool]:
        """An upper bound of the largest worth, None when there is none yet; and whether it is reached."""
        values, rows, columns = self.entries
        matrix = coo_array((values, (rows, columns)), (len(self.bounds), len(self.ceilings)))
        result = milp(
            -np.array(self.worths),
            constraints=LinearConstraint(matrix, ub=np.array(self.bounds)),
            bounds=Bounds(0, np.array(self.ceilings)),
            integrality=np.array(self.whole),
            options={"time_limit": seconds, "mip_rel_gap": GAP},
        )
        bound = getattr(result, "mip_dual_bound", None)
        return (None if bound is None else -float(bound)), result.status == 0


def optimum(
    *, sites: list[Site], pods: list[PodNeed], sizes: dict[str, float], seconds: float
) -> tuple[float, bool]:
    """The most local bytes there can be, or an upper bound of it; and whether it is proven."""
    program = Program()
    kinds = Counter((pod.dataset, pod.gpus) for pod in pods)
    held = {
        (name, site.name): program.column(ceiling=min(sizes[name], site.cache_bytes))
        for name in {name for name, _ in kinds}
        for site in sites
    }
    places: dict[tuple[str, int], list[int]] = {kind: [] for kind in kinds}
    for site in sites:
        gpus_used: list[tuple[int, float]] = []
        shared: dict[str, list[tuple[int, float]]] = {}
        for (name, gpus), count in sorted(kinds.items()):
            most = min(sizes[name], site.cache_bytes)
            before: int | None = None
            for _ in range(min(count, site.gpus // gpus)):
                there = program.column(ceiling=1.0, whole=True)
                found = program.column(ceiling=most, worth=1.0)
                program.row([(found, 1.0), (there, -most)])
                program.row([(found, 1.0), (held[name, site.name], -1.0)])
                if before is not None:
                    program.row([(there, 1.0), (before, -1.0)])
                before = there
                places[name, gpus].append(there)
                gpus_used.append((there, float(gpus)))
                shared.setdefault(name, []).append((found, float(gpus)))
        program.row(gpus_used, bound=float(site.gpus))
        program.row(
            [(column, 1.0) for (_, node), column in held.items() if node == site.name], bound=site.cache_bytes
        )
        for name, terms in shared.items():
            program.row([*terms, (held[name, site.name], -float(site.gpus))])
    for kind, columns in places.items():
        program.row([(column, 1.0) for column in columns], bound=float(kinds[kind]))
    # Everything on its own node is an upper bound too, for the case that HiGHS found none in its time.
    trivial = sum(min(sizes[pod.dataset], max(site.cache_bytes for site in sites)) for pod in pods)
    bound, proven = program.solve(seconds=seconds)
    return (trivial, False) if bound is None else (min(bound, trivial), proven)


def measure(*, seed: int, seconds: float) -> dict[str, object]:
    """One instance: what the policy reaches of the optimum."""
    sites, pods, sizes = instance(seed=seed)
    began = time.process_time()
    reached = plan(sites=sites, pods=pods, sizes=sizes).local_bytes
    spent = time.process_time() - began
    best, proven = optimum(sites=sites, pods=pods, sizes=sizes, seconds=seconds)
    if not proven and reached < BAR * best:
        # Near the bar it matters whether the policy is that far off or only the solver's bound.
        best, proven = optimum(sites=sites, pods=pods, sizes=sizes, seconds=LONGER * seconds)
    # The bound is exact to HiGHS's gap and its tolerances only.
    ratio = min(reached / best, 1.0) if best > 0 else 1.0
    proven = proven or ratio >= 1.0 - GAP
    return {"seed": seed, "ratio": ratio, "proven": proven, "policySeconds": spent, "pods": len(pods)}


def summary(rows: list[dict[str, object]]) -> dict[str, object]:
    """The bar as one JSON line."""
    ratios = {int(str(row["seed"])): float(str(row["ratio"])) for row in rows}
    proven = [float(str(row["ratio"])) for row in rows if row["proven"]]
    worst = min(ratios, key=lambda seed: ratios[seed])
    spent = [float(str(row["policySeconds"])) for row in rows]
    mean = sum(ratios.values()) / len(ratios)
    return {
        "bench": "placement_optimum",
        "instances": len(ratios),
        "mean": round(mean, 5),
        "worst": round(ratios[worst], 5),
        "worstSeed": worst,
        "belowBar": sum(ratio < BAR for ratio in ratios.values()),
        "shareAtBar": round(sum(ratio >= BAR for ratio in ratios.values()) / len(ratios), 4),
        "provenOptimal": len(proven),
        "meanOfProven": round(sum(proven) / max(len(proven), 1), 5),
        "worstOfProven": round(min(proven, default=1.0), 5),
        "policyMillisecondsMean": round(1000 * sum(spent) / len(spent), 1),
        "bar": BAR,
        "passed": mean >= BAR,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--instances", type=int, default=500)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0, help="time for HiGHS per instance")
    parser.add_argument("--results", type=Path, help="JSON Lines: keep what is there, add what is not")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.instances)
    rows = [row for row in read_rows(options.results) if row["seed"] in seeds]
    for seed in seeds:
        if any(row["seed"] == seed for row in rows):
            continue
        rows.append(measure(seed=seed, seconds=options.seconds))
        if options.results is not None:
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
        if sys.stderr.isatty():
            print(f"\r{json.dumps(summary(rows))}", end="", file=sys.stderr)
    print(json.dumps(summary(rows)))
    return 0


def read_rows(path: Path | None) -> list[dict[str, object]]:
    """The instances that were measured already."""
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    sys.exit(main())
