"""The plugin's liveness probe."""

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from tdcs.node.csi.csi_health import serve_health


async def ask(port: int, request: bytes = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n") -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), timeout=60)
    writer.close()
    return answer.decode()


async def test_it_is_green_while_the_sockets_exist_and_red_when_one_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "csi.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        async with serve_health(port=0, sockets=[path], host="127.0.0.1") as port:
            assert (await ask(port)).startswith("HTTP/1.1 200 ")
            path.unlink()
            answer = await ask(port)

    assert answer.startswith("HTTP/1.1 503 ")
    assert str(path) in answer


async def test_a_probe_that_is_no_http_does_not_harm_it(tmp_path: Path) -> None:
    async with serve_health(port=0, sockets=[], host="127.0.0.1") as port:
        assert await ask(port, b"\x16\x03\x01") == ""
        with contextlib.suppress(ConnectionResetError):  # it need not read to the end
            assert await ask(port, b"x" * 200_000) == ""
        assert (await ask(port)).startswith("HTTP/1.1 200 ")


async def test_a_port_that_is_taken_is_named_with_the_option_to_change() -> None:
    async with serve_health(port=0, sockets=[]) as port:
        with pytest.raises(OSError, match=f"port {port}, which is taken: .* --health-port"):
            await serve_health(port=port, sockets=[]).__aenter__()
