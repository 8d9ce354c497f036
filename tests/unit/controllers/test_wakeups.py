"""What changes around a Dataset at rest wakes it at once: no story here waits for a pass that comes by itself."""

import math
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.unit.controllers.cluster import QUICK, Cluster

from tdcs.controllers.context import WorkKey
from tdcs.engine.memory import MemoryEngine
from tdcs.kube.resources import DATASETS

MB = 1_000_000


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr("tdcs.controllers.mounts.snapshot.UNHEARD_SECONDS", 0.2)
    monkeypatch.setattr("tdcs.controllers.mounts.reconcile.UNHEARD_SECONDS", 0.2)
    engine = MemoryEngine(
        sources={"s3://pictures": {"a": MB}, "s3://words": {"b": MB}}, workers={"n1": 100 * MB}
    )
    settings = replace(QUICK, resync_seconds=600.0)
    async with Cluster(engine=engine, nodes={"n1": {}}, settings=settings, most_wait=math.inf) as made:
        await made.create_cache()
        await made.create_keys()
        yield made


async def at_rest(cluster: Cluster, name: str = "pictures") -> None:
    """Until a Dataset is loaded and its passes have nothing to do any more."""
    await cluster.until_state("Ready", name)

    def rests() -> bool:
        cluster.context.queue.add(WorkKey(DATASETS, "n", name))
        found = [mount for mount in cluster.datasets._mounts if mount.path == path]
        return bool(found and found[0].snapshot is not None)

    path = cluster.status(name)["mountPath"]
    await cluster.until(rests)


async def test_a_version_that_is_overwritten_at_the_master_is_set_right(cluster: Cluster) -> None:
    await cluster.create_dataset()
    await at_rest(cluster)
    path = cluster.status()["mountPath"]
    version = (await cluster.engine.versions())[path]
    await cluster.engine.set_version(path=path, version="another")
    await cluster.until(lambda: cluster.engine.known_versions[path] == version, deadline=5)
