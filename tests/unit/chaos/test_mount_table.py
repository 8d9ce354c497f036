"""What Alluxio's master has mounted is seen, with and without certificates."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from e2e.chaos import mount_table
from tests.support.certificates import TestAuthority

from tdcs.alluxio.rpc import FILE_SYSTEM, method_types
from tdcs.trust.identity import TrustFolder
from tdcs.trust.roles import Role

METHOD = "GetMountTable"
PROGRAM = Path(mount_table.__file__).read_text()


@asynccontextmanager
async def master(credentials: grpc.ServerCredentials | None) -> AsyncIterator[str]:
    """A master with one mount, and its address."""
    answer_type = method_types(FILE_SYSTEM, METHOD)[1]

    async def answer(_: bytes, __: Any) -> bytes:
        points = {path: {"ufsUri": "s3://pictures"} for path in ("/", "/datasets/abc")}
        return answer_type(mountPoints=points).SerializeToString()

    server = grpc.aio.server()
    handler: Any = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(FILE_SYSTEM, {METHOD: handler})])
    port = (
        server.add_secure_port("127.0.0.1:0", credentials)
        if credentials is not None
        else server.add_insecure_port("127.0.0.1:0")
    )
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def test_a_container_without_certificates_prints_what_is_mounted() -> None:
    async with master(None) as target:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, target, stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await process.communicate()
    assert printed.decode().split() == ["/datasets/abc"]


async def test_a_node_plugin_shows_its_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = TestAuthority()
    identity = authority.identity(Role.MASTER)
    credentials = grpc.ssl_server_credentials(
        [(identity.key, identity.certificate)], identity.authorities, require_client_auth=True
    )
    async with master(credentials) as target:
        folder = authority.folder(tmp_path / "trust", Role.READER)
        await mount_table.print_mounts(target, TrustFolder(folder))
    assert capsys.readouterr().out.split() == ["/datasets/abc"]
