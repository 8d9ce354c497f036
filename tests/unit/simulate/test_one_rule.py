"""One rule, one place: the simulator calls the policies that the operator calls, and has none of its own."""

import ast
import importlib
import inspect
import pkgutil

import pytest
from bench.rule_callers import callers
from tests.unit.simulate.conftest import synthetic_jobs

import tdcs.policy
import tdcs.simulate
from tdcs.policy import admission, allocation, colocation, eviction, placement, preload, scoring, throughput
from tdcs.simulate import cluster, engine, job, predict
from tdcs.simulate.run import simulate
from tdcs.simulate.scenario import Scenario
from tdcs.simulate.schemes import keeper
from tdcs.simulate.schemes import tdcs as tdcs_scheme
from tdcs.simulate.workload import assign_work


def modules(package: object) -> list[object]:
    return [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")  # type: ignore[attr-defined]
    ]


def test_the_modules_of_the_simulator_hold_the_policies_themselves() -> None:
    for user, name, rule in (
        (keeper, "placement", placement),
        (keeper, "eviction", eviction),
        (keeper, "allocation", allocation),
        (keeper, "admission", admission),
        (keeper, "preload", preload),
        (tdcs_scheme, "scoring", scoring),
        (tdcs_scheme, "preload", preload),
        (cluster, "admission", admission),
        (cluster, "colocation", colocation),
        (engine, "fair_level", allocation.fair_level),
        (engine, "budget", preload.budget),
        (engine, "limited", throughput.limited),
        (job, "estimate", throughput.estimate),
        (predict, "estimate", throughput.estimate),
        (predict, "plan_copy", placement.plan_copy),
    ):
        assert vars(user)[name] is rule, f"{user.__name__}.{name}"


def test_no_function_of_a_policy_is_defined_again_in_the_simulator() -> None:
    rules = {
        name
        for module in modules(tdcs.policy)
        for name, found in vars(module).items()
        if inspect.isfunction(found) and found.__module__ == module.__name__ and not name.startswith("_")  # type: ignore[attr-defined]
    }
    assert {"plan_copy", "next_to_enter", "choose", "share", "estimate"} <= rules
    own = {
        (module.__name__, node.name)  # type: ignore[attr-defined]
        for module in modules(tdcs.simulate)
        for node in ast.parse(inspect.getsource(module)).body  # type: ignore[arg-type]
        if isinstance(node, ast.FunctionDef)
    }
    assert {name for _, name in own} & rules <= {"predict"}


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (placement, "plan_copy"),
        (placement, "node_bytes"),
        (placement, "serving_nodes"),
        (scoring, "node_scores"),
        (admission, "next_to_enter"),
        (admission, "choose_copy"),
        (eviction, "choose"),
        (preload, "what_fits"),
        (allocation, "allocate_cache"),
        (colocation, "place_pods"),
    ],
)
def test_a_run_goes_through_each_policy(monkeypatch: pytest.MonkeyPatch, module: object, name: str) -> None:
    calls = 0
    real = getattr(module, name)

    def counted(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        return real(*args, **kwargs)

    monkeypatch.setattr(module, name, counted)
    # A cache so small that datasets must leave, and many jobs on few nodes.
    scenario = Scenario(nodes=8, cache_bytes=60e9)
    simulate(work=assign_work(jobs=synthetic_jobs(count=120)), scenario=scenario, scheme="tdcs")
    assert calls > 0


#: Rules whose controllers are still to come: their tests and the page of the simulator are all that use them.
WITHOUT_CALLER = {
    "allocation.allocate",
    "allocation.water_fill",
    "colocation.plan",
    "eviction.due",
    "local_search.improve",
    "local_search.insert",
    "local_search.rearrange",
    "scaling.desired_replicas",
    "scaling.drain_plan",
    "scaling.leaves_first",
    "scaling.loss",
}


def test_a_rule_that_no_part_of_the_product_calls_is_a_known_one() -> None:
    found = callers()
    assert found.keys() >= WITHOUT_CALLER
    assert {rule for rule, parts in found.items() if not parts} <= WITHOUT_CALLER


@pytest.mark.parametrize(
    ("rule", "part"),
    [
        ("scoring.node_scores", "extender"),
        ("scoring.locality", "operator"),
        ("placement.plan_copy", "operator"),
        ("placement.assign_blocks", "operator"),
        ("admission.decide", "operator"),
        ("admission.next_to_enter", "operator"),
        ("admission.nodes_to_set_aside", "operator"),
    ],
)
def test_the_product_decides_by_the_rules_that_are_simulated(rule: str, part: str) -> None:
    assert part in callers()[rule]


def test_a_rule_of_one_name_is_written_once() -> None:
    names = [name.split(".")[-1] for name in callers()]
    assert len(names) == len(set(names))
