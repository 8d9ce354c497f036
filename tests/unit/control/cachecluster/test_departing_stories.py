"""A node that will go hands its data over before, whatever the cache tolerates."""

import asyncio
import copy
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
from tdcs.control.cachecluster.eviction_guard import guarded_nodes
from tdcs.model.kube_resources import (
    CACHE_CLUSTERS,
    DATASETS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PRIORITY_CLASSES,
    STATEFUL_SETS,
    Resource,
)

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
    async with Cluster(engine=engine, nodes={name: {} for name in NAMES}) as cluster:
        await cluster.create_keys()
        await cluster.create_cache(tolerations=[{"operator": "Exists"}])
        await cluster.until(lambda: len(worker_sets(cluster)) == 3)
        yield cluster


async def change_node(cluster: Cluster, name: str, **patch: Any) -> None:
    await cluster.server.merge(NODES, name=name, patch=patch)


@pytest.mark.failure_mode("node-departure-notice")
async def test_a_node_with_a_notice_is_drained_though_its_taint_is_tolerated(cluster: Cluster) -> None:
    read = await partitioned(cluster)
    await change_node(cluster, "b", spec={"taints": [DISRUPTED]})
    await gone(cluster, "b")
    await cluster.until(lambda: sum(cluster.nodes().values()) == TOTAL and "b" not in cluster.nodes())
    assert cluster.engine.source_bytes_read == read
    (message,) = notes(cluster, "Draining")
    assert "because the node goes (taint karpenter.sh/disrupted)" in message
    assert not notes(cluster, "DataLeftBehind")


def guarded(cluster: Cluster) -> set[str]:
    """The nodes whose workers nobody may evict."""
    budgets = cluster.server.store(POD_DISRUPTION_BUDGETS)
    guarded = guarded_nodes(budgets.get(("tdcs-system", "default-last-copies")), nodes=NAMES)
    return set(guarded)


async def protect(cluster: Cluster, policy: str) -> None:
    patch = {"spec": {"scaling": {"protect": policy}}}
    await cluster.server.merge(CACHE_CLUSTERS, name="default", namespace="tdcs-system", patch=patch)


@pytest.mark.failure_mode("worker-evicted-with-last-copies")
async def test_nobody_evicts_a_worker_that_holds_the_last_copy_of_something(cluster: Cluster) -> None:
    await partitioned(cluster)
    await cluster.until(lambda: guarded(cluster) == set(NAMES))
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    # A drain for a restart is let through, one that follows a notice waits until the data is elsewhere.
    await change_node(cluster, "a", spec={"unschedulable": True, "taints": [cordon]})
    await cluster.until(lambda: guarded(cluster) == {"b", "c"})
    await change_node(cluster, "b", spec={"unschedulable": True, "taints": [cordon, DISRUPTED]})
    await gone(cluster, "b")
    await cluster.until(lambda: guarded(cluster) == {"c"})


async def guard_has_looked(cluster: Cluster) -> None:
    """A whole pass of the guard: the third look at its budget comes after what the second one was followed by."""
    get, looks = cluster.server.get, 0

    async def counted(resource: Resource, **options: Any) -> Any:
        nonlocal looks
        looks += resource is POD_DISRUPTION_BUDGETS
        return await get(resource, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cluster.server, "get", counted)
        await cluster.until(lambda: looks >= 3)


