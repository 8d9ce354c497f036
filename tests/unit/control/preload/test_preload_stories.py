"""What a user of Preloads sees: progress, suspension, cancelling, failure, and what is kept afterwards."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.twins.engine import MemoryEngine, Operation
from tests.unit.control.cluster import Cluster
from tests.unit.control.dataset.conftest import slow

from tdcs.api.dataset import KEPT_PRELOADS
from tdcs.model.kube_resources import DATASETS, PRELOADS

MB = 1_000_000
FILES = 20


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    engine = MemoryEngine(
        sources={"s3://pictures": {f"{'train' if n % 2 else 'val'}/{n:03d}": MB for n in range(FILES)}},
        workers=dict.fromkeys("abcd", 1000 * MB),
    )
    async with Cluster(engine=engine, nodes={name: {} for name in "abcd"}) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        await cluster.create_dataset(preload={"paths": ["val"]}, placement={"nodeCount": 1})
        await cluster.until_state("Ready")
        yield cluster


async def test_a_preload_brings_folders_to_nodes_and_is_complete_when_they_are_there(
    cluster: Cluster,
) -> None:
    await cluster.create_preload(paths=["train"], nodes=["b", "c"], bandwidth="6M")
    sizes: set[int] = set()

    def complete() -> bool:
        status = cluster.status("warm", resource=PRELOADS)
        sizes.add(status.get("bytesDone", 0))
        return bool(status.get("state") == "Complete")

    await cluster.until(complete)
    assert len(sizes) > 2  # progress could be watched
    status = cluster.status("warm", resource=PRELOADS)
    assert (status["bytesDone"], status["bytesTotal"]) == (20 * MB, 20 * MB)
    assert (status["filesDone"], status["filesTotal"], status["nodes"]) == (10, 10, ["b", "c"])
    assert status["startTime"] <= status["completionTime"]
    assert "rate" not in status
    message = cluster.condition("Complete", "warm", resource=PRELOADS)["message"]
    assert message.startswith("19.1 MiB are on their nodes")
    assert all(cluster.held()[node] >= 10 * MB for node in "bc")
    assert cluster.events("Complete")


async def test_what_a_preload_brought_is_kept_without_it_until_the_dataset_changes(cluster: Cluster) -> None:
    mine = cluster.held()
    await cluster.create_preload(paths=["train"], nodes=["d"], ttlSecondsAfterFinished=0)
    await cluster.until(lambda: not cluster.server.store(PRELOADS))
    assert [entry["name"] for entry in cluster.status()["kept"]] == ["warm"]
    await cluster.stop()
    await cluster.start()
    await cluster.annotate("pictures", refresh="1")
    await cluster.until(lambda: cluster.status().get("refreshed") == "1")
    assert sum(cluster.held().values()) == 20 * MB
    assert cluster.status()["state"] == "Ready"
    await cluster.change(DATASETS, "pictures", preload={"bandwidth": "1G"})
    await cluster.until(lambda: cluster.held() == mine)
    assert "kept" not in cluster.status() or not cluster.status()["kept"]


async def test_a_preload_runs_again_for_a_dataset_that_was_made_again(cluster: Cluster) -> None:
    await cluster.create_preload(paths=["train"], nodes=["d"])
    await cluster.until(lambda: cluster.status("warm", resource=PRELOADS).get("state") == "Complete")
    before = cluster.status("warm", resource=PRELOADS)["datasetUid"]
    await cluster.server.delete(DATASETS, name="pictures", namespace="n")
    await cluster.until(lambda: not cluster.server.store(DATASETS))
    await cluster.until(lambda: not any(cluster.held().values()))
    await cluster.create_dataset(preload={"paths": ["val"]}, placement={"nodeCount": 1})
    await cluster.until(lambda: cluster.status("warm", resource=PRELOADS)["state"] != "Complete")
    await cluster.until(lambda: cluster.status("warm", resource=PRELOADS)["state"] == "Complete")
    assert cluster.status("warm", resource=PRELOADS)["datasetUid"] != before
    assert cluster.held()["d"] >= 10 * MB


def nodes_by_dataset(cluster: Cluster) -> dict[str, dict[str, int]]:
    """The copies in the Dataset's status by their ids, as bytes by node."""
    return {
        copy["id"]: {node["name"]: node["bytes"] for node in copy["nodes"]}
        for copy in cluster.status()["copies"]
    }


