"""The block service and its client: pieces of blocks, lists of what is readable, and callers that misbehave."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import xxhash
from tests.support.waiting import eventually
from tests.unit.node.agent.disk.test_large_files import Node

from tdcs.model.block_identity import BlockIdentity, mount_key
from tdcs.node.agent import block_service
from tdcs.node.agent.block_service import BlockService
from tdcs.node.agent.disk.large_files import OpenedBlock
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.readable import ReadableBlocks
from tdcs.node.wire import frames
from tdcs.node.wire.block_client import BlockClient, WrongContentError
from tdcs.node.wire.channel import receive
from tdcs.node.wire.connections import Connections
from tdcs.node.wire.frames import FrameError, News, Piece, SourceWanted, Wanted

SMALL, LARGE, ABSENT = 11, 12, 13


class Giver:
    """A service over a disk with a small and a large block."""

    def __init__(self, tier: Path) -> None:
        self.disk = Disk(tier)
        self.disk.prepare()
        self.contents = {SMALL: os.urandom(1000), LARGE: os.urandom(3_000_001)}
        (self.disk.spool / str(LARGE)).write_bytes(self.contents[LARGE])
        with self.disk.create(SMALL) as partial:
            partial.write(memoryview(self.contents[SMALL]), offset=0)
            content_hash = xxhash.xxh3_64_intdigest(self.contents[SMALL])
            self.disk.keep(
                partial,
                block=SMALL,
                identity=BlockIdentity(mount_key("/datasets/one"), bytes(16), 0),
                length=1000,
                content_hash=content_hash,
            )
        self.readable = ReadableBlocks()
        self.read_on = list[int]()
        self.service = BlockService(disk=self.disk, feed=self.feed, read_on=self.read_on.append)
        self.address = f"127.0.0.1:{self.service.start(host='127.0.0.1', port=0)}"

    def feed(self, mount: str, instance: int, place: int, wait: float) -> News:
        return self.readable.after(instance=instance, place=place, wait_seconds=wait)

    def answers(self) -> bool:
        """Whether some connection has asked for something, and has no answer yet."""
        places = self.service._connections
        return any(caller.idle_since is None for caller in places._callers.values())

    def client(self) -> BlockClient:
        return BlockClient(address=self.address, answer_seconds=2.0)


@pytest.fixture
def giver(tmp_path: Path) -> Iterator[Giver]:
    giver = Giver(tmp_path / "tier")
    yield giver
    giver.service.close()


def read(client: BlockClient, wanted: list[Wanted]) -> list[bytes | None]:
    client.ask(wanted)
    contents: list[bytes | None] = []
    for piece in client.pieces(wanted):
        if piece.length < 0:
            contents.append(None)
            continue
        content = bytearray(piece.length)

        def take(data: memoryview, offset: int, into: bytearray = content) -> None:
            into[offset : offset + len(data)] = data

        client.take(piece, take)
        contents.append(bytes(content))
    return contents


def test_pieces_of_many_blocks_come_in_one_answer_and_absent_ones_are_named(giver: Giver) -> None:
    small, large = giver.contents[SMALL], giver.contents[LARGE]
    reads = [
        Wanted(SMALL),
        Wanted(ABSENT),
        Wanted(LARGE, 2_000_000, 65_536),
        Wanted(LARGE),
        Wanted(SMALL, 990, 100),
        Wanted(SMALL, 5000, 10),
        Wanted(LARGE, 10),
    ]
    with giver.client() as client:
        assert read(client, reads) == [
            small,
            None,
            large[2_000_000 : 2_000_000 + 65_536],
            large,
            small[990:],
            b"",
            large[10:],
        ]
        assert read(client, [Wanted(SMALL)]) == [small], "the connection goes on"


def test_a_small_piece_has_the_hash_of_what_is_sent_whatever_becomes_of_the_file_meanwhile(
    giver: Giver,
) -> None:
    stop = threading.Event()

    def write() -> None:
        with (giver.disk.spool / str(LARGE)).open("r+b", buffering=0) as file:
            while not stop.is_set():
                os.pwrite(file.fileno(), os.urandom(4096), 0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with giver.client() as client:
            for _ in range(200):
                (content,) = read(client, [Wanted(LARGE, 0, 4096)])  # which compares the hash
                assert content is not None
    finally:
        stop.set()
        writer.join()


def test_no_descriptors_for_blocks_ahead_cost_no_connection(
    giver: Giver, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = [Wanted(SMALL), Wanted(ABSENT), Wanted(LARGE, 0, 70_000)] * 4
    opened = giver.disk.open
    blocks: list[int] = []

    def every_other(block: int) -> OpenedBlock | None:
        blocks.append(block)
        if len(blocks) % 2 == 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opened(block)

    with giver.client() as client:
        before = len(os.listdir("/proc/self/fd"))
        monkeypatch.setattr(giver.disk, "open", every_other)
        contents = read(client, reads)
        assert contents == [giver.contents[SMALL], None, giver.contents[LARGE][:70_000]] * 4
        assert len(blocks) > len(reads), "some were tried ahead"
        # Fewer: what an earlier test left may be closed meanwhile.
        eventually(lambda: len(os.listdir("/proc/self/fd")) <= before, deadline=20)


def test_a_second_request_is_sent_before_the_first_is_answered(giver: Giver) -> None:
    with giver.client() as client:
        first, second = [Wanted(LARGE)], [Wanted(SMALL)]
        client.ask(first)
        client.ask(second)
        for read, length in ((first, 3_000_001), (second, 1000)):
            for piece in client.pieces(read):
                assert piece.length == length
                client.skip()


def test_requests_of_all_kinds_that_come_at_once_are_answered_in_their_order(giver: Giver) -> None:
    giver.readable.add([5])
    reads = [[Wanted(SMALL, begin, 7)] for begin in range(0, 1000, 7)]
    large = [[Wanted(LARGE, begin, 900_000)] for begin in range(0, 3_000_001, 900_000)]
    news = frames.feed_request(mount="/m", instance=0, place=0, wait_ms=0)
    with giver.client() as client:
        requests = [frames.read_request(read) for read in (*reads, *large, [Wanted(ABSENT)])]
        client._channel.send(b"".join([*requests, news, requests[0]]))
        pieces = list(client_pieces(client, len(requests)))
        assert b"".join(pieces[: len(reads)]) == giver.contents[SMALL]
        assert b"".join(pieces[len(reads) :]) == giver.contents[LARGE]
        _, _, count = frames.NEWS.unpack(receive(client._channel, frames.NEWS.size))
        assert receive(client._channel, 8 * count) == (5).to_bytes(8, "little")
        assert list(client_pieces(client, 1)) == [giver.contents[SMALL][:7]]


def client_pieces(client: BlockClient, count: int) -> Iterator[bytes]:
    for _ in range(count):
        _, length, _, content_hash = frames.PIECE.unpack(receive(client._channel, frames.PIECE.size))
        content = receive(client._channel, max(0, length))
        assert length < 0 or xxhash.xxh3_64_intdigest(content) == content_hash
        yield content


def test_a_caller_that_leaves_in_the_middle_costs_no_descriptors_and_no_others(giver: Giver) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for end in (3, 20, None):
        with giver.client() as client:
            client._channel.send((frames.read_request([Wanted(LARGE)]) * 30)[:end])
            receive(client._channel, 0 if end else 1000)
    # Each is closed just after it is counted no more, and what other threads opened before may go meanwhile.
    eventually(lambda: not len(giver.service._connections), deadline=60)
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= before, deadline=60)
    with giver.client() as client:
        assert read(client, [Wanted(SMALL)]) == [giver.contents[SMALL]]


def test_agents_of_different_versions_of_the_protocol_refuse_each_other(giver: Giver) -> None:
    before = struct.pack("<4sHHH", frames.MAGIC, 1, frames.ACCEPTED, 3) + b"own"
    host, _, port = giver.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(before)
        answer = connection.recv(frames.GREETING.size, socket.MSG_WAITALL)
    assert frames.parse_greeting(answer) == (frames.VERSION, frames.OTHER_VERSION)
    with pytest.raises(FrameError, match="speaks version 1 of the protocol, and this one 2"):
        frames.check_greeting(memoryview(before)[: frames.GREETING.size], address="a:1")


def test_bytes_that_differ_from_what_was_written_are_not_taken_for_the_block(giver: Giver) -> None:
    file = giver.disk.spool / str(SMALL)
    os.chmod(file, 0o644)
    with file.open("r+b") as opened:
        opened.write(bytes([giver.contents[SMALL][0] ^ 1]))
    with giver.client() as client:
        reads = [Wanted(SMALL), Wanted(LARGE)]
        client.ask(reads)
        pieces = client.pieces(reads)
        sizes: list[int] = []
        with pytest.raises(WrongContentError, match="damaged"):
            client.take(next(pieces), lambda data, offset: sizes.append(len(data)))
        assert not sizes
        next(pieces)
        client.skip()


def test_a_caller_that_sends_garbage_ends_its_own_connection_alone(giver: Giver) -> None:
    host, _, port = giver.address.rpartition(":")
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(64), frames.greeting() + b"\xff" * 8):
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(garbage)
            with suppress(ConnectionResetError):
                while connection.recv(4096):
                    pass
    with giver.client() as client:
        assert read(client, [Wanted(SMALL)]) == [giver.contents[SMALL]]


def test_who_waits_for_news_hears_of_a_block_when_it_becomes_readable(giver: Giver) -> None:
    giver.readable.add([5, 6])
    with giver.client() as client:
        news = client.feed(mount="/m", instance=0, place=0, wait_seconds=0)
        assert list(news.blocks) == [5, 6]
        empty = client.feed(mount="/m", instance=news.instance, place=news.place, wait_seconds=0.05)
        assert not len(empty.blocks)
        giver.readable.add([7])
        later = client.feed(mount="/m", instance=news.instance, place=news.place, wait_seconds=1)
        assert list(later.blocks) == [7]
        giver.readable.restart([9])
        again = client.feed(mount="/m", instance=later.instance, place=later.place, wait_seconds=1)
        assert list(again.blocks) == [9], "places of the list before it mean nothing"


class ScarceListener(socket.socket):
    """One that gives these errors first, and is closed then."""

    def __init__(self, codes: list[int]) -> None:
        super().__init__()
        self.codes = codes

    def accept(self) -> tuple[socket.socket, object]:
        code = self.codes.pop(0) if self.codes else errno.EBADF
        raise OSError(code, os.strerror(code))


def test_a_process_without_descriptors_waits_a_moment_before_it_accepts_again(
    giver: Giver, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    with ScarceListener([errno.EMFILE, errno.ENFILE, errno.ECONNABORTED, errno.ENOMEM]) as listener:
        monkeypatch.setattr(block_service, "time", SimpleNamespace(sleep=pauses.append))
        giver.service._accept(listener)
        assert not listener.codes
    assert pauses == [0.05] * 3, "none for a caller that went away"


def test_a_connection_that_gets_no_thread_is_closed_and_the_next_one_is_served(
    giver: Giver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    host, _, port = giver.address.rpartition(":")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more)
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            assert connection.recv(1) == b""
    assert not giver.service._connections
    with giver.client() as client:
        assert read(client, [Wanted(SMALL)]) == [giver.contents[SMALL]]


@pytest.mark.failure_mode("agent-has-too-many-connections")
def test_one_connection_too_many_takes_the_place_of_an_idle_one(giver: Giver) -> None:
    giver.service._connections = Connections[socket.socket](2)  # type: ignore[misc]
    with giver.client() as first, giver.client() as second:
        for client in (first, second):
            assert read(client, [Wanted(SMALL)]) == [giver.contents[SMALL]]
            eventually(lambda: not giver.answers(), deadline=20)
        with giver.client() as third:
            assert read(third, [Wanted(SMALL)]) == [giver.contents[SMALL]]
            assert read(second, [Wanted(SMALL)]) == [giver.contents[SMALL]]
            with pytest.raises((FrameError, OSError)):
                read(first, [Wanted(SMALL)])


def test_while_all_are_answered_one_more_of_the_same_host_hears_why_it_is_refused(giver: Giver) -> None:
    giver.service._connections = Connections[socket.socket](1)  # type: ignore[misc]
    with giver.client() as first:
        news = first.feed(mount="/m", instance=0, place=0, wait_seconds=0)
        eventually(lambda: not giver.answers(), deadline=20)
        waiting = frames.feed_request(mount="/m", instance=news.instance, place=news.place, wait_ms=20_000)
        first._channel.send(waiting)
        eventually(giver.answers, deadline=20)
        with pytest.raises(FrameError, match="as many connections as it may have"):
            giver.client()
        giver.readable.close()
    eventually(lambda: not len(giver.service._connections), deadline=20)
    with giver.client() as again:
        assert read(again, [Wanted(SMALL)]) == [giver.contents[SMALL]]


def test_a_caller_that_knows_it_hears_while_its_read_of_the_source_has_to_wait(
    giver: Giver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "WAITING_SECONDS", 0.0)

    @contextmanager
    def read_source(piece: SourceWanted, *, waiting: Callable[[], None]) -> Iterator[memoryview]:
        for _ in range(3):
            waiting()
        yield memoryview(b"x" * piece.length)

    giver.service._read_source = read_source  # type: ignore[misc]
    request = frames.source_request(
        SourceWanted(mount="/m", path=b"f", block=7, offset=0, length=9, size=9, tag="")
    )
    kind, flags, count = frames.REQUEST.unpack_from(request)
    older = frames.REQUEST.pack(kind, flags & ~frames.PATIENT, count) + request[frames.REQUEST.size :]
    waits = frames.PIECE.pack(7, frames.WAITING, 0, 0)
    answer = frames.PIECE.pack(7, 9, 9, xxhash.xxh3_64_intdigest(b"x" * 9)) + b"x" * 9
    with giver.client() as client:
        for request_bytes, expected in ((request, 3 * waits + answer), (older, answer)):
            client._channel.send(request_bytes)
            assert receive(client._channel, len(expected)) == expected
        assert read(client, [Wanted(SMALL)]) == [giver.contents[SMALL]]


def test_what_is_read_for_a_reader_counts_as_held_until_the_reader_has_taken_it(giver: Giver) -> None:
    length = 32 << 20  # more than a connection buffers when nothing is taken
    held, released = threading.Event(), threading.Event()

    @contextmanager
    def read_source(piece: SourceWanted, *, waiting: Callable[[], None]) -> Iterator[memoryview]:
        held.set()
        yield memoryview(bytes(length))
        released.set()

    giver.service._read_source = read_source  # type: ignore[misc]
    source_read = SourceWanted(mount="/m", path=b"f", block=7, offset=0, length=9, size=9, tag="")
    with giver.client() as client:
        client._channel.send(frames.source_request(source_read))
        assert held.wait(10)
        assert len(receive(client._channel, frames.PIECE.size)) == frames.PIECE.size
        assert not released.wait(0.1)
        assert len(receive(client._channel, length)) == length
        assert released.wait(10)


def test_a_part_of_a_file_that_goes_while_it_is_sent_ends_the_connection(tmp_path: Path) -> None:
    """What was sent under its hash may have been zeros."""
    node = Node(tmp_path)
    node.write_all((0, 1))

    class Channel:
        caller = None

        def send(self, data: bytes, *, more: bool = False) -> None:
            pass

        def send_file(self, fd: int, *, offset: int, length: int) -> int:
            node.disk.unspool(node.ids[1])
            return length

    def feed(*_: object) -> News:
        raise AssertionError("nobody asks for news")

    service = BlockService(disk=node.disk, feed=feed)
    channel: Any = Channel()
    with pytest.raises(FrameError):
        service._give(channel, [Wanted(node.ids[1])])


def test_where_a_pod_reads_on_is_noted_and_answered_without_bytes_among_requests_for_blocks(
    giver: Giver,
) -> None:
    with socket.create_connection(
        ("127.0.0.1", int(giver.address.rpartition(":")[2])), timeout=10
    ) as connection:
        connection.sendall(
            frames.greeting()
            + frames.read_request([Wanted(SMALL, 0, 10)])
            + frames.read_on_request(SMALL)
            + frames.read_on_request(ABSENT)
            + frames.read_request([Wanted(SMALL, 10, 10)])
        )
        connection.recv(frames.GREETING.size, socket.MSG_WAITALL)
        pieces = []
        for _ in range(4):
            piece = Piece(*frames.PIECE.unpack(connection.recv(frames.PIECE.size, socket.MSG_WAITALL)))
            content = connection.recv(piece.length, socket.MSG_WAITALL) if piece.length > 0 else b""
            pieces.append((piece.block, content))
    first = giver.contents[SMALL]
    assert pieces == [(SMALL, first[:10]), (SMALL, b""), (ABSENT, b""), (SMALL, first[10:20])]
    assert giver.read_on == [SMALL, ABSENT]
