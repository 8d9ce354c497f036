"""Peers that misbehave, sources that changed: a read is right, or fails with the reason, and never hangs forever."""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest
import xxhash
from tests.support.dataplane.agents import Version
from tests.support.dataplane.node import needs_fuse
from tests.support.dataplane.readers import (
    HERE,
    Giver,
    ReaderNode,
    drop_page_cache,
    holder_of,
    small_version,
    table_of,
)
from tests.support.waiting import eventually

from tdcs.engine.holder_table import Holder
from tdcs.engine.read_reports import ReadFailure
from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS
from tdcs.node.wire import frames

pytestmark = needs_fuse

CONTENT = os.urandom(100_000)

Misbehave = Callable[[socket.socket, int], None]
"""Answers a request for a block, or does not."""


def garbage(connection: socket.socket, block: int) -> None:
    connection.sendall(os.urandom(5000))


def half(connection: socket.socket, block: int) -> None:
    content_hash = xxhash.xxh3_64_intdigest(CONTENT)
    connection.sendall(
        frames.PIECE.pack(block, len(CONTENT), len(CONTENT), content_hash) + CONTENT[: len(CONTENT) // 2]
    )
    connection.close()


def another_length(connection: socket.socket, block: int) -> None:
    wrong = CONTENT[:-100]
    connection.sendall(
        frames.PIECE.pack(block, len(wrong), len(wrong), xxhash.xxh3_64_intdigest(wrong)) + wrong
    )


def damaged(connection: socket.socket, block: int) -> None:
    content_hash = xxhash.xxh3_64_intdigest(CONTENT)
    connection.sendall(
        frames.PIECE.pack(block, len(CONTENT), len(CONTENT), content_hash) + bytes(len(CONTENT))
    )


def absent(connection: socket.socket, block: int) -> None:
    connection.sendall(frames.PIECE.pack(block, -1, -1, 0))


def never(connection: socket.socket, block: int) -> None:
    """Keep the connection, and say nothing."""


def slow(connection: socket.socket, block: int) -> None:
    """Always some bytes, and hardly any."""
    content_hash = xxhash.xxh3_64_intdigest(CONTENT)
    connection.sendall(frames.PIECE.pack(block, len(CONTENT), len(CONTENT), content_hash))
    for byte in range(0, len(CONTENT), 100):
        connection.sendall(CONTENT[byte : byte + 100])
        time.sleep(0.2)


@contextmanager
def peer(misbehave: Misbehave) -> Iterator[Holder]:
    """An agent that greets well, and then does this with every request."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with suppress(OSError, frames.FrameError):
            connection.recv(frames.GREETING.size, socket.MSG_WAITALL)
            connection.sendall(frames.greeting())
            while head := connection.recv(frames.REQUEST.size, socket.MSG_WAITALL):
                _, _, count = frames.REQUEST.unpack(head)
                body = connection.recv(count * frames.ASKED.size, socket.MSG_WAITALL)
                for block_request in frames.parse_wanted(body):
                    misbehave(connection, block_request.block)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield Holder(
            node="bad",
            address=f"127.0.0.1:{listener.getsockname()[1]}",
            complete=ALL_SLOTS,
            present=ALL_SLOTS,
        )
    finally:
        listener.close()
        for connection in connections:
            connection.close()


@pytest.fixture
def version(node: ReaderNode) -> Version:
    """One file."""
    return small_version(node.folder, {"file": CONTENT})


@pytest.mark.parametrize("misbehave", [garbage, half, another_length, damaged, absent, never, slow])
@pytest.mark.failure_mode("agent-answers-garbage")
def test_a_file_is_read_from_another_agent_when_the_first_one_misbehaves(
    node: ReaderNode, version: Version, misbehave: Misbehave
) -> None:
    good = Giver(node.folder, "zgood")
    good.put(version.manifest, node.folder / "source")
    good.process.start()
    with peer(misbehave) as bad:
        # The bad one claims all of it, the good one a part: so the bad one is asked first.
        node.register(
            version, tables=table_of(bad, Holder(node="good", address=good.address, present=ALL_SLOTS))
        )
        node.start()
        root = node.own.point / f"default.{version.manifest.digest}"
        began = time.monotonic()
        assert (root / "file").read_bytes() == CONTENT
        assert time.monotonic() - began < 5
    assert node.metric("tdcs_reader_errors_total") == 0
    good.process.kill()


@pytest.mark.failure_mode("file-available-nowhere")
def test_a_read_that_nobody_can_answer_fails_with_the_reason_while_other_files_go_on(
    node: ReaderNode,
) -> None:
    version = small_version(node.folder, {"here": b"a" * 1000, "gone": b"b" * 1000})
    manifest = version.manifest
    giver = Giver(node.folder, "giver")
    giver.put(manifest, node.folder / "source", only=[manifest.file_at(b"here") or 0])
    giver.process.start()
    node.reader = node.make_reader("--patience=2")
    root = node.register(version, tables=table_of(holder_of(giver)))
    other_version = small_version(node.folder / "other", {"elsewhere": b"c" * 1000})
    giver.put(other_version.manifest, node.folder / "other/source")
    other_root = node.register(other_version, tables=table_of(holder_of(giver)))
    node.start()

    failed: list[OSError] = []

    def read() -> None:
        try:
            (root / "gone").read_bytes()
        except OSError as error:
            failed.append(error)

    reading = threading.Thread(target=read)
    reading.start()
    while reading.is_alive():
        assert (root / "here").read_bytes() == b"a" * 1000
        assert (other_root / "elsewhere").read_bytes() == b"c" * 1000
        reading.join(0.05)

    assert [error.errno for error in failed] == [errno.EIO]
    assert "it does not have the block" in node.reader.tail(lines=50)
    assert "'gone'" in node.reader.tail(lines=50)
    assert node.metric("tdcs_reader_errors_total") >= 1
    giver.process.kill()


@pytest.mark.parametrize("gone", ["agents", "source"])
def test_without_any_agent_or_without_the_source_reads_fail_and_other_datasets_go_on(
    node: ReaderNode, gone: str
) -> None:
    version = small_version(node.folder, {"file": CONTENT})
    reads_source, other_giver = (
        Giver(node.folder, "relay", source=version.source),
        Giver(node.folder, "other-giver"),
    )
    other_version = small_version(node.folder / "other", {"elsewhere": b"c" * 1000})
    other_giver.put(other_version.manifest, node.folder / "other/source")
    for giver in (reads_source, other_giver):
        giver.process.start()
    node.reader = node.make_reader("--patience=2")
    root = node.register(version, tables=table_of(holder_of(reads_source, slots=NO_SLOTS, reads_source=True)))
    other_root = node.register(other_version, tables=table_of(holder_of(other_giver)))
    node.start()
    assert (root / "file").read_bytes() == CONTENT

    if gone == "agents":
        reads_source.process.kill()
    else:
        (node.folder / "source").rename(node.folder / "away")
    drop_page_cache()
    with pytest.raises(OSError, match="Input/output error"):
        (root / "file").read_bytes()

    assert "'file'" in node.reader.tail(lines=50)
    (noted,) = node.own.failures.iterdir()
    failure = msgspec.json.decode(noted.read_bytes(), type=ReadFailure)  # what becomes the Dataset's event
    assert (failure.path, failure.stale) == ("file", False)
    assert ("refused" if gone == "agents" else "the source's folder is away") in failure.reason.lower()
    assert (other_root / "elsewhere").read_bytes() == b"c" * 1000
    for giver in (reads_source, other_giver):
        giver.process.kill()


@pytest.mark.failure_mode("uncached-file-changes")
def test_a_file_that_changed_at_its_source_is_stale_and_never_mixed(node: ReaderNode) -> None:
    version = small_version(node.folder, {"file": CONTENT})
    giver = Giver(node.folder, "giver", source=version.source)
    giver.process.start()
    root = node.register(version, tables=table_of(holder_of(giver, slots=bytes(512), reads_source=True)))
    node.start()
    (node.folder / "source/file").write_bytes(os.urandom(len(CONTENT)))
    os.utime(node.folder / "source/file", (1, 1))

    with pytest.raises(OSError, match="Stale") as caught:
        (root / "file").read_bytes()

    assert caught.value.errno == errno.ESTALE
    assert "has another version at its source" in node.reader.tail(lines=50)
    assert node.metric("tdcs_reader_stale_total") >= 1
    giver.process.kill()


def test_a_block_on_the_nodes_own_disk_that_is_too_short_is_not_used(
    node: ReaderNode, version: Version
) -> None:
    good = Giver(node.folder, "good")
    good.put(version.manifest, node.folder / "source")
    good.process.start()
    (node.tier / "agent/spool" / str(int(version.manifest.block_ids[0]))).write_bytes(CONTENT[:5000])
    root = node.register(version, tables=table_of(holder_of(good), HERE))
    node.start()

    assert (root / "file").read_bytes() == CONTENT
    assert node.metric("tdcs_reader_refused_total") >= 1
    good.process.kill()


@pytest.mark.failure_mode("agent-answers-garbage")
def test_an_agent_that_is_stopped_is_overtaken(node: ReaderNode) -> None:
    files = {f"{number:03d}": os.urandom(20_000) for number in range(40)}
    version = small_version(node.folder, files)
    first, second = Giver(node.folder, "first"), Giver(node.folder, "second")
    for giver in (first, second):
        giver.put(version.manifest, node.folder / "source")
        giver.process.start()
    root = node.register(version, tables=table_of(holder_of(first), holder_of(second)))
    node.start()
    assert (root / "000").read_bytes() == files["000"]

    os.kill(first.process.pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        assert {name: (root / name).read_bytes() for name in files} == files
    finally:
        os.kill(first.process.pid, signal.SIGCONT)

    assert time.monotonic() - began < 10
    assert node.metric("tdcs_reader_overtaken_total") >= 1
    for giver in (first, second):
        giver.process.kill()


def test_a_version_that_is_registered_no_more_is_gone_and_others_stay(node: ReaderNode) -> None:
    version = small_version(node.folder, {"file": CONTENT})
    giver = Giver(node.folder, "giver")
    giver.put(version.manifest, node.folder / "source")
    giver.process.start()
    root = node.register(version, tables=table_of(holder_of(giver)))
    node.start()
    assert (root / "file").read_bytes() == CONTENT

    other_version = small_version(node.folder / "other", {"else": b"c" * 1000})
    giver.put(other_version.manifest, node.folder / "other/source")
    other_root = node.register(other_version, tables=table_of(holder_of(giver)))

    with (root / "file").open("rb", buffering=0) as opened:  # a pod that never closes its files
        (node.own.versions / root.name).unlink()
        eventually(lambda: not root.exists(), deadline=10)
        drop_page_cache()
        with pytest.raises(OSError, match="Stale") as caught:
            opened.read()
        assert caught.value.errno == errno.ESTALE
        assert f"version {root.name} is registered no more" in node.reader.tail(lines=50)
        assert (other_root / "else").read_bytes() == b"c" * 1000

        again = node.register(version, tables=table_of(holder_of(giver)))
        assert Path(again, "file").read_bytes() == CONTENT
    giver.process.kill()
