"""Nodes on which a job fails repeatedly, and which its pods avoid."""

from collections.abc import Collection
from typing import Any

import pytest
from tests.unit.control.builders import job_spec

from tdcs.api.trainingjob_status import NODE_FAILURES_LIMIT, NodeFailures, TrainingJobStatus
from tdcs.decide.job.node_failures import avoided_nodes, avoiding, counted, left_out, needed
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.place.node_eligibility import may_run
from tdcs.decide.queue.pod_admission import Reason


def failures(**nodes: int) -> list[NodeFailures]:
    return [NodeFailures(node=node, failures=count) for node, count in nodes.items()]


def test_the_newest_failure_is_the_last_and_adds_to_those_of_its_node() -> None:
    assert counted(failures(a=1, b=1), node="a") == failures(b=1, a=2)
    assert counted([], node="a") == failures(a=1)


def test_a_failure_on_no_node_counts_for_none() -> None:
    assert counted(failures(a=1), node="") == failures(a=1)


def test_the_oldest_failures_are_dropped_when_there_are_too_many() -> None:
    many = failures(**{f"n{number}": 1 for number in range(NODE_FAILURES_LIMIT)})
    after = counted(many, node="new")
    assert len(after) == NODE_FAILURES_LIMIT
    assert (after[0].node, after[-1].node) == ("n1", "new")


@pytest.mark.parametrize(
    ("nodes", "used", "avoided"),
    [
        ({}, 8, []),
        ({"a": 1}, 8, []),
        ({"a": 2}, 8, ["a"]),
        ({"a": 2}, 1, ["a"]),
        ({"b": 3, "a": 2}, 8, ["a", "b"]),
        ({"b": 3, "a": 2}, 7, []),
        ({"b": 3, "a": 1}, 7, ["b"]),
    ],
)
def test_a_job_avoids_at_most_one_node_in_four_after_two_failures(
    nodes: dict[str, int], used: int, avoided: list[str]
) -> None:
    assert avoided_nodes(failures(**nodes), used=used, fits_without=lambda blamed: True) == avoided


def test_a_node_that_the_job_does_not_fit_without_is_not_avoided() -> None:
    asked: list[Collection[str]] = []

    def fits_without(nodes: Collection[str]) -> bool:
        asked.append(nodes)
        return False

    assert avoided_nodes(failures(a=2), used=8, fits_without=fits_without) == []
    assert asked == [["a"]]


def test_the_end_of_avoiding_names_the_nodes_to_examine() -> None:
    assert needed(["a"]).startswith("the job has no room without node a, where it failed repeatedly")
    assert "so it avoids it no longer: examine node a" in needed(["a"])
    assert "so it avoids them no longer: examine nodes a, b" in needed(["a", "b"])


def waiting(*avoided: str) -> Observed:
    return Observed(spec=job_spec(), status=TrainingJobStatus(avoided_nodes=list(avoided)))


@pytest.mark.parametrize("reason", list(Reason))
def test_avoided_nodes_are_named_only_where_a_job_waits_for_room(reason: Reason) -> None:
    text = left_out(waiting("a", "b"), reason)
    is_about_room = reason in {Reason.NO_ROOM, Reason.NEVER, Reason.NO_MATCH}
    assert text.startswith("; without nodes a, b, where the job failed") is is_about_room
    assert left_out(waiting(), reason) == ""


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "spec": {}}


def spec_with(affinity: dict[str, Any] | None = None) -> Any:
    containers = [{"name": "main", "image": "x"}]
    pod = {"containers": containers, **({"affinity": affinity} if affinity else {})}
    return job_spec(roles={"Worker": {"replicas": 1, "template": {"spec": pod}}})


def pod_of(spec: Any) -> Any:
    return spec.by_role()["Worker"].template["spec"]


def test_pods_may_run_on_all_nodes_but_the_avoided_ones() -> None:
    spec = spec_with()
    pod = pod_of(avoiding(spec, {"a", "b"}))
    assert [name for name in "abc" if may_run(pod, node(name))] == ["c"]
    assert avoiding(spec, ()) is spec


def test_an_affinity_of_the_template_stays_in_each_of_its_terms() -> None:
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in ("x", "y")
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    preferred: dict[str, Any] = {"preferredDuringSchedulingIgnoredDuringExecution": []}
    affinity = {"nodeAffinity": {**required, **preferred}, "podAffinity": {}}
    pod = pod_of(avoiding(spec_with(affinity), ["a"]))
    may = {
        (name, zone): may_run(pod, node(name, zone=zone)) for name in ("a", "b") for zone in ("x", "y", "z")
    }
    assert {place for place, allowed in may.items() if allowed} == {("b", "x"), ("b", "y")}
    assert pod["affinity"]["podAffinity"] == {}
    assert "preferredDuringSchedulingIgnoredDuringExecution" in pod["affinity"]["nodeAffinity"]


def test_an_empty_term_still_matches_no_node() -> None:
    required: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}
    pod = pod_of(avoiding(spec_with({"nodeAffinity": required}), ["a"]))
    assert not may_run(pod, node("b"))
