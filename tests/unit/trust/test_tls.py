"""TLS between processes: who is believed, and certificates that change while they run."""

from __future__ import annotations

import ssl
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from tests.support.certificates import DAY, TestAuthority, now, write_identity

from tdcs.trust.contexts import Contexts, caller_from
from tdcs.trust.identity import Identity, NoIdentityError, TrustFolder
from tdcs.trust.roles import ORGANIZATION, Caller, Role, caller_of
from tdcs.trust.stream import SecureStream


def connected(
    server: Contexts, client: Contexts, *, host: str = Role.AGENT.host
) -> tuple[SecureStream, SecureStream]:
    """Both sides of an established connection; raises ssl.SSLError."""
    one, other = SecureStream(server.server()), SecureStream(client.client(), host=host)
    shake_hands(one, other)
    return one, other


def shake_hands(one: SecureStream, other: SecureStream) -> None:
    """Carry what both sides say; raises ssl.SSLError."""
    for _ in range(4):
        other.handshake()
        one.feed(other.outgoing())
        one.handshake()
        other.feed(one.outgoing())


@pytest.fixture(scope="module")
def authority() -> TestAuthority:
    return TestAuthority()


def test_each_side_knows_the_others_role(authority: TestAuthority) -> None:
    server, client = connected(authority.contexts(Role.AGENT), authority.contexts(Role.READER))
    assert server.caller.role is Role.READER
    assert client.caller.role is Role.AGENT


def test_what_one_side_says_the_other_reads(authority: TestAuthority) -> None:
    server, client = connected(authority.contexts(Role.AGENT), authority.contexts(Role.AGENT))
    said = bytes(range(256)) * 1000
    client.write(said)
    cipher = client.outgoing()
    assert said[:64] not in cipher
    server.feed(cipher)
    heard = bytearray(len(said) + 10)
    assert server.read_into(memoryview(heard)) == len(said)
    assert heard[: len(said)] == said


@pytest.mark.parametrize("case", ["another authority", "ended", "another role's host"])
@pytest.mark.threat("false-agent-address")
def test_a_server_that_is_not_what_was_asked_for_is_refused(authority: TestAuthority, case: str) -> None:
    client = authority.contexts(Role.READER)
    server = {
        "another authority": lambda: TestAuthority().contexts(Role.AGENT),
        "ended": lambda: authority.contexts(Role.AGENT, until=now() - DAY),
        "another role's host": lambda: authority.contexts(Role.READER),
    }[case]()
    with pytest.raises(ssl.SSLCertVerificationError):
        connected(server, client)


@pytest.mark.parametrize("case", ["no certificate", "another authority", "ended"])
def test_a_caller_without_a_good_certificate_is_refused(authority: TestAuthority, case: str) -> None:
    server = authority.contexts(Role.AGENT)
    if case == "no certificate":
        plain = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        plain.load_verify_locations(cadata=authority.pair.certificate.decode())
        one, other = SecureStream(server.server()), SecureStream(plain, host=Role.AGENT.host)
    else:
        believes = authority.pair.certificate
        client = (
            TestAuthority().contexts(Role.READER, believes=believes)
            if case == "another authority"
            else authority.contexts(Role.READER, until=now() - DAY)
        )
        one, other = SecureStream(server.server()), SecureStream(client.client(), host=Role.AGENT.host)
    with pytest.raises(ssl.SSLError):
        shake_hands(one, other)
    assert not one.established


def test_a_role_ends_with_its_certificate_on_connections_that_stay_open() -> None:
    assert Caller(Role.AGENT, 100.0).role_at(99.9) is Role.AGENT
    assert Caller(Role.AGENT, 100.0).role_at(100.0) is None


@pytest.mark.parametrize(
    ("subject", "role"),
    [
        ([("organizationName", ORGANIZATION), ("commonName", "agent")], Role.AGENT),
        ([("organizationName", "other"), ("commonName", "agent")], None),
        ([("commonName", "agent")], None),
        ([("organizationName", ORGANIZATION), ("commonName", "root")], None),
        ([("organizationName", ORGANIZATION), ("commonName", "agent"), ("commonName", "operator")], None),
        ([("organizationName", ORGANIZATION), ("organizationName", "x"), ("commonName", "agent")], None),
        ([], None),
    ],
)
def test_a_role_comes_from_a_plain_subject_of_ours_only(
    subject: list[tuple[str, str]], role: Role | None
) -> None:
    assert caller_of({"subject": tuple((pair,) for pair in subject)}, until=1.0).role is role


def test_nothing_is_shown_by_a_process_without_files(tmp_path: Path) -> None:
    with pytest.raises(NoIdentityError, match="condition Trusted"):
        TrustFolder(tmp_path)()


def test_new_files_count_for_new_connections_and_half_of_them_for_none(
    authority: TestAuthority, tmp_path: Path
) -> None:
    times = [0.0]
    folder = authority.folder(tmp_path, Role.AGENT)
    contexts = Contexts(TrustFolder(folder, clock=lambda: times[0]))
    first = contexts.server()
    renewed = authority.identity(Role.AGENT)
    (folder / "tls.crt").write_bytes(renewed.certificate)  # without its key
    times[0] = 10.0
    assert contexts.server() is first
    write_identity(folder, renewed)
    times[0] = 20.0
    assert contexts.server() is not first
    connected(contexts, authority.contexts(Role.READER))


def test_files_that_vanish_leave_what_was_read(authority: TestAuthority, tmp_path: Path) -> None:
    times = [0.0]
    folder = authority.folder(tmp_path, Role.AGENT)
    identify = TrustFolder(folder, clock=lambda: times[0])
    known = identify()
    (folder / "tls.key").unlink()
    times[0] = 10.0
    assert identify() == known


def test_an_identity_never_shows_its_key(authority: TestAuthority) -> None:
    identity = authority.identity(Role.AGENT)
    assert "PRIVATE" not in repr(identity)
    assert "PRIVATE" not in repr(authority.pair)


async def test_servers_and_clients_of_asyncio_follow_new_certificates_and_authorities() -> None:
    """An authority is taken away, too: contexts that are only added to would believe it forever."""
    old, new = TestAuthority("old"), TestAuthority("new")
    identities: dict[str, Identity] = {
        "server": old.identity(Role.AGENT),
        "client": old.identity(Role.OPERATOR),
    }
    server, client = Contexts(lambda: identities["server"]), Contexts(lambda: identities["client"])

    async def who(request: web.Request) -> web.Response:
        assert request.transport is not None
        caller = caller_from(request.transport.get_extra_info("peercert"))
        return web.Response(text=f"{caller.role}")

    app = web.Application()
    app.router.add_get("/", who)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server.following_server()).start()
        url = f"https://127.0.0.1:{runner.addresses[0][1]}/"
        connector = aiohttp.TCPConnector(ssl=client.following_client(), force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def ask() -> str:
                async with session.get(url) as answer:
                    return await answer.text()

            assert await ask() == "operator"
            identities["server"] = new.identity(Role.AGENT, believes=new.pair.certificate)
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await ask()
            identities["client"] = new.identity(Role.READER)
            assert await ask() == "reader"
            identities["client"] = old.identity(Role.OPERATOR, believes=new.pair.certificate)
            with pytest.raises(aiohttp.ClientError):
                await ask()
    finally:
        await runner.cleanup()
