"""A cache cluster that follows its jobs, or that a real HorizontalPodAutoscaler scales, on a control plane.

``TDCS_KILLS=1-60`` kills an operator of a cache that follows its jobs with each write of these numbers, not with one
only.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import pytest
from tests.controlplane.data.test_operator_cache import scale, states, worker_nodes
from tests.controlplane.data.test_operator_data import nodes_of
from tests.controlplane.operator_process import RunningOperator
from tests.controlplane.operator_world import (
    API_VERSION,
    TOTAL,
    World,
    condition_of,
    message_of,
    reason_of,
    world,
)
from tests.support.kube import KubeRequestError, Object

__all__ = ["world"]

KILLS = os.environ.get("TDCS_KILLS", "4-4").partition("-")
MOST_WRITES = 60
"""More than a cache takes to follow a job; the round that is not killed any more is the last."""

FOLLOWING = {"followJobs": True, "scaleDownDelay": "2s"}


def create_cluster(world: World, **spec: Any) -> None:
    world.create_cluster()
    world.kube.patch("CacheCluster", world.cluster, {"spec": spec}, namespace=world.namespace)


def cluster_of(world: World) -> Object:
    return world.kube.get("CacheCluster", world.cluster, namespace=world.namespace)


def create_reader(world: World, *, node: str) -> None:
    """A Deployment, a notebook: any pod counts that mounts the claim. This one's node is chosen for it."""
    world.kube.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "reader", "namespace": world.namespace},
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "read:test"}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "pictures"}}],
            },
        }
    )


def autoscaler(world: World, **spec: Any) -> Object:
    """A HorizontalPodAutoscaler of the cache cluster. Nothing gives it a metric: its bounds alone count."""
    target = {"apiVersion": API_VERSION, "kind": "CacheCluster", "name": world.cluster}
    metric = {
        "type": "External",
        "external": {
            "metric": {"name": "tdcs_wanted_workers"},
            "target": {"type": "AverageValue", "averageValue": "850m"},
        },
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": world.cluster, "namespace": world.namespace},
        "spec": {"scaleTargetRef": target, "metrics": [metric], **spec},
    }


def test_a_cache_cluster_that_contradicts_itself_is_refused_at_apply(world: World) -> None:
    quota: Object = {"name": "team", "namespaceSelector": {}}
    for spec, words in (
        ({"scaling": {"followJobs": True, "minReplicas": 3, "maxReplicas": 2}}, "not be above maxReplicas"),
        ({"scaling": {"minReplicas": 3}}, "belong to followJobs"),
        ({"scaling": {"scaleDownDelay": "5m"}}, "belong to followJobs"),
        (
            {"scaling": {"followJobs": True}, "replicas": 3},
            "neither kubectl scale nor a HorizontalPodAutoscaler",
        ),
        ({"scaling": {"followJobs": True, "minReplicas": 0}}, "spec.scaling.minReplicas"),
        ({"quotas": [{**quota, "bytes": 0}]}, "must be a size above zero"),
        ({"quotas": [{**quota, "bytes": "0Gi"}]}, "must be a size above zero"),
    ):
        metadata: Object = {"name": world.cluster, "namespace": world.namespace}
        with pytest.raises(KubeRequestError) as refused:
            world.kube.create(
                {"apiVersion": API_VERSION, "kind": "CacheCluster", "metadata": metadata, "spec": spec}
            )
        assert words in str(refused.value)


