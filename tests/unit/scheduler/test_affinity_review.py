"""Pods that another scheduler places get node affinity to their data."""

from typing import Any

import msgspec
import pytest

from tdcs.decide.place.pod_affinity import PREFERRED, REQUIRED, named_node
from tdcs_scheduler.pod_review import Question, decode_review, encode_answer, patch_of, warnings_of
from tdcs_scheduler.view import DatasetView

VOLUMES = [{"name": "data", "persistentVolumeClaim": {"claimName": "images"}}]


def view_of(**held: int) -> DatasetView:
    """A Dataset team/images, with these bytes on these nodes."""
    view = DatasetView()
    nodes = [{"name": name, "bytes": size} for name, size in held.items()]
    view.on_change(
        ("team", "images"), {"status": {"totalBytes": 100, "copies": [{"id": "0", "nodes": nodes}]}}
    )
    return view


def patch(
    view: DatasetView,
    *,
    scheduler: str = "volcano",
    annotations: dict[str, str] | None = None,
    operation: str = "CREATE",
    before: dict[str, Any] | None = None,
    **spec: Any,
) -> list[dict[str, Any]]:
    """What the webhook changes of a pod."""
    pod = {
        "metadata": {"annotations": annotations or {}},
        "spec": {"schedulerName": scheduler, "volumes": VOLUMES, **spec},
    }
    request = {"uid": "u", "namespace": "team", "operation": operation, "object": pod}
    if before is not None:
        request["oldObject"] = {"metadata": {}, "spec": before}
    question = decode_review(msgspec.json.encode({"request": request}))
    return patch_of(question, view=view, scheduler_name="tdcs-scheduler")


def preferred(patch: list[dict[str, Any]]) -> dict[str, int]:
    """The weights of the nodes in a patch."""
    ((path, value),) = ((operation["path"], operation["value"]) for operation in patch)
    assert path == "/spec/affinity"
    terms = value["nodeAffinity"][PREFERRED]
    return {name: term["weight"] for term in terms for name in named_node(term["preference"])}


@pytest.mark.parametrize("scheduler", ["volcano", "yunikorn", "my-scheduler"])
def test_a_pod_of_another_scheduler_prefers_the_nodes_with_its_data_by_bytes(scheduler: str) -> None:
    assert preferred(patch(view_of(n1=100, n2=30), scheduler=scheduler)) == {"n1": 100, "n2": 30}


def test_a_pod_that_asks_for_it_keeps_the_default_scheduler() -> None:
    annotations = {"tdcs.io/data-affinity": "preferred"}

    assert preferred(patch(view_of(n1=100), scheduler="default-scheduler", annotations=annotations)) == {
        "n1": 100
    }


def test_an_annotation_tells_nothing_of_where_data_of_other_namespaces_is() -> None:
    view = view_of(n1=100)
    nodes = [{"name": "theirs", "bytes": 100}]
    status = {"totalBytes": 100, "copies": [{"id": "0", "nodes": nodes}]}
    for namespace in ("others", "team-b"):
        view.on_change((namespace, "images"), {"status": status})
    named = '[{"dataset": "others/images"}, {"dataset": "team-b/images"}, {"dataset": "team/images", "copy": "0"}]'

    assert preferred(patch(view, annotations={"tdcs.io/datasets": named})) == {"n1": 100}


def test_an_annotation_has_the_affinity_required() -> None:
    ((change),) = patch(view_of(n1=100, n2=1), annotations={"tdcs.io/data-affinity": "required"})

    terms = change["value"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert [named_node(term) for term in terms] == [["n1"], ["n2"]]


def test_a_gated_pod_gets_what_holds_when_its_gate_goes() -> None:
    gates = [{"name": "kueue.x-k8s.io/admission"}]
    (created,) = patch(view_of(n1=100), schedulingGates=gates)

    changed = patch(
        view_of(n2=100),
        operation="UPDATE",
        affinity=created["value"],
        before={"schedulingGates": gates},
        volumes=VOLUMES,
    )

    assert preferred(changed) == {"n2": 100}


@pytest.mark.parametrize(("host_users", "is_warned"), [(False, True), (True, False), (None, False)])
def test_whoever_makes_a_pod_with_a_user_namespace_is_warned(
    host_users: bool | None, is_warned: bool
) -> None:
    pod = {"metadata": {}, "spec": {"hostUsers": host_users, "volumes": VOLUMES}}
    request = {"uid": "u", "namespace": "team", "operation": "CREATE", "object": pod}
    question = decode_review(msgspec.json.encode({"request": request}))

    warnings = warnings_of(question, view=view_of(n1=1), scheduler_name="tdcs-scheduler")

    assert [text.startswith("Dataset team/images: its volume cannot be mounted") for text in warnings] == [
        True
    ] * is_warned
    answer = msgspec.json.decode(encode_answer(uid="u", patch=[], warnings=warnings))["response"]
    assert answer.get("warnings", []) == warnings
    assert answer["allowed"]


REQUIRED_DATA = {"metadata": {"annotations": {"tdcs.io/data-affinity": "required"}}}


def question_of(pod: dict[str, Any], *, operation: str = "CREATE", **spec: Any) -> Question:
    """The API server's question about a pod of Volcano that mounts the Dataset."""
    full = {"metadata": {}, **pod, "spec": {"schedulerName": "volcano", "volumes": VOLUMES, **spec}}
    request = {"uid": "u", "namespace": "team", "operation": operation, "object": full}
    return decode_review(msgspec.json.encode({"request": request}))


def warned(question: Question, view: DatasetView) -> list[str]:
    return warnings_of(question, view=view, scheduler_name="tdcs-scheduler")


def test_the_creator_of_a_pod_that_requires_data_which_no_node_holds_is_warned() -> None:
    question = question_of(REQUIRED_DATA)

    assert patch_of(question, view=view_of(), scheduler_name="tdcs-scheduler") == []
    (text,) = warned(question, view_of())
    assert text.startswith(
        "Dataset team/images: no node holds any of it, so data-affinity required is ignored"
    )
    longest = text.replace("team/images", 127 * "x")
    assert len(longest) <= 256, "API servers may cut what is longer"


@pytest.mark.parametrize(
    ("pod", "spec", "view"),
    [
        (REQUIRED_DATA, {}, view_of(n1=1)),
        ({}, {}, view_of()),
        (REQUIRED_DATA, {"schedulerName": "tdcs-scheduler"}, view_of()),
        (REQUIRED_DATA, {"nodeName": "n9"}, view_of()),
        (REQUIRED_DATA, {"volumes": []}, view_of()),
        (REQUIRED_DATA, {"operation": "UPDATE"}, view_of()),
    ],
    ids=["it is held", "preferred", "asks the extender", "has a node", "mounts nothing", "is there already"],
)
def test_no_others_are_warned_of_data_that_is_nowhere(
    pod: dict[str, Any], spec: dict[str, Any], view: DatasetView
) -> None:
    assert warned(question_of(pod, **spec), view) == []


def test_a_pod_without_gates_is_not_changed_any_more() -> None:
    assert patch(view_of(n1=100), operation="UPDATE", before={}) == []


@pytest.mark.parametrize(
    "pod",
    [{"nodeName": "n9"}, {"scheduler": "tdcs-scheduler"}, {"volumes": []}],
    ids=["has a node", "asks the extender", "mounts nothing"],
)
def test_others_are_left_alone(pod: dict[str, Any]) -> None:
    assert patch(view_of(n1=100), **pod) == []
