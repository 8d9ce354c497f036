"""Orders of transfers: against brute force, and against what the sources print."""

import functools
import itertools
import math
import random
import statistics

import pytest
from tests.support.generators.random_iterations import random_iteration

from tdcs_train.plan.graph import Graph, Layer
from tdcs_train.plan.iteration import Iteration, Operation, Transfer, iteration_of
from tdcs_train.plan.order_plan import plan_order
from tdcs_train.plan.transfer_order import Rule, priorities, transfer_order


def best_seconds(iteration: Iteration) -> float:
    """The least iteration time over all orders."""
    return min(iteration.seconds(order) for order in itertools.permutations(range(len(iteration.transfers))))


def chain_iteration(chooser: random.Random, *, layers: int) -> Iteration:
    """A chain of layers in which some have no parameters, with backward and pushes."""
    named = {"input": _layer("input", 0, 0)}
    for number in range(layers):
        size = 1e8 * chooser.expovariate(1) if number != 1 else 0
        named[f"l{number}"] = _layer(f"l{number}", chooser.expovariate(1), size)
    return iteration_of(Graph(named, tuple(itertools.pairwise(named))), bandwidth=1e8)


def _layer(name: str, seconds: float, parameters: float) -> Layer:
    description = "Input" if name == "input" else "Layer"
    return Layer(
        name=name,
        description=description,
        forward_ms=1000 * seconds,
        backward_ms=2000 * seconds,
        activation_bytes=(0.0,),
        parameter_bytes=parameters,
    )


@functools.cache
def chains() -> list[tuple[Iteration, float]]:
    """Random chains with the seconds of their best order, found by trying all."""
    chooser = random.Random(1)
    iterations = [chain_iteration(chooser, layers=7) for _ in range(50)]
    return [(iteration, best_seconds(iteration)) for iteration in iterations]


@pytest.mark.parametrize("rule", Rule)
def test_on_chains_every_rule_finds_the_optimum(rule: Rule) -> None:
    for iteration, best in chains():
        assert len(iteration.transfers) == 6
        assert iteration.seconds(transfer_order(iteration, rule)) == pytest.approx(best, rel=1e-12)


def test_on_random_graphs_the_planned_order_is_near_the_optimum() -> None:
    chooser = random.Random(2)
    ratios: dict[str, list[float]] = {"planned": [], "random": []}
    for _ in range(200):
        iteration = random_iteration(chooser)
        optimum = best_seconds(iteration)
        ratios["planned"].append(iteration.seconds(transfer_order(iteration, Rule.SEARCHED)) / optimum)
        ratios["random"].append(iteration.seconds(chooser.sample(range(6), 6)) / optimum)
    assert statistics.mean(ratios["planned"]) <= 1.02
    assert sorted(ratios["planned"])[190] <= 1.10
    # The graphs are such that the order matters.
    assert statistics.mean(ratios["random"]) > 1.1


def test_rule_count_takes_the_longest_list_of_dependents_first_and_ties_by_time() -> None:
    operations = (
        Operation("a", 1, (), 0),
        Operation("b", 1, (), 1),
        Operation("c", 1, (1,), None),
        Operation("d", 1, (), 2),
        Operation("e", 1, (0, 2, 3), None),
    )
    iteration = Iteration(operations, (Transfer("0", 3), Transfer("1", 9), Transfer("2", 2)))
    assert priorities(iteration, Rule.COUNT, transfer_order(iteration, Rule.COUNT)) == [2, 3, 2]
    assert transfer_order(iteration, Rule.COUNT) == [1, 2, 0]


def test_rule_timed_weighs_the_computation_set_free_against_the_transfer() -> None:
    # The second sets much computation free and is short; counting cannot tell the two apart.
    operations = (Operation("a", 1, (), 0), Operation("b", 8, (), 1), Operation("end", 1, (0, 1)))
    iteration = Iteration(operations, (Transfer("a", 5), Transfer("b", 5)))
    assert priorities(iteration, Rule.COUNT, [0, 1]) == [2, 2]
    assert transfer_order(iteration, Rule.TIMED) == [1, 0]
    assert iteration.seconds([1, 0]) == 15
    assert iteration.seconds([0, 1]) == 19


def test_an_iteration_pushes_each_gradient_after_its_backward() -> None:
    graph = Graph(
        {"input": _layer("input", 0, 0), "a": _layer("a", 1, 2e8), "b": _layer("b", 1, 1e8)},
        (("input", "a"), ("a", "b")),
    )
    iteration = iteration_of(graph, bandwidth=1e8)
    # 2 for a, then forward a beside 1 for b, forward b, backward b; its push beside backward a, push of a.
    assert iteration.seconds([0, 1]) == pytest.approx(2 + 1 + 1 + 2 + 2 + 2)
    assert iteration.seconds([1, 0]) == pytest.approx(3 + 1 + 1 + 2 + 2 + 2)
    assert iteration.compute_seconds == pytest.approx(6)
    assert iteration.transfer_seconds == pytest.approx(6)


def test_overlap_and_efficiency_are_0_when_all_runs_in_turn_and_1_at_the_bound() -> None:
    graph = Graph(
        {"input": _layer("input", 0, 0), "a": _layer("a", 1, 2e8), "b": _layer("b", 1, 1e8)},
        (("input", "a"), ("a", "b")),
    )
    plan = plan_order(graph, bandwidth=1e8, rule=Rule.SEARCHED, orders=5, seed=0)
    assert plan.overlap(12) == plan.efficiency(12) == 0
    assert plan.overlap(6) == plan.efficiency(6) == 1
    assert plan.overlap(plan.planned_seconds) == pytest.approx((12 - 10) / 6)
    again = plan_order(graph, bandwidth=1e8, rule=Rule.SEARCHED, orders=5, seed=0)
    assert plan.random_seconds == again.random_seconds
    assert math.isclose(plan.random_mean_seconds, statistics.mean(plan.random_seconds))
