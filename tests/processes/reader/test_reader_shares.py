"""Reads that wait for the source of one dataset, by the hundred, keep no read of another dataset waiting, and what one
program asks for ahead makes no read fail, of its own or of others."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.processes.reader.test_reader_restarts import serving
from tests.support.dataplane.agents import Version, folder_version, put_block
from tests.support.dataplane.node import needs_fuse
from tests.support.dataplane.readers import ReaderNode, table_of
from tests.support.waiting import at_this_load, eventually

from tdcs.engine.holder_table import Holder
from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS
from tdcs.node.agent.block_service import BlockService
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.wire.frames import News, SourceWanted

pytestmark = needs_fuse

SLOW = "/datasets/slow"
MANY = 700
PATIENCE = 6.0
STEP = 8192
ASKED = 2000
LARGE = ASKED * STEP


class Tenants:
    """Two datasets of a node: the source of one gives nothing until `gate` is set, that of the other does at once.

    One agent reads both sources. Of the honest one it has the files `held…`, and reads the files `source…`.
    """

    def __init__(self, node: ReaderNode) -> None:
        self.gate = threading.Event()
        self.slow_files = node.folder / "slow"
        self.honest_files = node.folder / "honest"
        slow = _version(
            self.slow_files, node, {f"{number:03}": 5_000 for number in range(MANY)} | {"large": LARGE}
        )
        sizes = {f"{kind}{number}": 50_000 for kind in ("held", "source") for number in range(3)}
        honest = _version(self.honest_files, node, sizes | {"held-large": LARGE})
        tier = node.folder / "giver"
        (tier / "agent/spool").mkdir(parents=True)
        disk = Disk(tier)
        disk.prepare()
        for place in range(len(honest.manifest)):
            name = os.fsdecode(honest.manifest.file_path(place))
            if name.startswith("held"):
                (block,) = honest.manifest.blocks_of(place)
                content = (self.honest_files / name).read_bytes()
                put_block(disk, honest.manifest, block, content)
        self.agent = BlockService(disk=disk, feed=lambda *_: News(1, 0, ()), read_source=self._read_source)
        address = f"127.0.0.1:{self.agent.start(host='127.0.0.1', port=0)}"

        def holder(slots: bytes) -> Holder:
            return Holder(node="giver", address=address, complete=NO_SLOTS, present=slots, reads_source=True)

        self.slow = node.register(slow, tables=table_of(holder(NO_SLOTS)))
        self.honest = node.register(honest, tables=table_of(holder(ALL_SLOTS)))

    @contextmanager
    def _read_source(self, piece: SourceWanted, *, waiting: Callable[[], None]) -> Iterator[memoryview]:
        while piece.mount == SLOW and not self.gate.wait(0.5):
            waiting()  # as for a bandwidth of one byte a second
        folder = self.slow_files if piece.mount == SLOW else self.honest_files
        content = (folder / os.fsdecode(piece.path)).read_bytes()
        yield memoryview(content)[piece.offset : piece.offset + piece.length]

    def check_honest(self, turn: int) -> None:
        """Read a file that an agent reads from the source, and files that it has, for the first time."""
        names = [f"source{turn}", f"held{turn}", *(["held-large"] if turn == 1 else [])]
        reads = {name: _begin(lambda name=name: (self.honest / name).read_bytes()) for name in names}  # type: ignore[misc]
        for name, (_, content) in reads.items():
            assert content.result(at_this_load(PATIENCE)) == (self.honest_files / name).read_bytes(), name


@pytest.fixture
def tenants(node: ReaderNode) -> Iterator[Tenants]:
    tenants = Tenants(node)
    node.start()
    tenants.check_honest(0)
    yield tenants
    tenants.gate.set()
    tenants.agent.close()


def _version(folder: Path, node: ReaderNode, sizes: dict[str, int]) -> Version:
    folder.mkdir()
    for name, size in sizes.items():
        (folder / name).write_bytes(os.urandom(size))
    return folder_version(folder, store=node.folder / "manifests", mount=f"/datasets/{folder.name}")


def _begin(work: Callable[[], bytes]) -> tuple[threading.Thread, Future[bytes]]:
    """Do something in a thread that the end of the tests does not wait for."""
    future: Future[bytes] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except OSError as error:
            future.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, future


def _calls(threads: Sequence[threading.Thread]) -> list[str]:
    """The system call in which each thread waits, with its arguments; empty for those that have ended."""
    return [
        Path(f"/proc/self/task/{thread.native_id}/syscall").read_text() if thread.is_alive() else ""
        for thread in threads
    ]


def _all_wait(threads: Sequence[threading.Thread]) -> None:
    """Return when each thread has ended, or waits in the same call as a moment ago."""
    before: list[str] = []

    def wait() -> bool:
        nonlocal before
        last, before = before, _calls(threads)
        return last == before and not any(call.startswith("running") for call in before)

    eventually(wait, deadline=60)


def _read_slowly(tenants: Tenants, count: int) -> dict[str, Future[bytes]]:
    """Reads that wait for the slow source."""
    names = [f"{number:03}" for number in range(count)]
    begun = {name: _begin(lambda name=name: (tenants.slow / name).read_bytes()) for name in names}  # type: ignore[misc]
    _all_wait([thread for thread, _ in begun.values()])
    contents = {name: content for name, (_, content) in begun.items()}
    assert not any(content.done() for content in contents.values())
    return contents


def _ask_ahead(tenants: Tenants) -> bytes:
    """Ask the kernel for places of the slow dataset's large file, and wait for none."""
    file = os.open(tenants.slow / "large", os.O_RDONLY)
    for offset in range(0, LARGE, STEP):
        os.posix_fadvise(file, offset, 4096, os.POSIX_FADV_WILLNEED)
    os.close(file)
    return b""


