"""Reads that fail: what the log says of them, and what the operator hears."""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.dataplane.readers import CLUSTER, small_version

from tdcs.engine.reader_files import Registration
from tdcs.node.reader import fuse_protocol
from tdcs.node.reader.counters import Count, Counters
from tdcs.node.reader.serving.local_blocks import LocalBlocks
from tdcs.node.reader.serving.local_disks import LocalDisks
from tdcs.node.reader.serving.open_versions import OpenVersion
from tdcs.node.reader.serving.place_shares import PlaceShares
from tdcs.node.reader.serving.poller import Poller
from tdcs.node.reader.serving.read import Key, Read
from tdcs.node.reader.serving.reads import Reads
from tdcs.node.reader.serving.version_tree import VersionTree


class Node:
    """A reader without any agent, and two versions of datasets."""

    def __init__(self, folder: Path) -> None:
        self.noted: list[tuple[int, str, bool]] = []
        self.errors: list[int] = []
        self.answered: list[int] = []
        self.free = 100
        self.counters = Counters()
        self.versions = [_opened(folder, number) for number in (1, 2)]
        self.reads = Reads(
            versions=self,  # type: ignore[arg-type]
            counters=self.counters,
            poller=Poller(),
            reply=self.reply,
            shares=PlaceShares(lambda: self.free),
            local=LocalBlocks(disks=LocalDisks(), counters=self.counters, is_refused=lambda *_: False),
            buffer_bytes=1 << 20,
            patience_seconds=0.0,
        )

    def reply(self, place: int, pieces: Sequence[bytes | memoryview]) -> None:
        _, error, unique = fuse_protocol.ANSWER.unpack_from(pieces[0])
        self.errors.append(-error)
        self.answered.append(unique)
        self.free += 1

    def read(self, number: int, *, file: int = 0, unique: int = 7, thread: int = 0) -> None:
        """A read comes."""
        self.free -= 1
        self.reads.start(
            self.get(number), file=file, offset=0, size=100, place=0, unique=unique, thread=thread
        )

    def note_failure(self, version: OpenVersion, *, path: str, reason: str, stale: bool) -> None:
        self.noted.append((version.number, path, stale))

    def get(self, number: int) -> OpenVersion:
        return self.versions[number - 1]

    def is_open(self, number: int) -> bool:
        return number <= len(self.versions)

    def fail(self, number: int, *, file: int, stale: bool) -> None:
        """Read a file that nobody gives."""
        read = self.reads
        version = self.get(number)
        before = read.fetches.want
        read.fetches.want = lambda *_, waiter: read.failed(  # type: ignore[method-assign]
            waiter[0], stale=stale, reason="nobody gives it"
        )
        read.start(version, file=file, offset=0, size=100, place=0, unique=7)
        read.fetches.want = before  # type: ignore[method-assign]


def _opened(folder: Path, number: int) -> OpenVersion:
    files = {f"{file}": bytes([number]) * 100 for file in range(3)}
    manifest = small_version(folder / str(number), files).manifest
    return OpenVersion(
        number=number,
        name=f"version-{number}",
        registration=Registration(cluster=CLUSTER, path=f"/datasets/{number}", manifest=""),
        tree=VersionTree(manifest=manifest, number=number),
        node="here",
    )


def test_one_dataset_that_fails_all_the_time_hides_no_failure_of_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path)
    with caplog.at_level(logging.ERROR):
        for file in range(3):
            node.fail(1, file=file, stale=False)
        node.fail(2, file=0, stale=False)
        node.fail(2, file=1, stale=True)
    assert node.errors == [errno.EIO] * 4 + [errno.ESTALE]
    assert node.noted == [(1, "0", False), (2, "0", False), (2, "1", True)]
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(":")[0] for line in lines] == [
        "file '0' of /datasets/1 (version version-1) cannot be read from anywhere",
        "file '0' of /datasets/2 (version version-2) cannot be read from anywhere",
        "file '1' of /datasets/2 (version version-2) has another version at its source by now",
    ]
    assert [node.counters.get(2, kind) for kind in (Count.ERRORS, Count.STALE)] == [1, 1]


@pytest.mark.threat("reads-ahead")
def test_no_read_fails_because_others_wait(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.free = 45
    waiting: list[tuple[Read, int, Key]] = []
    node.reads.fetches.want = lambda _, key, waiter: waiting.append((*waiter, key))  # type: ignore[method-assign, misc]
    for thread in range(1, 41):
        node.read(1, thread=thread)
    node.read(2, thread=99)
    assert len(waiting) == 41
    assert not node.errors


@pytest.mark.threat("reads-ahead")
def test_reads_beyond_those_that_are_fetched_begin_in_turn_and_the_last_one_waits(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    node.free = 1000
    waiting: list[tuple[Read, int, Key]] = []
    node.reads.fetches.want = lambda _, key, waiter: waiting.append((*waiter, key))  # type: ignore[method-assign, misc]
    for unique in range(200):
        node.read(1, unique=unique, thread=9)
    assert [waiter.unique for waiter, *_ in waiting] == list(range(32))
    given_up = len(node.answered)
    assert node.errors == [errno.EIO] * given_up
    last = 199 - given_up
    assert node.answered == list(range(last, 199)), "each gives its place up to the next one of the thread"
    assert not node.noted, "no program sees that"
    assert not node.counters.get(1, Count.ERRORS)
    node.read(1, file=1, thread=10)
    assert len(waiting) == 33, "another thread's read begins"

    order = []
    while waiting:
        waiter, index, key = waiting.pop(0)
        order.append(waiter.unique)
        node.reads.piece(waiter, index, memoryview(bytes(100)), key=key, origin=Count.PEER_READS)
    assert order == [*range(32), 7, *range(32, last), 199]
    assert node.errors[given_up:] == [0] * (last + 2)
    assert node.free == 1000


def test_reads_that_wait_their_turn_end_together_when_what_they_are_of_has_come_meanwhile(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    node.free = 30_000
    waiting: list[tuple[Read, int, Key]] = []
    node.reads.fetches.want = lambda _, key, waiter: waiting.append((*waiter, key))  # type: ignore[method-assign, misc]
    for unique in range(1200):
        node.read(1, unique=unique, thread=9)
    assert not node.answered
    waiter, index, key = waiting[0]
    node.reads.buffer.get = lambda _: bytes(100)  # type: ignore[method-assign, assignment]
    node.reads.piece(waiter, index, memoryview(bytes(100)), key=key, origin=Count.PEER_READS)
    assert node.errors == [0] * (1200 - 31)
