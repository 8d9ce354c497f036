"""A cache cluster that follows its jobs, or that a real HorizontalPodAutoscaler scales, on a control plane."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controlplane.operator_world import (
    API_VERSION,
    TOTAL,
    World,
    condition_of,
    message_of,
    reason_of,
    world,
)
from tests.controlplane.test_operator_cache import scale, states, worker_nodes
from tests.controlplane.test_operator_data import nodes_of
from tests.support.kube import KubeRequestError, Object

__all__ = ["world"]

FOLLOWING = {"followJobs": True, "scaleDownDelay": "2s"}


def create_cluster(world: World, **spec: Any) -> None:
    world.create_cluster()
    world.kube.patch("CacheCluster", world.cluster, {"spec": spec}, namespace=world.namespace)


def cluster_of(world: World) -> Object:
    return world.kube.get("CacheCluster", world.cluster, namespace=world.namespace)


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
        made: Object = {"name": world.cluster, "namespace": world.namespace}
        with pytest.raises(KubeRequestError) as refused:
            world.kube.create(
                {"apiVersion": API_VERSION, "kind": "CacheCluster", "metadata": made, "spec": spec}
            )
        assert words in str(refused.value)


def test_a_worker_and_the_data_come_where_a_job_runs_and_a_second_owner_is_refused(world: World) -> None:
    create_cluster(world, scaling=FOLLOWING)
    world.create_dataset(placement={"mode": "Auto"})
    with world.operator():
        world.wait_ready()
        (first,) = worker_nodes(world)
        other = min({*world.nodes} - {first})
        # A Deployment, a notebook: any pod counts that mounts the claim. This one's node is chosen for it.
        world.kube.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "reader", "namespace": world.namespace},
                "spec": {
                    "nodeName": other,
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "main", "image": "read:test"}],
                    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "pictures"}}],
                },
            }
        )
        world.wait(lambda: other in worker_nodes(world))
        world.wait(lambda: nodes_of(world.dataset()) == {other: TOTAL})
        world.wait(lambda: worker_nodes(world) == {other} and states(world) == {other: "Ready"})
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
        world.wait(lambda: "0 workers beside" in message_of(cluster_of(world), "FollowsJobs"))
        assert worker_nodes(world) == {other}  # the data has moved: it is not moved back
    assert world.engine.source_bytes_read == TOTAL


def test_a_real_autoscaler_shrinks_the_cache_by_a_drain(world: World) -> None:
    create_cluster(world)
    world.create_dataset(placement={"mode": "Partition", "nodeCount": 3})
    with world.operator():
        world.wait_ready()
        world.wait(lambda: states(world) == dict.fromkeys(world.nodes, "Ready"))
        world.kube.create(autoscaler(world, minReplicas=1, maxReplicas=1))
        world.wait(lambda: len(worker_nodes(world)) == 1)
        (left,) = worker_nodes(world)
        world.wait(lambda: nodes_of(world.dataset()) == {left: TOTAL})
        found = world.kube.get("HorizontalPodAutoscaler", world.cluster, namespace=world.namespace)
        assert condition_of(found, "AbleToScale")["status"] == "True"
        assert cluster_of(world)["spec"]["replicas"] == 1
    assert world.engine.source_bytes_read == TOTAL
