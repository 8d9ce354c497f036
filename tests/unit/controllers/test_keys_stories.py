"""Keys that change: whose are mounted when Datasets of one source have Secrets of their own."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest
from tests.unit.controllers.cluster import Cluster

from tdcs.engine.memory import MemoryEngine, Operation
from tdcs.engine.protocol import Credentials
from tdcs.kube.resources import SECRETS

MB = 1_000_000
OLD = Credentials(access_key_id="me", secret_access_key="s3cr3t")
NEW = Credentials(access_key_id="me", secret_access_key="renewed")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    engine = MemoryEngine(sources={"s3://pictures": {"a": MB, "b": MB}}, workers={"a": 100 * MB})
    async with Cluster(engine=engine, nodes={"a": {}}) as made:
        await made.create_cache()
        for number in (1, 2):
            await made.create_keys(f"k{number}")
            await made.create_dataset(f"d{number}", source={"secretRef": {"name": f"k{number}"}})
            await made.until_state("Ready", f"d{number}")
        yield made


def counted(cluster: Cluster) -> Counter[str]:
    asked: Counter[str] = Counter()

    async def note(operation: Operation) -> None:
        asked[operation.name] += 1

    cluster.engine.before = note
    return asked


async def test_keys_changed_for_one_of_two_are_mounted_once_and_the_other_is_told(cluster: Cluster) -> None:
    asked = counted(cluster)
    await cluster.create_keys("k1", key="renewed")
    await cluster.until(lambda: cluster.condition("SourceReachable", "d2").get("reason") == "KeysDiffer")
    told = cluster.condition("SourceReachable", "d2")
    assert told["status"] == "True"
    assert "with the keys of Dataset n/d1" in told["message"]
    assert cluster.condition("SourceReachable", "d1")["reason"] == "Reachable"
    for number in range(3):
        for name in ("d1", "d2"):
            await cluster.annotate(name, refresh=str(number))
            await cluster.until(
                lambda name=name, told=str(number): cluster.status(name).get("refreshed") == told  # type: ignore[misc]
            )
    assert asked["mount"] == 1
    await cluster.create_keys("k2", key="renewed")
    await cluster.until(lambda: cluster.condition("SourceReachable", "d2").get("reason") == "Reachable")
    assert asked["mount"] == 1
    assert cluster.status("d1")["state"] == cluster.status("d2")["state"] == "Ready"


async def test_keys_that_the_store_refuses_are_replaced_by_those_of_another_dataset_of_the_source(
    cluster: Cluster,
) -> None:
    await cluster.create_keys("k1", key="wrong")
    cluster.engine.credentials["s3://pictures"] = OLD
    await cluster.until(lambda: cluster.condition("SourceReachable", "d1").get("status") == "False")
    assert "refused the credentials" in cluster.condition("SourceReachable", "d1")["message"]
    assert cluster.condition("Ready", "d1")["status"] == "True"
    assert cluster.condition("SourceReachable", "d2")["status"] == "True"
    cluster.engine.credentials["s3://pictures"] = NEW
    await cluster.create_keys("k1", key="renewed")
    await cluster.until(lambda: cluster.condition("SourceReachable", "d1").get("status") == "True")
    await cluster.until(lambda: cluster.condition("SourceReachable", "d2").get("reason") == "KeysDiffer")


async def test_after_a_restart_two_secrets_that_differ_come_to_rest(cluster: Cluster) -> None:
    await cluster.create_keys("k1", key="renewed")
    await cluster.until(lambda: cluster.condition("SourceReachable", "d2").get("reason") == "KeysDiffer")
    await cluster.stop()
    asked = counted(cluster)
    await cluster.start()
    for number in range(3):
        for name in ("d1", "d2"):
            await cluster.annotate(name, refresh=f"again {number}")
            await cluster.until(
                lambda name=name, told=f"again {number}": cluster.status(name).get("refreshed") == told  # type: ignore[misc]
            )
    assert asked["mount"] == 1
    reasons = {cluster.condition("SourceReachable", name)["reason"] for name in ("d1", "d2")}
    assert reasons == {"Reachable", "KeysDiffer"}


async def test_one_of_two_secrets_that_is_deleted_takes_nothing_away(cluster: Cluster) -> None:
    cluster.server.store(SECRETS).pop(("n", "k2"))
    await cluster.until(lambda: cluster.condition("SourceReachable", "d2").get("reason") == "SecretNotFound")
    assert cluster.condition("Ready", "d2")["status"] == "True"
    assert cluster.status("d1")["state"] == "Ready"