async def test_copies_of_preloads_on_further_nodes_are_listed_next_to_the_datasets_own(
    cluster: Cluster,
) -> None:
    sizes = cluster.held()
    (mine,) = sizes
    further = sorted(set("abcd") - {mine})
    assert nodes_by_dataset(cluster) == {"0": sizes}
    await cluster.create_preload(nodes=further[:2])
    await cluster.until_state("Complete", "warm", resource=PRELOADS)
    whole = dict.fromkeys(further[:2], 20 * MB)
    await cluster.until(lambda: nodes_by_dataset(cluster) == {"0": sizes, "preloads": whole})
    # Parts that go together are added, those that are the same count once.
    await cluster.create_preload("more", paths=["train"], nodes=[mine, further[0]])
    await cluster.until_state("Complete", "more", resource=PRELOADS)
    whole[mine] = 20 * MB
    await cluster.until(lambda: nodes_by_dataset(cluster) == {"0": sizes, "preloads": whole})
    # A new operator goes on listing it, and not as a copy of the Dataset's own.
    await cluster.stop()
    await cluster.start()
    await cluster.annotate("pictures", refresh="1")
    await cluster.until(lambda: cluster.status().get("refreshed") == "1")
    assert nodes_by_dataset(cluster) == {"0": sizes, "preloads": whole}
    # It goes with the data.
    await cluster.change(DATASETS, "pictures", preload={"bandwidth": "1G"})
    await cluster.until(lambda: cluster.held() == sizes and nodes_by_dataset(cluster) == {"0": sizes})


async def test_a_suspended_preload_goes_on_with_what_is_missing(cluster: Cluster) -> None:
    read = cluster.engine.source_bytes_read
    await cluster.create_preload(paths=["train"], nodes=["a"], bandwidth="4M")
    await cluster.until(lambda: cluster.status("warm", resource=PRELOADS).get("bytesDone", 0) > 2 * MB)
    await cluster.change(PRELOADS, "warm", suspend=True)
    await cluster.until_state("Suspended", "warm", resource=PRELOADS)
    held = cluster.held()
    assert sum(held.values()) < 20 * MB
    await cluster.change(PRELOADS, "warm", suspend=False)
    await cluster.until_state("Complete", "warm", resource=PRELOADS)
    # What was on its way when it was suspended may have been read twice, nothing else.
    assert cluster.engine.source_bytes_read - read <= 10 * MB + 4 * MB


async def test_a_deleted_preload_stops_and_frees_what_only_it_wanted(cluster: Cluster) -> None:
    before = cluster.held()
    slow(cluster, 0.05)
    await cluster.create_preload(nodes=["a", "b", "c"])
    await cluster.until(lambda: sum(cluster.held().values()) > sum(before.values()) + 2 * MB)
    await cluster.server.delete(PRELOADS, name="warm", namespace="n")
    await cluster.until(lambda: cluster.held() == before)
    await cluster.until_state("Ready")


async def test_an_operator_that_is_killed_goes_on_with_the_preload(cluster: Cluster) -> None:
    slow(cluster, 0.03)
    read = cluster.engine.source_bytes_read
    await cluster.create_preload(paths=["train"], nodes=["a"])
    for _ in range(2):
        done = sum(cluster.held().values())
        await cluster.until(lambda done=done: sum(cluster.held().values()) > done)  # type: ignore[misc]
        await cluster.stop()
        await cluster.start()
    await cluster.until_state("Complete", "warm", resource=PRELOADS)
    assert cluster.status("warm", resource=PRELOADS)["bytesDone"] == 10 * MB
    assert cluster.engine.source_bytes_read - read <= 14 * MB


