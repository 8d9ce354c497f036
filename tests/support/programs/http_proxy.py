"""An HTTP proxy as a process of its own: CONNECT, and requests that name all of their URL."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.programs.ports import free_ports, listens_at
from tests.support.programs.processes import Process


class Proxy:
    """A running proxy. `address`: its URL."""

    def __init__(self, address: str, asked: Path) -> None:
        self.address, self._asked = address, asked

    @property
    def asked(self) -> list[str]:
        """The first line of each request to it, without its version."""
        return self._asked.read_text().splitlines() if self._asked.exists() else []


@contextmanager
def http_proxy(folder: Path, names: Mapping[str, str]) -> Iterator[Proxy]:
    """A proxy that reaches these hosts with their ports (`store.example:443`) at addresses, and refuses all others."""
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    requests_file = folder / "asked"
    process = Process(
        name="http-proxy",
        argv=[sys.executable, "-m", __name__, str(port), str(requests_file), json.dumps(dict(names))],
        log=folder / "proxy.log",
        ready=lambda: listens_at(port),
        start_deadline=60,
    )
    process.start()
    try:
        yield Proxy(f"http://127.0.0.1:{port}", requests_file)
    finally:
        process.kill()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()


async def _serve(port: int, asked: Path, names: Mapping[str, str]) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            writer.close()
            return
        first, _, head_lines = head.partition(b"\r\n")
        method, target, _ = first.decode().split(" ")
        with asked.open("a") as file:
            file.write(f"{method} {target.partition('?')[0]}\n")
        parts = urlsplit(target)
        place = target if method == "CONNECT" else parts.netloc
        if place not in names:
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            writer.close()
            return
        host, _, number = names[place].rpartition(":")
        upstream, to = await asyncio.open_connection(host, int(number))
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            path = parts._replace(scheme="", netloc="").geturl() or "/"
            lines = [
                line
                for line in head_lines.split(b"\r\n")
                if not line.lower().startswith((b"connection:", b"proxy-"))
            ]
            to.write(f"{method} {path} HTTP/1.1\r\nConnection: close\r\n".encode() + b"\r\n".join(lines))
        await asyncio.gather(_pass_on(reader, to), _pass_on(upstream, writer))

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])))