async def test_data_stays_protected_while_its_holders_do_not_know_a_new_version_of_the_source(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await partitioned(cluster)
    await cluster.until(lambda: guarded(cluster) == set(NAMES))
    assign, assigned = cluster.agents.assign, asyncio.Event()

    async def late(**options: Any) -> Any:
        await assigned.wait()
        return await assign(**options)

    monkeypatch.setattr(cluster.agents, "assign", late)
    cluster.engine.sources["s3://pictures"] = {**FILES, "one-more": 1000}
    await cluster.annotate("pictures", refresh="now")
    await cluster.until(lambda: cluster.status()["totalBytes"] == TOTAL + 1000)
    await guard_has_looked(cluster)
    assert guarded(cluster) == set(NAMES)
    assigned.set()
    await cluster.until(lambda: sum(cluster.nodes().values()) == TOTAL + 1000)
    await guard_has_looked(cluster)
    assert guarded(cluster) == set(NAMES)


async def test_a_dataset_that_cannot_be_understood_keeps_no_node_of_others_from_being_evicted(
    cluster: Cluster,
) -> None:
    await partitioned(cluster)
    await cluster.until(lambda: guarded(cluster) == set(NAMES))
    broken = copy.deepcopy(cluster.server.store(DATASETS)["n", "pictures"])
    broken["metadata"] = {"name": "broken", "namespace": "n"}
    broken["spec"]["placement"] = {"mode": "Nonsense"}
    # As after an upgrade or a restart: it was mounted, and the operator has not looked at it yet.
    status = broken.pop("status")
    await cluster.server.create(DATASETS, obj=broken)
    patch = {"status": {**status, "mountPath": "/datasets/0123456789abcdef"}}
    await cluster.server.merge(DATASETS, name="broken", namespace="n", patch=patch)
    await cluster.change(DATASETS, "pictures", placement={"mode": "Replicate", "nodeCount": 3})
    await cluster.until(lambda: sum(cluster.nodes().values()) == 3 * TOTAL)
    await cluster.until(lambda: not guarded(cluster))
    assert cluster.condition("Ready", "broken")["reason"] == "InvalidSpec"


async def test_idle_data_protects_no_worker_where_only_needed_data_does(cluster: Cluster) -> None:
    await partitioned(cluster)
    await protect(cluster, "Needed")
    await cluster.until(lambda: not cluster.server.store(POD_DISRUPTION_BUDGETS))
    pinned = {"spec": {"eviction": {"policy": "Pin"}}}
    await cluster.server.merge(DATASETS, name="pictures", namespace="n", patch=pinned)
    await cluster.until(lambda: guarded(cluster) == set(NAMES))
    await protect(cluster, "Never")
    await cluster.until(lambda: not cluster.server.store(POD_DISRUPTION_BUDGETS))


async def test_a_worker_whose_data_other_nodes_hold_too_may_be_evicted(cluster: Cluster) -> None:
    await cluster.create_dataset(placement={"mode": "Replicate", "nodeCount": 2})
    await cluster.until_state("Ready")
    assert len(cluster.nodes()) == 2
    first, second = cluster.nodes()
    await change_node(cluster, first, spec={"taints": [DISRUPTED]})
    # One of its two holders leaves, so the other one has the last copy of what has not been copied again.
    await gone(cluster, first)
    await cluster.until(lambda: len(cluster.nodes()) == 2 and first not in cluster.nodes())
    await cluster.until(lambda: not guarded(cluster))
    assert second in cluster.nodes()


async def test_a_cordon_alone_drives_no_worker_away(cluster: Cluster) -> None:
    await partitioned(cluster)
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    await change_node(cluster, "a", spec={"unschedulable": True, "taints": [cordon]})
    await change_node(cluster, "b", spec={"taints": [DISRUPTED]})
    await gone(cluster, "b")  # by then the cordon has been looked at, too
    assert states(cluster) == dict.fromkeys({"a", "c"}, "Ready")


@pytest.mark.failure_mode("node-departure-notice")
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


async def test_a_priority_class_that_does_not_exist_is_reported_and_changes_no_pod(cluster: Cluster) -> None:
    named = {"spec": {"priorityClassName": "cache-first"}}
    await cluster.server.merge(CACHE_CLUSTERS, name="default", namespace="tdcs-system", patch=named)

    def ready() -> dict[str, Any]:
        conditions = cluster.status("default", resource=CACHE_CLUSTERS).get("conditions", ())
        return next((condition for condition in conditions if condition["type"] == "Ready"), {})

    def template(node: str) -> dict[str, Any]:
        worker_set = cluster.server.store(STATEFUL_SETS)["tdcs-system", f"default-worker-{node}"]
        return dict(worker_set["spec"]["template"]["spec"])

    await cluster.until(lambda: ready().get("reason") == "NoPriorityClass")
    assert "there is no PriorityClass cache-first" in ready()["message"]
    assert "priorityClassName" not in template("a")
    cluster.server.store(PRIORITY_CLASSES)["", "cache-first"] = {
        "metadata": {"name": "cache-first"},
        "value": 9,
    }
    await cluster.until(lambda: template("a").get("priorityClassName") == "cache-first")
    await cluster.until(lambda: ready()["reason"] == "AllReady")


async def test_a_cache_whose_priority_class_is_gone_hands_over_and_is_guarded(cluster: Cluster) -> None:
    read = await partitioned(cluster)
    cluster.server.store(PRIORITY_CLASSES)["", "cache-first"] = {
        "metadata": {"name": "cache-first"},
        "value": 9,
    }
    named = {"spec": {"priorityClassName": "cache-first"}}
    await cluster.server.merge(CACHE_CLUSTERS, name="default", namespace="tdcs-system", patch=named)

    def template() -> dict[str, Any]:
        worker_set = cluster.server.store(STATEFUL_SETS)["tdcs-system", "default-worker-b"]
        return dict(worker_set["spec"]["template"]["spec"])

    await cluster.until(lambda: template().get("priorityClassName") == "cache-first")
    del cluster.server.store(PRIORITY_CLASSES)["", "cache-first"]

    def reason() -> str:
        return str(cluster.condition("Ready", "default", resource=CACHE_CLUSTERS).get("reason", ""))

    await cluster.until(lambda: reason() == "NoPriorityClass")
    await cluster.until(lambda: guarded(cluster) == set(NAMES))
    await change_node(cluster, "b", spec={"taints": [DISRUPTED]})
    await gone(cluster, "b")
    await cluster.until(lambda: sum(cluster.nodes().values()) == TOTAL and "b" not in cluster.nodes())
    await cluster.until(lambda: guarded(cluster) == {"a", "c"})
    assert cluster.engine.source_bytes_read == read
    assert reason() == "NoPriorityClass"
