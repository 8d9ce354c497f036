"""A cache cluster grows and shrinks on a real control plane without losing what it holds."""

from __future__ import annotations

import pytest
from tests.controlplane.data.test_operator_data import held, nodes_of
from tests.controlplane.operator_command import install_rights, remove_cluster_wide
from tests.controlplane.operator_process import Gate
from tests.controlplane.operator_world import API_VERSION, FILE_BYTES, TOTAL, World, reason_of, world
from tests.support.kube import KubeRequestError, Object

from tdcs.api.names import worker_set_name
from tdcs.control.cachecluster.eviction_guard import guarded_nodes

__all__ = ["world"]


def workers(world: World) -> dict[str, Object]:
    """status.workers of the cache cluster by node."""
    cluster = world.kube.get("CacheCluster", world.cluster, namespace=world.namespace)
    return {worker["node"]: worker for worker in (cluster.get("status") or {}).get("workers", ())}


def states(world: World) -> dict[str, str]:
    return {node: worker["state"] for node, worker in workers(world).items()}


def draining(world: World) -> list[str]:
    return [node for node, state in states(world).items() if state == "Draining"]


def scale(world: World, replicas: int) -> None:
    """As `kubectl scale` does it."""
    patch = {"spec": {"replicas": replicas}}
    world.kube.patch("CacheCluster", world.cluster, patch, subresource="scale", namespace=world.namespace)


def events(world: World, reason: str) -> list[str]:
    event_objects = world.kube.list("Event", namespace=world.namespace)
    return [
        event["message"]
        for event in event_objects
        if event["reason"] == reason and event["involvedObject"]["name"] == world.cluster
    ]


def worker_nodes(world: World) -> set[str]:
    sets = world.kube.list("StatefulSet", namespace=world.namespace)
    return {
        stateful_set["metadata"].get("annotations", {}).get("tdcs.io/node", "") for stateful_set in sets
    } - {""}


@pytest.fixture
def spread(world: World) -> World:
    """A Dataset of which every node holds a third."""
    world.create_cluster()
    world.create_dataset(placement={"mode": "Partition", "nodeCount": 3})
    return world


@pytest.mark.failure_mode("operator-killed-during-drain")
def test_a_smaller_cache_keeps_every_byte_though_its_operator_is_replaced_meanwhile(spread: World) -> None:
    world, gate = spread, Gate(spread.engine, operation="copy")
    with world.operator():
        world.wait_ready()
        world.wait(lambda: set(states(world).values()) == {"Ready"} and len(states(world)) == 3)
        assert len(nodes_of(world.dataset())) == 3
        gate.open.clear()
        scale(world, 2)
        world.wait(lambda: len(draining(world)) == 1)
        (leaver,) = draining(world)
        assert workers(world)[leaver]["lastCopyBytes"] > 0
        status = world.kube.get("CacheCluster", world.cluster, namespace=world.namespace)["status"]
        assert (status["desiredReplicas"], status["replicas"]) == (2, 3)  # the leaver is still there
    gate.open.set()
    with world.operator():
        world.wait(lambda: leaver not in worker_nodes(world) and leaver not in states(world))
        # The Dataset's status is another controller's, and had this sum before the move, too.
        world.wait(lambda: leaver not in nodes_of(world.dataset()))
        world.wait(lambda: sum(nodes_of(world.dataset()).values()) == TOTAL)
    assert world.engine.source_bytes_read == TOTAL  # what the first load read, and no more
    assert len(worker_nodes(world)) == 2
    assert any("has been moved" in text for text in events(world, "Drained"))


@pytest.mark.failure_mode("worker-evicted-with-last-copies")
def test_an_eviction_is_refused_until_a_node_with_a_notice_has_handed_its_data_over(world: World) -> None:
    world.create_cluster(tolerations=[{"operator": "Exists"}])
    world.create_dataset(placement={"mode": "Partition", "nodeCount": 3})
    gate, leaver = Gate(world.engine, operation="copy"), world.nodes[0]
    pod = f"{worker_set_name(cluster=world.cluster, node=leaver)}-0"

    def guarded() -> set[str]:
        """The nodes whose workers the budget guards, once its controller has seen it."""
        budget = world.kube.find(
            "PodDisruptionBudget", f"{world.cluster}-last-copies", namespace=world.namespace
        )
        status = (budget or {}).get("status") or {}
        if budget is None or status.get("observedGeneration") != budget["metadata"]["generation"]:
            return set()
        assert status["disruptionsAllowed"] == 0
        return set(guarded_nodes(budget, nodes=world.nodes))

    def evict() -> None:
        body: Object = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": world.namespace},
        }
        world.kube.create_under("Pod", pod, "eviction", body, namespace=world.namespace)

    with world.operator():
        world.wait_ready()
        world.wait(lambda: guarded() == set(world.nodes))
        gate.open.clear()
        notice = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
        world.kube.patch("Node", leaver, {"spec": {"taints": [notice]}})
        world.wait(lambda: draining(world) == [leaver])
        with pytest.raises(KubeRequestError, match="disruption budget"):
            evict()
        gate.open.set()
        world.wait(lambda: leaver not in worker_nodes(world) and leaver not in states(world))
        world.wait(lambda: sum(nodes_of(world.dataset()).values()) == TOTAL)
        world.wait(lambda: guarded() == set(world.nodes) - {leaver})
        world.kube.patch(
            "CacheCluster",
            world.cluster,
            {"spec": {"scaling": {"protect": "Never"}}},
            namespace=world.namespace,
        )
        world.wait(lambda: not world.kube.list("PodDisruptionBudget", namespace=world.namespace))
    assert world.engine.source_bytes_read == TOTAL
    assert any("taint karpenter.sh/disrupted" in text for text in events(world, "Draining"))


