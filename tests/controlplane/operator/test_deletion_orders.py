"""Whatever order a GitOps tool deletes objects in, all of them go, and nothing is left."""

from __future__ import annotations

import itertools

import pytest
from tests.controlplane.operator_world import CHECKOUT, World, world
from tests.support.controlplane.fixtures import TEST_LABEL, OwnControlPlane
from tests.support.controlplane.nodes import add_fake_nodes
from tests.support.kube import KubeRequestError, condition
from tests.support.kube.client import UnknownKindError

__all__ = ["world"]

KINDS = ("CacheCluster", "Dataset", "TrainingJob")
ORDERS = list(itertools.permutations(KINDS))
OURS = {"app.kubernetes.io/managed-by": "tdcs-operator"}


def create_all(world: World) -> None:
    world.create_cluster()
    world.create_dataset()
    world.create_job(runPolicy={"suspend": False})


def remains(world: World) -> list[str]:
    """What is there of the objects, and of what the operator made for them."""
    space, kube = world.namespace, world.kube
    kinds = [
        f"{kind} {obj['metadata']['name']}"
        for kind in (*KINDS, "Job", "Pod", "Service", "PersistentVolumeClaim", "StatefulSet")
        for obj in kube.list(kind, namespace=space)
    ]
    if kube.find("PersistentVolume", f"tdcs.{space}.pictures") is not None:
        kinds.append("PersistentVolume")
    return kinds


@pytest.mark.parametrize("order", ORDERS, ids=["-".join(order).lower() for order in ORDERS])
def test_objects_that_are_deleted_one_after_another_in_any_order_all_go(
    world: World, order: tuple[str, ...]
) -> None:
    create_all(world)
    names = {"CacheCluster": world.cluster, "Dataset": "pictures", "TrainingJob": "train"}
    with world.operator():
        world.wait_ready()
        world.wait(lambda: condition(world.job(), "Succeeded") == "True")
        for kind in order:  # as `kubectl delete --wait=false`
            world.kube.delete(kind, names[kind], namespace=world.namespace)
        world.wait(lambda: not remains(world))


def test_a_namespace_is_deleted_with_all_that_is_in_it_while_a_job_runs(world: World) -> None:
    create_all(world)
    with world.operator():
        world.wait_ready()
        world.kube.delete("Namespace", world.namespace)
        world.wait(lambda: world.kube.find("Namespace", world.namespace) is None)
    assert world.kube.find("PersistentVolume", f"tdcs.{world.namespace}.pictures") is None


def test_definitions_that_are_deleted_under_the_operator_go_and_may_come_back(
    own_control_plane: OwnControlPlane,
) -> None:
    plane = own_control_plane()
    kube, namespace, nodes = plane.kube, "pruned", ["pruned-0", "pruned-1", "pruned-2"]
    kube.install_crds(CHECKOUT / "crds")
    kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    plane.wait_for_namespace(namespace)
    add_fake_nodes(plane, names=nodes, gpus=3, labels={TEST_LABEL: namespace})
    world = World(plane=plane, namespace=namespace, nodes=nodes)
    create_all(world)
    with world.operator():
        world.wait_ready()
        definitions = [
            definition["metadata"]["name"]
            for definition in kube.list("CustomResourceDefinition")
            if definition["spec"]["group"] == "tdcs.io"
        ]
        for name in definitions:
            kube.delete("CustomResourceDefinition", name)
        world.wait(
            lambda: not any(kube.find("CustomResourceDefinition", name) is not None for name in definitions)
        )
        assert kube.find("PersistentVolume", f"tdcs.{namespace}.pictures") is None

        kube.install_crds(CHECKOUT / "crds")
        create_all(world)
        world.wait(lambda: condition(_dataset(world), "Ready") == "True")


def _dataset(world: World) -> dict[str, object]:
    """The Dataset; empty while the server does not serve its kind again."""
    try:
        return world.dataset()
    except (KubeRequestError, UnknownKindError):
        return {}
