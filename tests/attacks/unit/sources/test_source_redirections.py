"""A store that answers with the address of another host: the agent does not go there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tdcs.model.agent_state import SourceAccess
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError
from tdcs.node.agent.mount.source_state import open_source

SECRET = b"role-credentials-of-the-node"

Server = Callable[[str, str], str]
"""Starts a server at an address that answers with SECRET or, given one, with a redirection; gives its URL."""


class Victim:
    """What was asked of the host that no source may reach."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.servers: list[ThreadingHTTPServer] = []

    def start(self, address: str, redirection: str = "", status: int = 307) -> str:
        """Start a server; its URL."""
        victim = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if redirection:
                    self.send_response(status)
                    self.send_header("Location", redirection)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                victim.requests.append(self.path)
                self.send_response(200)
                self.send_header("ETag", '"a"')
                self.send_header("Last-Modified", "Sun, 22 Nov 2026 10:00:00 GMT")
                self.send_header("Content-Length", str(len(SECRET)))
                self.end_headers()
                self.wfile.write(SECRET)

            def log_message(self, *_: object) -> None:
                return

        server = ThreadingHTTPServer((address, 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.servers.append(server)
        return f"http://{address}:{server.server_port}"


@pytest.fixture
def victim() -> Iterator[Victim]:
    victim = Victim()
    yield victim
    for server in victim.servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("name", [b"file", b"file\x01with-a-control-character"])
@pytest.mark.threat("redirected-agents")
def test_an_agent_follows_no_redirection_to_another_host(victim: Victim, status: int, name: bytes) -> None:
    elsewhere = victim.start("127.0.0.2")
    store = victim.start("127.0.0.1", f"{elsewhere}/latest/meta-data/iam/security-credentials/node", status)
    content = bytearray()
    with pytest.raises(SourceFailureError):
        reading(store, name, content)
    assert not victim.requests
    assert not content


def test_an_agent_reads_the_store_itself(victim: Victim) -> None:
    content = bytearray()
    reading(victim.start("127.0.0.1"), b"file", content)
    assert bytes(content) == SECRET


@pytest.mark.parametrize(
    "region", ["x@127.0.0.2/", "evil.example/", "a#", "a?b", "a b", "", "a/../b", "x\ny"]
)
@pytest.mark.threat("region-ends-host")
def test_a_region_does_not_become_another_host(region: str) -> None:
    access = SourceAccess(uri="s3://bucket/data", options={"region": region}, access_key_id="a")
    with pytest.raises(SourceFailureError, match="region"):
        open_source(access)


def reading(store: str, name: bytes, found: bytearray) -> None:
    """Read an object as an agent does."""
    access = SourceAccess(
        uri="s3://latest/meta-data", options={"endpoint": store}, access_key_id="a", secret_access_key="b"
    )
    extent = Extent(path=name, offset=0, length=len(SECRET), size=len(SECRET), tag='"a"')
    open_source(access).read(extent, found.extend)
