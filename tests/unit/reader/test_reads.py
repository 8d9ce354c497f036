"""Reads that fail: what the log says of them, and what the operator hears."""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.dataplane.readers import CLUSTER, small_version

from tdcs.reader.counters import Count, Counters
from tdcs.reader.fuse import protocol
from tdcs.reader.peers.connection import PeerConnection
from tdcs.reader.peers.fetch import Key, Waiter
from tdcs.reader.serving.place_shares import PlaceShares
from tdcs.reader.serving.reads import Reads
from tdcs.reader.versions.open_versions import OpenVersion
from tdcs.reader.versions.registration import Registration
from tdcs.reader.versions.version_tree import VersionTree


class Node:
    """A reader without any agent, and two versions of datasets."""

    def __init__(self, folder: Path) -> None:
        self.noted: list[tuple[int, str, bool]] = []
        self.errors: list[int] = []
        self.free = 100
        self.counters = Counters()
        self.versions = [_opened(folder, number) for number in (1, 2)]
        self.reads = Reads(
            versions=self,  # type: ignore[arg-type]
            counters=self.counters,
            poller=self,
            reply=self.reply,
            shares=PlaceShares(lambda: self.free),
            buffer_bytes=1 << 20,
            patience_seconds=0.0,
        )

    def reply(self, place: int, pieces: Sequence[bytes | memoryview]) -> None:
        self.errors.append(-protocol.ANSWER.unpack_from(pieces[0])[1])
        self.free += 1

    def read(self, number: int) -> None:
        """A read comes."""
        self.free -= 1
        self.reads.start(self.get(number), file=0, offset=0, size=100, place=0, unique=7)

    def note_failure(self, version: OpenVersion, *, path: str, reason: str, stale: bool) -> None:
        self.noted.append((version.number, path, stale))

    def get(self, number: int) -> OpenVersion:
        return self.versions[number - 1]

    def is_open(self, number: int) -> bool:
        return number <= len(self.versions)

    def add(self, connection: PeerConnection) -> None:
        raise AssertionError

    change = remove = add

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
        tree=VersionTree(manifest=manifest, number=number, time=0),
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


def test_reads_that_wait_leave_places_to_those_of_another_dataset(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path)
    node.free = 45
    waiting: list[tuple[Waiter, int, Key]] = []
    node.reads.fetches.want = lambda _, key, waiter: waiting.append((*waiter, key))  # type: ignore[method-assign, misc]
    for _ in range(20):
        node.read(1)
    assert len(waiting) == 5
    assert node.errors == [errno.EIO] * 15
    assert "5 reads of its version wait on this node already" in caplog.text
    for _ in range(5):
        node.read(2)
    assert len(waiting) == 10
    node.errors.clear()

    waiter, index, key = waiting.pop(0)
    node.reads.piece(waiter, index, memoryview(bytes(100)), key=key, origin=Count.PEER_READS)
    for _ in range(2):
        node.read(1)
    assert node.errors == [0, errno.EIO]
    assert len(waiting) == 10, "another one waits in its place"
