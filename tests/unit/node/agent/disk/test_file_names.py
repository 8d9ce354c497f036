"""A file has its name only once its content is on the disk, and a batch of files costs one sync."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import xxhash
from tests.support.waiting import eventually

from tdcs.model.block_identity import BlockIdentity, mount_key
from tdcs.node.agent.disk import file_names
from tdcs.node.agent.disk.file_names import FileNames
from tdcs.node.agent.disk.partial_file import DiskError
from tdcs.node.agent.disk.tier import Disk


class Syncs:
    """Stands for the disk: a sync takes until it is let go, and fails when it is told to."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.count = 0
        self.error: OSError | None = None

    def __call__(self, *_: object) -> None:
        self.count += 1
        assert self.go.wait(10)
        if self.error is not None:
            raise self.error


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    syncs = Syncs()
    monkeypatch.setattr(FileNames, "_sync_all", syncs)
    monkeypatch.setattr(file_names, "_sync", syncs)
    return syncs


@pytest.fixture
def disk(tmp_path: Path, syncs: Syncs) -> Iterator[Disk]:
    disk = Disk(tmp_path / "tier")
    disk.prepare()
    yield disk
    syncs.go.set()
    disk.close()


def write(disk: Disk, block: int, errors: list[DiskError | None], content: bytes = b"content") -> None:
    with disk.create(block) as partial:
        partial.write(memoryview(content), offset=0)
        disk.keep_later(
            partial,
            block=block,
            identity=BlockIdentity(mount_key("/datasets/one"), bytes(16), block),
            length=len(content),
            content_hash=xxhash.xxh3_64_intdigest(content),
            done=errors.append,
        )


@pytest.mark.failure_mode("node-power-lost-during-load")
def test_a_block_cannot_be_read_before_it_is_on_the_disk(disk: Disk, syncs: Syncs) -> None:
    syncs.go.clear()
    errors: list[DiskError | None] = []
    write(disk, 1, errors)
    eventually(lambda: syncs.count == 1, deadline=60)
    assert (disk.open(1), errors) == (None, [])
    syncs.go.set()
    disk.names.wait()
    assert errors == [None]
    opened = disk.open(1)
    assert opened is not None
    os.close(opened.fd)


def test_what_comes_while_others_are_synced_is_synced_at_once_together(disk: Disk, syncs: Syncs) -> None:
    syncs.go.clear()
    errors: list[DiskError | None] = []
    write(disk, 0, errors)
    eventually(lambda: syncs.count == 1, deadline=60)
    for block in range(1, 101):
        write(disk, block, errors)
    syncs.go.set()
    disk.names.wait()
    assert errors == [None] * 101
    assert syncs.count == 2


def test_blocks_that_do_not_reach_the_disk_get_no_name_and_leave_nothing(disk: Disk, syncs: Syncs) -> None:
    syncs.error = OSError(errno.EIO, "Input/output error")
    errors: list[DiskError | None] = []
    write(disk, 1, errors)
    disk.names.wait()
    (error,) = errors
    assert "Input/output error" in str(error)
    assert disk.open(1) is None
    assert list(disk.partial.iterdir()) == []
    syncs.error = None
    write(disk, 1, errors)
    disk.names.wait()
    assert errors[1:] == [None]


def test_whoever_brings_more_than_the_disk_takes_waits_for_it(
    disk: Disk, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_names, "MOST_FILES", 2)
    syncs.go.clear()
    errors: list[DiskError | None] = []
    for block in (1, 2):
        write(disk, block, errors)
    assert disk.names.crowded
    third = threading.Thread(target=write, args=(disk, 3, errors))
    third.start()
    third.join(0.2)
    assert third.is_alive()
    syncs.go.set()
    third.join(60)
    disk.names.wait()
    assert errors == [None] * 3


def test_nothing_is_named_after_the_store_was_closed(disk: Disk) -> None:
    errors: list[DiskError | None] = []
    write(disk, 1, errors)
    disk.close()
    assert errors == [None]
    with pytest.raises(DiskError, match="ends"):
        write(disk, 2, errors)
    assert [file.name for file in disk.spool.iterdir()] == ["1"]


def test_a_thread_that_has_ended_for_want_of_work_is_started_again(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_names, "_COVER_SECONDS", 0.01)
    monkeypatch.setattr(file_names, "_IDLE_SECONDS", 0.01)
    errors: list[DiskError | None] = []
    for block in range(3):
        write(disk, block, errors)
        eventually(lambda: disk.names._thread is None, deadline=60)
    assert errors == [None] * 3


def test_the_mark_follows_within_seconds_of_the_last_file(
    disk: Disk, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_names, "_COVER_SECONDS", 0.05)
    disk.mark.begin()
    era = disk.mark.era
    errors: list[DiskError | None] = []
    write(disk, 1, errors)
    disk.names.wait()
    eventually(lambda: disk.mark.era == era + 1, deadline=60)
    began = time.monotonic()
    write(disk, 2, errors)
    disk.names.wait()
    assert disk.mark.era == era + 1 or time.monotonic() - began > 0.05
