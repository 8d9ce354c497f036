"""Attacks on an agent's two ports, by processes without a certificate, and with one for something else."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec
import pytest
from tests.attacks.unit.strangers import strangers, unverified
from tests.support.certificates import DAY, TestAuthority, now
from tests.support.dataplane.agents import (
    RunningAgent,
    Version,
    fill,
    folder_version,
    running_agent,
)
from tests.support.waiting import eventually_async

from tdcs.engine.agent_client import AgentAddress, HttpAgents
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.folder_listing import FolderAgents
from tdcs.listing.one_listing import list_source
from tdcs.model.agent_state import NO_SLOTS, FolderLimit, SourceAccess, SourceToCount
from tdcs.model.cache_engine import EngineUnavailableError, Source
from tdcs.node.wire import frames
from tdcs.node.wire.block_client import BlockClient
from tdcs.node.wire.channel import receive, waiting_channel
from tdcs.node.wire.frames import FrameError, Piece, SourceWanted, Wanted
from tdcs.trust.contexts import Contexts
from tdcs.trust.roles import Role

FILES = {f"{number:03}": os.urandom(20_000) for number in range(20)}
REQUESTS = (
    ("GET", "/v1/state"),
    ("PUT", "/v1/assignments"),
    ("POST", "/v1/forget"),
    ("POST", "/v1/count"),
    ("POST", "/v1/count-source"),
    ("POST", "/v1/list"),
    ("GET", "/v1/manifests/{digest}"),
    ("GET", "/metrics"),
    ("GET", "/nowhere"),
)
NO_FOLDER = FolderLimit(folder="/none", files=1, seconds=1)
NO_SOURCE = SourceToCount(mount="/datasets/none", source=SourceAccess(uri="s3://none"), files=1, seconds=0)
BODIES = {"/v1/count": NO_FOLDER, "/v1/list": NO_FOLDER, "/v1/count-source": NO_SOURCE}
ALLOWED = {
    Role.OPERATOR: {path for _, path in REQUESTS if path != "/nowhere"},
    Role.AGENT: {"/v1/manifests/{digest}"},
    Role.READER: {"/v1/manifests/{digest}"},
    Role.MONITOR: {"/metrics"},
}
BLOCK_READERS = {Role.AGENT, Role.READER}


class Victim(NamedTuple):
    """An agent that holds a dataset, and the authority of its release."""

    agent: RunningAgent
    version: Version
    authority: TestAuthority

    @property
    def block(self) -> int:
        return int(self.version.manifest.block_ids[0])

    def client(self, contexts: Contexts) -> BlockClient:
        return BlockClient(address=self.agent.address, answer_seconds=2.0, tls=contexts.client())


@pytest.fixture
async def victim(tmp_path: Path) -> AsyncIterator[Victim]:
    authority = TestAuthority()
    version = folder_version(fill(tmp_path / "source", FILES), store=tmp_path / "manifests")
    async with running_agent(tmp_path / "tier", tls=authority.contexts(Role.AGENT)) as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        yield Victim(agent, version, authority)


async def answers(victim: Victim, context: ssl.SSLContext | bool) -> dict[str, int]:
    """What each request to the control port is answered with; 0: the connection is refused."""
    statuses = {}
    digest = victim.version.manifest.digest
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        for method, path in REQUESTS:
            url = victim.agent.url + path.replace("{digest}", digest)
            body = msgspec.msgpack.encode(BODIES.get(path, []))
            try:
                async with session.request(method, url, data=body) as answer:
                    statuses[path] = answer.status
            except aiohttp.ClientError:
                statuses[path] = 0
    return statuses


@pytest.mark.threat("agent-ports", "metrics-ports")
async def test_a_caller_without_a_certificate_gets_nothing_but_health(victim: Victim) -> None:
    assert set((await answers(victim, unverified())).values()) == {403}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{victim.agent.url}/healthz", ssl=unverified()) as answer,
    ):
        assert answer.status == 200  # kubelet's probe


@pytest.mark.parametrize("who", ["another authority's", "ended"])
@pytest.mark.threat("agent-ports")
async def test_a_caller_with_a_worthless_certificate_is_refused_at_both_ports(
    victim: Victim, who: str
) -> None:
    context = strangers(victim.authority)[who]
    assert set((await answers(victim, context)).values()) == {0}
    with pytest.raises((OSError, FrameError)):
        BlockClient(address=victim.agent.address, answer_seconds=2.0, tls=context)


@pytest.mark.threat("agent-ports")
async def test_plain_text_is_refused_at_both_ports(victim: Victim) -> None:
    plain = victim.agent.url.replace("https://", "http://")
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"{plain}/v1/state")
    with pytest.raises((OSError, FrameError)):
        BlockClient(address=victim.agent.address, answer_seconds=2.0)


@pytest.mark.threat("agent-ports", "requests-outside-role")
async def test_each_role_may_call_what_it_needs_and_nothing_else(victim: Victim) -> None:
    for role in Role:
        statuses = await answers(victim, victim.authority.contexts(role).client())
        allowed = {path for path, status in statuses.items() if status == 200}
        assert allowed == ALLOWED.get(role, set()), role
        assert {status for path, status in statuses.items() if path not in allowed} <= {403}, role


async def test_a_refusal_says_which_role_may_not_call_what(victim: Victim) -> None:
    context = victim.authority.contexts(Role.READER).client()
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.put(f"{victim.agent.url}/v1/assignments") as answer,
    ):
        assert await answer.text() == "the role reader may not call PUT /v1/assignments\n"


@pytest.mark.threat("requests-outside-role")
async def test_blocks_are_given_to_agents_and_readers_alone(victim: Victim) -> None:
    for role in Role:
        contexts = victim.authority.contexts(role)
        if role not in BLOCK_READERS:
            with pytest.raises(FrameError, match="gives nothing to the role"):
                victim.client(contexts)
            continue
        with victim.client(contexts) as client:
            blocks = [Wanted(victim.block)]
            client.ask(blocks)
            (piece,) = client.pieces(blocks)
            assert taken(client, piece) in FILES.values()


def taken(client: BlockClient, piece: Piece) -> bytes:
    """The bytes of an answer, which are compared with the giver's hash on the way."""
    content = bytearray(piece.length)

    def take(data: memoryview, offset: int) -> None:
        content[offset : offset + len(data)] = data

    client.take(piece, take)
    return bytes(content)


