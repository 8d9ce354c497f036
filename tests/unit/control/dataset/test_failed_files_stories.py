"""Single files that cannot be had keep nothing else from its place, and restarts ask no source."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest
from tests.support.twins.engine import MemoryEngine, Operation
from tests.unit.control.cluster import Cluster

MB = 1_000_000
BAD = 200
GOOD = 30


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    sources = {
        "s3://pictures": {f"{number:04d}": MB for number in range(BAD + GOOD)},
        **{f"s3://other{number}": {"a": MB} for number in range(5)},
    }
    engine = MemoryEngine(sources=sources, workers=dict.fromkeys("ab", 1000 * MB))
    async with Cluster(engine=engine, nodes={name: {} for name in "ab"}) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        yield cluster


def unreadable(worker: str, uri: str) -> str | None:
    return "permission denied" if int(uri.rsplit("/", 1)[1]) < BAD else None


@pytest.mark.failure_mode("single-files-unreadable")
async def test_two_hundred_unreadable_files_keep_no_other_from_being_loaded(
    cluster: Cluster,
) -> None:
    cluster.engine.refuse = unreadable
    await cluster.create_dataset(placement={"nodeCount": 1})
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "FilesFailed")
    assert sum(cluster.held().values()) == GOOD * MB
    status = cluster.status()
    assert (status["state"], cluster.condition("Ready")["status"]) == ("Degraded", "True")
    assert (status["failedFileCount"], len(status["failedFiles"])) == (BAD, 20)
    assert status["failedFiles"][0] == {"path": "0000", "reason": "permission denied"}
    assert status["loadedRatio"] == pytest.approx(GOOD / (GOOD + BAD), abs=1e-3), "a job may wait for them"
    # While they are tried again and again, the status stays as it is.
    tries = Counter[str]()

    async def count(operation: Operation) -> None:
        tries[operation.name] += 1

    cluster.engine.before = count
    await cluster.until(lambda: tries["put"] > BAD)
    states = {(cluster.status()["state"], cluster.status()["failedFileCount"])}

    def tried() -> bool:
        states.add((cluster.status()["state"], cluster.status()["failedFileCount"]))
        return tries["put"] > 3 * BAD

    await cluster.until(tried)
    assert states == {("Degraded", BAD)}
    cluster.engine.refuse = None
    await cluster.until_state("Ready")
    assert not {"failedFiles", "failedFileCount"} & cluster.status().keys()


async def test_a_dataset_may_say_that_files_that_cannot_be_had_do_not_count(cluster: Cluster) -> None:
    cluster.engine.refuse = unreadable
    await cluster.create_dataset(placement={"nodeCount": 1}, preload={"failedFiles": "Ignore"})
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "FilesFailed")
    status = cluster.status()
    assert (status["loadedRatio"], status["wantedBytes"]) == (1.0, GOOD * MB)
    assert cluster.condition("Loaded")["status"] == "True"
    assert status["failedFileCount"] == BAD


async def test_a_name_with_a_control_character_leaves_its_dataset_in_one_state(cluster: Cluster) -> None:
    cluster.engine.sources["s3://pictures"] = {"good": MB, "bad\x07name": MB}
    cluster.engine.refuse = lambda worker, uri: "the source refuses the name" if "\x07" in uri else None
    await cluster.create_dataset(placement={"nodeCount": 1})
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "FilesFailed")
    assert cluster.status()["failedFiles"] == [
        {"path": "bad\\x07name", "reason": "the source refuses the name"}
    ]


async def test_a_restarted_operator_knows_everything_without_listing(cluster: Cluster) -> None:
    for number in range(5):
        await cluster.create_dataset(f"d{number}", source={"uri": f"s3://other{number}"})
    for number in range(5):
        await cluster.until_state("Ready", f"d{number}")
    await cluster.stop()
    operations = Counter[str]()

    async def count(operation: Operation) -> None:
        operations[operation.name] += 1

    cluster.engine.before = count
    await cluster.start()

    def reports_settled() -> bool:
        paths = [cluster.status(f"d{number}")["mountPath"] for number in range(5)]
        reports = [cluster.cached_data.report_of(cluster="default", path=path) for path in paths]
        return all(report is not None and report.decided and report.settled for report in reports)

    await cluster.until(reports_settled)
    assert not operations["files"]
    assert not operations["put"]
    assert all(cluster.status(f"d{number}")["state"] == "Ready" for number in range(5))


async def test_no_more_than_two_sources_are_listed_at_a_time(cluster: Cluster) -> None:
    running = most = 0
    files = cluster.engine.files

    async def counted(*, path: str, refresh: bool = False):  # type: ignore[no-untyped-def]
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            async for page in files(path=path, refresh=refresh):
                yield page
        finally:
            running -= 1

    cluster.engine.files = counted  # type: ignore[method-assign]
    for number in range(5):
        await cluster.create_dataset(f"d{number}", source={"uri": f"s3://other{number}"})
    for number in range(5):
        await cluster.until_state("Ready", f"d{number}")
    assert 1 <= most <= 2
