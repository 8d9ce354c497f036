"""The engine tier: a real Alluxio with a master, two workers and FUSE clients, and a real S3 server.

Nothing here is skipped: a machine on which FUSE cannot work fails the tier.

* ``alluxio``: the run's cluster; ``own_alluxio(...)`` another one, for a test that breaks things.
* ``s3``: the S3 server.
* ``bench``: a node with native views, which the file's tests share; ``own_bench``: one of the test's own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from tests.engine.servers import MIB, SMALL_CAPACITY, AlluxioCluster, S3Server, make_home, random_network
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

from tdcs_local import host, programs
from tdcs_local.progress import Reporter

__all__ = ["measured", "pytest_terminal_summary", "pytest_testnodedown"]

LARGE, SMALL = "node-1", "node-2"
CAPACITIES = {LARGE: 512 * MIB, SMALL: SMALL_CAPACITY}


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
    clusters: list[AlluxioCluster] = []

    def start(**options: Mapping[str, Any]) -> AlluxioCluster:
        folder = tmp_path / f"alluxio-{len(clusters)}"
        cluster = _cluster(alluxio_home, folder, random_network(), **options)
        clusters.append(cluster)
        cluster.start()
        return cluster

    yield start
    for cluster in clusters:
        cluster.stop()


def _cluster(
    home: Path,
    folder: Path,
    network: str,
    *,
    workers: Mapping[str, int] = CAPACITIES,
    overrides: Mapping[str, str] = MappingProxyType({}),
) -> AlluxioCluster:
    return AlluxioCluster(home=home, folder=folder, network=network, workers=workers, overrides=overrides)


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
