"""Stories of a cache that follows its jobs: workers and data come where pods read, and go a while after."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.unit.control.workers import WorkersCluster

from tdcs.api import names
from tdcs.model.kube_resources import CACHE_CLUSTERS, STATEFUL_SETS, TRAINING_JOBS

MB = 1_000_000
SIZE = 40 * MB
FILES = {f"{number:02}.bin": MB for number in range(40)}
NOW = "2026-01-01T00:00:00Z"
QUICKLY = {"followJobs": True, "scaleDownDelay": "1s"}


@pytest.fixture
async def cluster() -> AsyncIterator[WorkersCluster]:
    """Four nodes with room for one and a half of the datasets each, and a cache that follows its jobs."""
    sources = {f"s3://{name}": FILES for name in ("one", "two", "three")}
    async with WorkersCluster(sources=sources, nodes="abcd", capacity=60 * MB) as cluster:
        await cluster.create_cache(nodeSelector={"cache": "yes"}, scaling=QUICKLY)
        await cluster.until(lambda: len(cluster.worker_nodes()) == 1)
        yield cluster


async def create(cluster: WorkersCluster, name: str = "one", *, state: str = "Ready", **spec: object) -> None:
    await cluster.create_dataset(name, source={"uri": f"s3://{name}"}, **spec)
    await cluster.until_state(state, name)


def follows(cluster: WorkersCluster) -> tuple[str, str]:
    """Reason and message of the condition FollowsJobs."""
    condition = cluster.condition(names.FOLLOWS_JOBS, "default", resource=CACHE_CLUSTERS)
    return condition.get("reason", ""), condition.get("message", "")


async def test_workers_and_data_come_where_pods_read_and_go_a_while_after(cluster: WorkersCluster) -> None:
    await create(cluster)
    (first,) = cluster.worker_nodes()
    second, third = sorted({*"abcd"} - {first})[:2]
    cluster.read("p1", "one", node=second)
    await cluster.until(lambda: cluster.nodes("one") == {second: SIZE})  # its data moves there
    cluster.read("p2", "one", node=third)
    await cluster.until(lambda: cluster.nodes("one") == {second: SIZE, third: SIZE})  # both read natively
    await cluster.until_workers(second + third)  # nothing called for the first one any more
    assert follows(cluster) == ("Following", "2 workers next to pods that read")
    cluster.end("p2")
    await cluster.until_workers(second)
    await cluster.until(lambda: cluster.nodes("one") == {second: SIZE})
    assert sorted(cluster.cleaned) == sorted([first, third])
    cluster.end("p1")
    await cluster.until(lambda: follows(cluster)[1].startswith("0 workers next to pods that read, 1 for"))
    assert cluster.worker_nodes() == {second}
    assert cluster.engine.source_bytes_read == SIZE


async def test_a_pod_that_comes_back_in_time_finds_its_worker_also_over_a_restart(
    cluster: WorkersCluster,
) -> None:
    await cluster.scale(scaling={**QUICKLY, "scaleDownDelay": "1h"})
    await create(cluster)
    (first,) = cluster.worker_nodes()
    second = min({*"abcd"} - {first})
    cluster.read("p1", "one", node=second)
    await cluster.until_workers(first + second)
    cluster.end("p1")

    def idle() -> dict[str, str]:
        workers = cluster.status("default", resource=CACHE_CLUSTERS).get("workers", ())
        return {worker["node"]: worker["idleSince"] for worker in workers if worker.get("idleSince")}

    await cluster.until(lambda: len(idle()) == 1)
    before = idle()
    await cluster.restart()
    await cluster.until_workers(first + second)
    assert idle() == before
    assert "1 spare, which leave after 1h" in follows(cluster)[1]
    cluster.read("p1", "one", node=first)
    cluster.read("p2", "one", node=second)
    await cluster.until(lambda: not idle())
    assert not cluster.cleaned


async def test_there_are_as_many_workers_as_the_data_that_jobs_need_takes(cluster: WorkersCluster) -> None:
    await create(cluster, "one", eviction={"policy": "Pin"})
    await create(cluster, "two", eviction={"policy": "Pin"})
    await create(cluster, "three", state="Degraded")  # it does not fit, and nobody needs it yet
    await cluster.until(lambda: len(cluster.worker_nodes()) == 2)
    assert cluster.status("default", resource=CACHE_CLUSTERS)["wantedBytes"] == 2 * SIZE
    cluster.read("p1", "three", node=min(cluster.worker_nodes()))
    await cluster.until(lambda: len(cluster.worker_nodes()) == 3)
    await cluster.until(lambda: sum(cluster.nodes("three").values()) == SIZE)
    cluster.end("p1")
    await cluster.until(lambda: len(cluster.worker_nodes()) == 2)
    await cluster.until(lambda: sum(cluster.nodes("one").values()) == SIZE)
    await cluster.until(lambda: sum(cluster.nodes("two").values()) == SIZE)


async def test_bounds_hold_and_what_gets_no_worker_is_named(cluster: WorkersCluster) -> None:
    await cluster.scale(scaling={**QUICKLY, "minReplicas": 2, "maxReplicas": 2})
    await cluster.until(lambda: len(cluster.worker_nodes()) == 2)
    await create(cluster)
    for node in "abcd":
        cluster.read(f"p{node}", "one", node=node)
    await cluster.until(lambda: follows(cluster)[0] == "AtMaximum")
    assert "2 nodes with pods that read data of this cache have no worker" in follows(cluster)[1]
    assert len(cluster.worker_nodes()) == 2
    await cluster.scale(nodeSelector={"cache": "no"})
    await cluster.until(lambda: follows(cluster)[0] == "NodesDoNotFit")
    assert "spec.nodeSelector" in follows(cluster)[1]


async def test_when_it_is_switched_off_replicas_say_how_many_again(cluster: WorkersCluster) -> None:
    await cluster.until(lambda: follows(cluster)[0] == "Following")
    await cluster.scale(scaling={"followJobs": None, "scaleDownDelay": None}, replicas=3)
    await cluster.until(lambda: len(cluster.worker_nodes()) == 3)
    await cluster.until(lambda: follows(cluster)[0] == "Off")


@pytest.mark.failure_mode("draining-statefulset-deleted")
async def test_a_draining_workers_set_that_somebody_deletes_is_made_again_and_nothing_is_lost() -> None:
    go = asyncio.Event()

    async def before(operation: object) -> None:
        if getattr(operation, "name", "") == "copy":
            await go.wait()

    async with WorkersCluster(
        sources={"s3://pictures": FILES}, nodes="abc", capacity=60 * MB, before=before, return_seconds=10
    ) as cluster:
        await cluster.create_cache(nodeSelector={"cache": "yes"})
        await cluster.until_workers("abc")
        await cluster.create_dataset(placement={"mode": "Partition", "nodeCount": 3})
        await cluster.until_state("Ready")
        await cluster.scale(replicas=2)
        await cluster.until(lambda: "Draining" in cluster.workers().values())
        (leaver,) = (node for node, state in cluster.workers().items() if state == "Draining")
        await cluster.server.delete(
            STATEFUL_SETS, name=f"default-worker-{leaver}", namespace=names.SYSTEM_NAMESPACE
        )
        await cluster.until(lambda: cluster.events("DrainResumed"))
        go.set()
        await cluster.until_workers("".join(sorted({*"abc"} - {leaver})))
        await cluster.until(lambda: sum(cluster.nodes().values()) == SIZE)
        assert cluster.engine.source_bytes_read == SIZE
        assert cluster.cleaned == [leaver]


async def test_a_spare_worker_that_holds_nothing_goes_and_does_not_come_back(cluster: WorkersCluster) -> None:
    await cluster.scale(scaling={**QUICKLY, "minReplicas": 4})
    await cluster.until_workers("abcd")
    await cluster.scale(scaling={**QUICKLY, "minReplicas": 2, "scaleDownDelay": "0s"})
    await cluster.until(lambda: len(cluster.worker_nodes()) == 2)
    assert len(cluster.cleaned) == 2


async def test_the_data_of_an_elastic_job_follows_it_to_new_nodes_before_others_lose_theirs() -> None:
    async with WorkersCluster(sources={"s3://one": FILES}, nodes="abcd", capacity=60 * MB) as cluster:
        await cluster.create_cache(nodeSelector={"cache": "yes"})
        await cluster.until_workers("abcd")
        await create(cluster)
        (first,) = cluster.nodes("one")
        second, third = sorted({*"abcd"} - {first})[:2]
        # Pods of a job of fixed size, which this is as yet, are placed by the data: it does not follow them.
        cluster.server.store(TRAINING_JOBS)["n", "train"] = {
            "metadata": {"name": "train", "namespace": "n", "uid": "t", "creationTimestamp": NOW},
            "spec": {"datasets": [{"name": "one", "mountPath": "/data"}]},
            "status": {"conditions": [{"type": "Admitted", "status": "True", "reason": "AllPodsFit"}]},
        }
        cluster.read("p0", "one", node=first)
        cluster.read("p1", "one", node=second)
        await cluster.until(lambda: cluster.status("one").get("activeJobs") == 1)
        assert cluster.nodes("one") == {first: SIZE}
        cluster.server.store(TRAINING_JOBS)["n", "train"]["spec"]["elastic"] = {
            "minReplicas": 1,
            "maxReplicas": 8,
        }
        cluster.read("p2", "one", node=third)  # it has grown
        await cluster.until(lambda: cluster.nodes("one") == dict.fromkeys((first, second, third), SIZE))
        cluster.end("p1")
        cluster.end("p2")  # it has shrunk: what is there stays for a while, and nothing is read again
        assert cluster.engine.source_bytes_read == SIZE


@pytest.mark.parametrize("write", [4, 6, 7])
@pytest.mark.failure_mode("leaving-worker-wanted-again")
async def test_a_worker_that_came_back_at_any_moment_of_its_leaving_is_cleaned_when_it_goes(
    write: int,
) -> None:
    async with WorkersCluster(sources={"s3://pictures": FILES}, nodes="ab", capacity=60 * MB) as cluster:
        await cluster.create_cache(nodeSelector={"cache": "yes"})
        await cluster.until_workers("ab")
        await cluster.create_dataset(placement={"mode": "Replicate"})
        await cluster.until(lambda: cluster.held() == {"a": SIZE, "b": SIZE})
        cluster.mortal.kill_after(write)
        await cluster.scale(replicas=1)
        await cluster.until(lambda: cluster.mortal.dead.is_set() or len(cluster.worker_nodes()) == 1)
        await cluster.scale(replicas=2)
        await cluster.restart()
        await cluster.until_workers("ab")
        await cluster.until(lambda: cluster.held() == {"a": SIZE, "b": SIZE})
        await cluster.scale(replicas=1)
        await cluster.until(lambda: len(cluster.worker_nodes()) == 1)
        (last,) = cluster.worker_nodes()
        assert cluster.held() == {last: SIZE}


async def test_a_new_operator_moves_nothing_that_is_where_its_readers_have_it(
    cluster: WorkersCluster,
) -> None:
    """The node that is read on has room for a part: the rest is next to it, where nobody reads."""
    await cluster.scale(scaling={**QUICKLY, "scaleDownDelay": "1h", "minReplicas": 2})
    await cluster.until(lambda: len(cluster.worker_nodes()) == 2)
    read_on, alongside = sorted(cluster.worker_nodes())
    for name in ("one", "two"):
        cluster.read(f"p-{name}", name, node=read_on)
    await create(cluster, eviction={"policy": "Pin"})
    assert cluster.nodes("one") == {read_on: SIZE}
    await create(cluster, "two")
    before = cluster.nodes("two")
    assert before.keys() == {read_on, alongside}
    await cluster.quiet()
    moved = cluster.engine.source_bytes_read + cluster.engine.copied_bytes
    passes = cluster.passes
    await cluster.restart()
    await cluster.until(lambda: cluster.passes > passes)
    await cluster.quiet()
    assert cluster.nodes("two") == before
    assert cluster.engine.source_bytes_read + cluster.engine.copied_bytes == moved
