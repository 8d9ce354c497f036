"""An agent that was taken over: what its answers make of the operator, and of who fetches a manifest from it."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.typedefs import Handler
from tests.support.waiting import eventually_async

from tdcs.engine import agent_client
from tdcs.engine.agent_client import AgentAddress, HttpAgents
from tdcs.engine.agents import AgentError, FolderLimit
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.result import ManifestUnavailableError
from tdcs.listing.transfer import ManifestFetcher

MB = 1 << 20
DIGEST = "0" * 32


@asynccontextmanager
async def served(answer: Handler) -> AsyncIterator[str]:
    """The address of a server that answers everything so."""
    app = web.Application()
    app.add_routes([web.route("*", "/{path:.*}", answer)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def operators_client(url: str) -> AsyncIterator[HttpAgents]:
    client = HttpAgents(poll_seconds=1.0, call_seconds=20.0)
    client.connect({"n": AgentAddress(url=url, blocks="127.0.0.1:1")})
    try:
        yield client
    finally:
        await client.close()


class Elsewhere:
    """What an answer names as the place to ask: another agent, or an address of metadata."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path}")
        return web.Response()


async def test_no_request_to_an_agent_is_made_at_another_place_that_it_names() -> None:
    elsewhere, redirected = Elsewhere(), list[str]()
    async with served(elsewhere.answer) as there:

        async def redirect(request: web.Request) -> web.StreamResponse:
            redirected.append(request.path)
            return web.Response(status=307, headers={"Location": there + request.path})

        async with served(redirect) as url, operators_client(url) as client:
            with pytest.raises(AgentError, match="answered 307"):
                await client.forget(node="n", mounts=["/datasets/1f"])
            with pytest.raises(AgentError, match="answered 307"):
                await client.assign(node="n", assignments=[])
            with pytest.raises(AgentError, match="answered 307"):
                await client.count(
                    node="n", limit=FolderLimit(folder="/nfs", files=1, bytes=None, seconds=5.0)
                )
            await eventually_async(lambda: "/v1/state" in redirected, deadline=20)
    assert elsewhere.asked == []


async def test_no_manifest_is_fetched_from_another_place_that_an_agent_names(tmp_path: Path) -> None:
    elsewhere = Elsewhere()
    async with served(elsewhere.answer) as there:

        async def redirect(request: web.Request) -> web.StreamResponse:
            return web.Response(status=302, headers={"Location": there + request.path})

        async with served(redirect) as url, aiohttp.ClientSession() as session:
            fetcher = ManifestFetcher(folder=ManifestFolder(tmp_path), session=session)
            with pytest.raises(ManifestUnavailableError, match="answered 302"):
                await fetcher.fetch(digest=DIGEST, urls=[url])
    assert elsewhere.asked == []


async def test_a_small_answer_takes_no_large_memory() -> None:
    bomb = gzip.compress(b"\0" * (200 * MB), 9)
    assert len(bomb) < MB

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    async with served(answer) as url, operators_client(url) as client:
        tracemalloc.start()
        try:
            with pytest.raises(AgentError, match="no count"):
                await client.count(
                    node="n", limit=FolderLimit(folder="/nfs", files=1, bytes=None, seconds=20.0)
                )
            assert tracemalloc.get_traced_memory()[1] < 20 * MB
        finally:
            tracemalloc.stop()


async def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_client, "_LARGEST_STATE", MB)

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"\0" * 65_536)

    async with served(answer) as url, operators_client(url) as client:
        with pytest.raises(AgentError, match=f"more than {MB} bytes"):
            await client.forget(node="n", mounts=["/datasets/1f"])
