"""After a loss of power the blocks of large files are compared one by one: wrong ones go, others of the file stay."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.unit.node.agent.disk.test_large_files import CONTENT, EXTENT, Node, part

from tdcs.node import file_facts
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.disk.unclean_start import Looked, make_ready

ALL = list(range(11))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Nothing of it is on the disk yet, and files may get their names."""
    node = Node(tmp_path)
    make_ready(node.disk)
    return node


def power_lost(node: Node) -> Looked:
    """The machine begins anew."""
    node.disk = Disk(node.tier, boot="2")
    node.disk.prepare()
    return make_ready(node.disk)


def damage(file: Path, *blocks: int) -> None:
    """The last byte of each of these blocks did not reach the disk."""
    mode = file.stat().st_mode
    file.chmod(0o644)
    with file.open("r+b") as opened:
        for block in blocks:
            last = block * EXTENT + len(part(block)) - 1
            opened.seek(last)
            opened.write(bytes([CONTENT[last] ^ 1]))
    file.chmod(mode)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("wrong", [(0,), (10,), (0, 5, 10), tuple(ALL)])
def test_each_wrong_block_goes_and_no_other(node: Node, wrong: tuple[int, ...]) -> None:
    node.write_all()
    damage(node.whole, *wrong)
    assert power_lost(node) == Looked(compared=11, removed=len(wrong))
    assert node.given() == [block for block in ALL if block not in wrong]


def test_wrong_blocks_of_a_file_that_is_not_whole_go_as_well(node: Node) -> None:
    node.write_all((1, 2, 3, 7))
    damage(node.parts, 2, 7)
    assert power_lost(node) == Looked(compared=4, removed=2)
    assert node.given() == [1, 3]


def test_blocks_that_a_later_sync_has_covered_are_not_read_again_and_those_behind_them_are(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.write_all((0, 1, 2))
    node.disk.mark.advance()
    node.write_all((3, 4))
    damage(node.parts, 4)
    read: list[int] = []

    def hash_of(fd: int, *, offset: int, length: int) -> int:
        read.append(offset // EXTENT)
        return file_facts.hash_of(fd, offset=offset, length=length)

    monkeypatch.setattr("tdcs.node.agent.disk.unclean_start.hash_of", hash_of)
    assert power_lost(node) == Looked(compared=2, removed=1)
    assert sorted(read) == [3, 4]
    assert node.given() == [0, 1, 2, 3]


def test_a_block_that_the_disk_cannot_read_goes_and_is_named_and_others_stay(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node.write_all()

    def hash_of(fd: int, *, offset: int, length: int) -> int:
        if offset == 4 * EXTENT:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return file_facts.hash_of(fd, offset=offset, length=length)

    monkeypatch.setattr("tdcs.node.agent.disk.unclean_start.hash_of", hash_of)
    assert power_lost(node) == Looked(compared=11, removed=1)
    assert f"block {node.ids[4]} cannot be read: Input/output error" in caplog.text
    assert "11 files were compared with their hash" in caplog.text
    assert "and 1 that differ" in caplog.text
    assert node.given() == [block for block in ALL if block != 4]


def test_a_block_that_cannot_be_opened_is_given_to_nobody(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.write_all()
    node.disk = Disk(node.tier, boot="2")
    node.disk.prepare()
    opened = node.disk.large.open

    def refused(block: int) -> object:
        if block == node.ids[4]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return None if block == node.ids[6] else opened(block)

    with monkeypatch.context() as patch:
        patch.setattr(node.disk.large, "open", refused)
        assert make_ready(node.disk) == Looked(compared=11, removed=2)
    assert node.given() == [block for block in ALL if block not in {4, 6}]


def test_what_a_view_links_says_that_it_is_wrong_and_keeps_its_right_bytes(node: Node) -> None:
    node.write_all()
    link = node.tier / "of a view"
    os.link(node.whole, link)
    damage(node.whole, 4)
    power_lost(node)
    assert link.stat().st_size == len(CONTENT) + 1
    content = link.read_bytes()
    assert [part(block) == content[block * EXTENT :][: len(part(block))] for block in ALL] == [
        block != 4 for block in ALL
    ]


def test_a_wrong_block_of_which_no_view_can_be_told_goes_all_the_same(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node.write_all()
    os.link(node.whole, node.tier / "of a view")
    damage(node.whole, 4)

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tdcs.node.agent.disk.unclean_start._set_length", refuse)
    assert power_lost(node) == Looked(compared=11, removed=1)
    assert "views may go on showing a file that has a wrong block: Read-only file system" in caplog.text
    assert node.given() == [block for block in ALL if block != 4]


def test_no_descriptor_stays_open(node: Node) -> None:
    node.write_all()
    damage(node.whole, 1, 2)
    node.disk = Disk(node.tier, boot="2")
    node.disk.prepare()
    before = descriptors()
    make_ready(node.disk)
    # The files of eleven blocks were opened; the table of what is left may stay open, in whose own hand it is.
    assert descriptors() <= before + 2
