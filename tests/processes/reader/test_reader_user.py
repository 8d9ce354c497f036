"""The reader, and what serves in its place, run as a user that is not root and has no capabilities."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import psutil
import pytest
from tests.support.dataplane.node import needs_fuse
from tests.support.dataplane.readers import Giver, ReaderNode, shown_from_elsewhere, small_version
from tests.support.waiting import eventually

from tdcs.api import names

pytestmark = needs_fuse

NO_CAPABILITIES = "0" * 16


def status_of(pid: int) -> dict[str, str]:
    """What the kernel says of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def assert_unprivileged(pid: int) -> None:
    """Whether a process is no more than the reader's user."""
    status = status_of(pid)
    assert status["Uid"].split() == status["Gid"].split() == [str(names.READER_USER)] * 4
    assert status["Groups"].split() == [str(names.READER_USER), str(names.CACHE_USER)]
    assert [status[f"Cap{name}"] for name in ("Prm", "Eff", "Amb")] == [NO_CAPABILITIES] * 3
    assert status["NoNewPrivs"] == "1"


def descendants(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


@pytest.mark.threat("reader-taken", "stand-in-taken", "holder-taken")
def test_nothing_that_hears_from_other_nodes_is_root_and_no_read_misses_it(node: ReaderNode) -> None:
    files = {str(number): os.urandom(60_000) for number in range(4)}
    giver, root = shown_from_elsewhere(node, files)
    node.start()
    assert (root / "0").read_bytes() == files["0"]
    processes = [node.reader.pid, *descendants(node.reader.pid)]
    assert len(processes) == 4
    reserve = descendants(node.holder.pid)
    assert reserve
    for pid in (*processes, *reserve):
        assert_unprivileged(pid)
    assert status_of(node.holder.pid)["Uid"].split()[0] == "0"

    node.reader.kill()  # the holder's reserve serves
    assert (root / "1").read_bytes() == files["1"]
    for pid in descendants(node.holder.pid):
        assert_unprivileged(pid)
    node.holder.kill()
    eventually(lambda: not any(map(psutil.pid_exists, reserve)), deadline=10)  # it ends with the holder
    giver.process.kill()


def test_the_reader_reads_blocks_that_the_cache_keeps_for_its_own_group(node: ReaderNode) -> None:
    content = os.urandom(60_000)
    version = small_version(node.folder, {"here": content})
    giver = Giver(node.folder, "own")
    giver.put(version.manifest, node.folder / "source")
    blocks = node.tier / "agent/spool"
    for block in (giver.tier / "agent/spool").iterdir():
        block.rename(blocks / block.name)
    os.chown(blocks, names.CACHE_USER, names.CACHE_USER)
    blocks.chmod(0o750)
    root = node.register(version)
    node.start()
    assert (root / "here").read_bytes() == content
    assert node.metric("tdcs_reader_reads_total", origin="disk") >= 1


@pytest.mark.threat("reader-taken")
def test_of_its_folder_the_reader_owns_what_it_writes_and_can_exchange_nothing_else(node: ReaderNode) -> None:
    node.start()
    theirs = {path.name for path in node.own.root.iterdir() if path.lstat().st_uid == names.READER_USER}
    assert theirs == {"failures", "holders", "keepers", "pod-waits", "readers", "serving"}
    for roots in (node.own.root, node.own.versions):
        status = roots.stat()
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, 0o755)
    socket = node.own.socket.stat()
    assert (socket.st_uid, socket.st_gid, stat.S_IMODE(socket.st_mode)) == (0, names.READER_USER, 0o660)
