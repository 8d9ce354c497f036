"""A Dataset of five million names that its CacheCluster does not allow, on a real Alluxio: no name reaches the master.

The controllers and the count are the operator's, only the API server is in memory; the store makes its names up.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import urllib3
from tests.engine.agents.agent_nodes import exports_of
from tests.engine.conftest import LARGE, SMALL
from tests.engine.servers import SMALL_CAPACITY, AlluxioCluster, S3Server
from tests.engine.stores import countless_store
from tests.support.report import Measured
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import QUICK, Cluster

from tdcs.model.kube_resources import DATASETS, PERSISTENT_VOLUMES

NAMES = 5_000_000
MIB = 1 << 20
MEMORY = 25 * MIB
"""So much more the operator may need while it counts."""


@pytest.fixture
def countless(network: str) -> Iterator[str]:
    """The endpoint of a store with five million objects."""
    with subprocess.Popen(
        [sys.executable, countless_store.__file__, f"{network}.9", str(NAMES)],
        stdout=subprocess.PIPE,
        text=True,
    ) as store:
        assert store.stdout is not None
        yield f"http://{network}.9:{store.stdout.readline().strip()}"
        store.kill()


def asked(endpoint: str) -> tuple[int, int]:
    """How often a store was asked for pages of names, and for anything else but objects as agents ask for them."""
    pages, _, other_calls = urllib3.request("GET", endpoint + countless_store.ASKED).data.split()
    return int(pages), int(other_calls)


def held_bytes(cluster: Cluster) -> int:
    """What agents say that they hold."""
    agents = cluster.observer.view("default").agents.values()
    return sum(mount.held_bytes for state in agents for mount in state.mounts.values())


def resident() -> int:
    """Memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@asynccontextmanager
async def most_memory() -> AsyncIterator[list[int]]:
    """While the body runs, how much memory this process has beyond what it had; the largest is the last item."""
    peaks, begin = [0], resident()

    async def look() -> None:
        while True:
            peaks.append(max(peaks[-1], resident() - begin))
            await asyncio.sleep(0.02)

    looking = asyncio.create_task(look())
    try:
        yield peaks
    finally:
        looking.cancel()


@asynccontextmanager
async def controllers(alluxio: AlluxioCluster, tmp_path: Path) -> AsyncIterator[Cluster]:
    """The operator's controllers over the cluster, with the listing that the operator uses."""
    async with exports_of(alluxio, folder=tmp_path / "manifests", capacity=SMALL_CAPACITY) as (
        caches,
        _,
    ):
        controllers = Cluster(
            engine=cast(MemoryEngine, None),  # the cache is a real one
            nodes={LARGE: {}, SMALL: {}},
            settings=replace(QUICK, listing_seconds=300.0),
            caches=caches.seen_by,
        )
        caches.api = controllers.server
        async with controllers as cluster:
            yield cluster
            for _, name in list(cluster.server.store(DATASETS)):
                await cluster.server.delete(DATASETS, name=name, namespace="n")
            await cluster.until(lambda: not cluster.server.store(DATASETS), deadline=120)


# The second counts nearly all names: a minute on a busy machine.
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "limits",
    [
        {"files": 262_144},
        pytest.param(
            {"files": NAMES - 1},
            marks=pytest.mark.deep(
                "the same with a limit of 262,144: tests/engine/stores/test_many_names.py"
            ),
        ),
    ],
    ids=["a part of them", "one less than there are"],
)
@pytest.mark.threat("names-by-the-million")
async def test_five_million_names_that_are_not_allowed_cost_the_operator_nothing_and_the_master_no_call(
    alluxio: AlluxioCluster,
    s3: S3Server,
    countless: str,
    tmp_path: Path,
    limits: dict[str, int],
    measured: Measured,
) -> None:
    s3.make_bucket("neighbour")
    s3.put_files("neighbour", {f"data/{number}": b"x" * 1000 for number in range(10)})
    async with controllers(alluxio, tmp_path) as cluster:
        rules = [{"name": "stores", "endpoints": [s3.endpoint, countless]}]
        await cluster.create_cache(sources=rules, limits=limits)
        keys = s3.credentials
        await cluster.create_keys("store", account=keys.access_key_id, key=keys.secret_access_key)

        def source(uri: str, endpoint: str) -> dict[str, object]:
            options = {"endpoint": endpoint, "region": "us-east-1", "pathStyle": True}
            return {"uri": uri, "options": options, "secretRef": {"name": "store"}}

        async with most_memory() as memory:
            await cluster.create_dataset("many", source=source("s3://many/train", countless))
            await cluster.until(
                lambda: cluster.condition("Ready", "many").get("reason") == "LimitExceeded", deadline=300
            )
        pages, other_calls = asked(countless)
        assert "spec.limits.files" in cluster.condition("Ready", "many")["message"]
        assert not cluster.server.store(PERSISTENT_VOLUMES)
        assert other_calls == 0  # Alluxio asks for more than pages
        measured(
            f"{NAMES:,} names, limit {limits['files']:,}: {pages:,} pages read, "
            f"operator +{memory[-1] / MIB:.1f} MiB"
        )
        assert memory[-1] < MEMORY
        # The master is as it was.
        await cluster.create_dataset("neighbour", source=source("s3://neighbour/data", s3.endpoint))
        await cluster.until(lambda: cluster.status("neighbour").get("state") == "Ready", deadline=120)
