"""The engine tier: a real Alluxio with a master, two workers and FUSE clients, and a real S3 server.

Nothing here is skipped: a machine on which FUSE cannot work fails the tier.

* ``alluxio``: the run's cluster; ``own_alluxio(...)`` another one, for a test that breaks things.
* ``s3``: the S3 server.
* ``world``: both, as the contract suite wants them.
* ``bench``: a node with native views, which the file's tests share; ``own_bench``: one of the test's own.
* ``engine``: an ``AlluxioEngine`` of the test's own on ``alluxio``.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.engine.contract import BLOCK_SIZE, MIB, SMALL_CAPACITY, mounts
from tests.engine.loading import placed
from tests.engine.servers import AlluxioCluster, S3Server, make_home, random_network
from tests.engine.views.viewing import (
    Bench,
    ViewClient,
    machine_as_node,
    plugged,
    serving,
    viewing,
)
from tests.support.dataplane.node import Node
from tests.support.report import measured, pytest_terminal_summary, pytest_testnodedown
from tests.support.waiting import eventually_async

from tdcs.alluxio import AlluxioEngine
from tdcs.model.cache_engine import Block, Credentials, Engine, Source
from tdcs_local import host, programs
from tdcs_local.progress import Reporter

__all__ = ["measured", "mounts", "pytest_terminal_summary", "pytest_testnodedown"]

LARGE, SMALL = "node-1", "node-2"
CAPACITIES = {LARGE: 512 * MIB, SMALL: SMALL_CAPACITY}
SETTINGS = {"alluxio.user.block.size.bytes.default": f"{BLOCK_SIZE}B"}


@pytest.fixture(scope="session")
def network() -> str:
    """A loopback network for this run."""
    if not Path("/dev/fuse").is_char_device():
        pytest.fail("this machine has no /dev/fuse: load the kernel module (`modprobe fuse`)", pytrace=False)
    return random_network()


@pytest.fixture(scope="session")
def alluxio_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the image has in /opt/alluxio; the programs that run it are installed where they are missing."""
    host.require_programs("java", "fusermount3", reporter=Reporter())
    return make_home(tmp_path_factory.mktemp("home"), lib=programs.ensure("alluxio") / "lib")


@pytest.fixture(scope="session")
def s3(network: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The run's S3 server."""
    program = programs.ensure("versitygw") / "versitygw"
    server = S3Server(program=program, folder=tmp_path_factory.mktemp("s3"), address=f"{network}.2")
    server.process.start()
    yield server
    server.process.kill()


@pytest.fixture(scope="session")
def alluxio(
    network: str, alluxio_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AlluxioCluster]:
    """The run's cluster."""
    cluster = _cluster(alluxio_home, tmp_path_factory.mktemp("alluxio"), network)
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def own_alluxio(alluxio_home: Path, tmp_path: Path) -> Iterator[Callable[..., AlluxioCluster]]:
    """Start another cluster for one test; ``workers`` and ``overrides`` as for ``AlluxioCluster``."""
    made: list[AlluxioCluster] = []

    def start(**options: Mapping[str, Any]) -> AlluxioCluster:
        folder = tmp_path / f"alluxio-{len(made)}"
        cluster = _cluster(alluxio_home, folder, random_network(), **options)
        made.append(cluster)
        cluster.start()
        return cluster

    yield start
    for cluster in made:
        cluster.stop()


def _cluster(
    home: Path,
    folder: Path,
    network: str,
    *,
    workers: Mapping[str, int] = CAPACITIES,
    overrides: Mapping[str, str] = SETTINGS,
) -> AlluxioCluster:
    return AlluxioCluster(home=home, folder=folder, network=network, workers=workers, overrides=overrides)


@pytest.fixture
async def engine(alluxio: AlluxioCluster) -> AsyncIterator[AlluxioEngine]:
    """An engine on the run's cluster, with both workers registered."""
    async with AlluxioEngine(master=alluxio.target, block_size=BLOCK_SIZE) as engine:
        await registered(engine)
        yield engine


async def registered(engine: Engine, *, workers: Sequence[str] = (LARGE, SMALL)) -> None:
    """Wait until all workers are there."""

    async def all_there() -> bool:
        return [info.name for info in await engine.workers() if info.live] == [*workers]

    condition: Callable[[], bool | Awaitable[bool]] = all_there
    await eventually_async(condition, deadline=120)


@pytest.fixture(scope="module")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, ViewClient, Node]]:
    """This machine with a remote-read client, for the tests of a file that leave it as it was."""
    tiers = tmp_path_factory.mktemp("views")
    with machine_as_node() as node, serving(tiers=tiers, node=node) as client:
        yield tiers, client, node


@pytest.fixture
async def bench(shared_node: tuple[Path, ViewClient, Node], s3: S3Server) -> AsyncIterator[Bench]:
    """The file's client with a plugin of the test's own."""
    tiers, client, node = shared_node
    async with plugged(tiers=tiers, client=client, s3=s3, node=node) as bench:
        yield bench
        await bench.clear()


@pytest.fixture
async def own_bench(s3: S3Server, tmp_path: Path) -> AsyncIterator[Bench]:
    """A remote-read client and a plugin of the test's own."""
    with machine_as_node() as node:
        async with viewing(tiers=tmp_path / "tiers", s3=s3, node=node) as bench:
            yield bench


class AlluxioWorld:
    """What the contract suite wants, on a real cluster."""

    large, small = LARGE, SMALL

    def __init__(self, *, engine: AlluxioEngine, s3: S3Server, alluxio: AlluxioCluster) -> None:
        self.engine = engine
        self._s3 = s3
        self._alluxio = alluxio

    def source(self, files: Mapping[str, int]) -> Source:
        bucket = f"b-{uuid.uuid4().hex}"
        self._s3.make_bucket(bucket)
        self._s3.put_files(
            bucket, {f"data/{name}": random.randbytes(length) for name, length in files.items()}
        )
        return self._s3.source(f"s3://{bucket}/data")

    def write(self, source: Source, name: str, length: int) -> None:
        bucket, prefix = source.uri.removeprefix("s3://").split("/", 1)
        self._s3.put(bucket, f"{prefix}/{name}", random.randbytes(length))

    def remove(self, source: Source, name: str) -> None:
        bucket, prefix = source.uri.removeprefix("s3://").split("/", 1)
        self._s3.delete(bucket, f"{prefix}/{name}")

    def missing_source(self) -> Source:
        return self._s3.source(f"s3://missing-{uuid.uuid4().hex}")

    def refused(self, source: Source) -> Source:
        wrong = Credentials(access_key_id="test-account", secret_access_key="another-secret-51d0b2")
        return self._s3.source(source.uri, credentials=wrong)

    async def place(self, *, worker: str, blocks: Sequence[Block]) -> None:
        await placed(self.engine, worker=worker, blocks=blocks)

    async def revive(self, worker: str) -> None:
        await asyncio.to_thread(self._alluxio.workers[worker].restart)


@pytest.fixture
def world(engine: AlluxioEngine, s3: S3Server, alluxio: AlluxioCluster) -> AlluxioWorld:
    """The cluster and the S3 server, for the contract suite."""
    return AlluxioWorld(engine=engine, s3=s3, alluxio=alluxio)
