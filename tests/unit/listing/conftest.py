"""Folders of manifests, and applications that serve them on loopback."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from tests.support.twins.engine import MemoryEngine

from tdcs.listing.folder import ManifestFolder
from tdcs.model.cache_engine import Source

MOUNT = "/datasets/1f"
URI = "s3://bucket/data"


@pytest.fixture
def folder(tmp_path: Path) -> ManifestFolder:
    return ManifestFolder(tmp_path / "manifests")


async def mounted(files: dict[str, int]) -> MemoryEngine:
    engine = MemoryEngine(sources={URI: files}, workers={"a": 1 << 30}, block_size=1 << 20)
    await engine.mount(path=MOUNT, source=Source(uri=URI))
    return engine


Serve = Callable[[web.Application], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serve an application on loopback; its address."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(application: web.Application) -> str:
            runner = web.AppRunner(application, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            return f"{host}:{port}"

        yield start


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session
