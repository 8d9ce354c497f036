"""Datasets and cache clusters on a real control plane: what a user applies, sees, and is left with."""

from __future__ import annotations

import pytest
from tests.controlplane.operator_world import (
    FILE_BYTES,
    SOURCE,
    TOTAL,
    World,
    message_of,
    reason_of,
    world,
)
from tests.support.kube import Object, condition

__all__ = ["world"]


def nodes_of(dataset: Object) -> dict[str, int]:
    return {
        node["name"]: node["bytes"] for copy in dataset["status"].get("copies", ()) for node in copy["nodes"]
    }


def held(world: World) -> dict[str, int]:
    """Bytes on each worker that has any."""
    bytes_by_node = {node: sum(world.engine.holdings(worker=node).values()) for node in world.nodes}
    return {node: size for node, size in bytes_by_node.items() if size}


def test_twins_have_placements_of_their_own(world: World) -> None:
    world.create_cluster()
    world.create_dataset(placement={"mode": "Replicate", "nodeCount": 1})
    with world.operator():
        world.wait_ready()
        world.create_dataset("twin", placement={"mode": "Replicate", "nodeCount": 3})
        world.wait_ready("twin")
        assert (len(nodes_of(world.dataset())), len(nodes_of(world.dataset("twin")))) == (1, 3)
        assert world.engine.source_bytes_read == TOTAL
        mine = nodes_of(world.dataset("twin"))
        world.kube.delete("Dataset", "pictures", namespace=world.namespace)
        world.wait(lambda: world.kube.find("Dataset", "pictures", namespace=world.namespace) is None)
        assert held(world) == mine
        assert condition(world.dataset("twin"), "Ready") == "True"
        # Other keys: a mount of its own, next to the other one.
        world.kube.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "other-keys", "namespace": world.namespace},
                "stringData": {"accessKeyId": "me", "secretAccessKey": "other"},
            }
        )
        world.create_dataset("stranger", source={"uri": SOURCE, "secretRef": {"name": "other-keys"}})
        world.wait(lambda: condition(world.dataset("stranger"), "Ready") == "True")
        paths = {world.dataset(name)["status"]["mountPath"] for name in ("twin", "stranger")}
        assert len(paths) == 2


def test_changes_at_the_source_are_seen_and_the_claim_has_the_size_of_the_data(world: World) -> None:
    world.create_cluster()
    world.create_dataset(source={"uri": SOURCE, "checkInterval": "10s"}, placement={"nodeCount": 1})
    with world.operator():
        first = world.wait_ready()["status"]
        world.wait(lambda: world.kube.find("PersistentVolumeClaim", "pictures", namespace=world.namespace))
        world.wait(
            lambda: (
                world.kube.get("PersistentVolumeClaim", "pictures", namespace=world.namespace)["status"].get(
                    "capacity"
                )
                == {"storage": "39Mi"}
            )
        )
        world.engine.sources[SOURCE] = {"0000.jpg": 2 * FILE_BYTES, "new.jpg": FILE_BYTES}
        # So much is not taken for true before somebody says so.
        world.wait(lambda: reason_of(world.dataset(), "SourceReachable") == "SourceShrunk")
        message = message_of(world.dataset(), "SourceReachable")
        assert "the source has 2 files" in message
        assert (reason_of(world.dataset(), "Ready"), sum(held(world).values())) == ("Loaded", TOTAL)
        name, value = message.rpartition("the annotation ")[2].split()[0].split("=")
        accepted = {"metadata": {"annotations": {name: value}}}
        world.kube.patch("Dataset", "pictures", accepted, namespace=world.namespace)
        world.wait(lambda: world.dataset()["status"]["totalFiles"] == 2)
        world.wait(lambda: sum(held(world).values()) == 3 * FILE_BYTES)
        assert world.dataset()["status"]["lastSourceCheckTime"] > first["lastSourceCheckTime"]
        world.wait(lambda: world.wait_ready()["status"]["loadedRatio"] == 1)


