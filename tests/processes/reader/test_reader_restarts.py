"""No reader sees a restart: processes of the remote-read client are killed while threads read and compare."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil
import pytest
from tests.support.dataplane.node import needs_fuse
from tests.support.dataplane.readers import (
    CLUSTER,
    Giver,
    ReaderNode,
    drop_page_cache,
    holder_of,
    small_version,
    table_of,
)
from tests.support.programs.ports import free_ports
from tests.support.report import Measured
from tests.support.waiting import eventually

from tdcs.api import names
from tdcs.node.reader import session
from tdcs.node.reader.registration import write_atomically

pytestmark = needs_fuse

KILLS = 20
THREADS = 8


@dataclass
class Readers:
    """Threads that read files at random and compare checksums."""

    root: Path
    sums: dict[str, str]
    errors: list[str] = field(default_factory=list)
    count: int = 0
    longest: float = 0.0

    def work(self, seed: int, stop: threading.Event) -> None:
        chosen = random.Random(seed)
        names = sorted(self.sums)
        while not stop.is_set():
            name = chosen.choice(names)
            began = time.monotonic()
            try:
                content = (self.root / name).read_bytes()
            except OSError as error:
                self.errors.append(f"{name}: {error}")
                continue
            self.longest = max(self.longest, time.monotonic() - began)
            self.count += 1
            if hashlib.sha256(content).hexdigest() != self.sums[name]:
                self.errors.append(f"{name}: wrong bytes ({len(content)})")


@contextmanager
def reading(root: Path, files: dict[str, bytes]) -> Iterator[Readers]:
    """Readers at work, with a page cache that forgets, so that they ask the file system all the time."""
    readers = Readers(root, {name: hashlib.sha256(content).hexdigest() for name, content in files.items()})
    stop = threading.Event()

    def forget() -> None:
        while not stop.wait(0.2):
            drop_page_cache()

    threads = [threading.Thread(target=readers.work, args=(seed, stop)) for seed in range(THREADS)]
    threads.append(threading.Thread(target=forget))
    for thread in threads:
        thread.start()
    try:
        yield readers
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert not any(thread.is_alive() for thread in threads), "a reader hangs"


@pytest.fixture
def files() -> dict[str, bytes]:
    """Small files and some of several parts."""
    rng = random.Random(1)
    small_files = {f"c{number % 7}/{number:04d}": rng.randbytes(100_000) for number in range(300)}
    return small_files | {f"large{number}": rng.randbytes(3_000_000) for number in range(3)}


@pytest.fixture
def root(node: ReaderNode, files: dict[str, bytes]) -> Iterator[Path]:
    """A started node with these files at a giver."""
    version = small_version(node.folder, files)
    giver = Giver(node.folder, "giver")
    giver.put(version.manifest, node.folder / "source")
    giver.process.start()
    yield node.register(version, tables=table_of(holder_of(giver)))
    giver.process.kill()


def serving(node: ReaderNode) -> int:
    """The process that serves now: the one that has the lock."""
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and fields[5].endswith(f":{node.own.lock.stat().st_ino}"):
            return int(fields[4])
    return 0


@pytest.mark.failure_mode("reader-killed")
def test_a_serving_process_that_is_killed_at_random_moments_is_not_noticed(
    node: ReaderNode, root: Path, files: dict[str, bytes], measured: Measured
) -> None:
    node.start()
    with reading(root, files) as readers:
        for number in range(KILLS):
            time.sleep(random.Random(number).uniform(0.05, 0.4))
            before = serving(node)
            os.kill(before, signal.SIGKILL)
            eventually(lambda before=before: serving(node) not in (0, before), deadline=20)  # type: ignore[misc]
    assert readers.errors == []
    measured(
        f"{KILLS} kills of the reader's serving process under {THREADS} threads: {readers.count} files read and "
        f"compared, longest read {readers.longest:.2f} s"
    )
    assert readers.count > 100
    assert readers.longest < 3


@pytest.mark.failure_mode("reader-killed")
def test_a_reader_that_is_killed_with_all_its_processes_is_not_noticed(
    node: ReaderNode, root: Path, files: dict[str, bytes], measured: Measured
) -> None:
    node.start()
    with reading(root, files) as readers:
        for _ in range(3):
            time.sleep(0.5)
            node.reader.kill()
            node.reader.start()
    assert readers.errors == []
    measured(f"3 kills of the whole reader: {readers.count} files, longest read {readers.longest:.2f} s")
    assert readers.longest < 20


def test_an_agent_that_is_killed_is_missed_by_no_reader(
    node: ReaderNode, files: dict[str, bytes], measured: Measured
) -> None:
    version = small_version(node.folder, files)
    first, second = Giver(node.folder, "first"), Giver(node.folder, "second")
    for giver in (first, second):
        giver.put(version.manifest, node.folder / "source")
        giver.process.start()
    root = node.register(version, tables=table_of(holder_of(first), holder_of(second)))
    node.start()
    with reading(root, files) as readers:
        for giver in (first, second, first):
            count = readers.count
            eventually(lambda count=count: readers.count > count + 100, deadline=30)  # type: ignore[misc]
            giver.process.kill()
            count = readers.count
            eventually(lambda count=count: readers.count > count + 100, deadline=30)  # type: ignore[misc]
            giver.process.start()
    for giver in (first, second):
        giver.process.kill()
    assert readers.errors == []
    measured(f"3 kills of an agent of two: {readers.count} files, longest read {readers.longest:.2f} s")
    assert readers.longest < 10


def test_while_no_reader_runs_the_holders_reserve_serves_and_gives_way_to_the_next_reader(
    node: ReaderNode, root: Path, files: dict[str, bytes], measured: Measured
) -> None:
    node.start()
    eventually(lambda: serving(node) in node.workers(), deadline=20)
    eventually(lambda: psutil.Process(node.holder.pid).children() != [], deadline=20)
    with reading(root, files) as readers:
        time.sleep(0.5)
        node.reader.kill()
        count = readers.count
        eventually(lambda: readers.count > count + 200, deadline=30)
        reserve = psutil.Process(node.holder.pid).children(recursive=True)
        assert serving(node) in [process.pid for process in reserve]
        os.kill(serving(node), signal.SIGKILL)  # the next one goes on
        count = readers.count
        eventually(lambda: readers.count > count + 200, deadline=30)
        node.reader.start()
        eventually(lambda: serving(node) in node.workers(), deadline=20)
        count = readers.count
        eventually(lambda: readers.count > count + 200, deadline=30)
    assert readers.errors == []
    measured(f"reader killed, then the reserve: {readers.count} files, longest read {readers.longest:.2f} s")


def test_the_reserve_serves_nothing_that_it_does_not_understand(
    node: ReaderNode, root: Path, files: dict[str, bytes]
) -> None:
    node.start()
    entry = node.own.registered.read(root.name)
    assert entry is not None
    unknown = msgspec.structs.replace(entry, number=entry.number + 1, manifest=f"{entry.manifest}-none")
    write_atomically(node.own.versions / f"{CLUSTER}.{'0' * 32}", msgspec.json.encode(unknown))
    node.reader.kill()
    name = sorted(files)[0]
    contents: list[bytes] = []
    reading_one = threading.Thread(target=lambda: contents.append((root / name).read_bytes()))
    reading_one.start()
    reading_one.join(3)
    assert reading_one.is_alive()  # it waits for a reader, as it would without a reserve

    node.reader.start()
    reading_one.join(30)
    assert contents == [files[name]]


def test_a_reader_that_is_stopped_politely_and_followed_by_another_is_not_noticed(
    node: ReaderNode, root: Path, files: dict[str, bytes], measured: Measured
) -> None:
    node.start()
    with reading(root, files) as readers:
        for _ in range(2):
            time.sleep(0.5)
            os.kill(node.reader.pid, signal.SIGTERM)
            eventually(lambda: not node.reader.alive, deadline=20)
            node.reader.kill()
            node.reader.start()
    assert readers.errors == []
    measured(f"2 polite ends of the reader: {readers.count} files, longest read {readers.longest:.2f} s")


@pytest.mark.parametrize("alongside", [False, True], ids=["after the old one", "next to the old one"])
def test_an_upgrade_of_the_reader_in_the_middle_of_an_epoch_is_not_noticed(
    node: ReaderNode, root: Path, files: dict[str, bytes], measured: Measured, alongside: bool
) -> None:
    """As a DaemonSet does it, with or without a surge; the holder's DaemonSet is left alone."""
    node.start()
    holder = node.holder.pid
    with reading(root, files) as readers:
        old = node.reader
        for _ in range(2):
            time.sleep(0.5)
            node.reader = node.make_reader()
            if alongside:
                health, metrics = free_ports(2)
                node.reader = node.make_reader(f"--health-port={health}", f"--metrics-port={metrics}")
                node.reader.launch()
                eventually(lambda: len(node.workers()) == 3, deadline=30)  # it stands by
            os.kill(old.pid, signal.SIGTERM)
            eventually(lambda old=old: not old.alive, deadline=20)  # type: ignore[misc]
            old.kill()
            if not alongside:
                count = readers.count
                eventually(lambda count=count: readers.count > count + 100, deadline=30)  # type: ignore[misc]
                node.reader.start()
            eventually(lambda: serving(node) in node.workers(), deadline=30)
            count = readers.count
            eventually(lambda count=count: readers.count > count + 100, deadline=30)  # type: ignore[misc]
            old = node.reader
    assert readers.errors == []
    assert node.holder.pid == holder
    measured(
        f"2 upgrades of the reader, the next one started {'alongside' if alongside else 'after'} the old one: "
        f"{readers.count} files, longest read {readers.longest:.2f} s"
    )
    assert readers.longest < 5


