"""How tools that apply objects and wait for them see these: by kstatus, as Flux and Helm do."""

from __future__ import annotations

from typing import Any

from tests.controlplane.operator_world import World, world
from tests.support.kube import condition

__all__ = ["world"]


def kstatus(obj: dict[str, Any]) -> str:
    """What sigs.k8s.io/cli-utils/pkg/kstatus says of an object of a kind that it does not know."""
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    status = obj.get("status") or {}
    if status.get("observedGeneration", obj["metadata"]["generation"]) != obj["metadata"]["generation"]:
        return "InProgress"
    if condition(obj, "Reconciling") == "True":
        return "InProgress"
    if condition(obj, "Stalled") == "True":
        return "Failed"
    statuses = {condition["type"]: condition["status"] for condition in status.get("conditions", ())}
    return "Current" if statuses.get("Ready", "True") == "True" else "InProgress"


def seen(world: World) -> dict[str, str]:
    """Of each kind what a tool sees."""
    names = {"CacheCluster": world.cluster, "Dataset": "pictures", "Preload": "warm", "TrainingJob": "train"}
    return {
        kind: kstatus(world.kube.get(kind, name, namespace=world.namespace)) for kind, name in names.items()
    }


def test_objects_are_under_way_until_the_operator_has_looked_at_them_and_then_current(world: World) -> None:
    world.create_cluster()
    world.create_dataset()
    world.create_job()
    world.kube.create(
        {
            "apiVersion": "tdcs.io/v1alpha2",
            "kind": "Preload",
            "metadata": {"name": "warm", "namespace": world.namespace},
            "spec": {"datasetRef": {"name": "pictures"}},
        }
    )
    assert set(seen(world).values()) == {"InProgress"}
    with world.operator():
        world.wait(lambda: set(seen(world).values()) == {"Current"})
        assert condition(world.dataset(), "Ready") == "True"

    world.change_dataset(placement={"nodeCount": 1})
    assert seen(world)["Dataset"] == "InProgress"
    with world.operator():
        world.wait(lambda: seen(world)["Dataset"] == "Current")


def test_what_the_user_has_to_mend_is_never_current(world: World) -> None:
    world.create_cluster(sources=[{"name": "one", "endpoints": ["https://store.example"]}])
    world.create_dataset(source={"uri": "s3://pictures/train"})
    with world.operator():
        world.wait(lambda: condition(world.dataset(), "Ready") == "False")
        assert kstatus(world.dataset()) == "InProgress"
