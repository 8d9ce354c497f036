"""What is noted of wrong blocks outlives the process, and costs the same however many there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tdcs.node.agent.disk.own_ids import enter_own_ids
from tdcs.node.agent.disk.refused_blocks import RefusedBlocks
from tdcs.node.agent.disk.tier import Disk

ONE, OTHER = "/datasets/one", "/datasets/other"


def test_all_wrong_blocks_are_known_to_the_next_process_by_their_mounts(tmp_path: Path) -> None:
    first = RefusedBlocks(tmp_path)
    first.add(ONE, range(2_000))
    first.add(OTHER, (5_000,))
    again = RefusedBlocks(tmp_path)
    assert len(again.read()) == 2_001
    assert (again.of(ONE), again.of(OTHER)) == (frozenset(range(2_000)), frozenset({5_000}))
    assert 1_999 in again
    assert again.discard(ONE, (1_999, 77_777)) == {1_999, 77_777}
    assert 1_999 not in again
    assert again.remove(OTHER) == {5_000}
    assert RefusedBlocks(tmp_path).read() == frozenset(range(1_999))


def test_one_more_wrong_block_writes_nothing_of_those_before_it(tmp_path: Path) -> None:
    refused = RefusedBlocks(tmp_path)
    refused.add(ONE, range(100))

    def written() -> dict[str, tuple[int, int]]:
        files = (file for file in refused.folder.rglob("*") if file.is_file())
        return {file.name: (file.stat().st_ino, file.stat().st_ctime_ns) for file in files}

    before = written()
    refused.add(ONE, (100,))
    after = written()
    assert after.keys() - before.keys() == {"100"}
    assert {name: after[name] for name in before} == before


def test_a_block_is_refused_in_this_process_even_when_the_disk_takes_no_note(tmp_path: Path) -> None:
    refused = RefusedBlocks(tmp_path)
    refused.folder.parent.mkdir()
    refused.folder.write_bytes(b"in the way")
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        refused.add(ONE, (1,))
    assert 1 in refused
    assert refused.of(ONE) == {1}
    refused.folder.unlink()
    refused.add(ONE, refused.of(ONE))
    assert RefusedBlocks(tmp_path).read() == {1}


def test_blocks_under_ids_of_alluxios_are_not_taken_for_wrong_ones(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    enter_own_ids(disk)
    disk.refused.add(ONE, (17,))
    enter_own_ids(disk)
    assert RefusedBlocks(tmp_path).read() == {17}
    disk.epoch.write_text("0a1b2c3d-journal\n")
    enter_own_ids(disk)
    assert RefusedBlocks(tmp_path).read() == frozenset()
