"""Pods that find no room at their data run in its zone: by the extender, and by the affinity for other schedulers."""

from __future__ import annotations

from tests.controlplane.extender_world import (
    SCHEDULER,
    Extender,
    extender,
    landed,
    put_claim,
    put_dataset,
)
from tests.controlplane.pod_admission import extender_with_webhook, unnamed
from tests.support.controlplane import ControlPlane
from tests.support.controlplane.fixtures import FakeNodes
from tests.support.kube import Kube, Object
from tests.support.kube.claimed_pods import CLAIM, volumes
from tests.support.kube.objects import gpu_pod
from tests.support.waiting import eventually

from tdcs.decide.place.pod_affinity import PREFERRED, is_near
from tdcs.model.nearness import TOPOLOGY_LABELS

__all__ = ["extender"]

GB = 10**9
ZONES = ("a", "b", "c")


def zoned(fake_nodes: FakeNodes, *, each: int, gpus: int) -> dict[str, list[str]]:
    """So many nodes in each of three zones of one region, the last zone's first by name."""
    return {
        zone: fake_nodes(count=each, gpus=gpus, labels=dict(zip(TOPOLOGY_LABELS, (zone, "eu"), strict=True)))
        for zone in reversed(ZONES)
    }


def test_a_pod_without_room_at_its_data_runs_in_its_zone(
    extender: Extender, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    nodes = zoned(fake_nodes, each=3, gpus=2)
    full, *near = nodes["b"]
    annotation = put_dataset(extender, kube, namespace=namespace, held={full: 2 * GB})
    nodes_with_room = [node for zone_nodes in nodes.values() for node in zone_nodes if node != full]
    pod = {"metadata": {"name": "asked", "annotations": {"tdcs.io/datasets": annotation}}}
    eventually(
        lambda: extender.prioritize(pod, nodes=nodes_with_room) == set(near),
        deadline=60,
        describe=extender.process.tail,
    )

    labels = {"set": "zoned"}
    for number in range(6):
        kube.create(
            gpu_pod(
                name=f"zoned-{number}",
                namespace=namespace,
                scheduler=SCHEDULER,
                labels=labels,
                annotations={"tdcs.io/datasets": annotation},
            )
        )

    places = landed(kube, namespace=namespace, count=6, labels=labels)
    assert places == {full: 2, near[0]: 2, near[1]: 2}, extender.process.tail()


def test_the_stock_scheduler_puts_a_pod_without_room_at_its_data_into_its_zone(
    control_plane: ControlPlane, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    nodes = zoned(fake_nodes, each=3, gpus=2)
    full, *near = nodes["b"]
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}

    def made(name: str, *, scheduler: str, set_: str) -> Object:
        pod = unnamed(name, namespace=namespace, set_=set_, volumes=volumes(CLAIM), schedulerName=scheduler)
        pod["metadata"]["annotations"] = {"tdcs.io/data-affinity": "preferred"}
        pod["spec"]["containers"][0] |= gpu
        return kube.create(pod)

    def near_terms(pod: Object) -> list[Object]:
        affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
        return [term for term in affinity.get(PREFERRED) or () if is_near(term)]

    with extender_with_webhook(control_plane, namespace=namespace) as extender:
        put_dataset(extender, kube, namespace=namespace, held={full: GB}, name=CLAIM)
        put_claim(kube, namespace=namespace, name=CLAIM)
        tries = iter(range(1000))
        eventually(
            lambda: near_terms(made(f"tried-{next(tries)}", scheduler="volcano", set_="tried")),
            deadline=60,
            describe=extender.process.tail,
        )
        for number in range(6):
            made(f"stock-{number}", scheduler="default-scheduler", set_="stock")

        places = landed(kube, namespace=namespace, count=6, labels={"set": "stock"})
        assert places == {full: 2, near[0]: 2, near[1]: 2}