async def test_files_that_cannot_be_loaded_are_named_and_the_preload_fails(cluster: Cluster) -> None:
    cluster.engine.refuse = lambda worker, uri: "it is broken" if uri.endswith("001") else None
    await cluster.create_preload(paths=["train"], nodes=["a"])
    await cluster.until(
        lambda: cluster.status("warm", resource=PRELOADS).get("state") == "Failed", deadline=60
    )
    status = cluster.status("warm", resource=PRELOADS)
    assert status["failedFiles"] == [{"path": "train/001", "reason": "it is broken"}]
    assert (status["filesDone"], status["bytesDone"]) == (9, 9 * MB)
    assert "delete the Preload" in cluster.condition("Failed", "warm", resource=PRELOADS)["message"]
    await cluster.until_state("Ready")  # the Dataset's own part is not concerned


@pytest.mark.parametrize(
    ("spec", "reason", "state"),
    [
        ({"datasetRef": {"name": "nowhere"}}, "DatasetNotFound", "Pending"),
        ({"paths": ["tarin"]}, "PathNotFound", "Failed"),
        ({"nodes": ["a", "nowhere"]}, "TooFewNodes", "Failed"),
        ({"nodes": ["nowhere"]}, "NoCacheNode", "Pending"),
        ({"copies": 9}, "TooFewNodes", "Failed"),
        ({"startTime": "2099-01-01T00:00:00Z"}, "Scheduled", "Scheduled"),
    ],
)
async def test_what_keeps_a_preload_from_completing_is_said(
    cluster: Cluster, spec: dict[str, Any], reason: str, state: str
) -> None:
    await cluster.create_preload(**spec)
    await cluster.until(
        lambda: (
            cluster.condition("Complete", "warm", resource=PRELOADS).get("reason") == reason
            and cluster.status("warm", resource=PRELOADS)["state"] == state
        )
    )
    condition = cluster.condition("Complete", "warm", resource=PRELOADS)
    assert condition["status"] == "False"
    assert condition["message"]
    if spec.get("nodes") == ["nowhere"]:
        assert condition["message"] == (
            "there is no node nowhere, which spec.nodes names: add it, or create the Preload again with nodes of "
            "kubectl get nodes"
        )
    if "copies" in spec:
        assert "spec.copies, or its Dataset's spec.placement, asks for 9 copies" in condition["message"]


async def test_a_preload_that_was_not_understood_runs_once_it_is_corrected(cluster: Cluster) -> None:
    await cluster.create_preload(paths=["train"], nodes=["b"], bandwidth="lots")
    await cluster.until_state("Failed", "warm", resource=PRELOADS)
    assert cluster.condition("Failed", "warm", resource=PRELOADS)["reason"] == "InvalidSpec"
    await cluster.change(PRELOADS, "warm", bandwidth="100M")
    await cluster.until_state("Complete", "warm", resource=PRELOADS)
    assert cluster.held()["b"] >= 10 * MB
    # A change that is of no more interest is answered: kubectl and others wait for the generation.
    await cluster.change(PRELOADS, "warm", bandwidth="200M")
    await cluster.until(lambda: cluster.status("warm", resource=PRELOADS)["observedGeneration"] == 3)
    assert cluster.status("warm", resource=PRELOADS)["state"] == "Complete"


async def test_a_preload_tells_nodes_that_do_not_exist_from_nodes_without_a_worker(cluster: Cluster) -> None:
    cluster.engine.set_worker(name="b", live=False)
    await cluster.create_preload(nodes=["b", "nowhere"])

    def message() -> str:
        return str(cluster.condition("Complete", "warm", resource=PRELOADS).get("message", ""))

    await cluster.until(lambda: "no live cache worker" in message())
    assert message().startswith("b of spec.nodes has no live cache worker with free space")
    assert "; there is no node nowhere, which spec.nodes names: add it" in message()


@pytest.mark.parametrize(("spec", "progress"), [({"nodes": ["a", "nowhere"]}, "99%"), ({"copies": 9}, "44%")])
async def test_a_preload_that_cannot_complete_says_so_while_it_loads_and_never_looks_complete(
    cluster: Cluster, spec: dict[str, Any], progress: str
) -> None:
    slow(cluster, 0.05)
    await cluster.create_preload(**spec)

    def complete() -> dict[str, Any]:
        return cluster.condition("Complete", "warm", resource=PRELOADS)

    await cluster.until(lambda: complete().get("reason") == "TooFewNodes")
    assert cluster.status("warm", resource=PRELOADS)["state"] == "Loading"
    assert "it cannot complete as it is: " in complete()["message"]
    await cluster.until_state("Failed", "warm", resource=PRELOADS)
    assert cluster.status("warm", resource=PRELOADS)["progress"] == progress


