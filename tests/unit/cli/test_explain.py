"""`tdcs explain job`: the answers to the two questions that people have, in their words."""

import io
from typing import Any

from rich.console import Console
from tests.unit.controllers.builders import NOW, dataset

from tdcs.cli.explain import show
from tdcs.cli.explain_report import Report, World, explain
from tdcs.kube.api import Object

GPU = "nvidia.com/gpu"


def job(**status: Any) -> Object:
    template = {"spec": {"containers": [{"name": "main", "image": "x", "resources": {"limits": {GPU: "2"}}}]}}
    return {
        "metadata": {"name": "train", "namespace": "team", "creationTimestamp": NOW},
        "spec": {
            "replicaSpecs": {"Worker": {"replicas": 1, "template": template}},
            "datasets": [{"name": "pictures", "mountPath": "/data"}],
        },
        "status": status,
    }


def pod(
    name: str, *, node: str = "", gpus: int = 2, labels: dict[str, str] | None = None, **status: Any
) -> Object:
    container = {"name": "main", "resources": {"limits": {GPU: str(gpus)}}}
    return {
        "metadata": {"name": name, "namespace": "team", "labels": labels or {}},
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
        "status": {"phase": "Running", **status},
    }


def node(name: str, *, gpus: int = 4, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": spec, "status": {"allocatable": {GPU: str(gpus)}}}


def held(**nodes: int) -> dict[str, Object]:
    """The dataset, of which these nodes hold so many bytes of 100."""
    return {"pictures": dataset(nodes=nodes).model_dump(by_alias=True, mode="json")}


def printed(report: Report) -> str:
    console = Console(file=io.StringIO(), width=200)
    show(report, console=console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_pod_on_the_best_node_is_said_to_be_there() -> None:
    world = World(
        job=job(state="Running", localityPercent="100%"),
        datasets=held(a=60, b=30),
        own_pods=[pod("p0", node="a")],
        nodes=[node("a"), node("b")],
        pods=[pod("p0", node="a")],
    )
    report = explain(world)
    assert report.pods[0].sentence == (
        "is on a, which holds 60 bytes of its 100 bytes (score 10 of 10): no node holds more"
    )
    assert (report.pods[0].alternatives[0].node, report.pods[0].alternatives[0].score) == ("b", 5)
    assert "its locality was 100%" in printed(report)


def test_why_a_pod_is_not_on_a_better_node_is_said() -> None:
    other = pod("other", node="a", gpus=3)
    world = World(
        job=job(state="Running"),
        datasets=held(a=60, b=30, c=60),
        own_pods=[pod("p0", node="b")],
        nodes=[node("a"), node("b"), node("c", unschedulable=True)],
        pods=[pod("p0", node="b"), other],
    )
    sentence = explain(world).pods[0].sentence
    assert "score 5 of 10" in sentence
    assert "a has score 10, but it has 1 nvidia.com/gpu free for the 2 nvidia.com/gpu" in sentence
    assert "c has score 10, but its labels or taints keep the pod away" in sentence


def test_what_may_not_be_listed_is_said_and_the_rest_is_told() -> None:
    world = World(job=job(state="Running"), datasets=held(a=60, b=30), own_pods=[pod("p0", node="b")])
    found = explain(world)
    assert "you may not list nodes" in found.pods[0].sentence
    assert "30 bytes" in printed(found)


def test_why_it_waits_is_said_in_the_operators_words() -> None:
    told = "needs 4 nvidia.com/gpu at once, 3 nvidia.com/gpu free; position 2 of 2; behind team/big"
    report = explain(World(job=job(state="Queued", reason="NotEnoughRoom", message=told)))
    assert report.headline == f"It waits for its turn: {told}"
    assert "there is no such Dataset" in report.datasets[0]
    assert told in printed(report)


def test_a_pod_that_does_not_start_quotes_the_reason() -> None:
    waiting = {
        "name": "main",
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no [such] image"}},
    }
    own = pod("p0", node="a", phase="Pending", containerStatuses=[waiting])
    report = explain(World(job=job(state="Starting"), datasets=held(a=60), own_pods=[own]))
    assert "p0 waits: ImagePullBackOff: no [such] image" in printed(report)


def test_a_job_whose_pods_are_gone_is_explained_from_its_status() -> None:
    places = [{"pod": "p0", "node": "b", "cachedBytes": 30}]
    report = explain(World(job=job(state="Succeeded", placement=places), datasets=held(a=60, b=30)))
    assert [(each.pod, each.node, each.phase) for each in report.pods] == [("p0", "b", "gone")]


def test_a_job_that_nobody_has_looked_at_says_so() -> None:
    assert "the operator has not looked at it yet" in explain(World(job=job())).headline


def test_a_dataset_that_cannot_be_understood_hides_nothing_else() -> None:
    world = World(job=job(state="Waiting"), datasets={"pictures": {"spec": "nonsense"}})
    assert "there is no such Dataset" in explain(world).datasets[0]


def test_of_a_dataset_on_many_nodes_the_first_are_named() -> None:
    nodes = {f"node{number:02}": number for number in range(1, 21)}
    told = explain(World(job=job(state="Waiting"), datasets=held(**nodes))).datasets[0]
    assert "20 bytes on node20" in told
    assert told.endswith("13 bytes on node13, less or as much on 12 more")