@pytest.mark.failure_mode("volume-deleted-by-force")
def test_a_claim_that_lost_its_volume_is_bound_to_a_new_one_while_a_pod_uses_it(world: World) -> None:
    kube, namespace = world.kube, world.namespace

    def claim() -> Object:
        return kube.find("PersistentVolumeClaim", "pictures", namespace=namespace) or {}

    def phase() -> str:
        return str(claim().get("status", {}).get("phase"))

    def ready() -> Object:
        conditions = world.dataset()["status"]["conditions"]
        return next(condition for condition in conditions if condition["type"] == "Ready")

    world.create_cluster()
    world.create_dataset(placement={"nodeCount": 1})
    with world.operator():
        world.wait_ready()
        world.wait(lambda: phase() == "Bound")
        first, volume = claim()["metadata"]["uid"], claim()["spec"]["volumeName"]
        kube.create(_reader(world))
        # As whoever may write PersistentVolumes does where the chart's policies are not on.
        stolen = {"spec": {"claimRef": {"namespace": "team-b", "uid": "x"}}}
        kube.patch("PersistentVolume", volume, stolen)
        world.wait(lambda: ready()["reason"] == "ClaimLost")
        assert ready()["status"] == "False"
        # The volume is made again for this very claim, which a pod uses.
        world.wait(lambda: phase() == "Bound")
        world.wait_ready()
        assert claim()["metadata"]["uid"] == first
        assert claim()["metadata"].get("deletionTimestamp") is None
        assert kube.get("Pod", "reader", namespace=namespace)["metadata"].get("deletionTimestamp") is None
        reference = kube.get("PersistentVolume", volume)["spec"]["claimRef"]
        assert (reference["namespace"], reference["uid"]) == (namespace, first)
        # It stays so, also for an operator that knows nothing of it.
        kube.patch(
            "Dataset",
            "pictures",
            {"metadata": {"annotations": {"tdcs.io/refresh": "1"}}},
            namespace=namespace,
        )
        world.wait(lambda: world.dataset()["status"].get("refreshed") == "1")
        assert kube.get("PersistentVolume", volume)["spec"]["claimRef"]["uid"] == first
    with world.operator():
        world.wait_ready()
        assert kube.get("PersistentVolume", volume)["spec"]["claimRef"]["uid"] == first
        assert phase() == "Bound"


def _reader(world: World) -> Object:
    """A pod on a node that mounts the claim."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "reader", "namespace": world.namespace},
        "spec": {
            "nodeName": world.nodes[0],
            "containers": [{"name": "main", "image": "x"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "pictures"}}],
        },
    }


def test_a_cache_that_leaves_a_node_or_is_deleted_frees_the_disk_first(world: World) -> None:
    def worker_sets() -> int:
        sets = world.kube.list("StatefulSet", namespace=world.namespace)
        return sum("-worker-" in stateful_set["metadata"]["name"] for stateful_set in sets)

    def jobs() -> list[Object]:
        labels = {"tdcs.io/component": "clean"}
        return world.kube.list("Job", namespace=world.namespace, labels=labels)

    world.create_cluster()
    with world.operator():
        world.wait(lambda: worker_sets() == 3)
        world.kube.patch("CacheCluster", world.cluster, {"spec": {"replicas": 2}}, namespace=world.namespace)
        world.wait(lambda: worker_sets() == 2)
        assert len(jobs()) == 1
        world.create_dataset(placement={"nodeCount": 1})
        world.wait_ready()
        world.kube.delete("CacheCluster", world.cluster, namespace=world.namespace)
        world.wait(
            lambda: (
                reason_of(world.kube.get("CacheCluster", world.cluster, namespace=world.namespace), "Ready")
                == "InUse"
            )
        )
        world.kube.delete("Dataset", "pictures", namespace=world.namespace)
        world.wait(lambda: world.kube.find("CacheCluster", world.cluster, namespace=world.namespace) is None)
        assert worker_sets() == 0


def test_a_pod_that_has_ended_does_not_keep_a_deleted_dataset(world: World) -> None:
    world.create_cluster()
    kube, namespace = world.kube, world.namespace
    with world.operator():
        world.create_dataset(placement={"nodeCount": 1})
        world.wait_ready()
        kube.create(_reader(world))
        world.wait(lambda: world.dataset()["status"].get("usedBy") == ["reader"])
        # Nobody hears of its node: it may run on.
        unknown = {"status": {"phase": "Unknown"}}
        kube.patch("Pod", "reader", unknown, namespace=namespace, subresource="status")
        kube.delete("Dataset", "pictures", namespace=namespace)
        world.wait(lambda: reason_of(world.dataset(), "Ready") == "InUse")
        assert "used by 1 pod: pod reader;" in message_of(world.dataset(), "Ready")
        claim = kube.get("PersistentVolumeClaim", "pictures", namespace=namespace)
        assert "kubernetes.io/pvc-protection" in claim["metadata"]["finalizers"]
        ended = {"status": {"phase": "Succeeded"}}
        kube.patch("Pod", "reader", ended, namespace=namespace, subresource="status")
        world.wait(lambda: kube.find("Dataset", "pictures", namespace=namespace) is None)
        assert kube.find("PersistentVolumeClaim", "pictures", namespace=namespace) is None
        assert kube.get("Pod", "reader", namespace=namespace)["status"]["phase"] == "Succeeded"
