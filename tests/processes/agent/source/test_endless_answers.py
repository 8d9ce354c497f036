"""A tenant's store that sends an agent far more than it asked for: the memory of the node is that of all tenants."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler

import pytest
from tests.support.programs.http_store import http_store

MIB = 1 << 20
PIECE = 4 * MIB
SENT = 160 * MIB
MOST = 60 * MIB
"""What an agent may take for a piece, next to what the program itself has."""

LIMIT = 400 * MIB

ASK = """
import resource, sys
from tdcs.node.agent.agent_command import limit_memory
from tdcs.node.agent.mount.source_state import open_source
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError
from tests.support.programs.http_store import access_to
if len(sys.argv) > 2:
    limit_memory(int(sys.argv[2]))
reader = open_source(access_to(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    reader.read(Extent(path=b"f", offset=0, length=4 << 20, size=1 << 30, tag='"x"'), lambda data: None)
except SourceFailureError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.fixture
def status() -> int:
    return 206


@pytest.fixture
def store(status: int) -> Iterator[str]:
    """One that answers a piece with a right Content-Range, or a failure, and 160 MiB."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        if status == 206:
            request.send_header("Content-Range", f"bytes 0-{PIECE - 1}/{1 << 30}")
        request.send_header("Content-Length", str(SENT))
        request.send_header("ETag", '"x"')
        request.send_header("Last-Modified", "Tue, 21 Oct 2025 07:28:00 GMT")
        request.end_headers()
        with suppress(OSError):
            for _ in range(SENT // MIB):
                request.wfile.write(bytes(MIB))

    with http_store(answer) as address:
        yield address


def asked(store: str, *, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    """An agent's process that reads one piece."""
    words = [sys.executable, "-c", ASK, store, *([str(limit)] if limit is not None else [])]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.threat("endless-answers")
def test_no_more_of_a_piece_is_kept_than_was_asked_for(store: str) -> None:
    done = asked(store, limit=LIMIT)
    failure, kibibytes = done.stdout.splitlines()
    assert "more bytes came" in failure
    assert int(kibibytes) << 10 < MOST


@pytest.mark.parametrize("status", [412])
@pytest.mark.threat("endless-answers")
def test_a_failure_whose_text_never_ends_ends_the_agent_and_not_the_node(store: str) -> None:
    assert int(asked(store).stdout.splitlines()[-1]) << 10 > SENT  # the library keeps all of it
    done = asked(store, limit=LIMIT)
    assert done.returncode != 0
    assert "memory" in done.stderr
