"""How near the joint placement of pods and data comes to the optimum. Prints one JSON line.

Random clusters (up to 40 nodes with 4 or 8 GPUs, some of them busy, and caches of different free room) and
batches of up to 30 jobs with one to four pods and shared datasets, of those that fit one after another
(admission lets no others in). The policy is
`tdcs.policy.colocation.plan`; the optimum is that of a mixed-integer program, solved by HiGHS:

    maximise    sum z[p,i]                      bytes that pod p finds on node i
    subject to  z[p,i] <= size[d(p)] n[p,i]     only where the pod is
                z[p,i] <= y[d(p),i]             only what the node holds
                sum_i n[p,i] <= 1,  sum_p gpus[p] n[p,i] <= free[i],  sum_d y[d,i] <= cache[i]

When HiGHS does not prove the optimum within its time, its upper bound takes the optimum's place, so
the printed ratios are never too good.
"""

import argparse
import json
import random
import sys
import time

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from tdcs.policy.colocation import PodNeed, Site, place_pods, plan

BAR = 0.95


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


def optimum(
    *, sites: list[Site], pods: list[PodNeed], sizes: dict[str, float], seconds: float
) -> tuple[float, bool]:
    """The most local bytes there can be, or an upper bound of it; and whether it is proven."""
    names = sorted(sizes)
    n, p, d = len(sites), len(pods), len(names)
    pod_at = np.arange(p * n).reshape(p, n)
    local = pod_at + p * n
    held = np.arange(d * n).reshape(d, n) + 2 * p * n
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    upper: list[float] = []

    def constraint(terms: list[tuple[int, float]], bound: float) -> None:
        for column, value in terms:
            rows.append(len(upper))
            columns.append(column)
            values.append(value)
        upper.append(bound)

    for j, pod in enumerate(pods):
        k, size = names.index(pod.dataset), sizes[pod.dataset]
        constraint([(pod_at[j, i], 1.0) for i in range(n)], 1.0)
        for i in range(n):
            constraint([(local[j, i], 1.0), (pod_at[j, i], -min(size, sites[i].cache_bytes))], 0.0)
            constraint([(local[j, i], 1.0), (held[k, i], -1.0)], 0.0)
    for i, site in enumerate(sites):
        constraint([(pod_at[j, i], float(pod.gpus)) for j, pod in enumerate(pods)], float(site.gpus))
        constraint([(held[k, i], 1.0) for k in range(d)], site.cache_bytes)
    count = 2 * p * n + d * n
    cost = np.zeros(count)
    cost[local.ravel()] = -1.0
    ceiling = np.concatenate(
        [
            np.ones(p * n),
            np.repeat([sizes[pod.dataset] for pod in pods], n),
            np.repeat([sizes[name] for name in names], n),
        ]
    )
    result = milp(
        cost,
        constraints=LinearConstraint(
            coo_array((values, (rows, columns)), (len(upper), count)), ub=np.array(upper)
        ),
        bounds=Bounds(0, ceiling),
        integrality=(np.arange(count) < p * n).astype(int),
        options={"time_limit": seconds, "mip_rel_gap": 1e-4},
    )
    # Everything on its own node is an upper bound too, for the case that HiGHS found none in its time.
    trivial = sum(min(sizes[pod.dataset], max(site.cache_bytes for site in sites)) for pod in pods)
    bound = getattr(result, "mip_dual_bound", None)
    if bound is None:
        return trivial, False
    return min(-float(bound), trivial), result.status == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--instances", type=int, default=500)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0, help="time for HiGHS per instance")
    options = parser.parse_args()
    ratios: list[float] = []
    proven = 0
    spent = 0.0
    for seed in range(options.first_seed, options.first_seed + options.instances):
        sites, pods, sizes = instance(seed=seed)
        began = time.perf_counter()
        reached = plan(sites=sites, pods=pods, sizes=sizes).local_bytes
        spent += time.perf_counter() - began
        best, exact = optimum(sites=sites, pods=pods, sizes=sizes, seconds=options.seconds)
        proven += exact
        ratios.append(reached / best if best > 0 else 1.0)
        if sys.stderr.isatty():
            print(f"\r{len(ratios)} instances, worst {min(ratios):.4f}", end="", file=sys.stderr)
    worst = min(ratios)
    print(
        json.dumps(
            {
                "bench": "placement_optimum",
                "instances": len(ratios),
                "mean": round(sum(ratios) / len(ratios), 5),
                "worst": round(worst, 5),
                "worstSeed": options.first_seed + ratios.index(worst),
                "belowBar": sum(ratio < BAR for ratio in ratios),
                "provenOptimal": proven,
                "policyMillisecondsMean": round(1000 * spent / len(ratios), 3),
                "bar": BAR,
                "passed": sum(ratios) / len(ratios) >= BAR,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
