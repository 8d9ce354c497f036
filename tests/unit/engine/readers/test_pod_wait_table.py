"""The table of how long reads of pods waited, which outlives who writes it."""

import os
from pathlib import Path

import pytest

from tdcs.engine.pod_wait_table import ROWS, PodWait, PodWaitTable, WaitOrigin, read_pod_waits

SECOND = 10**9


def uid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000 * SECOND

    def __call__(self) -> int:
        return self.now


def test_what_one_process_counted_the_next_one_adds_to(tmp_path: Path) -> None:
    file, clock = tmp_path / "pod-waits", Clock()
    table = PodWaitTable(file, clock=clock)
    table.add(table.row(uid(1)), WaitOrigin.PEER, 2 * SECOND)
    clock.now += 10 * SECOND
    later = PodWaitTable(file, clock=clock)
    later.add(later.row(uid(1)), WaitOrigin.SOURCE, SECOND // 2)
    assert read_pod_waits(file) == [
        PodWait(pod=uid(1), began=1_700_000_000, last=1_700_000_010, peer=2, source=0.5)
    ]


def test_a_full_table_forgets_the_pod_that_has_not_read_for_longest(tmp_path: Path) -> None:
    file, clock = tmp_path / "pod-waits", Clock()
    table = PodWaitTable(file, clock=clock)
    for number in range(ROWS):
        clock.now += SECOND
        table.row(uid(number))
    clock.now += SECOND
    first = table.row(uid(0))
    table.add(first, WaitOrigin.PEER, SECOND)
    clock.now += SECOND
    row = table.row(uid(ROWS))
    assert not table.holds(row, uid(1))
    assert table.holds(row, uid(ROWS))
    found = {wait.pod: wait for wait in read_pod_waits(file)}
    assert len(found) == ROWS
    assert uid(1) not in found
    assert (found[uid(0)].peer, found[uid(ROWS)].peer) == (1, 0)


@pytest.mark.parametrize("content", [None, b"", b"x" * 100])
def test_a_file_that_is_no_table_says_nothing_and_is_made_one(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "pod-waits"
    if content is not None:
        file.write_bytes(content)
    assert read_pod_waits(file) == []
    PodWaitTable(file).row(uid(1))
    assert [wait.pod for wait in read_pod_waits(file)] == [uid(1)]


def test_its_bytes_are_allocated_so_that_a_full_disk_is_an_error_at_once(tmp_path: Path) -> None:
    file = tmp_path / "pod-waits"
    PodWaitTable(file)
    found = file.stat()
    assert found.st_blocks * 512 >= found.st_size
    with pytest.raises(OSError, match="No such file"):
        PodWaitTable(tmp_path / "missing" / "pod-waits")


def test_a_file_that_is_larger_than_memory_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "pod-waits"
    file.touch()
    os.truncate(file, 1 << 40)
    assert read_pod_waits(file) == []