async def test_a_preload_that_is_compared_has_no_rate_of_its_load(cluster: Cluster) -> None:
    held = asyncio.Event()

    async def hold(operation: Operation) -> None:
        if operation.name == "digest":
            await held.wait()
        elif operation.name == "put":
            await asyncio.sleep(0.02)

    cluster.engine.before = hold
    await cluster.create_preload(paths=["train"], nodes=["b"], verify="All")
    await cluster.until(lambda: cluster.status("warm", resource=PRELOADS).get("rate"))
    await cluster.until_state("Verifying", "warm", resource=PRELOADS)
    await cluster.until(lambda: not cluster.status("warm", resource=PRELOADS).get("rate"))
    held.set()
    await cluster.until_state("Complete", "warm", resource=PRELOADS)


async def test_a_preload_of_a_dataset_that_is_being_deleted_says_so(cluster: Cluster) -> None:
    """Its message once asked to create the Dataset, which exists."""
    unmounted = asyncio.Event()

    async def hold(operation: Operation) -> None:
        if operation.name == "unmount":
            await unmounted.wait()

    cluster.engine.before = hold
    await cluster.create_preload(nodes=["b"], suspend=True)
    await cluster.server.delete(DATASETS, name="pictures", namespace="n")
    await cluster.change(PRELOADS, "warm", suspend=False)
    await cluster.until(
        lambda: (
            cluster.condition("Complete", "warm", resource=PRELOADS).get("reason") == "DatasetBeingDeleted"
        )
    )
    message = cluster.condition("Complete", "warm", resource=PRELOADS)["message"]
    assert (
        message
        == "Dataset pictures is being deleted; the Preload goes on when there is one of that name again"
    )
    unmounted.set()


async def test_a_preload_warms_a_dataset_whose_own_preload_is_off(cluster: Cluster) -> None:
    await cluster.server.delete(DATASETS, name="pictures", namespace="n")
    await cluster.until(lambda: not cluster.server.store(DATASETS))
    await cluster.create_dataset(preload={"enabled": False})
    await cluster.until_state("Ready")
    assert cluster.held() == {}
    await cluster.create_preload(percent=50, nodes=["a"])
    await cluster.until_state("Complete", "warm", resource=PRELOADS)
    assert cluster.held() == {"a": 10 * MB}


async def test_a_preload_on_a_full_cache_holds_what_fits_and_fails_with_numbers(cluster: Cluster) -> None:
    await cluster.set_capacity(12 * MB, *"abcd")
    await cluster.create_preload(nodes=["a"])
    await cluster.until_state("Failed", "warm", resource=PRELOADS)
    condition = cluster.condition("Failed", "warm", resource=PRELOADS)
    assert condition["reason"] == "NotAllFits"
    assert "10.5 MiB of 19.1 MiB is all" in condition["message"]


async def test_what_was_loaded_is_compared_with_the_source_and_mended_once(cluster: Cluster) -> None:
    rotten: set[tuple[str, int]] = set()

    async def rot(operation: Operation) -> None:
        # What is placed on b is not what the source has.
        if operation.name == "digest" and not rotten:
            rotten.update(("b", block) for block in cluster.engine.holdings(worker="b"))
            cluster.agents.corrupted.update(rotten)

    cluster.engine.before = rot
    await cluster.create_preload(paths=["train"], nodes=["b"], verify="All")
    await cluster.until_state("Complete", "warm", resource=PRELOADS)
    assert rotten
    assert not cluster.agents.corrupted & {("b", block) for block in cluster.engine.holdings(worker="b")}
    assert cluster.status("warm", resource=PRELOADS)["verifiedBytes"] == 10 * MB
    assert "are as at the source" in cluster.condition("Complete", "warm", resource=PRELOADS)["message"]


