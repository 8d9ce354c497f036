"""After a loss of power the last files are compared with their hash, before anybody is given one of them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import xxhash

from tdcs.model.block_identity import BlockIdentity, mount_key
from tdcs.node.agent.disk.tier import Disk, Place
from tdcs.node.agent.disk.unclean_start import Looked, make_ready
from tdcs.node.file_facts import FileFacts
from tdcs.node.store_boot import is_ready

CONTENT = os.urandom(70_000)
IDENTITY = BlockIdentity(mount_key("/datasets/one"), bytes(16), 0)
HOLE = bytes(4096) + CONTENT[4096:]


def started(tier: Path, *, boot: str) -> tuple[Disk, Looked]:
    """The store of an agent that starts in this run of the kernel."""
    disk = Disk(tier, boot=boot)
    disk.prepare()
    return disk, make_ready(disk)


def keep(disk: Disk, block: int, content: bytes = CONTENT) -> None:
    with disk.create(block) as partial:
        partial.write(memoryview(content), offset=0)
        content_hash = xxhash.xxh3_64_intdigest(content)
        disk.keep(partial, block=block, length=len(content), identity=IDENTITY, content_hash=content_hash)


def lose(disk: Disk, block: int, content: bytes = HOLE) -> None:
    """What a disk does that confirms what it does not write: the file is as long as it was, with a hole in it."""
    file = disk.spool / str(block)
    file.chmod(0o644)
    with file.open("r+b") as opened:
        opened.truncate(len(content))
        opened.write(content)


@pytest.mark.parametrize("content", [HOLE, CONTENT[:-1], b""], ids=["hole", "cut off", "empty"])
@pytest.mark.failure_mode("node-power-lost-with-lying-disk")
def test_a_file_that_was_not_synced_as_a_whole_is_not_there_after_a_power_loss(
    tmp_path: Path, content: bytes
) -> None:
    disk, _ = started(tmp_path, boot="first")
    keep(disk, 1)
    keep(disk, 2)
    lose(disk, 1, content)
    disk, comparison = started(tmp_path, boot="second")
    assert comparison == Looked(compared=2, removed=1)
    assert disk.ids_at(Place.SPOOL).tolist() == [2]


def test_who_has_a_link_to_a_wrong_file_sees_another_length(tmp_path: Path) -> None:
    disk, _ = started(tmp_path, boot="first")
    links = {}
    for block in (1, 2):
        keep(disk, block)
        links[block] = tmp_path / f"view of {block}"
        os.link(disk.spool / str(block), links[block])
    lose(disk, 1)
    disk, comparison = started(tmp_path, boot="second")
    assert comparison.removed == 1
    assert links[1].read_bytes() == b""
    assert links[2].read_bytes() == CONTENT


def test_a_link_to_elsewhere_is_removed_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    disk, _ = started(tmp_path, boot="first")
    keep(disk, 1)
    elsewhere, link = tmp_path / "elsewhere", tmp_path / "its other name"
    os.rename(disk.spool / "1", elsewhere)
    os.link(elsewhere, link)
    (disk.spool / "1").symlink_to(elsewhere)
    disk, comparison = started(tmp_path, boot="second")
    assert comparison == Looked(compared=1, removed=1)
    assert not disk.has(1)
    assert link.read_bytes() == CONTENT


def test_a_file_that_the_disk_cannot_read_is_not_there_after_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, _ = started(tmp_path, boot="first")
    keep(disk, 1)

    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("tdcs.node.agent.disk.unclean_start.hash_of", refuse)
    disk, comparison = started(tmp_path, boot="second")
    assert comparison == Looked(compared=1, removed=1)
    assert not disk.has(1)


def test_nothing_is_compared_when_the_process_alone_was_killed(tmp_path: Path) -> None:
    disk, _ = started(tmp_path, boot="first")
    keep(disk, 1)
    disk, comparison = started(tmp_path, boot="first")
    assert comparison == Looked()
    assert disk.has(1)


def test_nothing_is_compared_after_a_shutdown_in_order(tmp_path: Path) -> None:
    disk, _ = started(tmp_path, boot="first")
    keep(disk, 1)
    disk.close()
    _, comparison = started(tmp_path, boot="second")
    assert comparison == Looked()


def test_files_that_a_later_sync_has_covered_are_not_read_again(tmp_path: Path) -> None:
    disk, _ = started(tmp_path, boot="first")
    keep(disk, 1)
    disk.mark.advance()
    keep(disk, 2)
    _, comparison = started(tmp_path, boot="second")
    assert comparison == Looked(compared=1, removed=0)


def test_a_process_that_was_killed_hides_nothing_from_the_start_after_the_power_loss(tmp_path: Path) -> None:
    disk, _ = started(tmp_path, boot="first")
    keep(disk, 1)
    disk, _ = started(tmp_path, boot="first")
    keep(disk, 2)
    for block in (1, 2):
        lose(disk, block)
    disk, comparison = started(tmp_path, boot="second")
    assert comparison == Looked(compared=2, removed=2)


def test_power_that_is_lost_while_files_are_compared_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, _ = started(tmp_path, boot="first")
    keep(disk, 1)
    lose(disk, 1)
    with monkeypatch.context() as patch:
        patch.setattr("tdcs.node.agent.disk.unclean_start._look_through", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            started(tmp_path, boot="second")
    _, comparison = started(tmp_path, boot="second")
    assert comparison.removed == 1


def test_files_of_a_store_without_a_mark_are_believed_by_what_they_say_alone(tmp_path: Path) -> None:
    disk = Disk(tmp_path, boot="first")
    disk.prepare()
    for block, content in ((1, CONTENT), (2, HOLE), (3, CONTENT)):
        (disk.spool / str(block)).write_bytes(content)
        if block != 3:
            facts = FileFacts(IDENTITY, len(CONTENT), xxhash.xxh3_64_intdigest(CONTENT))
            disk.facts.write(str(disk.spool / str(block)), facts)
    assert make_ready(disk).removed == 2
    assert disk.ids_at(Place.SPOOL).tolist() == [1]


def test_others_may_read_the_store_only_once_it_was_made_ready_in_this_run_of_the_kernel(
    tmp_path: Path,
) -> None:
    started(tmp_path, boot="an earlier one")
    assert not is_ready(str(tmp_path))
    disk = Disk(tmp_path)
    make_ready(disk)
    assert is_ready(str(tmp_path))
    disk.close()
    assert is_ready(str(tmp_path))