def test_a_worker_and_the_data_come_where_a_job_runs_and_a_second_owner_is_refused(world: World) -> None:
    create_cluster(world, scaling=FOLLOWING)
    with world.operator():
        # In memory all nodes have an agent: which of them count is known once the first worker was chosen.
        world.wait(lambda: list(states(world).values()) == ["Ready"])
        world.create_dataset(placement={"mode": "Auto"})
        world.wait_ready()
        (first,) = worker_nodes(world)
        second = min({*world.nodes} - {first})
        create_reader(world, node=second)
        world.wait(lambda: second in worker_nodes(world))
        world.wait(lambda: nodes_of(world.dataset()) == {second: TOTAL})
        world.wait(lambda: worker_nodes(world) == {second} and states(world) == {second: "Ready"})
        assert reason_of(cluster_of(world), "FollowsJobs") == "Following"
        with pytest.raises(KubeRequestError) as refused:
            scale(world, 1)
        assert "neither kubectl scale nor a HorizontalPodAutoscaler" in str(refused.value)
        world.kube.create(autoscaler(world, minReplicas=1, maxReplicas=2))
        world.wait(
            lambda: (
                "neither kubectl scale nor"
                in message_of(
                    world.kube.get("HorizontalPodAutoscaler", world.cluster, namespace=world.namespace),
                    "AbleToScale",
                )
            )
        )
        world.kube.delete("Pod", "reader", namespace=world.namespace)
        world.wait(lambda: "0 workers next to" in message_of(cluster_of(world), "FollowsJobs"))
        assert worker_nodes(world) == {second}  # the data has moved: it is not moved back
    assert world.engine.source_bytes_read == TOTAL


def has_followed(world: World, node: str) -> bool:
    """Whether the only worker, with all of the data, is where it is read."""
    return (
        worker_nodes(world) == {node}
        and states(world) == {node: "Ready"}
        and nodes_of(world.dataset()) == {node: TOTAL}
    )


def _killed_or_followed(world: World, operator: RunningOperator, node: str) -> bool:
    return operator.killed or has_followed(world, node)


@pytest.mark.timeout(1800, func_only=True)  # with every write some forty times a move of the cache
def test_an_operator_killed_while_the_cache_follows_a_job_is_followed_by_one_that_goes_on(
    world: World,
) -> None:
    create_cluster(world, scaling={**FOLLOWING, "scaleDownDelay": "0s"})
    world.create_dataset(placement={"mode": "Auto"})
    with world.operator():
        world.wait_ready()
        (cache_node,) = worker_nodes(world)
    read = world.engine.source_bytes_read
    for write in range(int(KILLS[0]), min(int(KILLS[2]), MOST_WRITES) + 1):
        next_node = world.nodes[(world.nodes.index(cache_node) + 1) % len(world.nodes)]
        # As the node's kubelet: a disk that was cleaned, and a worker and agent that start again.
        world.engine.state.workers[next_node].blocks.clear()
        world.engine.set_worker(name=next_node, live=True)
        create_reader(world, node=next_node)
        with world.operator(killed_after=write) as first:
            world.wait(partial(_killed_or_followed, world, first, next_node))
            killed = first.killed
        with world.operator():
            world.wait(partial(has_followed, world, next_node))
        assert world.engine.source_bytes_read == read, f"killed with write {write}"
        world.kube.delete("Pod", "reader", namespace=world.namespace, grace_seconds=0)
        world.wait(lambda: world.kube.find("Pod", "reader", namespace=world.namespace) is None)
        cache_node = next_node
        if not killed:
            assert write > 6, "the cache takes more writes than that to follow: was any operator killed?"
            return
        assert write < MOST_WRITES, f"the cache took more than {MOST_WRITES} writes"


def test_a_real_autoscaler_shrinks_the_cache_by_a_drain(world: World) -> None:
    create_cluster(world)
    world.create_dataset(placement={"mode": "Partition", "nodeCount": 3})
    with world.operator():
        world.wait_ready()
        world.wait(lambda: states(world) == dict.fromkeys(world.nodes, "Ready"))
        world.kube.create(autoscaler(world, minReplicas=1, maxReplicas=1))
        world.wait(lambda: len(worker_nodes(world)) == 1)
        (last_node,) = worker_nodes(world)
        world.wait(lambda: nodes_of(world.dataset()) == {last_node: TOTAL})
        autoscaler_object = world.kube.get(
            "HorizontalPodAutoscaler", world.cluster, namespace=world.namespace
        )
        assert condition_of(autoscaler_object, "AbleToScale")["status"] == "True"
        assert cluster_of(world)["spec"]["replicas"] == 1
    assert world.engine.source_bytes_read == TOTAL
