"""Attacks on the operator's port for agents and nodes: manifests, holders of blocks, reports of reads."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec
import pytest
from tests.attacks.unit.strangers import strangers
from tests.support.certificates import TestAuthority
from tests.support.dataplane.agents import Version, fill, folder_version
from tests.support.programs.ports import free_ports
from yarl import URL

from tdcs.control.operator.cache_factory import serve_manifests
from tdcs.engine.holder_table import HOLDERS_PATH
from tdcs.engine.operator_client import OperatorClient, RequestRefusedError
from tdcs.engine.pod_wait_table import POD_WAITS, PodWaitTable, WaitOrigin
from tdcs.engine.read_reports import READ_FAILURES_PATH, READ_WAITS_PATH, ReadFailure, ReadWaits
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.result import ManifestUnavailableError, manifest_url
from tdcs.listing.transfer import ManifestFetcher
from tdcs.node.csi.read_wait_report import ReadWaitReport
from tdcs.trust.contexts import Contexts
from tdcs.trust.roles import Role

FAILURE = ReadFailure(cluster="default", mount="/datasets/1f", node="a", path="x", reason="lost", stale=False)
REQUESTS = {
    "manifest": ("GET", "/v1/manifests/{digest}", b""),
    "holders": ("GET", f"{HOLDERS_PATH}default?mount=/datasets/1f", b""),
    "failure": ("POST", READ_FAILURES_PATH, msgspec.json.encode(FAILURE)),
    "waits": ("POST", READ_WAITS_PATH, msgspec.json.encode(ReadWaits(node="a", pods=()))),
    "nothing": ("GET", "/v1/state", b""),
}
ALLOWED = {
    Role.AGENT: {"manifest"},
    Role.READER: {"manifest", "holders", "failure", "waits"},
}


class Victim(NamedTuple):
    """The operator's port, what it has taken, and the authority of its release."""

    address: str
    version: Version
    authority: TestAuthority
    failures: list[ReadFailure]
    waits: list[ReadWaits]

    def reader(self) -> OperatorClient:
        return OperatorClient(self.address, tls=self.authority.contexts(Role.READER).client)


@asynccontextmanager
async def operator_port(tmp_path: Path, *, role: Role = Role.OPERATOR) -> AsyncIterator[Victim]:
    """The port, served by a process of some role: no address of it is in its certificate."""
    (port,) = free_ports(1)
    authority = TestAuthority()
    version = folder_version(fill(tmp_path / "source", {"a": b"x" * 100}), store=tmp_path / "manifests")
    failures: list[ReadFailure] = []
    waits: list[ReadWaits] = []

    async def report(failure: ReadFailure) -> None:
        failures.append(failure)

    def take(found: ReadWaits) -> bool:
        waits.append(found)
        return True

    tls = authority.contexts(role, hosts=())
    async with serve_manifests(version.folder, port=port, report=report, take_waits=take, tls=tls):
        yield Victim(f"127.0.0.1:{port}", version, authority, failures, waits)


@pytest.fixture
async def victim(tmp_path: Path) -> AsyncIterator[Victim]:
    async with operator_port(tmp_path) as victim:
        yield victim


async def answers(victim: Victim, context: ssl.SSLContext) -> dict[str, int]:
    """What each request is answered with; 0: the connection is refused."""
    statuses = {}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        for name, (method, path, body) in REQUESTS.items():
            url = f"https://{victim.address}{path.replace('{digest}', victim.version.manifest.digest)}"
            try:
                async with session.request(
                    method, url, data=body, server_hostname=Role.OPERATOR.host
                ) as answer:
                    statuses[name] = answer.status
            except aiohttp.ClientError:
                statuses[name] = 0
    return statuses


