"""A node that will go hands its data over before, whatever the cache tolerates."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cachecluster.test_cachecluster_stories import cleaned, worker_sets
from tests.unit.control.cachecluster.test_draining_stories import (
    FILES,
    NAMES,
    TOTAL,
    draining,
    gone,
    notes,
    partitioned,
    states,
)
from tests.unit.control.cluster import Cluster

from tdcs.api import names
from tdcs.model.kube_resources import NODES, STATEFUL_SETS

DISRUPTED = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "KubeletReady",
    "message": "kubelet is posting ready status",
}
SHUTS_DOWN = {**READY, "status": "False", "reason": "KubeletNotReady", "message": "node is shutting down"}


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    engine = MemoryEngine(sources={"s3://pictures": FILES}, workers=dict.fromkeys(NAMES, 10 * TOTAL))
    async with Cluster(engine=engine, nodes={name: {} for name in NAMES}) as made:
        await made.create_keys()
        await made.create_cache(tolerations=[{"operator": "Exists"}])
        await made.until(lambda: len(worker_sets(made)) == 3)
        yield made


async def change_node(cluster: Cluster, name: str, **patch: Any) -> None:
    await cluster.server.merge(NODES, name=name, patch=patch)


async def test_a_node_with_a_notice_is_drained_though_its_taint_is_tolerated(cluster: Cluster) -> None:
    read = await partitioned(cluster)
    await change_node(cluster, "b", spec={"taints": [DISRUPTED]})
    await gone(cluster, "b")
    await cluster.until(lambda: sum(cluster.nodes().values()) == TOTAL and "b" not in cluster.nodes())
    assert cluster.engine.source_bytes_read == read
    (said,) = notes(cluster, "Draining")
    assert "because the node goes (taint karpenter.sh/disrupted)" in said
    assert not notes(cluster, "DataLeftBehind")


async def test_a_cordon_alone_drives_no_worker_away(cluster: Cluster) -> None:
    await partitioned(cluster)
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    await change_node(cluster, "a", spec={"unschedulable": True, "taints": [cordon]})
    await change_node(cluster, "b", spec={"taints": [DISRUPTED]})
    await gone(cluster, "b")  # by then the cordon has been looked at, too
    assert states(cluster) == dict.fromkeys({"a", "c"}, "Ready")


async def test_a_node_that_shuts_down_hands_over_and_keeps_its_disk_for_its_return(cluster: Cluster) -> None:
    read = await partitioned(cluster)
    await change_node(cluster, "b", status={"conditions": [SHUTS_DOWN]})
    await cluster.until(lambda: draining(cluster) == {"b"})
    await cluster.until(lambda: sum(cluster.nodes().values()) == TOTAL and "b" not in cluster.nodes())
    await cluster.until(lambda: notes(cluster, "Draining"))
    assert "because the node shuts down" in notes(cluster, "Draining")[0]
    await change_node(cluster, "b", status={"conditions": [READY]})
    await cluster.until(lambda: states(cluster) == dict.fromkeys(NAMES, "Ready"))
    worker_set = cluster.server.store(STATEFUL_SETS)["tdcs-system", "default-worker-b"]
    assert names.ANNOTATION_DRAINING not in worker_set["metadata"]["annotations"]
    assert worker_set["spec"]["replicas"] == 1
    assert (cluster.engine.source_bytes_read, cleaned(cluster)) == (read, {})
