"""Hashes of parts of blocks that are given more than once."""

import os
from pathlib import Path

import pytest
import xxhash

from tdcs.node.agent.disk.part_hashes import PartHashes

PART = 1 << 20


@pytest.fixture
def block(tmp_path: Path) -> Path:
    """A block of two parts."""
    file = tmp_path / "1"
    file.write_bytes(bytes(PART) + bytes([1]) * PART)
    return file


def asked(hashes: PartHashes, file: Path, *, offset: int = 0, length: int = PART) -> int:
    """The hash of a part of a file."""
    with file.open("rb") as opened:
        status = os.fstat(opened.fileno())
        return hashes.get(opened.fileno(), status=status, offset=offset, length=length)


def test_each_part_has_its_own_hash_and_a_small_one_is_not_kept(block: Path) -> None:
    hashes = PartHashes()
    content = block.read_bytes()
    for offset, length in ((0, PART), (PART, PART), (0, 100), (0, PART)):
        expected = xxhash.xxh3_64_intdigest(content[offset : offset + length])
        assert asked(hashes, block, offset=offset, length=length) == expected


def test_what_rots_on_the_disk_after_it_was_hashed_no_longer_has_its_hash(block: Path) -> None:
    hashes, status = PartHashes(), block.stat()
    before = asked(hashes, block)
    with block.open("r+b") as file:
        file.write(b"rotten")
    os.utime(block, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert asked(hashes, block) == before
    assert before != xxhash.xxh3_64_intdigest(block.read_bytes()[:PART])


def test_a_block_that_is_written_again_is_hashed_again(block: Path) -> None:
    hashes = PartHashes()
    asked(hashes, block)
    block.unlink()
    block.write_bytes(b"2" * 2 * PART)

    assert asked(hashes, block) == xxhash.xxh3_64_intdigest(b"2" * PART)


def test_a_part_that_begins_where_another_one_does_has_its_own_hash(block: Path) -> None:
    hashes, content = PartHashes(), block.read_bytes()
    for length in (PART, PART // 2, 2 * PART):
        assert asked(hashes, block, length=length) == xxhash.xxh3_64_intdigest(content[:length])


def test_blocks_of_the_same_size_and_time_have_hashes_of_their_own(block: Path) -> None:
    hashes, status, second = PartHashes(), block.stat(), block.with_name("2")
    second.write_bytes(b"2" * status.st_size)
    os.utime(second, ns=(status.st_atime_ns, status.st_mtime_ns))
    asked(hashes, block)

    assert asked(hashes, second) == xxhash.xxh3_64_intdigest(b"2" * PART)


def test_a_block_of_another_size_does_not_have_the_hash_of_before_at_the_same_time(block: Path) -> None:
    hashes, status = PartHashes(), block.stat()
    asked(hashes, block)
    with block.open("r+b") as file:
        file.write(b"changed" + bytes(3 * PART))
    os.utime(block, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert asked(hashes, block) == xxhash.xxh3_64_intdigest(block.read_bytes()[:PART])


def test_the_hash_of_the_part_that_was_asked_for_last_is_kept(block: Path) -> None:
    hashes, status = PartHashes(most=1), block.stat()
    first, second = (asked(hashes, block, offset=offset) for offset in (0, PART))
    with block.open("r+b") as file:
        file.write(b"x" * 2 * PART)
    os.utime(block, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert asked(hashes, block, offset=PART) == second
    assert asked(hashes, block) != first


def test_the_oldest_hashes_are_forgotten(block: Path) -> None:
    hashes = PartHashes(most=1)
    for offset in (0, PART, 0):
        asked(hashes, block, offset=offset)
    assert len(hashes._hashes) == 1