@pytest.mark.threat("operator-port")
async def test_strangers_get_nothing_and_nothing_of_theirs_is_taken(victim: Victim) -> None:
    statuses = {"none": 403, "another authority's": 0, "ended": 0}
    for caller, context in strangers(victim.authority).items():
        assert set((await answers(victim, context)).values()) == {statuses[caller]}, caller
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.post(f"http://{victim.address}{READ_FAILURES_PATH}", data=REQUESTS["failure"][2])
    with pytest.raises(OSError, match="no answer of HTTP"):
        await asyncio.to_thread(OperatorClient(victim.address).get, "/", seconds=5, largest=10)
    assert not victim.failures
    assert not victim.waits


@pytest.mark.threat("operator-port")
async def test_each_role_may_ask_what_it_needs_and_nothing_else(victim: Victim) -> None:
    for role in Role:
        statuses = await answers(victim, victim.authority.contexts(role).client())
        allowed = {name for name, status in statuses.items() if 200 <= status < 300}
        assert allowed == ALLOWED.get(role, set()), role
        assert {status for name, status in statuses.items() if name not in allowed} <= {403}, role


@pytest.mark.threat("operator-port", "other-cache-names")
async def test_a_manifest_is_given_for_its_whole_digest_and_nothing_names_digests(victim: Victim) -> None:
    digest = victim.version.manifest.digest
    guesses = ["", "*", "%2e", "..", "%2e%2e%2f", digest[:-1], f"{digest[:-1]}*", digest.upper(), "0" * 32]
    context = victim.authority.contexts(Role.AGENT).client()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        for guess in guesses:
            for end in ("", "/totals"):
                url = URL(f"https://{victim.address}/v1/manifests/{guess}{end}", encoded=True)
                async with session.get(url, server_hostname=Role.OPERATOR.host) as answer:
                    assert answer.status in {403, 404}, guess
                    assert digest not in await answer.text(), guess


async def test_nodes_and_agents_reach_it_by_an_address_that_is_in_no_certificate(
    victim: Victim, tmp_path: Path
) -> None:
    client, body = victim.reader(), REQUESTS["failure"][2]
    await asyncio.to_thread(client.post, READ_FAILURES_PATH, body, seconds=5)
    assert victim.failures == [FAILURE]
    path = f"{HOLDERS_PATH}default?mount=/datasets/1f"
    assert await asyncio.to_thread(client.get, path, seconds=5, largest=1000)
    with pytest.raises(RequestRefusedError, match="may not call GET /v1/state"):
        await asyncio.to_thread(client.get, "/v1/state", seconds=5, largest=10)
    table = PodWaitTable(tmp_path / POD_WAITS)
    table.add(table.row("0b0c3f4e-1c5a-4f0e-9d2b-6a7c8d9e0f11"), WaitOrigin.PEER, 5 * 10**9)
    report = ReadWaitReport(
        node="a",
        pods=tmp_path / "pods",
        operator=victim.address,
        reader_root=tmp_path,
        pressures=None,
        tls=victim.authority.contexts(Role.READER).client,
    )
    await asyncio.to_thread(report.report)
    assert [node_waits.node for node_waits in victim.waits] == ["a"]
    await fetch(victim, victim.authority.contexts(Role.AGENT), tmp_path / "fetched")


@pytest.mark.threat("false-operator")
async def test_a_process_of_another_role_is_believed_by_no_one_in_the_operators_place(
    tmp_path: Path,
) -> None:
    async with operator_port(tmp_path, role=Role.AGENT) as impostor:
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(impostor.reader().get, "/", seconds=5, largest=10)
        with pytest.raises(ManifestUnavailableError):
            await fetch(impostor, impostor.authority.contexts(Role.AGENT), tmp_path / "fetched")


async def fetch(victim: Victim, contexts: Contexts, folder: Path) -> None:
    """As an agent does."""
    digest, manifests = victim.version.manifest.digest, ManifestFolder(folder)
    connector = aiohttp.TCPConnector(ssl=contexts.following_client())
    async with aiohttp.ClientSession(connector=connector) as session:
        url = manifest_url(address=victim.address, digest=digest, secure=True)
        fetcher = ManifestFetcher(folder=manifests, session=session)
        await fetcher.fetch(digest=digest, urls=[url])
    assert manifests.has(digest)