def test_a_serving_process_that_may_have_no_more_memory_is_not_noticed(
    node: ReaderNode, root: Path, files: dict[str, bytes]
) -> None:
    node.start()
    with reading(root, files) as readers:
        limited = 0
        for _ in range(3):
            eventually(lambda before=limited: serving(node) in {*node.workers()} - {before}, deadline=20)  # type: ignore[misc]
            count, limited = readers.count, serving(node)
            eventually(lambda count=count: readers.count > count + 50, deadline=30)  # type: ignore[misc]
            used = psutil.Process(limited).memory_info().vms
            user = names.READER_USER  # nobody else may, without a capability that root has not everywhere
            command = ["prlimit", f"--pid={limited}", f"--as={used}:{used}"]
            subprocess.run(command, check=True, user=user, group=user, extra_groups=[])
            drop_page_cache()
            count = readers.count
            eventually(lambda count=count: readers.count > count + 300, deadline=60)  # type: ignore[misc]
            with suppress(ProcessLookupError):  # it may have got along with what it had
                os.kill(limited, signal.SIGKILL)
    assert readers.errors == []


def test_a_process_that_hangs_is_killed_and_replaced(
    node: ReaderNode, root: Path, files: dict[str, bytes]
) -> None:
    node.start()
    with reading(root, files) as readers:
        time.sleep(0.5)
        before = serving(node)
        os.kill(before, signal.SIGSTOP)
        eventually(lambda: serving(node) not in (0, before), deadline=30)
        count = readers.count
        eventually(lambda: readers.count > count + 50, deadline=30)
    assert readers.errors == []


