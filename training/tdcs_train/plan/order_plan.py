"""Transfer priorities of a model, with the iteration time that they promise in the simulation."""

import math
from dataclasses import dataclass
from typing import Any

import numpy

from tdcs_train.plan.graph import Graph
from tdcs_train.plan.iteration import Iteration, iteration_of
from tdcs_train.plan.transfer_order import Rule, priorities, transfer_order


@dataclass(frozen=True, kw_only=True)
class OrderPlan:
    """An order of transfers beside a random one, as frameworks have it."""

    graph: Graph
    iteration: Iteration
    rule: Rule
    priorities: tuple[int, ...]
    """By transfer; larger goes first."""
    order: tuple[int, ...]
    planned_seconds: float
    random_seconds: tuple[float, ...]
    """Iterations in seeded random orders."""
    rule_seconds: dict[str, float]
    """The iteration by each rule."""

    @property
    def random_mean_seconds(self) -> float:
        """The mean of the random orders."""
        return math.fsum(self.random_seconds) / len(self.random_seconds)

    def overlap(self, seconds: float) -> float:
        """The part of the shorter of computation and communication that hides behind the longer one."""
        parts = (self.iteration.compute_seconds, self.iteration.transfer_seconds)
        return (sum(parts) - seconds) / min(parts) if min(parts) else 1.0

    def efficiency(self, seconds: float) -> float:
        """0 when all runs in turn, 1 when the busiest resource never waits (TicTac's scheduling efficiency)."""
        parts = (self.iteration.compute_seconds, self.iteration.transfer_seconds)
        return (sum(parts) - seconds) / (sum(parts) - max(parts)) if min(parts) else 1.0


def plan_order(graph: Graph, *, bandwidth: float, rule: Rule, orders: int, seed: int) -> OrderPlan:
    """Priorities by a rule, simulated beside `orders` random orders over a link of `bandwidth` bytes a second."""
    iteration = iteration_of(graph, bandwidth=bandwidth)
    by_rule = {candidate: transfer_order(iteration, candidate) for candidate in Rule}
    generator = numpy.random.default_rng(seed)
    random = [generator.permutation(len(iteration.transfers)).tolist() for _ in range(orders)]
    return OrderPlan(
        graph=graph,
        iteration=iteration,
        rule=rule,
        priorities=tuple(priorities(iteration, rule, by_rule[rule])),
        order=tuple(by_rule[rule]),
        planned_seconds=iteration.seconds(by_rule[rule]),
        random_seconds=tuple(iteration.seconds(sequence) for sequence in random),
        rule_seconds={sequence.value: iteration.seconds(order) for sequence, order in by_rule.items()},
    )


def document(plan: OrderPlan) -> dict[str, Any]:
    """The order as one JSON document; `transfers` are in the order in which they should travel."""
    compute, transfer = plan.iteration.compute_seconds, plan.iteration.transfer_seconds
    return {
        "rule": plan.rule.value,
        "transfers": [
            {
                "node": plan.iteration.transfers[number].layer,
                "description": plan.graph.layers[plan.iteration.transfers[number].layer].description,
                "parameterBytes": plan.graph.layers[plan.iteration.transfers[number].layer].parameter_bytes,
                "seconds": plan.iteration.transfers[number].seconds,
                "priority": plan.priorities[number],
            }
            for number in plan.order
        ],
        "computeSeconds": compute,
        "transferSeconds": transfer,
        "ratio": transfer / compute if compute else None,
        "plannedSeconds": plan.planned_seconds,
        "randomSeconds": plan.random_mean_seconds,
        "randomOrders": len(plan.random_seconds),
        "plannedVsRandom": plan.planned_seconds / plan.random_mean_seconds,
        "overlap": {
            "planned": plan.overlap(plan.planned_seconds),
            "random": plan.overlap(plan.random_mean_seconds),
        },
        "efficiency": {
            "planned": plan.efficiency(plan.planned_seconds),
            "random": plan.efficiency(plan.random_mean_seconds),
        },
        "secondsByRule": plan.rule_seconds,
    }
