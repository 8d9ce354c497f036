"""What Datasets and Preloads say of themselves when something is not as it should be."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.twins.engine import MemoryEngine, Operation
from tests.unit.control.cluster import Cluster

from tdcs.model.cache_engine import Credentials
from tdcs.model.kube_resources import DATASETS, NAMESPACES, PERSISTENT_VOLUME_CLAIMS, PRELOADS, SECRETS

MB = 1_000_000
FILES = 20
TOTAL = FILES * MB
ZONES = {"a": "1", "b": "1", "c": "2", "d": "2"}


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    engine = MemoryEngine(
        sources={"s3://pictures": {f"{'train' if n % 2 else 'val'}/{n:03d}": MB for n in range(FILES)}},
        workers=dict.fromkeys(ZONES, 10 * TOTAL),
    )
    async with Cluster(
        engine=engine, nodes={name: {"zone": zone} for name, zone in ZONES.items()}
    ) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        yield cluster


def slow(cluster: Cluster, *, put: float = 0.0, copy: float = 0.0) -> None:
    seconds = {"put": put, "copy": copy}

    async def pace(operation: Operation) -> None:
        if operation.length and seconds.get(operation.name):
            await asyncio.sleep(seconds[operation.name])

    cluster.engine.before = pace


def preload(cluster: Cluster, name: str = "warm") -> dict[str, Any]:
    return cluster.status(name, resource=PRELOADS)


def words(cluster: Cluster, name: str = "warm") -> str:
    """What the MESSAGE column of a Preload says."""
    return str(cluster.condition("Complete", name, resource=PRELOADS).get("message", ""))


async def master_restarts(cluster: Cluster) -> None:
    cluster.engine.available = False
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "CacheUnavailable")
    cluster.engine.available = True


async def test_a_dataset_that_no_node_may_hold_is_mounted_again_after_the_master_was_away(
    cluster: Cluster,
) -> None:
    await cluster.create_dataset(placement={"nodeSelector": {"zone": "9"}})
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "NoCacheNode")
    assert cluster.condition("Mounted")["status"] == "True"
    assert (cluster.condition("Placed")["status"], cluster.condition("Placed")["reason"]) == (
        "False",
        "NoCacheNode",
    )
    await master_restarts(cluster)
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "NoCacheNode")
    status = cluster.status()
    assert (status["state"], status["reason"]) == ("Pending", "NoCacheNode"), "a node may still come"
    assert (status["wantedBytes"], "loaded" in status) == (0, False), "nothing is there: that is no 100%"
    mounted = cluster.condition("Mounted")
    assert (mounted["status"], mounted["reason"]) == ("True", "Mounted")


async def test_a_source_without_files_is_mounted_again_after_the_master_was_away(cluster: Cluster) -> None:
    cluster.engine.sources["s3://pictures"] = {}
    await cluster.create_dataset()
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "SourceEmpty")
    await master_restarts(cluster)
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "SourceEmpty")
    assert cluster.condition("Mounted")["status"] == "True"


async def test_data_of_another_dataset_of_the_source_is_not_reported_as_its_own(cluster: Cluster) -> None:
    await cluster.create_dataset("whole", placement={"mode": "Replicate", "nodeSelector": {"zone": "1"}})
    await cluster.until_state("Ready", "whole")
    half: dict[str, Any] = {
        "preload": {"percent": 50},
        "placement": {"nodeCount": 1, "nodeSelector": {"zone": "2"}},
    }
    await cluster.create_dataset("half", **half)
    await cluster.until_state("Ready", "half")
    assert cluster.condition("Ready", "half")["message"] == "9.5 MiB of 19.1 MiB on 1 node (Replicate)"
    await cluster.annotate("whole", refresh="1")
    await cluster.until(lambda: cluster.status("whole").get("refreshed") == "1")
    assert cluster.condition("Ready", "whole")["message"] == "19.1 MiB of 19.1 MiB on 2 nodes (Replicate)"
    await cluster.server.delete(DATASETS, name="whole", namespace="n")
    await cluster.until(lambda: sum(cluster.held().values()) == TOTAL // 2)
    assert cluster.condition("Ready", "half")["message"] == "9.5 MiB of 19.1 MiB on 1 node (Replicate)"


async def test_a_dataset_that_only_jobs_fill_says_that_others_of_its_source_have_data_there(
    cluster: Cluster,
) -> None:
    await cluster.create_dataset("read", preload={"enabled": False})
    await cluster.until_state("Ready", "read")
    assert (
        cluster.condition("Ready", "read")["message"]
        == "0 bytes of 19.1 MiB on 0 nodes; more is cached as jobs read"
    )
    await cluster.create_dataset("whole", placement={"nodeCount": 1})
    await cluster.until_state("Ready", "whole")
    addition = "with what other Datasets of this source have there"
    message = f"19.1 MiB of 19.1 MiB on 1 node ({addition}); more is cached as jobs read"
    await cluster.until(lambda: cluster.condition("Ready", "read")["message"] == message)


async def test_what_did_not_fit_is_no_part_of_the_own_extent(cluster: Cluster) -> None:
    await cluster.set_capacity(TOTAL // 4, *ZONES)
    await cluster.create_dataset(placement={"mode": "Partition", "nodeCount": 2})
    await cluster.until_state("Degraded")
    assert cluster.condition("Ready")["message"].startswith(
        "7.6 MiB of 19.1 MiB on 2 nodes (Partition); 7.6 MiB of"
    )


@pytest.mark.failure_mode("secret-deleted")
async def test_a_secret_that_is_gone_is_in_the_sentence_that_people_are_shown(cluster: Cluster) -> None:
    await cluster.create_dataset(placement={"nodeCount": 1})
    await cluster.until_state("Ready")
    before = cluster.condition("Ready")["message"]
    cluster.server.store(SECRETS).pop(("n", "keys"))
    await cluster.until_state("Degraded")
    condition = cluster.condition("Ready")
    assert condition["status"] == "True"
    assert condition["message"].startswith(
        f"{before}; SecretNotFound: Secret n/keys (spec.source.secretRef) does not exist: create it with the keys"
    )
    await cluster.create_keys()
    await cluster.until(lambda: cluster.condition("Ready")["message"] == before)


@pytest.mark.failure_mode("dataset-with-other-keys")
async def test_wrong_keys_for_a_mounted_bucket_are_tried_and_right_ones_join_the_mount(
    cluster: Cluster,
) -> None:
    await cluster.create_dataset("first")
    await cluster.until_state("Ready", "first")
    cluster.engine.credentials["s3://pictures"] = Credentials(access_key_id="me", secret_access_key="s3cr3t")
    await cluster.create_keys("other", key="wrong")
    await cluster.create_dataset("second", source={"secretRef": {"name": "other"}})
    await cluster.until(lambda: cluster.condition("Ready", "second").get("reason") == "SourceRefused")
    assert "refused the credentials" in cluster.condition("Ready", "second")["message"]
    await cluster.create_keys("other")  # corrected, as the sentence says
    await cluster.until_state("Ready", "second")
    assert cluster.status("second")["mountPath"] == cluster.status("first")["mountPath"]


async def test_a_source_that_cannot_be_mounted_is_not_said_to_be_mounted_for_others(cluster: Cluster) -> None:
    """A master lists a mount while it asks the source about it, and is looked at then, and seldom after that."""

    async def look(operation: Operation) -> None:
        if operation.name == "ask_source":
            await cluster.observer.look("default")
        elif operation.name == "mounts":
            await asyncio.sleep(0.5)

    cluster.engine.before = look
    await cluster.create_dataset(source={"uri": "s3://no-such-bucket"})
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "SourceRefused")
    for number in range(3):
        await cluster.annotate("pictures", refresh=str(number))
        await cluster.quiet(seconds=0.2)
        assert cluster.condition("Ready")["reason"] == "SourceRefused"
    assert not cluster.events("KeysUnchecked")


async def test_the_rate_tells_what_the_source_sends_from_what_nodes_copy(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine a peer may be late, and then an agent reads what the peer should bring from the source, too.
    monkeypatch.setattr("tests.support.twins.agent_work.PEER_PATIENCE", 60.0)
    slow(cluster, put=0.05, copy=0.05)
    statuses: list[dict[str, Any]] = []
    await cluster.create_dataset(placement={"mode": "Replicate", "nodeCount": 3})

    def done() -> bool:
        statuses.append(cluster.status())
        return bool(cluster.status().get("state") == "Ready")

    await cluster.until(done)
    mixed = [
        status for status in statuses if status.get("bytesPerSecond") and status.get("copiedBytesPerSecond")
    ]
    assert mixed
    assert all(status["rate"].endswith("/s copied") and "/s + " in status["rate"] for status in mixed)
    assert "copiedBytesPerSecond" not in cluster.status()
    assert "rate" not in cluster.status()
    assert cluster.engine.source_bytes_read == TOTAL

    # One more node is filled by the others alone: the source sends nothing.
    statuses.clear()
    await cluster.change(DATASETS, "pictures", placement={"nodeCount": 4})
    await cluster.until(lambda: done() and len(cluster.nodes()) == 4)
    copying = [status for status in statuses if status.get("copiedBytesPerSecond")]
    assert copying
    assert all(
        "bytesPerSecond" not in status and status["rate"].startswith("0 bytes/s + ") for status in copying
    )


async def test_a_preload_that_waits_or_has_failed_shows_no_hundred_percent(cluster: Cluster) -> None:
    await cluster.create_dataset(preload={"paths": ["val"]}, placement={"nodeCount": 1})
    await cluster.until_state("Ready")
    cases: dict[str, dict[str, Any]] = {
        "nowhere": {"nodes": ["nowhere"]},
        "typo": {"paths": ["tarin"]},
        "too-many": {"copies": 9},
        "no-dataset": {"datasetRef": {"name": "nowhere"}},
        "held": {"suspend": True, "paths": ["tarin"]},
    }
    for name, spec in cases.items():
        await cluster.create_preload(name, **spec)
    states = {
        "nowhere": "Pending",
        "typo": "Failed",
        "too-many": "Failed",
        "no-dataset": "Pending",
        "held": "Suspended",
    }
    for name, state in states.items():
        await cluster.until_state(state, name, resource=PRELOADS)
        assert preload(cluster, name).get("progress") == ("44%" if name == "too-many" else None), name
    assert words(cluster, "held") == "spec.suspend keeps it from beginning; set it to false to go on"
    assert "there is no Dataset nowhere in namespace n" in words(cluster, "no-dataset")
    await cluster.set_capacity(12 * MB, "a")
    await cluster.create_preload("too-large", nodes=["a"])
    await cluster.until_state("Failed", "too-large", resource=PRELOADS)
    assert (preload(cluster, "too-large")["progress"], preload(cluster, "too-large")["bytesTotal"]) == (
        "55%",
        TOTAL,
    )


async def test_a_preload_says_what_keeps_it_pending(cluster: Cluster) -> None:
    await cluster.create_preload()
    await cluster.until(lambda: "there is no Dataset pictures" in words(cluster))
    cluster.engine.available = False
    await cluster.create_dataset(placement={"nodeCount": 1})
    await cluster.until(lambda: "it waits for Dataset pictures: " in words(cluster))
    await cluster.until(lambda: "was made unavailable" in words(cluster))
    cluster.engine.available = True
    await cluster.until_state("Complete", resource=PRELOADS, name="warm")


@pytest.mark.failure_mode("cache-goes-away-during-preload")
async def test_a_preload_whose_cache_goes_away_says_so_and_how_far_it_was(cluster: Cluster) -> None:
    await cluster.create_dataset(preload={"paths": ["val"]}, placement={"nodeCount": 1})
    await cluster.until_state("Ready")
    await cluster.create_preload(paths=["train"], nodes=["d"], bandwidth="4M")
    await cluster.until(lambda: preload(cluster).get("bytesDone", 0) > 2 * MB)
    cluster.engine.available = False
    await cluster.until_state("Pending", "warm", resource=PRELOADS)
    message = words(cluster)
    assert "it waits for Dataset pictures: " in message
    assert "was made unavailable" in message
    assert "of 9.5 MiB on 1 node so far" in message
    assert preload(cluster)["progress"].endswith("%")
    assert preload(cluster)["progress"] != "100%"
    cluster.engine.available = True
    await cluster.until(
        lambda: preload(cluster).get("state") != "Pending", deadline=20
    )  # it is woken, before any pass that comes by itself
    await cluster.until_state("Complete", "warm", resource=PRELOADS)
    assert preload(cluster)["progress"] == "100%"


async def test_no_path_of_the_cache_is_in_what_users_read(cluster: Cluster) -> None:
    cluster.engine.credentials["s3://pictures"] = Credentials(access_key_id="x", secret_access_key="y")
    await cluster.create_dataset()
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "SourceRefused")
    message = cluster.condition("Ready")["message"]
    assert message.startswith("could not mount s3://pictures: the source refused")
    assert "/datasets/" not in message


async def test_nothing_is_made_in_a_namespace_that_is_being_deleted(cluster: Cluster) -> None:
    """It was tried again and again, and each time an error was logged."""
    going = {"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    cluster.server.store(NAMESPACES)["", "n"] = {"metadata": going}
    passes = cluster.passes
    await cluster.create_dataset()
    await cluster.until(lambda: cluster.passes > passes)
    await cluster.quiet()
    assert not cluster.server.store(PERSISTENT_VOLUME_CLAIMS)
    assert not cluster.engine.state.mounts
    await cluster.server.delete(DATASETS, name="pictures", namespace="n")
    await cluster.until(lambda: not cluster.server.store(DATASETS))


async def test_the_message_says_why_a_dataset_is_not_simply_ready(cluster: Cluster) -> None:
    await cluster.create_dataset(placement={"nodeSelector": {"zone": "nowhere"}})
    await cluster.until(lambda: cluster.status().get("reason") == "NoCacheNode")
    assert cluster.status()["message"] == cluster.condition("Ready")["message"]
    assert "zone=nowhere" in cluster.status()["message"]
    await cluster.change(DATASETS, "pictures", placement={"nodeSelector": None})
    await cluster.until_state("Ready")
    await cluster.until(lambda: "reason" not in cluster.status())
    assert cluster.status()["message"] == cluster.condition("Ready")["message"]
