"""An agent that was taken over: what its answers make of the operator, and of who fetches a manifest from it."""

from __future__ import annotations

import gzip
import logging
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.typedefs import Handler
from tests.support.waiting import eventually_async

from tdcs.engine import agent_client
from tdcs.engine.agent_client import AgentAddress, HttpAgents
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.result import ManifestUnavailableError
from tdcs.listing.transfer import ManifestFetcher
from tdcs.model.agent_state import (
    AgentError,
    AgentState,
    CheckState,
    FileFailure,
    MountState,
    PartState,
    SourceAccess,
    SourceToCount,
)

MB = 1 << 20
DIGEST = "0" * 32
MOUNT = "/datasets/0123456789abcdef"
COUNTED = SourceToCount(mount=MOUNT, source=SourceAccess(uri="s3://bucket"), files=1, seconds=20.0)


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


@pytest.mark.threat("agent-answers")
async def test_no_request_to_an_agent_is_made_at_another_place_that_it_names() -> None:
    elsewhere, redirected = Elsewhere(), list[str]()
    async with served(elsewhere.answer) as address:

        async def redirect(request: web.Request) -> web.StreamResponse:
            redirected.append(request.path)
            return web.Response(status=307, headers={"Location": address + request.path})

        async with served(redirect) as url, operators_client(url) as client:
            with pytest.raises(AgentError, match="answered 307"):
                await client.drop_mounts(node="n", mounts=["/datasets/1f"])
            with pytest.raises(AgentError, match="answered 307"):
                await client.assign(node="n", assignments=[])
            with pytest.raises(AgentError, match="answered 307"):
                await client.count_source(node="n", source=COUNTED)
            await eventually_async(lambda: "/v1/state" in redirected, deadline=20)
    assert elsewhere.asked == []


@pytest.mark.threat("agent-answers")
async def test_no_manifest_is_fetched_from_another_place_that_an_agent_names(tmp_path: Path) -> None:
    elsewhere = Elsewhere()
    async with served(elsewhere.answer) as address:

        async def redirect(request: web.Request) -> web.StreamResponse:
            return web.Response(status=302, headers={"Location": address + request.path})

        async with served(redirect) as url, aiohttp.ClientSession() as session:
            fetcher = ManifestFetcher(folder=ManifestFolder(tmp_path), session=session)
            with pytest.raises(ManifestUnavailableError, match="answered 302"):
                await fetcher.fetch(digest=DIGEST, urls=[url])
    assert elsewhere.asked == []


def packed(**mount: object) -> bytes:
    """The state of an agent with one mount, which has these fields; nothing is compared with its type."""
    return msgspec.msgpack.encode(
        {"node": "n", "instance": "i", "revision": 1, "mounts": {MOUNT: {"mount": MOUNT, **mount}}}
    )


GOOD = packed()
FAILURE = {"path": "a", "code": "Missing", "reason": "gone"}

BELIEVED = {
    "a bitmap that is too short": (packed(complete=b""), "complete"),
    "a bitmap that is too long": (packed(present=b"\xff" * 513), "present"),
    "bytes below zero": (packed(held_bytes=-1), "held_bytes"),
    "bytes without end": (packed(source_rate=1 << 63), "source_rate"),
    "progress below zero": (packed(parts=[{"name": "p", "held_files": -1}]), "held_files"),
    "a part with a long name": (packed(parts=[{"name": "p" * MB}]), "name"),
    "a file with a long name": (packed(failed=[{**FAILURE, "path": "p" * MB}]), "path"),
    "a long reason": (packed(failed=[{**FAILURE, "reason": "r" * MB}]), "reason"),
    "a comparison below zero": (packed(check={"id": "c", "wrong_count": -1}), "wrong_count"),
    "a long digest": (packed(manifest="0" * MB), "manifest"),
    "a text that is none": (GOOD.replace(b"\xa1i", b"\xa1\xff"), "utf-8"),
    "a field that is deep": (packed(more=b"")[:-2] + b"\x91" * 100_000 + b"\xc0", "recursion"),
}


@pytest.mark.parametrize(("state", "named"), BELIEVED.values(), ids=BELIEVED)
@pytest.mark.threat("agent-false-state")
async def test_an_agent_with_a_state_that_cannot_be_counts_as_one_that_does_not_answer(
    state: bytes, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [state]

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=answers[0])

    def said() -> list[str]:
        return [text for text in caplog.messages if "the agent of node n does not answer" in text]

    with caplog.at_level(logging.WARNING):
        async with served(answer) as url, operators_client(url) as client:
            await eventually_async(lambda: bool(said()), deadline=20)
            assert not client.states()
            assert named in said()[0]
            answers[0] = GOOD
            await eventually_async(lambda: "n" in client.states(), deadline=20)
            answers[0] = state
            with pytest.raises(AgentError, match=f"node n: .*{named}"):
                await client.drop_mounts(node="n", mounts=[MOUNT])
            assert not client.states()


@pytest.mark.threat("agent-false-state")
def test_every_number_bitmap_and_text_of_a_state_is_bounded() -> None:
    for struct in (AgentState, MountState, PartState, CheckState, FileFailure):
        for field in msgspec.structs.fields(struct):
            plain = msgspec.inspect.type_info(field.type)
            if isinstance(plain, msgspec.inspect.IntType):
                assert (plain.ge, plain.le) == (0, (1 << 63) - 1), field.name
            elif isinstance(plain, msgspec.inspect.BytesType):
                assert (plain.min_length, plain.max_length) == (512, 512), field.name
            elif isinstance(plain, msgspec.inspect.StrType):
                assert plain.max_length, field.name


@pytest.mark.threat("agent-answers")
async def test_a_small_answer_takes_no_large_memory() -> None:
    bomb = gzip.compress(b"\0" * (200 * MB), 9)
    assert len(bomb) < MB

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    async with served(answer) as url, operators_client(url) as client:
        tracemalloc.start()
        try:
            with pytest.raises(AgentError, match="no count"):
                await client.count_source(node="n", source=COUNTED)
            assert tracemalloc.get_traced_memory()[1] < 20 * MB
        finally:
            tracemalloc.stop()


@pytest.mark.threat("agent-answers")
async def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_client, "_LARGEST_STATE", MB)

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"\0" * 65_536)

    async with served(answer) as url, operators_client(url) as client:
        with pytest.raises(AgentError, match=f"more than {MB} bytes"):
            await client.drop_mounts(node="n", mounts=["/datasets/1f"])
