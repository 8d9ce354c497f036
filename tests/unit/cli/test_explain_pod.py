"""`tdcs explain pod`: why any pod is where it is."""

import io
import json
from typing import Any

import pytest
from tests.unit.cli.builders import held, node, pod

from tdcs.cli.console import Console
from tdcs.cli.explain.explain_command import show_pod
from tdcs.cli.explain.explained_pod import PodReport, PodWorld, datasets_to_read, explain_pod
from tdcs.decide.place.pod_affinity import PREFERRED, with_data
from tdcs.model.kube_objects import Object

KNOWN = {"team/pictures": held(a=60, b=30)["pictures"]}


def mounting(
    *claims: str, scheduler: str = "tdcs-scheduler", annotation: str | None = None, **fields: Any
) -> Object:
    """A pod that mounts these claims."""
    obj = pod("p", **fields)
    obj["spec"]["schedulerName"] = scheduler
    obj["spec"]["volumes"] = [
        {"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims
    ]
    if annotation is not None:
        obj["metadata"]["annotations"] = {"tdcs.io/datasets": annotation}
    return obj


def explained(subject: Object, datasets: dict[str, Object] | None = None) -> PodReport:
    return explain_pod(
        PodWorld(
            pod=subject,
            datasets=KNOWN if datasets is None else datasets,
            nodes=[node("a"), node("b")],
            pods=[subject],
        )
    )


def printed(report: PodReport) -> str:
    console = Console(file=io.StringIO(), width=200)
    show_pod(report, console=console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_pod_is_explained_by_the_dataset_of_its_claim() -> None:
    report = explained(mounting("pictures", node="b"))

    assert report.headline == "tdcs-scheduler places it, by its data: a preference and no must."
    assert report.place.sentence.startswith("is on b, which holds 30 bytes of its 100 bytes (score 5 of 10)")
    assert "a has score 10: it has room now" in report.place.sentence
    assert report.datasets[0].startswith("team/pictures: 100 bytes")
    assert "Pod team/p is on b" in printed(report)


def test_a_pod_shows_how_much_of_its_data_is_in_its_zone() -> None:
    zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
    nodes = [node(name) for name in "abc"]
    for obj, in_zone in zip(nodes, ("z1", "z2", "z1"), strict=True):
        obj["metadata"]["labels"] = {zone: in_zone, region: "eu"}
    subject = mounting("pictures", node="c")

    report = explain_pod(PodWorld(pod=subject, datasets=KNOWN, nodes=nodes, pods=[subject]))

    assert report.near.startswith(
        "Of its data are 60% in its zone (z1): what its node lacks is read from the nearest"
    )
    assert report.near in printed(report)
    assert explained(mounting("pictures", node="b")).near == ""


def test_a_pod_of_a_scheduler_without_the_extender_shows_the_remedy() -> None:
    report = explained(mounting("pictures", node="b", scheduler="default-scheduler"))

    assert "default-scheduler places it, which does not know where its data is" in report.headline
    assert "Set schedulerName to tdcs-scheduler" in report.headline
    assert "placed by default-scheduler, which does not know where the data is" in report.place.sentence
    headline = explained(mounting("pictures", scheduler="volcano")).headline
    assert headline.startswith("volcano places it, which ranks nodes by data only if it asks the extender")
    assert "it has no node affinity to its data" in headline


def test_a_pod_with_node_affinity_is_said_to_be_placed_by_that() -> None:
    pod = mounting("pictures", scheduler="volcano")
    pod["spec"]["affinity"] = with_data({}, scores={"a": 10, "b": 4}, way="preferred")
    assert explained(pod).headline.startswith(
        "volcano places it, by preferred node affinity to 2 nodes that held its data when it was made"
    )
    pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    assert "renewed until it has no scheduling gate" in explained(pod).headline

    pod["spec"]["affinity"] = with_data({}, scores={"a": 10}, way="required")
    assert "by required node affinity to 1 node that held its data" in explained(pod).headline


def test_what_a_pod_prefers_itself_is_no_affinity_to_its_data() -> None:
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    term = {"weight": 50, "preference": by_name}
    pod = mounting("pictures", scheduler="volcano")
    pod["spec"]["affinity"] = {"nodeAffinity": {PREFERRED: [term]}}

    assert "it has no node affinity to its data" in explained(pod).headline


def test_a_pod_that_was_created_with_its_node_was_chosen_by_no_scheduler() -> None:
    subject = mounting("pictures", node="b")
    subject["metadata"]["managedFields"] = [
        {"manager": "kubelet", "subresource": "status", "fieldsV1": {"f:status": {}}},
        {"manager": "kubectl-create", "fieldsV1": {"f:spec": {"f:nodeName": {}}}},
    ]
    report = explained(subject)
    assert report.headline.startswith("No scheduler placed it, and its data was not looked at")
    assert "though others hold more (a has score 10): no scheduler was asked" in report.place.sentence

    subject["metadata"]["managedFields"][1]["fieldsV1"] = {"f:spec": {"f:schedulerName": {}}}
    assert explained(subject).headline.startswith("tdcs-scheduler places it, by its data")


def test_a_pod_that_opted_out_is_said_to_have() -> None:
    subject = mounting("pictures", node="b", labels={"tdcs.io/place-by-data": "false"})
    report = explained(subject)
    assert report.headline.startswith("It is labelled tdcs.io/place-by-data=false: tdcs-scheduler places it")
    assert report.datasets == ()
    assert report.place.score is None


@pytest.mark.parametrize("claims", [(), ("checkpoints",)])
def test_a_pod_without_a_datasets_claim_is_as_well_anywhere(claims: tuple[str, ...]) -> None:
    report = explained(mounting(*claims, node="b"), datasets={})
    assert report.headline.startswith("It mounts no Dataset's claim, and its annotation names none")
    assert "any node is as good" in report.place.sentence


def test_an_annotation_chooses_the_copy_and_one_that_cannot_be_read_is_quoted() -> None:
    named = json.dumps([{"dataset": "other/texts"}])
    assert datasets_to_read(mounting("pictures", annotation=named)) == ["other/texts", "team/pictures"]
    report = explained(mounting(annotation=named))
    assert report.datasets[0].startswith("other/texts: there is no such Dataset")

    broken = explained(mounting("pictures", annotation="pictures", node="a"))
    assert "Its annotation tdcs.io/datasets is 'pictures'" in broken.headline
    assert broken.place.score == 10


def test_a_pod_that_waits_says_for_what() -> None:
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/9 nodes fit"}
    report = explained(mounting("pictures", phase="Pending", conditions=[waits]))
    assert report.place.sentence == "waits: Unschedulable: 0/9 nodes fit"