@pytest.mark.failure_mode("reader-killed")
def test_a_holder_that_was_killed_gets_the_session_back(
    node: ReaderNode, root: Path, files: dict[str, bytes]
) -> None:
    node.start()
    with reading(root, files) as readers:
        node.holder.kill()
        node.holder.launch()
        eventually(lambda: "gave the session" in node.holder.tail(lines=20), deadline=30)
        node.reader.kill()  # the next one has it from the new holder
        node.reader.start()
        count = readers.count
        eventually(lambda: readers.count > count + 50, deadline=30)
    assert readers.errors == []


def test_a_holder_that_is_ended_leaves_the_session_to_the_reader_and_the_next_one_gets_it(
    node: ReaderNode, root: Path, files: dict[str, bytes]
) -> None:
    node.start()
    with reading(root, files) as readers:
        os.kill(node.holder.pid, signal.SIGTERM)
        eventually(lambda: not node.holder.alive, deadline=20)
        node.holder.kill()
        assert session.is_mounted(point=str(node.own.point))
        count = readers.count
        eventually(lambda: readers.count > count + 50, deadline=30)
        node.holder.launch()
        eventually(lambda: "gave the session" in node.holder.tail(lines=20), deadline=30)
    assert readers.errors == []


def test_when_holder_and_reader_are_ended_together_nothing_dead_stays_mounted(
    node: ReaderNode, root: Path, files: dict[str, bytes]
) -> None:
    node.start()
    name = sorted(files)[0]
    assert (root / name).read_bytes() == files[name]
    for process in (node.holder, node.reader):
        os.kill(process.pid, signal.SIGTERM)
    eventually(lambda: not node.holder.alive and not node.reader.alive, deadline=20)
    assert not session.is_mounted(point=str(node.own.point))


def test_without_holder_and_reader_the_file_system_is_mounted_again(
    node: ReaderNode, root: Path, files: dict[str, bytes]
) -> None:
    node.start()
    name = sorted(files)[0]
    assert (root / name).read_bytes() == files[name]
    node.reader.kill()
    node.holder.kill()
    with suppress(OSError):
        root.stat()
    node.holder.launch()
    node.reader.launch()
    eventually(node.serves, deadline=60)
    eventually(lambda: session.is_mounted(point=str(node.own.point)), deadline=60)
    assert (root / name).read_bytes() == files[name]
