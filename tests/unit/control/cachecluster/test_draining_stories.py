"""A worker that leaves the cache first hands to the others what only it holds."""

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from tests.support.twins.engine import MemoryEngine, Operation
from tests.unit.control.cachecluster.test_cachecluster_stories import cleaned, worker_sets
from tests.unit.control.cluster import QUICK, Cluster
from tests.unit.control.killer import Killer
from tests.unit.control.server import Server

from tdcs.api import names
from tdcs.control.cachecluster.draining import since_when
from tdcs.model.humanize import human
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, NODES, STATEFUL_SETS

NAMES = ("a", "b", "c")
LENGTH = 1000
FILES = {f"{number:03d}": LENGTH for number in range(60)}
TOTAL = LENGTH * len(FILES)


class Pace:
    """Holds copies between workers back while it is closed."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()

    async def before(self, operation: Operation) -> None:
        if operation.name == "copy":
            await self.open.wait()


@pytest.fixture
def pace() -> Pace:
    return Pace()


@pytest.fixture
async def cluster(pace: Pace) -> AsyncIterator[Cluster]:
    engine = MemoryEngine(
        sources={"s3://pictures": FILES}, workers=dict.fromkeys(NAMES, 10 * TOTAL), before=pace.before
    )
    async with Cluster(engine=engine, nodes={name: {"cache": "yes"} for name in NAMES}) as cluster:
        await cluster.create_keys()
        await cluster.create_cache(nodeSelector={"cache": "yes"})
        await cluster.until(lambda: len(worker_sets(cluster)) == 3)
        yield cluster


async def scale(cluster: Cluster, replicas: int) -> None:
    await cluster.server.merge(
        CACHE_CLUSTERS, name="default", namespace="tdcs-system", patch={"spec": {"replicas": replicas}}
    )


async def one_leaves(cluster: Cluster, pace: Pace) -> str:
    """Of three workers one begins to drain, and nothing moves until `pace` is open; its node."""
    pace.open.clear()
    await scale(cluster, 2)
    await cluster.until(lambda: len(draining(cluster)) == 1)
    (leaver,) = draining(cluster)
    return leaver


async def partitioned(cluster: Cluster) -> int:
    """A Dataset over all three nodes; gives the bytes that its source has sent by then."""
    await cluster.create_dataset(placement={"mode": "Partition", "nodeCount": 3})
    await cluster.until_state("Ready")
    assert len(cluster.nodes()) == 3
    return cluster.engine.source_bytes_read


def states(cluster: Cluster) -> dict[str, str]:
    workers = cluster.status("default", resource=CACHE_CLUSTERS).get("workers", ())
    return {worker["node"]: worker["state"] for worker in workers}


def draining(cluster: Cluster) -> set[str]:
    return {node for node, state in states(cluster).items() if state == "Draining"}


def notes(cluster: Cluster, reason: str) -> list[str]:
    return [event["message"] for event in cluster.events(reason)]


async def gone(cluster: Cluster, node: str) -> None:
    await cluster.until(lambda: f"default-worker-{node}" not in worker_sets(cluster))
    await cluster.until(lambda: set(states(cluster)) == set(NAMES) - {node})


async def test_a_smaller_cache_keeps_its_data_without_asking_the_source(cluster: Cluster, pace: Pace) -> None:
    read = await partitioned(cluster)
    least = min(cluster.held(), key=lambda node: (cluster.held()[node], node))
    pace.open.clear()
    await scale(cluster, 2)
    await cluster.until(lambda: draining(cluster) == {least})
    status = cluster.status("default", resource=CACHE_CLUSTERS)
    assert [status[field] for field in ("replicas", "desiredReplicas", "readyReplicas")] == [3, 2, 2]
    await cluster.until(lambda: notes(cluster, "Draining"))
    assert "move to" in notes(cluster, "Draining")[0]
    assert len(worker_sets(cluster)) == 3  # not before it has handed everything over
    pace.open.set()
    await gone(cluster, least)
    await cluster.until(lambda: sum(cluster.nodes().values()) == TOTAL and least not in cluster.nodes())
    assert cluster.engine.source_bytes_read == read
    assert set(cleaned(cluster)) == {least}
    assert "has been moved" in notes(cluster, "Drained")[0]
    assert not notes(cluster, "DataLeftBehind")
    order = [write for write in cluster.server.writes if f"default-worker-{least}" in write or "Job" in write]
    assert [write.split()[0] for write in order] == ["create", "merge", "merge", "create", "delete"]


async def test_a_node_that_leaves_the_selector_is_drained_too(cluster: Cluster) -> None:
    read = await partitioned(cluster)
    await cluster.server.merge(NODES, name="b", patch={"metadata": {"labels": {"cache": None}}})
    await gone(cluster, "b")
    await cluster.until(lambda: sum(cluster.nodes().values()) == TOTAL and "b" not in cluster.nodes())
    assert cluster.engine.source_bytes_read == read


async def test_what_jobs_have_read_into_the_cache_moves_as_well(cluster: Cluster) -> None:
    await cluster.create_dataset(preload={"enabled": False})
    await cluster.until_state("Ready")
    (path,) = await cluster.engine.mounts()
    await cluster.until(lambda: path in cluster.engine.known_versions)
    files = sorted(FILES)
    cluster.agents.read("a", path=path, files=files[:40])
    cluster.agents.read("b", path=path, files=files[10:60])
    cluster.agents.read("c", path=path, files=files[20:])
    await cluster.until(lambda: cluster.nodes() == {"a": 40 * LENGTH, "b": 50 * LENGTH, "c": 40 * LENGTH})
    read = cluster.engine.source_bytes_read
    await scale(cluster, 2)
    await gone(cluster, "b")  # it holds most, but nothing alone
    await scale(cluster, 1)
    await cluster.until(lambda: len(worker_sets(cluster)) == 1)
    (last,) = states(cluster)
    await cluster.until(lambda: cluster.nodes() == {last: TOTAL})
    assert cluster.engine.source_bytes_read == read


@pytest.mark.failure_mode("no-room-for-drained-data")
async def test_data_without_room_elsewhere_is_reported_before_and_after_a_drain(cluster: Cluster) -> None:
    await partitioned(cluster)
    await cluster.set_capacity(TOTAL // 2 + 4 * LENGTH, *NAMES)
    before = dict(cluster.held())
    await scale(cluster, 1)
    await cluster.until(lambda: len(worker_sets(cluster)) == 1)
    (last,) = set(NAMES) - set(cleaned(cluster))
    assert cluster.held().get(last, 0) > before[last]
    messages = notes(cluster, "DataLeftBehind")
    assert messages
    assert all("no other node had room" in text and "read from the source again" in text for text in messages)
    assert {event["type"] for event in cluster.events("DataLeftBehind")} == {"Warning"}
    assert any("as far as these have room" in text for text in notes(cluster, "Draining"))
    await cluster.until(lambda: cluster.condition("Placed").get("reason") == "NotAllFits")
    # Its owners are told, too: how much of theirs it was, and why.
    await cluster.until(lambda: cluster.events("LeftWithWorkers"))
    for event in cluster.events("LeftWithWorkers"):
        assert (event["involvedObject"]["kind"], event["type"]) == ("Dataset", "Warning")
        assert "which CacheCluster default takes out: the workers that stay have room" in event["message"]
    message = cluster.condition("Ready")["message"]
    assert "of it left the cache with the worker" in message
    assert message == cluster.status()["message"]
    assert len(cluster.events("NotAllFits")) == 1
    await cluster.set_capacity(2 * TOTAL, last)
    await cluster.until(lambda: "left the cache" not in cluster.condition("Ready")["message"])


@pytest.mark.failure_mode("no-room-for-drained-data")
async def test_what_left_with_workers_is_summed_and_outlasts_the_operator(cluster: Cluster) -> None:
    await partitioned(cluster)
    await cluster.set_capacity(25 * LENGTH, *NAMES)
    await scale(cluster, 2)
    await cluster.until(
        lambda: len(worker_sets(cluster)) == 2 and len(notes(cluster, "LeftWithWorkers")) == 1
    )
    await scale(cluster, 1)
    await cluster.until(
        lambda: len(worker_sets(cluster)) == 1 and len(notes(cluster, "LeftWithWorkers")) == 2
    )
    first, second = sorted(
        notes(cluster, "LeftWithWorkers"), key=lambda text: "with what left before" in text
    )
    assert "is missing" not in first
    loss = cluster.status()["leftWithWorkers"]
    assert loss["bytes"] == TOTAL - cluster.status()["wantedBytes"]
    assert f"with what left before, {human(loss['bytes'])} of it is missing" in second
    assert loss["nodes"] == sorted(cleaned(cluster))
    sentence = f"{human(loss['bytes'])} of it left the cache with the workers of {', '.join(loss['nodes'])}"
    assert sentence in cluster.status()["message"]
    await cluster.stop()
    await cluster.start()
    await cluster.until(lambda: sentence in cluster.status()["message"])
    (last,) = set(NAMES) - set(cleaned(cluster))
    await cluster.set_capacity(30 * LENGTH, last)
    await cluster.until(lambda: cluster.status()["wantedBytes"] > TOTAL - loss["bytes"])
    less = cluster.status()["leftWithWorkers"]["bytes"]
    assert less == TOTAL - cluster.status()["wantedBytes"]
    shorter = f"{human(less)} of it left the cache with the workers of"
    await cluster.until(lambda: shorter in cluster.status()["message"])
    assert len(notes(cluster, "LeftWithWorkers")) == 2
    await cluster.set_capacity(2 * TOTAL, last)
    await cluster.until(lambda: "leftWithWorkers" not in cluster.status())
    assert "left the cache" not in cluster.status()["message"]


async def test_an_operator_that_is_killed_goes_on_with_the_same_worker(cluster: Cluster, pace: Pace) -> None:
    read = await partitioned(cluster)
    leaver = await one_leaves(cluster, pace)
    await cluster.stop()
    # Another one would now cost less to lose: who began, goes on all the same.
    stayers = sorted(set(NAMES) - {leaver})
    cluster.engine.set_worker(name=stayers[0], capacity=11 * TOTAL)
    await cluster.start()
    pace.open.set()
    await gone(cluster, leaver)
    await cluster.until(lambda: sum(cluster.nodes().values()) == TOTAL)
    assert cluster.engine.source_bytes_read == read
    assert set(cleaned(cluster)) == {leaver}


@pytest.mark.failure_mode("worker-dies-during-drain")
async def test_a_worker_that_dies_while_it_drains_is_gone(cluster: Cluster, pace: Pace) -> None:
    await partitioned(cluster)
    leaver = await one_leaves(cluster, pace)
    cluster.engine.set_worker(name=leaver, live=False)
    pace.open.set()
    await gone(cluster, leaver)
    await cluster.until(lambda: sum(cluster.nodes().values()) == TOTAL)  # from the source, again
    # It asks for three nodes, and there are two.
    await cluster.until(lambda: cluster.condition("Loaded").get("status") == "True")
    assert cluster.condition("Placed")["reason"] == "TooFewNodes"


@pytest.mark.failure_mode("worker-dies-during-drain")
async def test_a_worker_that_restarts_while_it_drains_keeps_its_data_and_goes_on(
    cluster: Cluster, pace: Pace
) -> None:
    """It has the same patience as a worker that stays."""
    await partitioned(cluster)
    leaver = await one_leaves(cluster, pace)
    await cluster.stop()
    cluster._settings = dataclasses.replace(QUICK, return_seconds=600.0)
    await cluster.start()
    looks = Counter[str]()

    async def count(operation: Operation) -> None:
        looks[operation.name] += 1
        await pace.before(operation)

    cluster.engine.before = count
    cluster.engine.set_worker(name=leaver, live=False)
    await cluster.until(lambda: looks["workers"] > 20)
    assert f"default-worker-{leaver}" in worker_sets(cluster)
    assert not cleaned(cluster)
    cluster.engine.set_worker(name=leaver)
    pace.open.set()
    await gone(cluster, leaver)
    await cluster.until(lambda: sum(cluster.nodes().values()) == TOTAL)


@pytest.mark.failure_mode("data-moves-before-reader-knows")
async def test_a_drained_worker_stays_until_readers_have_heard_where_its_data_is(
    cluster: Cluster, pace: Pace
) -> None:
    """They would ask it in vain, and then read the source. Takes the time that they have, 0.6 s here."""
    await partitioned(cluster)
    await cluster.stop()
    cluster._settings = dataclasses.replace(QUICK, handover_seconds=0.6)
    await cluster.start()
    leaver = await one_leaves(cluster, pace)
    pace.open.set()
    began = time.monotonic()
    await gone(cluster, leaver)
    assert time.monotonic() - began >= 0.6
    assert notes(cluster, "Drained")


async def test_scaling_up_again_calls_it_off(cluster: Cluster, pace: Pace) -> None:
    read = await partitioned(cluster)
    leaver = await one_leaves(cluster, pace)
    await scale(cluster, 3)
    await cluster.until(lambda: states(cluster) == dict.fromkeys(NAMES, "Ready"))
    pace.open.set()
    await cluster.until(lambda: len(cluster.nodes()) == 3 and cluster.status()["state"] == "Ready")
    assert notes(cluster, "DrainCancelled") == [f"the worker of node {leaver} stays: it is wanted again"]
    for worker_set in cluster.server.store(STATEFUL_SETS).values():
        assert names.ANNOTATION_DRAINING not in worker_set["metadata"].get("annotations", {})
        assert worker_set["spec"]["replicas"] == 1
    assert (cluster.engine.source_bytes_read, cleaned(cluster)) == (read, {})


async def test_a_worker_that_was_retired_already_is_started_again_when_it_is_wanted_again(
    cluster: Cluster, pace: Pace
) -> None:
    await partitioned(cluster)
    leaver = await one_leaves(cluster, pace)
    await cluster.stop()  # killed between retiring it and the next write
    await cluster.engine.retire(worker=leaver)
    await scale(cluster, 3)
    pace.open.set()
    name = ("tdcs-system", f"default-worker-{leaver}")
    made_long_ago = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    cluster.server.store(STATEFUL_SETS)[name]["metadata"].update(made_long_ago)
    await cluster.start()

    def template() -> dict[str, str]:
        return dict(cluster.server.store(STATEFUL_SETS)[name]["spec"]["template"]["metadata"]["annotations"])

    await cluster.until(lambda: names.ANNOTATION_RESTARTED in template())
    await cluster.until(lambda: states(cluster)[leaver] == "Pending")
    assert notes(cluster, "DrainCancelled") == [
        f"the worker of node {leaver} starts again, after it was drained: it is wanted again"
    ]
    cluster.engine.set_worker(name=leaver)  # as the new process does
    await cluster.until(lambda: states(cluster) == dict.fromkeys(NAMES, "Ready"))


@pytest.mark.failure_mode("master-away-during-drain")
async def test_a_time_limit_ends_it(cluster: Cluster, pace: Pace) -> None:
    await partitioned(cluster)
    pace.open.clear()
    spec = {"replicas": 2, "scaling": {"drainTimeout": "1s"}}
    await cluster.server.merge(CACHE_CLUSTERS, name="default", namespace="tdcs-system", patch={"spec": spec})
    await cluster.until(lambda: len(worker_sets(cluster)) == 2)
    (message,) = notes(cluster, "DataLeftBehind")
    assert "spec.scaling.drainTimeout (1s) is over" in message
    pace.open.set()
    await cluster.until(lambda: sum(cluster.nodes().values()) == TOTAL)


async def test_a_drain_that_a_clock_ahead_has_begun_begins_again(cluster: Cluster, pace: Pace) -> None:
    """Else its time limit is over when that clock was right."""

    def draining() -> list[str]:
        sets = cluster.server.store(STATEFUL_SETS).items()
        return [name for (_, name), worker in sets if since_when(worker)]

    await partitioned(cluster)
    pace.open.clear()
    spec = {"replicas": 2, "scaling": {"drainTimeout": "3s"}}
    await cluster.server.merge(CACHE_CLUSTERS, name="default", namespace="tdcs-system", patch={"spec": spec})
    await cluster.until(lambda: draining() != [])
    (name,) = draining()
    patch = {"metadata": {"annotations": {names.ANNOTATION_DRAINING: "2099-01-01T00:00:00Z"}}}
    await cluster.server.merge(STATEFUL_SETS, name=name, namespace="tdcs-system", patch=patch)
    await cluster.until(lambda: len(worker_sets(cluster)) == 2)
    pace.open.set()


@pytest.mark.failure_mode("master-away-during-drain")
async def test_a_master_that_is_away_holds_the_drain_up_and_does_not_lose_it(cluster: Cluster) -> None:
    read = await partitioned(cluster)
    cluster.engine.available = False
    await scale(cluster, 2)
    await cluster.until(
        lambda: cluster.condition("Ready", "default", resource=CACHE_CLUSTERS)["reason"] == "CacheUnavailable"
    )
    assert len(worker_sets(cluster)) == 3
    cluster.engine.available = True
    await cluster.until(lambda: len(worker_sets(cluster)) == 2)
    await cluster.until(lambda: sum(cluster.nodes().values()) == TOTAL and len(cluster.nodes()) == 2)
    assert cluster.engine.source_bytes_read == read


async def test_a_deleted_dataset_does_not_hold_a_drain_up(cluster: Cluster, pace: Pace) -> None:
    await partitioned(cluster)
    pace.open.clear()
    await scale(cluster, 2)
    await cluster.until(lambda: len(draining(cluster)) == 1)
    await cluster.server.delete(DATASETS, name="pictures", namespace="n")
    await cluster.until(lambda: len(worker_sets(cluster)) == 2 and not cluster.server.store(DATASETS))


@pytest.mark.failure_mode("other-workers-restart-during-drain")
async def test_a_worker_that_is_just_being_restarted_still_gets_its_share(
    cluster: Cluster, pace: Pace
) -> None:
    read = await partitioned(cluster)
    pace.open.clear()
    await cluster.server.merge(NODES, name="b", patch={"metadata": {"labels": {"cache": None}}})
    await cluster.until(lambda: draining(cluster) == {"b"})
    for away in "ac":
        cluster.engine.set_worker(name=away, live=False)
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "NoCacheNode")
    assert not notes(cluster, "DataLeftBehind")
    for back in "ac":
        cluster.engine.set_worker(name=back)
    pace.open.set()
    await gone(cluster, "b")
    assert not notes(cluster, "DataLeftBehind")
    await cluster.until(lambda: sum(cluster.nodes().values()) == TOTAL)
    assert cluster.engine.source_bytes_read == read


@pytest.mark.parametrize("after", range(1, 13))
@pytest.mark.failure_mode("operator-killed-during-drain")
async def test_an_operator_killed_with_any_write_of_a_drain_is_followed_by_one_that_ends_it(
    cluster: Cluster, after: int
) -> None:
    read = await partitioned(cluster)
    killer = Killer(cluster, after=after)
    # The user's own write is not the operator's.
    await Server.merge(
        cluster.server,
        CACHE_CLUSTERS,
        name="default",
        namespace="tdcs-system",
        patch={"spec": {"replicas": 2}},
    )

    def ended() -> bool:
        return len(worker_sets(cluster)) == 2 and not draining(cluster)

    await cluster.until(lambda: killer.dead.is_set() or ended())
    assert killer.dead.is_set() or after > 6  # a drain is more than a few writes
    await cluster.stop()
    killer.release()
    await cluster.start()
    await cluster.until(ended)
    (leaver,) = set(NAMES) - set(states(cluster))
    await cluster.until(lambda: sum(cluster.nodes().values()) == TOTAL and leaver not in cluster.nodes())
    assert cluster.engine.source_bytes_read == read
    assert set(cleaned(cluster)) == {leaver}


def reason(cluster: Cluster, kind: str) -> str:
    return str(cluster.condition(kind, "default", resource=CACHE_CLUSTERS).get("reason"))


async def test_a_selector_that_no_node_matches_empties_no_cache(cluster: Cluster) -> None:
    read = await partitioned(cluster)
    await cluster.server.merge(
        CACHE_CLUSTERS,
        name="default",
        namespace="tdcs-system",
        patch={"spec": {"nodeSelector": {"cache": "no"}}},
    )
    await cluster.until(lambda: reason(cluster, names.PROGRESSING) == "NoCacheNode")
    assert states(cluster) == dict.fromkeys(NAMES, "Ready")
    assert reason(cluster, names.READY) == "AllReady"
    await cluster.server.merge(
        CACHE_CLUSTERS,
        name="default",
        namespace="tdcs-system",
        patch={"spec": {"nodeSelector": {"cache": "yes"}}},
    )
    await cluster.until(lambda: reason(cluster, names.PROGRESSING) == "AllReady")
    assert len(worker_sets(cluster)) == 3
    assert cluster.engine.source_bytes_read == read


async def test_nodes_that_go_are_not_said_to_keep_their_workers(cluster: Cluster) -> None:
    await partitioned(cluster)
    for name in NAMES:
        await cluster.server.delete(NODES, name=name, namespace="")
    await cluster.until(lambda: reason(cluster, names.READY) == "NoCacheNode")
    condition = cluster.condition(names.READY, "default", resource=CACHE_CLUSTERS)
    assert condition["message"].count("no node matches") == 1
    assert "keep it" not in condition["message"]
