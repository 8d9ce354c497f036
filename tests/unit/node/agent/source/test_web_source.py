"""Files of web servers as agents read them: piece by piece, from servers with and without ranges, as they were listed
or not at all."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from tests.support.programs.web_server import MODIFIED, WebServer, git_id, web_server

from tdcs.model.agent_state import SourceAccess
from tdcs.model.file_ids import content_tag, plain_etag
from tdcs.node.agent.mount.source_pieces import ContentCheck, Extent, SourceFailureError
from tdcs.node.agent.mount.source_state import open_source
from tdcs.node.agent.mount.web_source import WebReader

LARGE = random.Random(5).randbytes(1_000_000)
PIECE = 64_000


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tdcs.node.agent.mount.web_source._TURN_SECONDS", 0.05)
    monkeypatch.setattr("tdcs.node.agent.mount.web_source._GAP_SECONDS", 0.01)


@pytest.fixture
def server() -> Iterator[WebServer]:
    with web_server(
        WebServer(files={"data/a b%.bin": LARGE, "data/small": b"12345", "data/empty": b""})
    ) as running:
        yield running


def reader(server: WebServer, **access: Any) -> WebReader:
    reader = open_source(
        SourceAccess(uri=f"{server.origin}/data", options={"endpoint": server.origin}, **access)
    )
    assert isinstance(reader, WebReader)
    return reader


def etag(content: bytes) -> str:
    return plain_etag(hashlib.md5(content).hexdigest())  # noqa: S324 - as servers do


def extent(
    content: bytes,
    path: str = "a b%.bin",
    *,
    offset: int = 0,
    length: int | None = None,
    tag: str | None = None,
) -> Extent:
    return Extent(
        path=path.encode(),
        offset=offset,
        length=len(content) - offset if length is None else length,
        size=len(content),
        tag=etag(content) if tag is None else tag,
    )


def read(source: WebReader, piece: Extent) -> bytes:
    content = bytearray()
    source.read(piece, content.extend)
    return bytes(content)


def pieces(content: bytes) -> list[Extent]:
    return [
        extent(content, offset=offset, length=min(PIECE, len(content) - offset))
        for offset in range(0, len(content), PIECE)
    ]


@pytest.mark.parametrize("ranges", [True, False])
def test_pieces_that_many_threads_read_make_the_file(server: WebServer, ranges: bool) -> None:
    server.ranges = ranges
    source = reader(server)
    with ThreadPoolExecutor(8) as threads:
        parts = list(threads.map(lambda piece: read(source, piece), pieces(LARGE)))
    assert b"".join(parts) == LARGE


def test_a_server_without_ranges_sends_a_file_about_once(server: WebServer) -> None:
    server.ranges = False
    source = reader(server)
    assert b"".join(read(source, piece) for piece in pieces(LARGE)) == LARGE
    assert len(server.asked) == 2
    # Out of order, as jobs read: right, if not cheap.
    for offset in (700_000, 5, 999_999, 0):
        assert read(source, extent(LARGE, offset=offset, length=1)) == LARGE[offset : offset + 1]


def test_a_piece_whose_forerunner_never_comes_is_read_all_the_same(server: WebServer) -> None:
    server.ranges = False
    source = reader(server)
    assert read(source, extent(LARGE, length=10)) == LARGE[:10]
    assert read(source, extent(LARGE, offset=500_000, length=10)) == LARGE[500_000:500_010]
    assert read(source, extent(LARGE, offset=10, length=10)) == LARGE[10:20]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("first", [0, 1])
def test_a_node_with_every_second_piece_has_a_file_sent_about_once(
    server: WebServer, threads: int, first: int
) -> None:
    server.ranges = False
    source = reader(server)
    mine = pieces(LARGE)[first::2]
    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(lambda piece: read(source, piece), mine))
    assert parts == [LARGE[piece.offset : piece.offset + piece.length] for piece in mine]
    if threads == 1:  # several may wait for a processor longer than for each other
        assert len(server.asked) == 2, "the answer that shows that ranges are not taken, and one more"


def test_pieces_that_were_passed_over_are_read_from_one_more_answer(server: WebServer) -> None:
    server.ranges = False
    source = reader(server)
    for first in (1, 0):
        for piece in pieces(LARGE)[first::2]:
            assert read(source, piece) == LARGE[piece.offset : piece.offset + piece.length]
    assert len(server.asked) == 3


def test_whole_files_empty_ones_and_odd_names_are_read(server: WebServer) -> None:
    source = reader(server)
    assert read(source, extent(b"12345", "small")) == b"12345"
    assert read(source, extent(b"", "empty")) == b""
    assert read(source, extent(LARGE)) == LARGE
    assert server.asked[-1][1] == "/data/a%20b%25.bin"


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("part", [True, False])
def test_a_file_that_changed_gives_no_bytes(server: WebServer, ranges: bool, part: bool) -> None:
    server.ranges = ranges
    server.files["data/a b%.bin"] = LARGE[:-1] + b"!"
    piece = extent(LARGE, offset=PIECE, length=PIECE) if part else extent(LARGE)
    with pytest.raises(SourceFailureError, match="has changed at the source") as failure:
        read(reader(server), piece)
    assert failure.value.code == "Changed"


def test_without_etags_the_time_of_the_last_change_counts(server: WebServer) -> None:
    server.etags = False
    listed = f"mtime-ms:{int(parsedate_to_datetime(MODIFIED).timestamp()) * 1000}"
    assert read(reader(server), extent(b"12345", "small", tag=listed)) == b"12345"
    with pytest.raises(SourceFailureError, match="its time is another one"):
        read(reader(server), extent(b"12345", "small", tag="mtime-ms:1000"))
    with pytest.raises(SourceFailureError, match="no ETag"):
        read(reader(server), extent(b"12345", "small"))


def test_a_shorter_file_gives_no_bytes(server: WebServer) -> None:
    for ranges in (True, False):
        server.ranges = ranges
        with pytest.raises(SourceFailureError, match="changed"):
            read(reader(server), Extent(b"small", 4, 10, 14, ""))


def test_a_hash_of_the_list_is_compared_with_the_whole_file() -> None:
    right = extent(b"12345", "small", tag=content_tag(hashlib.sha256(b"12345").hexdigest()).decode())
    check = ContentCheck(right)
    check.add(b"123")
    check.add(memoryview(b"45"))
    check.finish()
    wrong = ContentCheck(right)
    wrong.add(b"12346")
    with pytest.raises(SourceFailureError, match="another SHA-256"):
        wrong.finish()


def test_refusals_say_what_the_server_said_and_nothing_secret(server: WebServer) -> None:
    server.credentials = "Bearer right-token-of-mine"
    assert read(reader(server, session_token="right-token-of-mine"), extent(b"12345", "small")) == b"12345"
    with pytest.raises(SourceFailureError, match=r"shows no credentials \(401\): who are you") as refused:
        read(reader(server), extent(b"12345", "small"))
    assert refused.value.code == "Denied"
    assert refused.value.common
    with pytest.raises(SourceFailureError, match="check token, or username and password") as refused:
        read(reader(server, session_token="wrong-token-of-mine"), extent(b"12345", "small"))
    assert "wrong-token" not in str(refused.value)
    server.credentials = ""
    with pytest.raises(SourceFailureError, match="not at the source any more") as missing:
        read(reader(server), extent(b"12345", "gone"))
    assert missing.value.code == "Missing"
    assert not missing.value.common


def test_redirections_lead_only_where_rules_and_addresses_let_them(server: WebServer) -> None:
    with web_server(WebServer(files={"data/small": b"12345", "x": b"12345"})) as elsewhere:
        access = SourceAccess(
            uri=f"{server.origin}/data", options={"endpoint": server.origin}, session_token="token-of-mine"
        )
        small = extent(b"12345", "small")
        for target, words in (
            (f"{elsewhere.origin}/data/small", "no TLS and no rule"),
            (f"https://127.0.0.1:{elsewhere.port}/data/small", "no host of the internet"),
            ("https://metadata.svc/x", "no host of the internet"),
            ("https://localhost.example.invalid/x", "has no address"),
            ("file:///etc/passwd", "no address"),
            ("/data/small", "more than 5 times"),
        ):
            server.redirects["/data/small"] = target
            with pytest.raises(SourceFailureError, match=words):
                read(WebReader(access), small)
        assert not elsewhere.asked
        server.redirects["/data/small"] = f"{elsewhere.origin}/x"
        allowed = SourceAccess(
            uri=access.uri,
            options=access.options,
            session_token=access.session_token,
            redirects=(elsewhere.origin,),
        )
        assert read(WebReader(allowed), small) == b"12345"
        assert not any("Authorization" in headers for _, _, headers in elsewhere.asked)
        # On the server itself a file may have moved, and the token is shown there.
        server.redirects["/data/small"] = "/data/moved"
        server.files["data/moved"] = b"12345"
        server.credentials = "Bearer token-of-mine"
        assert read(WebReader(access), small) == b"12345"


def test_files_of_a_repository_are_known_by_what_the_hub_says(server: WebServer) -> None:
    large = b"L" * 5000
    with web_server(WebServer(files={"large.bin": large}, etags=True)) as elsewhere:
        server.files = {"README.md": b"hello", "large.bin": large}
        server.large, server.large_host = 1000, elsewhere.origin
        server.credentials = "Bearer token-of-the-hub"
        source = WebReader(
            SourceAccess(
                uri="hf://datasets/team/pictures",
                options={"endpoint": server.origin},
                session_token="token-of-the-hub",
                redirects=(elsewhere.origin,),
            )
        )
        tag = plain_etag(hashlib.sha256(large).hexdigest())
        assert read(source, extent(b"hello", "README.md", tag=plain_etag(git_id(b"hello")))) == b"hello"
        assert read(source, extent(large, "large.bin", tag=tag)) == large
        part = extent(large, "large.bin", offset=1000, length=500, tag=tag)
        assert read(source, part) == large[1000:1500]
        assert not any("Authorization" in headers for _, _, headers in elsewhere.asked)
        server.files["large.bin"] = b"M" * 5000
        with pytest.raises(SourceFailureError, match="its ETag is another one"):
            read(source, part)


def test_threads_of_one_reader_do_not_mix_files(server: WebServer) -> None:
    server.ranges = False
    contents = {f"file-{number}": random.Random(number).randbytes(200_000) for number in range(6)}
    server.files |= {f"data/{name}": content for name, content in contents.items()}
    source, wrong = reader(server), list[str]()

    def load(name: str) -> None:
        content = contents[name]
        content_read = b"".join(
            read(source, extent(content, name, offset=offset, length=min(50_000, len(content) - offset)))
            for offset in range(0, len(content), 50_000)
        )
        if content_read != content:
            wrong.append(name)

    threads = [threading.Thread(target=load, args=(name,)) for name in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
