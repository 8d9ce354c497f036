"""Keys that change: whose are mounted when Datasets of one source have Secrets of their own."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.support.twins.engine import MemoryEngine, Operation
from tests.unit.control.cluster import Cluster

from tdcs.model.agent_state import Assignment
from tdcs.model.cache_engine import Credentials, Source, SourceError
from tdcs.model.kube_resources import SECRETS

MB = 1_000_000
OLD = Credentials(access_key_id="me", secret_access_key="s3cr3t")
NEW = Credentials(access_key_id="me", secret_access_key="renewed")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    engine = MemoryEngine(sources={"s3://pictures": {"a": MB, "b": MB}}, workers={"a": 100 * MB})
    async with Cluster(engine=engine, nodes={"a": {}}) as cluster:
        await cluster.create_cache()
        for number in (1, 2):
            await cluster.create_keys(f"k{number}")
            await cluster.create_dataset(f"d{number}", source={"secretRef": {"name": f"k{number}"}})
            await cluster.until_state("Ready", f"d{number}")
        yield cluster


def counted(cluster: Cluster) -> Counter[str]:
    operations: Counter[str] = Counter()

    async def note(operation: Operation) -> None:
        operations[operation.name] += 1

    cluster.engine.before = note
    return operations


@pytest.mark.failure_mode("keys-changed-for-one-dataset")
async def test_keys_changed_for_one_of_two_are_mounted_once_and_the_other_reports_it(
    cluster: Cluster,
) -> None:
    operations = counted(cluster)
    await cluster.create_keys("k1", key="renewed")
    await cluster.until(lambda: cluster.condition("SourceReachable", "d2").get("reason") == "KeysDiffer")
    condition = cluster.condition("SourceReachable", "d2")
    assert condition["status"] == "True"
    assert "with the keys of Dataset n/d1" in condition["message"]
    assert cluster.condition("SourceReachable", "d1")["reason"] == "Reachable"
    for number in range(3):
        for name in ("d1", "d2"):
            await cluster.annotate(name, refresh=str(number))
            await cluster.until(
                lambda name=name, refresh=str(number): cluster.status(name).get("refreshed") == refresh  # type: ignore[misc]
            )
    assert operations["mount"] == 1
    await cluster.create_keys("k2", key="renewed")
    await cluster.until(lambda: cluster.condition("SourceReachable", "d2").get("reason") == "Reachable")
    assert operations["mount"] == 1
    assert cluster.status("d1")["state"] == cluster.status("d2")["state"] == "Ready"
    assert {event["type"] for event in cluster.events("Reachable")} == {"Normal"}


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
    # The keys of d2 are refused from now on, too: that they differ is said until the source has been asked about them.
    await cluster.until(lambda: cluster.condition("SourceReachable", "d2").get("reason") == "SourceRefused")
    assert cluster.condition("SourceReachable", "d1")["status"] == "True"


async def test_after_a_restart_two_secrets_that_differ_come_to_rest(cluster: Cluster) -> None:
    await cluster.create_keys("k1", key="renewed")
    await cluster.until(lambda: cluster.condition("SourceReachable", "d2").get("reason") == "KeysDiffer")
    await cluster.stop()
    operations = counted(cluster)
    await cluster.start()
    for number in range(3):
        for name in ("d1", "d2"):
            await cluster.annotate(name, refresh=f"again {number}")
            await cluster.until(
                lambda name=name, refresh=f"again {number}": cluster.status(name).get("refreshed") == refresh  # type: ignore[misc]
            )
    assert operations["mount"] == 1
    reasons = {cluster.condition("SourceReachable", name)["reason"] for name in ("d1", "d2")}
    assert reasons == {"Reachable", "KeysDiffer"}


class Keys:
    """The secret keys that mounts and agents were given."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mounted: list[str] = []
        self.assigned: set[str] = set()
        mount, assign = cluster.engine.mount, cluster.agents.assign

        async def note_mount(*, path: str, source: Source) -> None:
            self.mounted += [source.credentials.secret_access_key] if source.credentials else []
            await mount(path=path, source=source)

        async def note_assign(*, node: str, assignments: Sequence[Assignment]) -> None:
            self.assigned |= {
                assignment.source.secret_access_key
                for assignment in assignments
                if assignment.source is not None
            }
            await assign(node=node, assignments=assignments)

        monkeypatch.setattr(cluster.engine, "mount", note_mount)
        monkeypatch.setattr(cluster.agents, "assign", note_assign)