@pytest.mark.threat("slow-remote-reads")
def test_a_few_reads_of_a_slow_source_have_connections_of_their_own(tenants: Tenants) -> None:
    _read_slowly(tenants, 12)
    tenants.check_honest(1)


@pytest.mark.threat("reads-ahead")
def test_what_one_thread_asks_for_ahead_leaves_the_kernel_room_for_others(tenants: Tenants) -> None:
    """Reads ahead wait for no thread, and the kernel bounds them for all files of a session together."""

    thread, _ = _begin(lambda: _ask_ahead(tenants))
    _all_wait([thread])
    tenants.check_honest(1)


@pytest.mark.threat("reads-ahead")
def test_what_one_program_asks_for_ahead_fails_no_read_of_the_same_dataset(tenants: Tenants) -> None:
    """The kernel takes all of it at once, more than a version may have, and the program then reads what it asked for
    first, or last, or in between, next to others that read other files."""
    reads = []
    for place in (0, ASKED // 2, ASKED - 1):

        def ask(place: int = place) -> bytes:
            _ask_ahead(tenants)
            with (tenants.slow / "large").open("rb", buffering=0) as file:
                file.seek(place * STEP)
                return file.read(4096)

        reads.append(_begin(ask))
    _all_wait([thread for thread, _ in reads])
    slow_reads = _read_slowly(tenants, 30)
    assert not any(content.done() for _, content in reads)
    tenants.check_honest(1)
    tenants.gate.set()
    large = (tenants.slow_files / "large").read_bytes()
    for place, (_, content) in zip((0, ASKED // 2, ASKED - 1), reads, strict=True):
        assert content.result(60) == large[place * STEP :][:4096], place
    for name, content in slow_reads.items():
        assert content.result(60) == (tenants.slow_files / name).read_bytes()


@pytest.mark.threat("slow-remote-reads")
def test_hundreds_of_waiting_reads_leave_places_to_others_and_outlive_the_process_that_serves(
    node: ReaderNode, tenants: Tenants
) -> None:
    slow = _read_slowly(tenants, MANY)
    tenants.check_honest(1)
    before = serving(node)
    os.kill(before, signal.SIGKILL)
    eventually(lambda: serving(node) not in (0, before), deadline=20)
    tenants.check_honest(2)
    tenants.gate.set()
    for name, content in slow.items():
        assert content.result(60) == (tenants.slow_files / name).read_bytes()


@pytest.mark.failure_mode("thousand-threads-wait")
@pytest.mark.threat("slow-remote-reads")
def test_more_threads_than_any_part_of_the_places_wait_for_a_slow_source_and_no_read_fails(
    tenants: Tenants,
) -> None:
    before = threading.stack_size(1 << 17)
    try:
        file = os.open(tenants.slow / "large", os.O_RDONLY)
        waiting = [
            _begin(lambda place=place: os.pread(file, 4096, place * STEP))  # type: ignore[misc]
            for place in range(1100)
        ]
    finally:
        threading.stack_size(before)
    _all_wait([thread for thread, _ in waiting])
    assert not any(content.done() for _, content in waiting)
    tenants.check_honest(1)
    tenants.gate.set()
    large = (tenants.slow_files / "large").read_bytes()
    for place, (_, content) in enumerate(waiting):
        assert content.result(60) == large[place * STEP :][:4096], place
    os.close(file)
