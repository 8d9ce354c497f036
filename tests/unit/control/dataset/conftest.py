"""A cluster with a bucket of pictures and four nodes in two zones."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.twins.engine import MemoryEngine, Operation
from tests.unit.control.cluster import Cluster

MB = 1_000_000
TOTAL = 20 * MB
ZONES = {"a": "1", "b": "1", "c": "2", "d": "2"}


def engine_of(**more: Any) -> MemoryEngine:
    return MemoryEngine(
        sources={"s3://pictures": {f"{'train' if n % 2 else 'val'}/{n:03d}.jpg": MB for n in range(20)}},
        workers=dict.fromkeys(ZONES, 10 * TOTAL),
        **more,
    )


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(
        engine=engine_of(), nodes={name: {"zone": zone} for name, zone in ZONES.items()}
    ) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        yield cluster


def slow(cluster: Cluster, seconds: float) -> None:
    """Each block takes so long from now on."""

    async def pace(operation: Operation) -> None:
        if operation.name == "put" and operation.length:
            await asyncio.sleep(seconds)

    cluster.engine.before = pace
