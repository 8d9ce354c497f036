"""An operator that is killed with any write of a Dataset's life is followed by one that goes on where it was."""

from collections.abc import AsyncIterator

import pytest
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import Cluster
from tests.unit.control.killer import Killer

from tdcs.model.kube_resources import DATASETS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PRELOADS

MB = 1_000_000
FILES = {f"f{number:02d}": MB for number in range(10)}


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    # On a busy machine a peer may be late, and then an agent reads what the peer should bring from the source, too.
    monkeypatch.setattr("tests.support.twins.agent_work.PEER_PATIENCE", 10.0)
    engine = MemoryEngine(sources={"s3://pictures": FILES}, workers=dict.fromkeys("ab", 100 * MB))
    async with Cluster(engine=engine, nodes={name: {"zone": name} for name in "ab"}) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        yield cluster


async def followed(cluster: Cluster, killer: Killer, *, ended: bool, least: int, after: int) -> None:
    """Another operator begins where the killed one was."""
    assert killer.dead.is_set() or (ended and after > least), "there are that many writes"
    await cluster.stop()
    killer.release()
    await cluster.start()


@pytest.mark.parametrize("after", range(1, 9))
@pytest.mark.failure_mode("operator-killed-at-dataset-write")
async def test_an_operator_killed_with_any_write_of_a_load_is_followed_by_one_that_ends_it(
    cluster: Cluster, after: int
) -> None:
    await cluster.create_dataset(placement={"nodeSelector": {"zone": "a"}})
    await cluster.create_preload(nodes=["b"])
    killer = Killer(cluster, after=after)

    def ended() -> bool:
        warm = cluster.condition("Complete", "warm", resource=PRELOADS).get("status") == "True"
        return warm and cluster.status().get("state") == "Ready"

    await cluster.until(lambda: killer.dead.is_set() or ended())
    await followed(cluster, killer, ended=ended(), least=4, after=after)
    await cluster.until(ended)
    assert cluster.held() == {"a": 10 * MB, "b": 10 * MB}
    assert cluster.engine.source_bytes_read == 10 * MB
    assert len(cluster.server.store(PERSISTENT_VOLUMES)) == 1
    assert len(cluster.server.store(PERSISTENT_VOLUME_CLAIMS)) <= 1  # it waits for the volume controller


@pytest.mark.parametrize("after", range(1, 6))
@pytest.mark.failure_mode("operator-killed-at-dataset-write")
async def test_an_operator_killed_at_any_write_of_a_deletion_leaves_nothing_to_the_next(
    cluster: Cluster, after: int
) -> None:
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    await cluster.server.delete(DATASETS, name="pictures", namespace="n")
    killer = Killer(cluster, after=after)

    def ended() -> bool:
        return not cluster.server.store(DATASETS) and not cluster.engine.state.mounts

    await cluster.until(lambda: killer.dead.is_set() or ended())
    await followed(cluster, killer, ended=ended(), least=2, after=after)
    await cluster.until(ended)
    await cluster.until(lambda: not any(cluster.held().values()))
    assert not cluster.server.store(PERSISTENT_VOLUMES)
    assert not cluster.server.store(PERSISTENT_VOLUME_CLAIMS)
