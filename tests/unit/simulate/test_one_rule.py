"""One rule, one place: the simulator calls the policies that the operator calls, and has none of its own."""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Callable

import pytest
from bench.simulation.rule_callers import callers
from tests.unit.simulate.conftest import synthetic_jobs

import tdcs.policy
import tdcs.simulate
from tdcs.planning import grants, standing, wants
from tdcs.planning import placement as planning_placement
from tdcs.policy import admission, allocation, placement, preload, scoring, throughput
from tdcs.simulate import cluster, engine, job, predict
from tdcs.simulate.run import simulate
from tdcs.simulate.scenario import Scenario
from tdcs.simulate.schemes import cache_plan
from tdcs.simulate.schemes import tdcs as tdcs_scheme
from tdcs.simulate.workload import assign_work


def modules(package: object) -> list[object]:
    return [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")  # type: ignore[attr-defined]
    ]


def test_the_modules_of_the_simulator_hold_the_policies_themselves() -> None:
    for user, name, rule in (
        (cache_plan, "grant", grants.grant),
        (cache_plan, "standing", standing.standing),
        (cache_plan, "of_dataset", wants.of_dataset),
        (tdcs_scheme, "allocation", allocation),
        (tdcs_scheme, "scoring", scoring),
        (tdcs_scheme, "preload", preload),
        (cluster, "admission", admission),
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
    assert {"plan_copy", "next_to_admit", "choose_copy", "share", "estimate"} <= rules
    own = {
        (module.__name__, node.name)  # type: ignore[attr-defined]
        for module in modules(tdcs.simulate)
        for node in ast.parse(inspect.getsource(module)).body  # type: ignore[arg-type]
        if isinstance(node, ast.FunctionDef)
    }
    assert {name for _, name in own} & rules <= {"predict"}


def test_a_run_goes_through_each_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    policies = (
        (planning_placement, "plan_copy"),
        (cache_plan, "grant"),
        (cache_plan, "standing"),
        (scoring, "node_scores"),
        (admission, "next_to_admit"),
        (engine, "share_loading"),
    )
    called: set[str] = set()

    def noting(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def noted(*args: object, **kwargs: object) -> object:
            called.add(name)
            return real(*args, **kwargs)

        return noted

    for module, name in policies:
        monkeypatch.setattr(module, name, noting(name, getattr(module, name)))
    # A cache so small that datasets must leave, and many jobs on few nodes.
    scenario = Scenario(nodes=8, cache_bytes=60e9)
    simulate(work=assign_work(jobs=synthetic_jobs(count=120)), scenario=scenario, scheme="tdcs")
    assert called == {name for _, name in policies}


#: Rules that are found by an entry point, and not by their names.
BY_ENTRY_POINT = {"eviction.lrfu"}

#: With what tests write and read bitmaps of slots.
OF_TESTS = {"slots.bitmap", "slots.members", "slots.partition"}

#: Rules that only the simulator calls, by the controller that will. What a simulated figure owes to them, a
#: cluster does not get yet.
ONLY_SIMULATED = {
    "preload.budget": "cache manager: bandwidth of the source",
}

#: The model of a job's speed decides nothing: it is for the simulator and for `tdcs predict` alone.
MODEL = {
    "throughput.estimate",
    "throughput.limited",
    "throughput.lru_hit_ratio",
    "throughput.no_evict_hit_ratio",
    "throughput.page_cache_hit_ratio",
}


def test_the_rules_that_only_the_simulator_calls_are_the_listed_ones() -> None:
    """Both lists name every rule that no controller and not the extender calls, and no other.

    A rule that gains a controller must leave its list, one that loses its last must enter it. What this cannot
    see: whether the line that names a rule is ever run, or whether its answer is used; a rule that is reached
    through another name (``getattr``, a table of functions); and two rules that decide the same under different
    names. It reads the sources for names, so one mention in a part counts as a call of that part.
    """
    found = callers()
    assert {rule for rule, parts in found.items() if not parts} == OF_TESTS | BY_ENTRY_POINT
    simulated = {rule for rule, parts in found.items() if parts == ["simulator"]}
    assert simulated == ONLY_SIMULATED.keys() | MODEL


@pytest.mark.parametrize(
    ("rule", "part"),
    [
        ("scoring.combined_scores", "extender"),
        ("scoring.locality", "operator"),
        ("placement.plan_copy", "operator"),
        ("slots.owners", "operator"),
        ("admission.choose_copy", "operator"),
        ("admission.decide", "operator"),
        ("admission.next_to_admit", "operator"),
        ("admission.nodes_to_set_aside", "operator"),
        ("scaling.leaves_first", "operator"),
        ("scaling.follow_jobs", "operator"),
        ("preload.share", "operator"),
    ],
)
def test_the_product_decides_by_the_rules_that_are_simulated(rule: str, part: str) -> None:
    assert part in callers()[rule]


def test_a_rule_of_one_name_is_written_once() -> None:
    names = [name.split(".")[-1] for name in callers()]
    assert len(names) == len(set(names))
