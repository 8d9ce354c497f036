"""What the engine says and does when Alluxio's processes die, start or are not there."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

import pytest
from tests.engine.conftest import LARGE, SMALL, registered
from tests.engine.contract import MIB, Mounts, blocks_of, files_of, holders
from tests.engine.loading import placed
from tests.engine.servers import AlluxioCluster, S3Server
from tests.support.waiting import eventually_async

from tdcs.alluxio import AlluxioEngine
from tdcs.model.cache_engine import EngineUnavailableError, SourceError

PATH = "/datasets/kept"


async def test_a_master_that_is_away_is_named_and_trying_again_may_help() -> None:
    async with AlluxioEngine(master="127.0.0.1:9", patience=0.5) as engine:
        with pytest.raises(EngineUnavailableError, match=r"127\.0\.0\.1:9 is away") as refusal:
            await engine.workers()
    assert refusal.value.retryable


async def test_an_endpoint_that_does_not_answer_is_the_sources_fault(
    engine: AlluxioEngine, s3: S3Server
) -> None:
    source = s3.source("s3://bucket/data")
    broken = type(source)(
        uri=source.uri, options={"endpoint": "http://127.0.0.1:9"}, credentials=s3.credentials
    )
    with pytest.raises(SourceError, match="endpoint does not answer"):
        await engine.mount(path=f"/datasets/{uuid.uuid4().hex}", source=broken)


# Four starts of a JVM, a worker's timeout, a re-registration: a minute, and on a busy machine many.
@pytest.mark.timeout(900)
@pytest.mark.failure_mode("alluxio-process-killed")
async def test_a_cluster_survives_the_death_of_its_processes(
    own_alluxio: Callable[[], AlluxioCluster], s3: S3Server
) -> None:
    cluster = own_alluxio()
    bucket = f"b-{uuid.uuid4().hex}"
    s3.make_bucket(bucket)
    s3.put_files(bucket, {"data/a": b"a" * (2 * MIB), "data/b": b"b" * 100})
    async with AlluxioEngine(master=cluster.target, patience=120, block_size=MIB) as engine:
        await registered(engine)
        await engine.mount(path=PATH, source=s3.source(f"s3://{bucket}/data"))
        blocks = await blocks_of(engine, PATH)
        await placed(engine, worker=LARGE, blocks=blocks)
        await placed(engine, worker=SMALL, blocks=blocks[:1])

        # a worker dies: it is lost soon, the other one's copies stay
        cluster.workers[LARGE].kill()
        await _becomes(engine, live=[SMALL])
        held = {block.id: block.workers for block in await blocks_of(engine, PATH)}
        assert held == {block.id: frozenset({SMALL} if block is blocks[0] else set()) for block in blocks}

        # it comes back with what it held
        cluster.workers[LARGE].start()
        await _becomes(engine, live=[LARGE, SMALL])
        held = {block.id: block.workers for block in await blocks_of(engine, PATH)}
        assert held[blocks[0].id] == {LARGE, SMALL}
        assert held[blocks[-1].id] == {LARGE}

        # the master dies: calls wait until it is back, mounts and locations are as before
        cluster.master.kill()
        cluster.master.launch()
        assert dict(await engine.mounts()) == {PATH: f"s3://{bucket}/data"}
        cluster.master.wait_ready()
        await registered(engine)

        async def complete() -> bool:
            return {block.id: block.workers for block in await blocks_of(engine, PATH)} == held

        condition: Callable[[], bool | Awaitable[bool]] = complete
        await eventually_async(condition, deadline=150)
        # also its own mark on the mount survived: the same source is no conflict and no new mount
        mount_ids = {block.mount_id for block in await blocks_of(engine, PATH)}
        await engine.mount(path=PATH, source=s3.source(f"s3://{bucket}/data"))
        assert {block.mount_id for block in await blocks_of(engine, PATH)} == mount_ids
        assert len(await files_of(engine, PATH, refresh=True)) == 2

        await engine.unmount(path=PATH)
        assert dict(await engine.mounts()) == {}


async def test_new_credentials_take_the_place_of_old_ones(
    engine: AlluxioEngine, s3: S3Server, mounts: Mounts
) -> None:
    bucket, path = f"b-{uuid.uuid4().hex}", mounts.new_path()
    s3.make_bucket(bucket)
    s3.put_files(bucket, {"data/a": b"a" * 100})
    right = s3.source(f"s3://{bucket}/data")
    await engine.mount(path=path, source=right)
    wrong = s3.source(
        right.uri, credentials=type(s3.credentials)(access_key_id="nobody", secret_access_key="not-it-9c1")
    )
    with pytest.raises(SourceError, match="refused the credentials") as refusal:
        await engine.mount(path=path, source=wrong)
    assert "not-it-9c1" not in str(refusal.value)
    await engine.mount(path=path, source=right)
    await placed(engine, worker=SMALL, blocks=await blocks_of(engine, path))
    assert await holders(engine, path) == {frozenset({SMALL})}


async def _becomes(engine: AlluxioEngine, *, live: list[str]) -> None:
    async def seen() -> bool:
        return [info.name for info in await engine.workers() if info.live] == live

    condition: Callable[[], bool | Awaitable[bool]] = seen
    await eventually_async(condition, deadline=150)
