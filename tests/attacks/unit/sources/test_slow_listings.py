"""Sources that are counted at once and listed drop by drop: no other namespace's Dataset waits for them."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.twins.engine import MemoryEngine, Operation
from tests.unit.control.cluster import Cluster

from tdcs.api import names
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import DATASETS, SECRETS

MB, QUICK = 1_000_000, "s3://pictures"
SLOW = [f"slow{number:02d}" for number in range(16)]


class Listings:
    """Holds up listings until they may go on, but not those of the quick source.

    Attributes:
        begun: how many were held up.
        goes_on: set when they may end.
    """

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine
        self.begun = 0
        self.goes_on = asyncio.Event()

    async def __call__(self, operation: Operation) -> None:
        if operation.name != "files" or self.goes_on.is_set():
            return
        if (await self._engine.mounts())[operation.path] != QUICK:
            self.begun += 1
            await self.goes_on.wait()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    sources = {uri: {"a": MB} for uri in (QUICK, *(f"s3://{name}" for name in SLOW))}
    async with Cluster(
        engine=MemoryEngine(sources=sources, workers={"a": 100 * MB}), nodes={"a": {}}
    ) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        cluster.server.store(SECRETS)["m", "keys"] = cluster.server.store(SECRETS)["n", "keys"]
        yield cluster


@pytest.fixture
async def slow(cluster: Cluster) -> Listings:
    """The Datasets of one namespace that are listed slowly, as many of them as are listed at a time."""
    listings = Listings(cluster.engine)
    cluster.engine.before = listings
    for name in SLOW:
        await cluster.create_dataset(name, source={"uri": f"s3://{name}"})
    await cluster.until(lambda: listings.begun >= 4 and all(cluster.status(name) for name in SLOW))
    return listings


async def create_of_others(cluster: Cluster, uri: str) -> None:
    """A Dataset of another namespace."""
    source = {"uri": uri, "secretRef": {"name": "keys"}}
    obj = {"apiVersion": names.API_VERSION, "kind": "Dataset", "spec": {"source": source}}
    await cluster.server.create(DATASETS, obj={**obj, "metadata": {"name": "theirs", "namespace": "m"}})


def theirs(cluster: Cluster) -> Object:
    """Its status."""
    return dict(cluster.server.store(DATASETS)["m", "theirs"].get("status") or {})


def waiting(cluster: Cluster) -> list[str]:
    return [name for name in SLOW if cluster.condition("Ready", name).get("reason") == "ListingWaits"]


@pytest.mark.threat("slow-listings")
async def test_they_keep_no_other_namespace_waiting(cluster: Cluster, slow: Listings) -> None:
    await create_of_others(cluster, QUICK)
    await cluster.until(lambda: theirs(cluster).get("state") == "Ready", deadline=20)
    assert not slow.goes_on.is_set()


@pytest.mark.threat("slow-listings")
async def test_those_that_wait_for_others_of_their_namespace_say_so(cluster: Cluster, slow: Listings) -> None:
    await cluster.until(lambda: len(waiting(cluster)) == len(SLOW) - 4)
    name = waiting(cluster)[0]
    text = cluster.condition("Ready", name)["message"]
    assert text.startswith(f"s3://{name} waits to be listed")
    assert "Datasets of namespace n" in text
    assert "kubectl get datasets -n n" in text
    assert (cluster.status(name)["state"], cluster.status(name)["reason"]) == ("Mounting", "ListingWaits")
    assert cluster.condition("Mounted", name)["status"] == "True"


@pytest.mark.threat("slow-listings")
async def test_a_mount_of_two_namespaces_goes_by_the_share_of_the_one_that_has_more_of_it_left(
    cluster: Cluster, slow: Listings
) -> None:
    await cluster.until(lambda: len(waiting(cluster)) == len(SLOW) - 4)
    name = waiting(cluster)[-1]
    await create_of_others(cluster, f"s3://{name}")
    await cluster.until(lambda: slow.begun == 5)
    await cluster.until(
        lambda: cluster.condition("Ready", name).get("message") == f"s3://{name} is being listed"
    )
    assert len(waiting(cluster)) == len(SLOW) - 5


@pytest.mark.threat("slow-listings")
async def test_all_are_listed_in_the_end(cluster: Cluster, slow: Listings) -> None:
    await cluster.until(lambda: waiting(cluster))
    slow.goes_on.set()
    for name in SLOW:
        await cluster.until_state("Ready", name)
