"""Datasets and Preloads on a real Alluxio; only the API server is in memory."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from tests.engine.agents.agent_nodes import exports_of
from tests.engine.conftest import LARGE, SMALL
from tests.engine.servers import SMALL_CAPACITY, AlluxioCluster, S3Server
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import QUICK, Cluster

from tdcs.model.kube_resources import DATASETS, PRELOADS
from tdcs.node.agent.disk.tier import Disk

STRANGE = ["with blank", "ünïcödé", "a:b", "100%", "x" * 255, "+plus&and", "deep/er/still"]


@pytest.fixture
async def cluster(alluxio: AlluxioCluster, s3: S3Server, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with exports_of(alluxio, folder=tmp_path / "manifests", capacity=SMALL_CAPACITY) as (
        caches,
        _,
    ):
        cluster = Cluster(
            engine=cast(MemoryEngine, None),  # the cache is a real one
            nodes={LARGE: {}, SMALL: {}},
            settings=replace(QUICK, give_up_seconds=30.0, listing_seconds=60.0),
            caches=caches.seen_by,
        )
        caches.api = cluster.server
        async with cluster:
            await cluster.create_keys()
            await cluster.create_cache(
                sourceFolders=[str(tmp_path)], sources=[{"name": "store", "endpoints": [s3.endpoint]}]
            )
            yield cluster
            for _, name in list(cluster.server.store(DATASETS)):
                await cluster.server.delete(DATASETS, name=name, namespace="n")
            await cluster.until(lambda: not cluster.server.store(DATASETS), deadline=120)


async def refreshed(cluster: Cluster, value: str) -> None:
    await cluster.annotate("pictures", refresh=value)
    await cluster.until(lambda: cluster.status().get("refreshed") == value, deadline=120)
    await cluster.until(lambda: cluster.status().get("state") == "Ready", deadline=120)


async def test_a_folder_is_loaded_followed_compared_and_mended(
    cluster: Cluster, alluxio: AlluxioCluster, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    for number, name in enumerate(STRANGE):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(bytes([number]) * 1000)
    (folder / "empty").touch()
    await cluster.create_dataset(
        source={"uri": f"file://{folder}", "secretRef": None, "checkInterval": "0s"},
        placement={"mode": "Replicate", "nodeCount": 2},
    )
    await cluster.until(lambda: cluster.status().get("state") == "Ready", deadline=120)
    status = cluster.status()
    assert (status["totalFiles"], status["totalBytes"]) == (len(STRANGE) + 1, 1000 * len(STRANGE))
    assert cluster.nodes() == {LARGE: 1000 * len(STRANGE), SMALL: 1000 * len(STRANGE)}

    (folder / "with blank").write_bytes(b"another content" + bytes(985))  # of the same length
    (folder / "a:b").unlink()
    (folder / "added").write_bytes(b"z" * 500)
    await refreshed(cluster, "1")
    assert cluster.status()["totalBytes"] == 1000 * (len(STRANGE) - 1) + 500
    assert set(cluster.nodes().values()) == {1000 * (len(STRANGE) - 1) + 500}
    await cluster.create_preload(verify="All")
    await cluster.until(
        lambda: cluster.status("warm", resource=PRELOADS).get("state") in {"Complete", "Failed"}, deadline=120
    )
    preload = cluster.status("warm", resource=PRELOADS)
    assert (preload["state"], "failedFiles" in preload) == ("Complete", False)
    assert preload["verifiedBytes"] == 2 * (1000 * (len(STRANGE) - 1) + 500)

    # A block is spoiled on its disk, and so it is for Alluxio.
    contents = {bytes([number]) * 1000 for number in range(len(STRANGE))}
    blocks = Disk(alluxio.folder / "blocks" / LARGE).spool
    block = next(file for file in blocks.iterdir() if file.read_bytes() in contents)
    right = block.read_bytes()

    def alluxio_has_it() -> bool:
        return right in {file.read_bytes() for file in alluxio.block_files(LARGE).values()}

    await cluster.until(alluxio_has_it, deadline=120)
    block.write_bytes(b"!" + right[1:])
    await cluster.create_preload("again", verify="All")
    await cluster.until(
        lambda: cluster.status("again", resource=PRELOADS).get("state") in {"Complete", "Failed"},
        deadline=120,
    )
    assert cluster.status("again", resource=PRELOADS)["state"] == "Complete"
    await cluster.until(lambda: block.exists() and block.read_bytes() == right, deadline=60)
    await cluster.until(alluxio_has_it, deadline=120)


async def test_twins_of_a_bucket_keep_their_placement_when_one_goes(cluster: Cluster, s3: S3Server) -> None:
    bucket = f"b-{uuid.uuid4().hex}"
    s3.make_bucket(bucket)
    s3.put_files(bucket, {f"data/{number:03d}": bytes([number]) * 10_000 for number in range(60)})
    origin = s3.source(f"s3://{bucket}/data")
    assert origin.credentials is not None
    await cluster.create_keys(
        "store", account=origin.credentials.access_key_id, key=origin.credentials.secret_access_key
    )
    options = {**origin.options, "pathStyle": origin.options.get("pathStyle") == "true"}
    source = {"uri": origin.uri, "options": options, "secretRef": {"name": "store"}}
    await cluster.create_dataset("one", source=source, placement={"mode": "Replicate", "nodeCount": 1})
    await cluster.until(lambda: cluster.status("one").get("state") == "Ready", deadline=120)
    await cluster.create_dataset("both", source=source, placement={"mode": "Replicate", "nodeCount": 2})
    await cluster.until(lambda: cluster.status("both").get("state") == "Ready", deadline=120)
    assert len(cluster.nodes("one")) == 1
    assert cluster.nodes("both") == dict.fromkeys((LARGE, SMALL), 600_000)
    await cluster.server.delete(DATASETS, name="both", namespace="n")
    await cluster.until(
        lambda: (
            cluster.status("one").get("physicalBytes") == 600_000 and len(cluster.server.store(DATASETS)) == 1
        ),
        deadline=120,
    )
    assert cluster.status("one")["state"] == "Ready"
