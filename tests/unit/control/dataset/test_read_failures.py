"""Reports of failed reads become events of the Datasets that they are about, a few a minute."""

from collections.abc import AsyncIterator

import pytest
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import Cluster

from tdcs.control.dataset.read_failures import PAUSE_SECONDS, ReadFailures
from tdcs.engine.read_reports import ReadFailure


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A cluster with one Dataset that is mounted."""
    engine = MemoryEngine(sources={"s3://pictures": {"x": 1000}}, workers={"a": 10**9})
    async with Cluster(engine=engine, nodes={"a": {}}) as cluster:
        await cluster.create_keys()
        await cluster.create_cache()
        await cluster.create_dataset()
        await cluster.until_state("Ready")
        yield cluster


def failure(cluster: Cluster, *, path: str = "d/1.jpg", mount: str = "", stale: bool = False) -> ReadFailure:
    """A file of the Dataset that node a cannot read."""
    mount = mount or cluster.status()["mountPath"]
    return ReadFailure(
        cluster="default", mount=mount, node="a", path=path, reason="10.0.0.1:1: refused", stale=stale
    )


@pytest.mark.failure_mode("file-available-nowhere")
async def test_a_file_that_cannot_be_read_is_an_event_of_its_dataset_with_the_reason(
    cluster: Cluster,
) -> None:
    await ReadFailures(cluster.context).report(failure(cluster))

    (event,) = cluster.events("ReadFailed")
    assert event["type"] == "Warning"
    assert event["involvedObject"]["name"] == "pictures"
    assert "file 'd/1.jpg' cannot be read on node a" in event["message"]
    assert "10.0.0.1:1: refused" in event["message"]


async def test_a_file_that_has_changed_at_its_source_is_said_to_be_stale(cluster: Cluster) -> None:
    await ReadFailures(cluster.context).report(failure(cluster, stale=True))

    (event,) = cluster.events("ReadFailed")
    assert "the source has another version" in event["message"]


async def test_many_files_make_one_event_in_a_while_and_unknown_mounts_make_none(cluster: Cluster) -> None:
    now = 0.0
    failures = ReadFailures(cluster.context, clock=lambda: now)
    for number in range(50):
        await failures.report(failure(cluster, path=str(number)))
    await failures.report(failure(cluster, mount="/datasets/none"))
    assert len(cluster.events("ReadFailed")) == 1

    now = PAUSE_SECONDS + 1
    await failures.report(failure(cluster, path="x" * 100_000))
    first, second = cluster.events("ReadFailed")
    assert len(second["message"]) < 1000
    assert "file '0'" in first["message"] + second["message"]
