"""A worker registers with a restarted master soon, even if the one before died in the middle of a register stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.engine.conftest import LARGE, registered
from tests.engine.contract import MIB, blocks_of
from tests.engine.loading import placed
from tests.engine.servers import AlluxioCluster, S3Server
from tests.support.waiting import eventually_async

from tdcs.alluxio import AlluxioEngine

PATH = "/datasets/many"
BLOCK = 1024
BLOCKS = 2 * MIB // BLOCK


# Four starts of a JVM and 40 s of waiting: two minutes, and on a busy machine many.
@pytest.mark.timeout(900)
async def test_a_worker_registers_soon_after_its_master_died_during_the_register_stream(
    own_alluxio: Callable[..., AlluxioCluster], s3: S3Server
) -> None:
    s3.make_bucket("registration")
    s3.put_files("registration", {"data/a": bytes(BLOCKS * BLOCK)})
    # Many blocks with one in each message: the stream lasts long enough to be interrupted.
    cluster = own_alluxio(
        workers={LARGE: 64 * MIB},
        overrides={
            "alluxio.user.block.size.bytes.default": f"{BLOCK}B",
            "alluxio.worker.register.stream.batch.size": "1",
        },
    )
    log = cluster.workers[LARGE].log
    async with AlluxioEngine(master=cluster.target, patience=120, block_size=BLOCK) as engine:
        await registered(engine, workers=[LARGE])
        await engine.mount(path=PATH, source=s3.source("s3://registration/data"))
        await placed(engine, worker=LARGE, blocks=await blocks_of(engine, PATH))

        # The master dies during a re-registration: a worker whose first registration fails exits.
        begin = log.stat().st_size
        cluster.master.restart()
        await eventually_async(
            lambda: b"register stream" in log.read_bytes()[begin:],
            deadline=120,
            interval=0.01,
            describe=lambda: f"the worker does not register: {log.read_bytes()[begin:][-2000:]!r}",
        )
        cluster.master.pause()
        cluster.master.kill()
        cluster.master.start()
        assert not [info for info in await engine.workers() if info.live]
        await registered(engine, workers=[LARGE])

        async def known() -> bool:
            return {block.workers for block in await blocks_of(engine, PATH)} == {frozenset({LARGE})}

        condition: Callable[[], bool | Awaitable[bool]] = known
        await eventually_async(condition, deadline=60)