@pytest.mark.threat("agent-ports")
async def test_blocks_are_not_given_without_a_certificate(victim: Victim) -> None:
    host, _, port = victim.agent.address.rpartition(":")
    with closing(socket.create_connection((host, int(port)), timeout=5)) as connection:
        connection.settimeout(5)
        with pytest.raises((OSError, FrameError)):
            ask_plainly(connection)


def ask_plainly(connection: socket.socket) -> None:
    """By TLS, without a certificate: the server says no after the client believes that all is well."""
    channel = waiting_channel(connection, unverified(), host="any", seconds=5)
    channel.send(frames.greeting())
    receive(channel, frames.GREETING.size)


@pytest.mark.parametrize(
    ("role", "request_frame"),
    [
        (
            Role.READER,
            frames.feed_request(mount="/datasets/0123456789abcdef", instance=0, place=0, wait_ms=0),
        ),
        (
            Role.AGENT,
            frames.source_request(
                SourceWanted(
                    mount="/datasets/0123456789abcdef",
                    path=b"000",
                    block=1,
                    offset=0,
                    length=9,
                    size=9,
                    tag="",
                )
            ),
        ),
    ],
    ids=["a reader follows blocks", "an agent reads a source through another"],
)
@pytest.mark.threat("requests-outside-role")
async def test_a_role_is_refused_kinds_of_requests_that_are_not_its_own(
    victim: Victim, role: Role, request_frame: bytes
) -> None:
    with victim.client(victim.authority.contexts(role)) as client:
        client._channel.send(request_frame)
        assert client._channel.receive_into(memoryview(bytearray(1))) == 0


@pytest.mark.threat("agent-ports")
async def test_a_connection_that_outlives_its_certificate_is_refused(
    victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    with victim.client(victim.authority.contexts(Role.READER)) as client:
        blocks = [Wanted(victim.block)]
        client.ask(blocks)
        for _ in client.pieces(blocks):
            client.skip()
        monkeypatch.setattr("tdcs.node.agent.block_service.time.time", lambda: (now() + 2 * DAY).timestamp())
        client.ask(blocks)
        with pytest.raises(FrameError):
            list(client.pieces(blocks))


async def test_agents_and_operator_of_one_release_work_together(victim: Victim, tmp_path: Path) -> None:
    client = HttpAgents(poll_seconds=1.0, call_seconds=5.0, tls=victim.authority.contexts(Role.OPERATOR))
    async with running_agent(
        tmp_path / "two", node="node-2", tls=victim.authority.contexts(Role.AGENT)
    ) as two:
        try:
            client.connect({"node-2": AgentAddress(url=two.url, blocks=two.address)})
            await eventually_async(lambda: "node-2" in client.states(), deadline=30)
            manifest = f"{victim.agent.url}/v1/manifests/{victim.version.manifest.digest}"
            assignment = victim.version.assignment(
                source=None, origin=NO_SLOTS, peers=(victim.agent.peer(),), manifest_urls=(manifest,)
            )
            await client.assign(node="node-2", assignments=[assignment])
            await two.holds(victim.version)
            assert two.content(victim.version) == FILES
        finally:
            await client.close()


@pytest.mark.parametrize(
    ("role", "lists"), [(Role.OPERATOR, True), (Role.READER, False), (Role.AGENT, False)]
)
@pytest.mark.threat("requests-outside-role")
async def test_the_operator_alone_has_folders_of_nodes_listed(
    victim: Victim, tmp_path: Path, role: Role, lists: bool
) -> None:
    source = Source(uri=f"file://{tmp_path / 'source'}")
    agents = FolderAgents(urls={"node-1": victim.agent.url}, tls=victim.authority.contexts(role))
    listing = list_source(
        source=source, path="/datasets/1f", folder=ManifestFolder(tmp_path / "listed"), agents=agents
    )
    if lists:
        listed_folder = await listing
        assert (listed_folder.totals.files, listed_folder.totals.block_bytes) == (
            len(FILES),
            sum(map(len, FILES.values())),
        )
        return
    with pytest.raises(EngineUnavailableError, match="the agent of node node-1 answers 403"):
        await listing
