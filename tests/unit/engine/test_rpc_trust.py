"""Channels to Alluxio with a certificate: which one is shown, and what a refusal looks like."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from tests.support.certificates import TestAuthority

from tdcs.alluxio.rpc import FILE_SYSTEM, Rpc, RpcFailureError, method_types
from tdcs.trust.identity import Identity, NoIdentityError
from tdcs.trust.roles import Role


class Master:
    """A server that demands a certificate, and notes whose it was."""

    def __init__(self, authority: TestAuthority) -> None:
        self.authority = authority
        self.callers: list[str] = []
        identity = authority.identity(Role.MASTER)
        self.server = grpc.aio.server()
        answer_type = method_types(FILE_SYSTEM, "GetMountTable")[1]

        async def answer(_: bytes, context: Any) -> bytes:
            (name,) = context.auth_context()["x509_common_name"]
            self.callers.append(name.decode())
            return answer_type().SerializeToString()

        handler: Any = grpc.unary_unary_rpc_method_handler(answer)
        self.server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(FILE_SYSTEM, {"GetMountTable": handler})]
        )
        credentials = grpc.ssl_server_credentials(
            [(identity.key, identity.certificate)], identity.authorities, require_client_auth=True
        )
        self.target = f"127.0.0.1:{self.server.add_secure_port('127.0.0.1:0', credentials)}"


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    made = Master(TestAuthority())
    await made.server.start()
    yield made
    await made.server.stop(None)


async def call(rpc: Rpc) -> None:
    await rpc.unary(service=FILE_SYSTEM, method="GetMountTable", deadline=10)


async def test_calls_show_the_certificate_of_their_time(master: Master) -> None:
    shown = [master.authority.identity(Role.OPERATOR)]
    rpc = Rpc(target=master.target, patience=5, identify=lambda: shown[0])
    try:
        await call(rpc)
        await call(rpc)
        shown[0] = master.authority.identity(Role.READER)
        await call(rpc)
    finally:
        await rpc.close()
    assert master.callers == ["operator", "operator", "reader"]


async def test_who_is_not_believed_is_told_so_and_what_to_look_at(master: Master) -> None:
    stranger = TestAuthority().identity(Role.OPERATOR)
    rpc = Rpc(target=master.target, patience=0.3, identify=lambda: stranger)
    with pytest.raises(RpcFailureError) as failed:
        await call(rpc)
    await rpc.close()
    assert failed.value.distrusted


async def test_a_process_without_a_certificate_yet_is_away_not_broken(master: Master) -> None:
    def none() -> Identity:
        raise NoIdentityError("no certificate yet")

    rpc = Rpc(target=master.target, patience=0.2, identify=none)
    with pytest.raises(RpcFailureError) as failed:
        await call(rpc)
    await rpc.close()
    assert failed.value.starting
    assert failed.value.text == "no certificate yet"


@pytest.mark.parametrize(
    "text",
    [
        "failed to connect: Connection refused",
        # Its pod ended while a connection by TLS was being made.
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.244.2.6:19998: tcp handshaker shutdown",
    ],
)
def test_a_process_that_is_merely_away_is_not_said_to_be_distrusted(text: str) -> None:
    away = RpcFailureError(code=grpc.StatusCode.UNAVAILABLE, text=text)
    assert away.starting
    assert not away.distrusted
