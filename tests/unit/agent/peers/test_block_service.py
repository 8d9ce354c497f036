"""The block service and its client: pieces of blocks, lists of what is readable, and callers that misbehave."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import xxhash

from tdcs.agent.disk.tier import Disk
from tdcs.agent.mount.readable import ReadableBlocks
from tdcs.agent.peers import block_service, frames
from tdcs.agent.peers.block_client import BlockClient, WrongContentError
from tdcs.agent.peers.block_service import BlockService
from tdcs.agent.peers.frames import FrameError, News, Wanted

SMALL, LARGE, ABSENT = 11, 12, 13


class Giver:
    """A service over a disk with a small and a large block."""

    def __init__(self, tier: Path) -> None:
        self.disk = Disk(tier)
        self.disk.prepare()
        self.contents = {SMALL: os.urandom(1000), LARGE: os.urandom(3_000_001)}
        (tier / "alluxioworker").mkdir()
        (self.disk.blocks / str(LARGE)).write_bytes(self.contents[LARGE])
        with self.disk.create(SMALL) as partial:
            partial.write(memoryview(self.contents[SMALL]), offset=0)
            found = xxhash.xxh3_64_intdigest(self.contents[SMALL])
            self.disk.keep(partial, block=SMALL, length=1000, content_hash=found)
        self.readable = ReadableBlocks()
        self.service = BlockService(disk=self.disk, journal="j", feed=self.feed)
        self.address = f"127.0.0.1:{self.service.start(host='127.0.0.1', port=0)}"

    def feed(self, mount: str, instance: int, place: int, wait: float) -> News:
        return self.readable.after(instance=instance, place=place, wait_seconds=wait)

    def client(self, *, journal: str = "j") -> BlockClient:
        return BlockClient(address=self.address, journal=journal, answer_seconds=2.0)


@pytest.fixture
def giver(tmp_path: Path) -> Iterator[Giver]:
    giver = Giver(tmp_path / "tier")
    yield giver
    giver.service.close()


def read(client: BlockClient, wanted: list[Wanted]) -> list[bytes | None]:
    client.ask(wanted)
    found: list[bytes | None] = []
    for piece in client.pieces(wanted):
        if piece.length < 0:
            found.append(None)
            continue
        content = bytearray(piece.length)

        def take(data: memoryview, offset: int, into: bytearray = content) -> None:
            into[offset : offset + len(data)] = data

        client.take(piece, take)
        found.append(bytes(content))
    return found


def test_pieces_of_many_blocks_come_in_one_answer_and_absent_ones_are_named(giver: Giver) -> None:
    small, large = giver.contents[SMALL], giver.contents[LARGE]
    wanted = [
        Wanted(SMALL),
        Wanted(ABSENT),
        Wanted(LARGE, 2_000_000, 65_536),
        Wanted(LARGE),
        Wanted(SMALL, 990, 100),
        Wanted(SMALL, 5000, 10),
        Wanted(LARGE, 10),
    ]
    with giver.client() as client:
        assert read(client, wanted) == [
            small,
            None,
            large[2_000_000 : 2_000_000 + 65_536],
            large,
            small[990:],
            b"",
            large[10:],
        ]
        assert read(client, [Wanted(SMALL)]) == [small], "the connection goes on"


def test_a_second_request_is_sent_before_the_first_is_answered(giver: Giver) -> None:
    with giver.client() as client:
        first, second = [Wanted(LARGE)], [Wanted(SMALL)]
        client.ask(first)
        client.ask(second)
        for wanted, length in ((first, 3_000_001), (second, 1000)):
            for piece in client.pieces(wanted):
                assert piece.length == length
                client.skip(piece)


def test_a_caller_of_another_journal_is_refused(giver: Giver) -> None:
    with pytest.raises(FrameError, match="another journal"):
        giver.client(journal="another")


def test_bytes_that_differ_from_what_was_written_are_not_taken_for_the_block(giver: Giver) -> None:
    file = giver.disk.spool / str(SMALL)
    os.chmod(file, 0o644)
    with file.open("r+b") as opened:
        opened.write(bytes([giver.contents[SMALL][0] ^ 1]))
    with giver.client() as client:
        wanted = [Wanted(SMALL), Wanted(LARGE)]
        client.ask(wanted)
        pieces = client.pieces(wanted)
        taken: list[int] = []
        with pytest.raises(WrongContentError, match="damaged"):
            client.take(next(pieces), lambda data, offset: taken.append(len(data)))
        assert not taken
        client.skip(next(pieces))


def test_a_caller_that_sends_garbage_ends_its_own_connection_alone(giver: Giver) -> None:
    host, _, port = giver.address.rpartition(":")
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(64), frames.greeting(journal="j") + b"\xff" * 8):
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
        anew = client.feed(mount="/m", instance=later.instance, place=later.place, wait_seconds=1)
        assert list(anew.blocks) == [9], "places of the list before it mean nothing"


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
