"""The real kube-scheduler with the real extender and pods that make it hard: broken annotations, many datasets, nodes
that vanish, copies that are full.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tests.controlplane.extender_world import SCHEDULER, Extender, extender, landed, put_dataset
from tests.support.controlplane import ControlPlane
from tests.support.controlplane.fixtures import FakeNodes
from tests.support.kube import Kube
from tests.support.kube.objects import gpu_pod
from tests.support.waiting import eventually

__all__ = ["extender"]

GB = 10**9


def reading(kube: Kube, *, namespace: str, annotation: str, count: int) -> None:
    """Pods with this annotation, for the extender's scheduler."""
    kube.create_many(
        gpu_pod(
            name=f"train-{number}",
            namespace=namespace,
            scheduler=SCHEDULER,
            labels={"set": "train"},
            annotations={"tdcs.io/datasets": annotation},
        )
        for number in range(count)
    )


def places(kube: Kube, *, namespace: str, count: int) -> Sequence[str]:
    """Where they landed."""
    return list(landed(kube, namespace=namespace, count=count, labels={"set": "train"}).elements())


def test_a_pod_with_a_broken_annotation_is_scheduled_and_its_owner_is_told(
    extender: Extender, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    fake_nodes(count=4)
    reading(kube, namespace=namespace, annotation="pictures", count=1)
    assert len(places(kube, namespace=namespace, count=1)) == 1

    def told() -> list[str]:
        events = kube.list("Event", namespace=namespace)
        return [event["message"] for event in events if event["reason"] == "BadDatasetsAnnotation"]

    eventually(told, deadline=90, describe=extender.process.tail)
    assert len(told()) == 1
    assert "'pictures'" in told()[0]
    assert 'write a JSON list such as [{"dataset": "namespace/name", "copy": "0"}]' in told()[0]


def test_a_pod_that_names_a_dataset_that_does_not_exist_is_scheduled_and_its_owner_is_told(
    extender: Extender, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    nodes = fake_nodes(count=4)
    text = put_dataset(extender, kube, namespace=namespace, held={nodes[1]: GB})
    dataset_needs = json.loads(text)
    annotation = json.dumps([*dataset_needs, {"dataset": f"{namespace}/imagse"}])
    reading(kube, namespace=namespace, annotation=annotation, count=1)
    assert places(kube, namespace=namespace, count=1) == [nodes[1]]

    def told() -> list[str]:
        events = kube.list("Event", namespace=namespace)
        return [event["message"] for event in events if event["reason"] == "DatasetNotFound"]

    eventually(told, deadline=90, describe=extender.process.tail)
    assert len(told()) == 1
    assert f"there is no Dataset {namespace}/imagse" in told()[0]


def test_a_pod_with_ten_datasets_goes_where_most_of_their_bytes_are(
    extender: Extender, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    nodes = fake_nodes(count=10)
    reads = []
    for number in range(10):
        held = {nodes[3]: GB, nodes[5]: GB} if number < 3 else {nodes[5]: GB}
        text = put_dataset(extender, kube, namespace=namespace, held=held, name=f"set-{number}")
        reads += json.loads(text)
    reading(kube, namespace=namespace, annotation=json.dumps(reads), count=2)
    assert set(places(kube, namespace=namespace, count=2)) <= {nodes[5]}


def test_the_data_of_a_node_that_vanished_draws_no_pod(
    control_plane: ControlPlane, extender: Extender, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    nodes = fake_nodes(count=6)
    annotation = put_dataset(extender, kube, namespace=namespace, held={nodes[0]: 9 * GB, nodes[1]: GB})
    with control_plane.process("kube-scheduler-tdcs").away():
        reading(kube, namespace=namespace, annotation=annotation, count=4)
        kube.delete("Node", nodes[0])
    # The Dataset's status still names the node: the ledger takes a while to notice.
    assert nodes[0] in extender.scored(annotation)
    assert set(places(kube, namespace=namespace, count=4)) == {nodes[1]}


def test_pods_go_near_another_copy_when_their_own_has_no_room(
    extender: Extender, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    nodes = fake_nodes(count=10, gpus=2)
    annotation = put_dataset(extender, kube, namespace=namespace, held={nodes[2]: GB})
    dataset = kube.get("Dataset", "images", namespace=namespace)
    copies = [*dataset["status"]["copies"], {"id": "1", "nodes": [{"name": nodes[7], "bytes": GB}]}]
    kube.patch("Dataset", "images", {"status": {"copies": copies}}, namespace=namespace, subresource="status")
    eventually(lambda: extender.scored(annotation) == {nodes[2], nodes[7]}, deadline=90)
    text = json.dumps([{"dataset": f"{namespace}/images", "copy": "1"}])
    reading(kube, namespace=namespace, annotation=text, count=3)
    where = places(kube, namespace=namespace, count=3)
    assert sorted(where) == sorted([nodes[7], nodes[7], nodes[2]])