async def test_copies_that_stay_wrong_fail_the_preload_and_are_named(cluster: Cluster) -> None:
    cluster.agents.rotten = lambda node, path: True
    await cluster.create_preload(paths=["train"], nodes=["b"], verify="Sampled")
    await cluster.until_state("Failed", "warm", resource=PRELOADS)
    assert cluster.condition("Failed", "warm", resource=PRELOADS)["reason"] == "VerifyFailed"
    named = cluster.status("warm", resource=PRELOADS)["failedFiles"]
    assert named
    assert all("differs from the source" in file["reason"] for file in named)


async def test_more_completed_preloads_than_are_kept_come_to_rest_and_the_older_ones_are_deleted(
    cluster: Cluster,
) -> None:
    names = [f"p{number:02d}" for number in range(KEPT_PRELOADS + 1)]
    for number, name in enumerate(names):
        path = f"{'train' if number % 2 else 'val'}/{number:03d}"
        await cluster.create_preload(name, paths=[path], nodes=["d"])
        await cluster.until_state("Complete", name, resource=PRELOADS)
    await cluster.until(lambda: [entry["name"] for entry in cluster.status()["kept"]] == names[1:])
    await cluster.change(PRELOADS, names[0], ttlSecondsAfterFinished=0)
    await cluster.until(lambda: ("n", names[0]) not in cluster.server.store(PRELOADS))
    read = cluster.engine.source_bytes_read
    for number in range(3):
        await cluster.annotate("pictures", refresh=str(number))
        await cluster.until(lambda refresh=str(number): cluster.status().get("refreshed") == refresh)  # type: ignore[misc]
        assert [entry["name"] for entry in cluster.status()["kept"]] == names[1:]
    assert cluster.engine.source_bytes_read == read
    await cluster.until_state("Ready")


async def test_verified_preloads_next_to_failed_ones_are_each_compared_with_the_source_once(
    cluster: Cluster,
) -> None:
    compared: list[int] = []

    async def count(operation: Operation) -> None:
        if operation.name == "digest":
            compared.append(operation.length)

    cluster.engine.before = count
    await cluster.create_preload("absent", paths=["nope"], nodes=["b"], verify="Sampled")
    await cluster.until_state("Failed", "absent", resource=PRELOADS)
    assert cluster.condition("Failed", "absent", resource=PRELOADS)["reason"] == "PathNotFound"
    names = ["first", "second", "third"]
    for name in names:
        await cluster.create_preload(name, paths=["train"], nodes=["b"], verify="All")
    for name in names:
        await cluster.until_state("Complete", name, resource=PRELOADS)
        assert cluster.status(name, resource=PRELOADS)["verifiedBytes"] == 10 * MB
    await cluster.create_preload("later", paths=["train"], nodes=["b"], verify="All")
    await cluster.until_state("Complete", "later", resource=PRELOADS)
    assert sum(compared) == 40 * MB


async def test_wrong_copies_stay_refused_while_other_preloads_are_compared(cluster: Cluster) -> None:
    """Takes 2 s: so long does a Preload with wrong copies take to fail, in other stories as well."""
    compared: list[int] = []
    brought: list[str | None] = []

    async def count(operation: Operation) -> None:
        if operation.name == "digest":
            compared.append(operation.length)
        if operation.name in {"put", "copy"} and operation.length:
            brought.append(operation.worker)

    cluster.engine.before = count
    cluster.agents.rotten = lambda node, path: (node, path) == ("b", "train/001")
    await cluster.create_preload("wrong", paths=["train"], nodes=["b"], verify="All")
    await cluster.until_state("Failed", "wrong", resource=PRELOADS)
    assert cluster.condition("Failed", "wrong", resource=PRELOADS)["reason"] == "VerifyFailed"
    compared.clear()
    brought.clear()
    for name in ("elsewhere", "there"):
        await cluster.create_preload(name, paths=["val"], nodes=["c"], verify="All")
    for name in ("elsewhere", "there"):
        await cluster.until_state("Complete", name, resource=PRELOADS)
    assert sum(compared) == 20 * MB
    assert set(brought) == {"c"}
    assert cluster.held()["b"] == 9 * MB
