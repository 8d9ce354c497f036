"""Orders of transfers in the simulation: against the optimum on random graphs, and on published profiles.

    python -m bench.training.orders --profiles ../shared/data/pipedream

Writes results/orders.jsonl. The graphs have 7 to 13 operations, 6 of which receive parameters; the optimum is the best
of all 720 orders.
"""

import argparse
import itertools
import random
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.training.records import keep
from tests.support.generators.random_iterations import random_iteration

from tdcs_train.plan.iteration import Iteration
from tdcs_train.plan.order_plan import plan_order
from tdcs_train.plan.profile_text import parse
from tdcs_train.plan.transfer_order import Rule, transfer_order

GRAPHS = 200
BANDWIDTHS = (1.25e7, 1.25e8, 1.25e9, 1.25e10)


def ratios() -> list[dict[str, Any]]:
    """Iteration time over the optimum, by rule."""
    shuffler = random.Random(1)  # noqa: S311  (an experiment, no secret)
    orders: dict[str, Callable[[Iteration], list[int]]] = {
        rule.value: partial(transfer_order, rule=rule) for rule in Rule
    }
    orders["random"] = lambda iteration: shuffler.sample(range(6), 6)
    by_order: dict[str, list[float]] = {name: [] for name in orders}
    chooser = random.Random(2)  # noqa: S311  (an experiment, no secret)
    for _ in range(GRAPHS):
        iteration = random_iteration(chooser)
        best = min(iteration.seconds(order) for order in itertools.permutations(range(6)))
        for name, order in orders.items():
            by_order[name].append(iteration.seconds(order(iteration)) / best)
    return [
        {
            "what": f"{GRAPHS} random graphs",
            "order": name,
            "mean over optimum": round(statistics.mean(values), 4),
            "p95 over optimum": round(sorted(values)[GRAPHS * 95 // 100], 4),
        }
        for name, values in by_order.items()
    ]


def main() -> None:
    """Both parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profiles", type=Path, required=True)
    folder = parser.parse_args().profiles
    rows = ratios()
    for name, bandwidth in itertools.product(("vgg16", "alexnet", "resnet50", "gnmt"), BANDWIDTHS):
        graph = parse((folder / f"{name}.txt").read_text(), source=name)
        plan = plan_order(graph, bandwidth=bandwidth, rule=Rule.SEARCHED, orders=50, seed=0)
        rows.append(
            {
                "what": name,
                "Mbit/s": round(bandwidth * 8e-6),
                "transfers over computation": round(
                    plan.iteration.transfer_seconds / plan.iteration.compute_seconds, 2
                ),
                "iteration over random": round(plan.planned_seconds / plan.random_mean_seconds, 4),
                "efficiency": round(plan.efficiency(plan.planned_seconds), 3),
                "efficiency random": round(plan.efficiency(plan.random_mean_seconds), 3),
            }
        )
    keep("orders", rows)


if __name__ == "__main__":
    main()
