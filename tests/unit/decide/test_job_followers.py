"""Cache workers that follow the pods that read."""

from typing import Any

import pytest

from tdcs.api.cachecluster import CacheClusterSpec, CacheWorker, Scaling
from tdcs.decide.job_followers import Chosen, Seen, choose, follows, idle_since_of, needs_holdings, off
from tdcs.decide.leaving_workers import ScaleInInput

NOW = "2026-01-01T01:00:00Z"
LONG_AGO, JUST_NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:59:00Z"


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "spec": {}}


def chosen_of(
    *,
    present: str = "",
    readers: str = "",
    idle: dict[str, str] | None = None,
    needed: int | None = 0,
    nodes: str = "abcd",
    draining: str = "",
    selector: dict[str, str] | None = None,
    **scaling: Any,
) -> Chosen:
    """The choice among nodes, of which each has a label `node` with its name."""
    spec = CacheClusterSpec.model_validate(
        {"scaling": {"followJobs": True, **scaling}, **({"nodeSelector": selector} if selector else {})}
    )
    observed = Seen(
        nodes={name: node(name, node=name) for name in nodes},
        present=frozenset(present),
        readers=frozenset(readers),
        idle_since=idle or {},
        needed_bytes=needed,
        worker_bytes=100,
        now=NOW,
    )
    return choose(spec=spec, observed=observed, holdings=ScaleInInput(draining=frozenset(draining)))


def test_a_node_with_readers_has_a_worker() -> None:
    chosen = chosen_of(readers="bc")
    assert (chosen.nodes, chosen.alongside) == (("b", "c"), 2)
    assert not chosen.idle_since


def test_without_readers_there_is_the_minimum() -> None:
    assert len(chosen_of().nodes) == 1
    assert len(chosen_of(minReplicas=3).nodes) == 3
    assert len(chosen_of(minReplicas=9).nodes) == 4


@pytest.mark.parametrize(("needed", "count"), [(0, 1), (100, 1), (101, 2), (400, 4), (9999, 4)])
def test_there_are_as_many_workers_as_the_data_takes(needed: int, count: int) -> None:
    assert len(chosen_of(needed=needed).nodes) == count


def test_a_worker_that_nothing_calls_for_stays_for_the_delay() -> None:
    begins = chosen_of(present="ab", readers="a")
    assert (begins.nodes, begins.idle_since) == (("a", "b"), {"b": NOW})
    waits = chosen_of(present="ab", readers="a", idle={"b": JUST_NOW})
    assert (waits.nodes, waits.idle_since) == (("a", "b"), {"b": JUST_NOW})
    assert chosen_of(present="ab", readers="a", idle={"b": LONG_AGO}).nodes == ("a",)
    assert chosen_of(present="ab", readers="a", idle={"b": LONG_AGO}, scaleDownDelay="2h").nodes == ("a", "b")


def test_no_worker_leaves_while_the_size_of_the_data_is_unknown() -> None:
    assert chosen_of(present="ab", readers="a", idle={"b": LONG_AGO}, needed=None).nodes == ("a", "b")


def test_nodes_beyond_the_maximum_are_named() -> None:
    chosen = chosen_of(readers="abc", maxReplicas=2)
    assert len(chosen.nodes) == 2
    assert len(chosen.left_out) == 1
    assert {*chosen.nodes, *chosen.left_out} == {"a", "b", "c"}


def test_readers_on_nodes_that_may_have_no_worker_are_named_if_the_node_exists() -> None:
    chosen = chosen_of(readers="bz", selector={"node": "a"})
    assert (chosen.nodes, chosen.unfit, chosen.alongside) == (("a",), ("b",), 0)


@pytest.mark.parametrize(
    ("nodes", "idle", "expected"),
    [
        pytest.param("ab", {}, False, id="nothing changes"),
        pytest.param("abc", {}, False, id="one comes"),
        pytest.param("ab", {"b": JUST_NOW}, False, id="one is spare as before"),
        pytest.param("ab", {"a": NOW}, True, id="one becomes spare"),
        pytest.param("a", {}, True, id="one leaves"),
        pytest.param("", {}, True, id="all leave"),
    ],
)
def test_where_the_data_is_matters_only_when_a_worker_leaves_or_becomes_spare(
    nodes: str, idle: dict[str, str], expected: bool
) -> None:
    chosen = Chosen(nodes=tuple(nodes), idle_since=idle, left_out=(), unfit=(), alongside=0)
    observed = Seen(
        nodes={},
        present=frozenset("ab"),
        readers=frozenset(),
        idle_since={"b": JUST_NOW},
        needed_bytes=0,
        worker_bytes=100,
        now=NOW,
    )
    assert needs_holdings(chosen, observed) is expected


def test_the_status_says_which_workers_were_spare() -> None:
    workers = [CacheWorker(node="a", state="Ready"), CacheWorker(node="b", state="Ready", idle_since=NOW)]
    assert idle_since_of(workers) == {"b": NOW}
    assert idle_since_of([]) == {}


def said(chosen: Chosen, **scaling: Any) -> tuple[str, str, str]:
    condition = follows(chosen, limits=Scaling.model_validate(scaling))
    assert condition.type == "FollowsJobs"
    return condition.status, condition.reason, condition.message


def test_the_condition_counts_the_workers_by_what_calls_for_them() -> None:
    assert said(chosen_of(readers="a")) == ("True", "Following", "1 worker next to pods that read")
    three = said(chosen_of(readers="ab", minReplicas=3))
    assert three[2] == "2 workers next to pods that read, 1 for the minimum or for the size of the data"
    spare = said(chosen_of(present="ab", readers="a"))
    assert spare[2].endswith("; 1 spare, which leave after 10m (spec.scaling.scaleDownDelay)")
    assert "after 2h (" in said(chosen_of(present="ab", readers="a"), scaleDownDelay="2h")[2]


def test_the_condition_is_false_where_readers_have_no_worker() -> None:
    at_maximum = said(chosen_of(readers="abc", maxReplicas=2), maxReplicas=2)
    assert at_maximum[:2] == ("False", "AtMaximum")
    assert "spec.scaling.maxReplicas is 2: " in at_maximum[2]
    unfit = said(chosen_of(readers="bc", selector={"node": "a"}, maxReplicas=1))
    assert unfit[:2] == ("False", "NodesDoNotFit")
    assert "on 2 nodes pods read data of this cache" in unfit[2]


@pytest.mark.parametrize(("count", "words"), [(5, "a, b, c, d, e. "), (6, "a, b, c, d, e and others. ")])
def test_only_the_first_five_nodes_are_named(count: int, words: str) -> None:
    names = "abcdef"[:count]
    unfit = chosen_of(nodes=f"z{names}", readers=names, selector={"node": "z"})
    assert words in said(unfit)[2]


def test_a_cache_that_follows_no_jobs_says_what_sets_its_workers() -> None:
    assert (off().status, off().reason) == ("False", "Off")
    assert "spec.replicas" in off().message
