"""A store that sends its readers to another host: Alluxio's master and workers do not go there."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import grpc
import pytest
from tests.engine.block_reads import read_block
from tests.engine.conftest import LARGE
from tests.engine.servers import AlluxioCluster
from tests.engine.stores.flat_store import Answers, flat_store

from tdcs.alluxio import AlluxioEngine
from tdcs.alluxio.mount_properties import explain
from tdcs.api import names
from tdcs.model.cache_engine import Block, Credentials, NoSuchPathError, Source, SourceError

OBJECTS = {"data/a": 300, "data/b": 20}
BODY = b"x" * 300


class Stores:
    """A store of a tenant, and a host that no source may reach; both serve the same objects."""

    def __init__(self, *, tenants: str, tenant: Answers, foreign: str, victim: Answers) -> None:
        self.tenant = tenant
        self.victim = victim
        self._foreign = foreign
        self._tenants = tenants

    def redirect(self, status: int) -> None:
        """Answer everything with a redirection to the foreign host from now on."""
        self.tenant.redirection = (status, self._foreign)

    def source(self) -> Source:
        """A bucket of the tenant's store."""
        return Source(
            uri=f"s3://b-{uuid.uuid4().hex}/data",
            options={"endpoint": self._tenants, "pathStyle": "true"},
            credentials=Credentials(access_key_id="a", secret_access_key="b"),
        )


@pytest.fixture
def stores(network: str) -> Iterator[Stores]:
    tenant, victim = Answers(), Answers()
    with (
        flat_store(address=f"{network}.7", objects=OBJECTS, answers=tenant) as tenants,
        flat_store(address=f"{network}.8", objects=OBJECTS, answers=victim) as foreign,
    ):
        yield Stores(tenants=tenants, tenant=tenant, foreign=foreign, victim=victim)


async def mount_and_list(engine: AlluxioEngine, path: str, source: Source) -> list[Block]:
    """Mount a source; the blocks of its files."""
    await engine.mount(path=path, source=source)
    return [block async for page in engine.files(path=path) for file in page for block in file.blocks]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.threat("redirected-alluxio")
async def test_a_source_that_sends_its_readers_elsewhere_is_refused_and_nobody_goes_there(
    engine: AlluxioEngine, stores: Stores, status: int
) -> None:
    stores.redirect(status)
    path = f"/datasets/{uuid.uuid4().hex[:16]}"
    try:
        with pytest.raises((SourceError, NoSuchPathError)) as refusal:
            await mount_and_list(engine, path, stores.source())
        assert stores.tenant.requests
        assert not stores.victim.requests
        if status == 307:  # the one that Amazon's client follows
            assert "another host" in str(refusal.value)
            assert "spec.source.options.endpoint" in str(refusal.value)
    finally:
        await engine.unmount(path=path)


@pytest.mark.threat("redirected-alluxio")
async def test_a_worker_reads_no_block_from_the_host_that_a_store_names(
    engine: AlluxioEngine, alluxio: AlluxioCluster, stores: Stores
) -> None:
    path = f"/datasets/{uuid.uuid4().hex[:16]}"
    try:
        listed = await mount_and_list(engine, path, stores.source())
        block = next(one for one in listed if one.source_path.endswith("/a"))

        async def read(block: Block = block) -> bytes:
            target = f"{alluxio.worker_hosts[LARGE]}:{names.WORKER_RPC_PORT}"
            return await read_block(target, block=block, path=block.source_path, length=len(BODY))

        assert await read() == BODY
        stores.redirect(307)
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await read()
        reason, remedy = explain(refusal.value.details() or "")
        assert "another host" in reason
        assert "endpoint" in remedy
        assert not stores.victim.requests
        stores.tenant.redirection = None
        assert await read() == BODY
    finally:
        await engine.unmount(path=path)
