"""One rule, one place: the simulator calls the policies that the operator calls, and has none of its own."""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Callable

import pytest
from bench.simulation.rule_callers import callers
from tests.unit.labs.conftest import synthetic_jobs

import tdcs.decide
import tdcs_labs
from tdcs.decide.cache import grants, load_order, mount_standing, wants
from tdcs.decide.job import job_time as prediction
from tdcs.decide.place import copy_nodes, node_score, reading_speed
from tdcs.decide.place import slot_nodes as planning_placement
from tdcs.decide.queue import gang_turn
from tdcs_labs import cluster, engine, job
from tdcs_labs.run import simulate
from tdcs_labs.scenario import Scenario
from tdcs_labs.schemes import cache_plan
from tdcs_labs.schemes import tdcs as tdcs_scheme
from tdcs_labs.workload import assign_work


def modules(package: object) -> list[object]:
    return [
        importlib.import_module(module_info.name)
        for module_info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")  # type: ignore[attr-defined]
    ]


def test_the_modules_of_the_simulator_hold_the_policies_themselves() -> None:
    for user, name, rule in (
        (cache_plan, "grant", grants.grant),
        (cache_plan, "standing", mount_standing.standing),
        (cache_plan, "of_dataset", wants.of_dataset),
        (tdcs_scheme, "node_score", node_score),
        (tdcs_scheme, "load_order", load_order),
        (cluster, "gang_turn", gang_turn),
        (engine, "budget", load_order.budget),
        (engine, "limited", reading_speed.limited),
        (job, "estimate", reading_speed.estimate),
        (prediction, "estimate", reading_speed.estimate),
        (prediction, "plan_copy", copy_nodes.plan_copy),
    ):
        assert vars(user)[name] is rule, f"{user.__name__}.{name}"


def test_no_function_of_a_policy_is_defined_again_in_the_simulator() -> None:
    rules = {
        name
        for module in modules(tdcs.decide)
        for name, member in vars(module).items()
        if inspect.isfunction(member) and member.__module__ == module.__name__ and not name.startswith("_")  # type: ignore[attr-defined]
    }
    assert {"plan_copy", "schedule", "choose_copy", "share", "estimate"} <= rules
    functions = {
        (module.__name__, node.name)  # type: ignore[attr-defined]
        for module in modules(tdcs_labs)
        for node in ast.parse(inspect.getsource(module)).body  # type: ignore[arg-type]
        if isinstance(node, ast.FunctionDef)
    }
    assert {name for _, name in functions} & rules <= {"predict"}


def test_a_run_goes_through_each_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    policies = (
        (planning_placement, "plan_copy"),
        (cache_plan, "grant"),
        (cache_plan, "standing"),
        (node_score, "combined_scores"),
        (gang_turn, "schedule"),
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
BY_ENTRY_POINT = {"eviction_order.lrfu"}


#: Rules that only the simulator calls, by the controller that will. What a simulated figure owes to them, a
#: cluster does not get yet.
ONLY_SIMULATED = {
    "load_order.budget": "cache manager: bandwidth of the source",
}


def test_the_rules_that_only_the_simulator_calls_are_the_listed_ones() -> None:
    """The lists name every rule that no controller and not the extender calls, and no other.

    A rule that gains a controller must leave its list, one that loses its last must enter it. What this cannot
    see: whether the line that names a rule is ever run, or whether its answer is used; a rule that is reached
    through another name (``getattr``, a table of functions); and two rules that decide the same under different
    names. It reads the sources for names, so one mention in a part counts as a call of that part.
    """
    callers_by_rule = callers()
    assert {rule for rule, parts in callers_by_rule.items() if not parts} == BY_ENTRY_POINT
    simulated = {rule for rule, parts in callers_by_rule.items() if parts == ["simulator"]}
    assert simulated == ONLY_SIMULATED.keys()


@pytest.mark.parametrize(
    ("rule", "part"),
    [
        ("node_score.combined_scores", "extender"),
        ("node_score.locality", "operator"),
        ("copy_nodes.plan_copy", "operator"),
        ("pod_admission.choose_copy", "operator"),
        ("pod_admission.decide", "operator"),
        ("gang_turn.schedule", "operator"),
        ("nodes_aside.nodes_to_set_aside", "operator"),
        ("worker_count.leaves_first", "operator"),
        ("worker_count.follow_jobs", "operator"),
        ("load_order.share", "operator"),
    ],
)
def test_the_product_decides_by_the_rules_that_are_simulated(rule: str, part: str) -> None:
    assert part in callers()[rule]