def test_a_drain_is_called_off_and_a_worker_that_dies_in_one_is_gone(spread: World) -> None:
    world, gate = spread, Gate(spread.engine, operation="copy")
    with world.operator():
        world.wait_ready()
        world.wait(lambda: len(states(world)) == 3)
        gate.open.clear()
        scale(world, 2)
        world.wait(lambda: len(draining(world)) == 1)
        scale(world, 3)
        world.wait(lambda: states(world) == dict.fromkeys(world.nodes, "Ready"))
        world.wait(lambda: events(world, "DrainCancelled"))
        assert len(worker_nodes(world)) == 3
        scale(world, 2)
        world.wait(lambda: len(draining(world)) == 1)
        (leaver,) = draining(world)
        world.engine.set_worker(name=leaver, live=False)
        world.wait(lambda: leaver not in worker_nodes(world))
        gate.open.set()
        world.wait(lambda: sum(nodes_of(world.dataset()).values()) == TOTAL)


def test_what_finds_no_room_is_told_in_bytes(spread: World) -> None:
    world = spread
    with world.operator():
        world.wait_ready()
        world.wait(lambda: len(states(world)) == 3)
        for node in world.nodes:
            world.engine.set_worker(name=node, capacity=TOTAL // 2)
        scale(world, 1)
        world.wait(lambda: len(worker_nodes(world)) == 1)
        (last_node,) = worker_nodes(world)
        assert TOTAL // 2 - held(world)[last_node] < TOTAL // 2 * 0.02 + 2 * FILE_BYTES
        assert all("no other node had room" in text for text in events(world, "DataLeftBehind"))
        assert events(world, "DataLeftBehind")


def test_the_status_follows_workers_that_die_and_come_back(spread: World) -> None:
    world = spread
    with world.operator():
        world.wait(lambda: states(world) == dict.fromkeys(world.nodes, "Ready"))
        world.engine.set_worker(name=world.nodes[1], live=False)
        world.wait(lambda: states(world)[world.nodes[1]] == "Lost")
        world.engine.set_worker(name=world.nodes[1])
        world.wait(lambda: states(world)[world.nodes[1]] == "Ready")


def test_the_scale_subresource_answers_where_replicas_is_left_out_and_sets_them(spread: World) -> None:
    world = spread
    with world.operator():
        world.wait(lambda: states(world) == dict.fromkeys(world.nodes, "Ready"))

        def scale_of() -> Object:
            return world.kube.get_under("CacheCluster", world.cluster, "scale", namespace=world.namespace)

        world.wait(lambda: scale_of()["status"]["replicas"] == 3)
        current_scale = scale_of()
        assert current_scale["spec"]["replicas"] == 5000  # every node
        assert current_scale["status"]["selector"].startswith(f"tdcs.io/cache-cluster={world.cluster}")
        scale(world, 2)
        world.wait(lambda: scale_of()["status"]["replicas"] == 2)
        assert scale_of()["spec"]["replicas"] == 2


def test_a_cache_cluster_in_a_namespace_of_users_is_refused_in_a_condition(world: World) -> None:
    with world.operator():
        metadata = {"name": "cache", "namespace": "default"}
        world.kube.create(
            {"apiVersion": API_VERSION, "kind": "CacheCluster", "metadata": metadata, "spec": {}}
        )
        try:
            world.wait(
                lambda: (
                    reason_of(world.kube.get("CacheCluster", "cache", namespace="default"), "Ready")
                    == "WrongNamespace"
                )
            )
        finally:
            world.kube.delete("CacheCluster", "cache", namespace="default")


def test_the_chart_has_a_cache_cluster_in_a_namespace_of_users_refused_at_apply(world: World) -> None:
    release = f"tdcs-{world.cluster}"
    objects = install_rights(
        world.kube, release=release, namespace=world.namespace, templates=["cachecluster-namespace"]
    )
    wrong: Object = {
        "apiVersion": API_VERSION,
        "kind": "CacheCluster",
        "metadata": {"name": "cache", "namespace": "default"},
        "spec": {},
    }

    def told() -> str:
        try:
            world.kube.create(wrong)
        except KubeRequestError as error:
            return str(error)
        world.kube.delete("CacheCluster", "cache", namespace="default")
        return ""

    try:
        # The API server takes a moment to know a new policy.
        world.wait(lambda: f"namespace of TDCS's operator, {world.namespace}: create it there" in told())
        world.create_cluster()
    finally:
        remove_cluster_wide(world.plane, objects)