@pytest.mark.failure_mode("operator-starts-with-one-of-two-keys-revoked")
async def test_after_a_restart_revoked_keys_are_neither_mounted_nor_given_to_agents(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create_keys("k2", key="renewed")
    await cluster.until(lambda: cluster.condition("SourceReachable", "d1").get("reason") == "KeysDiffer")
    cluster.engine.credentials["s3://pictures"] = (
        NEW  # those of d1, which every list names first, are revoked
    )
    await cluster.stop()
    keys = Keys(cluster, monkeypatch)
    cluster.agents.restart("a")  # without keys, which it keeps in memory only
    cluster.agents.evict("a", count=1)
    await cluster.start()
    await cluster.until(lambda: sum(cluster.held().values()) == 2 * MB)
    assert keys.mounted == ["renewed"]
    assert keys.assigned == {"renewed"}
    await cluster.until(lambda: cluster.condition("SourceReachable", "d1")["reason"] == "SourceRefused")


@pytest.mark.failure_mode("operator-starts-with-one-of-two-keys-revoked")
async def test_after_a_restart_without_the_right_secret_nothing_is_read_with_revoked_keys(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create_keys("k2", key="renewed")
    await cluster.until(lambda: cluster.condition("SourceReachable", "d1").get("reason") == "KeysDiffer")
    cluster.engine.credentials["s3://pictures"] = NEW
    await cluster.stop()
    cluster.server.store(SECRETS).pop(("n", "k2"))
    keys = Keys(cluster, monkeypatch)
    cluster.agents.restart("a")
    cluster.agents.evict("a", count=1)
    await cluster.start()
    await cluster.until(lambda: cluster.condition("SourceReachable", "d2").get("reason") == "SecretNotFound")
    await cluster.until(lambda: cluster.condition("SourceReachable", "d1").get("status") == "False")
    assert keys.mounted == []
    assert keys.assigned == set()
    await cluster.create_keys("k2", key="renewed")
    await cluster.until(lambda: sum(cluster.held().values()) == 2 * MB)
    assert keys.assigned == {"renewed"}


@pytest.mark.failure_mode("mount-keys-revoked")
async def test_when_the_keys_of_the_mount_are_revoked_those_of_the_other_dataset_serve(
    cluster: Cluster,
) -> None:
    await cluster.create_keys("k2", key="renewed")
    await cluster.until(lambda: cluster.condition("SourceReachable", "d1").get("reason") == "KeysDiffer")
    cluster.engine.credentials["s3://pictures"] = OLD
    files = cluster.engine.files

    async def refuse_walk(
        *, path: str, refresh: bool = False
    ) -> AsyncIterator[list[tuple[bytes, int, bytes]]]:
        (mount,) = cluster.mounts
        source = mount.mounting.source
        if source is not None and source.credentials != OLD:
            raise SourceError(attempted="list", reason="refused", remedy="Check the keys", path=path)
        async for page in files(path=path, refresh=refresh):
            yield page

    cluster.engine.files = refuse_walk  # type: ignore[method-assign]
    await cluster.annotate("d1", refresh="now")
    await cluster.until(lambda: cluster.status("d1").get("refreshed") == "now")
    assert cluster.condition("SourceReachable", "d1")["reason"] == "Reachable"
    await cluster.until(lambda: cluster.condition("SourceReachable", "d2").get("reason") == "SourceRefused")


async def test_one_of_two_secrets_that_is_deleted_takes_nothing_away(cluster: Cluster) -> None:
    cluster.server.store(SECRETS).pop(("n", "k2"))
    await cluster.until(lambda: cluster.condition("SourceReachable", "d2").get("reason") == "SecretNotFound")
    assert cluster.condition("Ready", "d2")["status"] == "True"
    assert cluster.status("d1")["state"] == "Ready"
