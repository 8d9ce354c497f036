"""What is on the node's own disks: wrong copies, and disks that do not answer."""

from __future__ import annotations

import mmap
import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil
import pytest
from tests.support.dataplane.agents import Version, folder_version, put_part
from tests.support.dataplane.hung_disk import hung_disk
from tests.support.dataplane.node import needs_fuse
from tests.support.dataplane.readers import (
    HERE,
    Giver,
    ReaderNode,
    drop_page_cache,
    holder_of,
    small_version,
    table_of,
)
from tests.support.waiting import at_this_load, eventually
from tests.unit.node.csi.views.builders import admit_block, refuse_block

from tdcs.model.file_blocks import Cut
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.reader.registration import write_atomically

pytestmark = needs_fuse

SMALL, LARGE = os.urandom(20_000), os.urandom(3 << 20)
WRONG = {"small": b"!" * len(SMALL), "large": LARGE[: 1 << 20] + b"!" * (1 << 20) + LARGE[2 << 20 :]}
RIGHT = {"small": SMALL, "large": LARGE}


class WrongCopies:
    """A node with wrong copies of two files, which another node has right."""

    def __init__(self, node: ReaderNode) -> None:
        self.node = node
        self.version = small_version(node.folder, RIGHT)
        self.giver = Giver(node.folder, "giver")
        self.giver.put(self.version.manifest, node.folder / "source")
        self.giver.process.start()
        for name, content in WRONG.items():
            self.copy(name).write_bytes(content)
        self.root = node.register(self.version, tables=table_of(holder_of(self.giver), HERE))
        node.start()

    def block(self, name: str) -> int:
        manifest = self.version.manifest
        file = manifest.file_at(name.encode())
        assert file is not None
        return int(manifest.block_ids[manifest.blocks_of(file).start])

    def copy(self, name: str) -> Path:
        return self.node.tier / "agent/spool" / str(self.block(name))

    def refuse(self, name: str) -> None:
        """What the agent does that has found it wrong; the copy itself may stay for a while."""
        refuse_block(self.node.tier, self.block(name), mount=self.version.manifest.path)

    def admit(self, name: str) -> None:
        admit_block(self.node.tier, self.block(name), mount=self.version.manifest.path)

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()


@pytest.fixture
def wrong(node: ReaderNode) -> WrongCopies:
    return WrongCopies(node)


@pytest.mark.parametrize("name", ["small", "large"])
@pytest.mark.failure_mode("wrong-copy-read-through-client")
def test_bytes_that_were_found_wrong_are_not_served_from_the_kernels_memory(
    wrong: WrongCopies, name: str
) -> None:
    assert wrong.read(name) == WRONG[name]
    with (wrong.root / name).open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)
        assert bytes(mapped) == WRONG[name]
        wrong.refuse(name)
        eventually(lambda: wrong.read(name) == RIGHT[name], deadline=10)
        assert bytes(mapped) == RIGHT[name], "nor under a program that has mapped it"
        assert opened.read() == RIGHT[name]
    wrong.giver.process.kill()


@pytest.mark.failure_mode("wrong-copy-read-through-client")
def test_a_refusal_that_is_taken_back_at_once_is_not_missed(wrong: WrongCopies) -> None:
    for name in WRONG:
        assert wrong.read(name) == WRONG[name]
    wrong.refuse("small")  # from now on the folder is there
    eventually(lambda: wrong.read("small") == SMALL, deadline=10)
    wrong.refuse("large")
    wrong.copy("large").unlink()
    wrong.admit("large")
    eventually(lambda: wrong.read("large") == LARGE, deadline=10)
    wrong.giver.process.kill()


@pytest.mark.failure_mode("wrong-copy-read-through-client")
def test_what_was_found_wrong_while_no_reader_ran_is_not_served_by_the_next_one(wrong: WrongCopies) -> None:
    assert wrong.read("small") == WRONG["small"]
    wrong.node.reader.kill()
    wrong.refuse("small")
    wrong.node.reader.start()
    eventually(lambda: wrong.read("small") == SMALL, deadline=10)
    wrong.giver.process.kill()


KILLS = 3


def living(node: ReaderNode) -> list[int]:
    """Processes of the reader, without its first one and those of which only threads are left that wait for a disk."""
    return [pid for pid in node.workers() if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


def _read_in_background(path: Path) -> list[bytes]:
    contents: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # what is nowhere but on the disk that hangs
            contents.append(path.read_bytes())

    threading.Thread(target=read, daemon=True).start()
    return contents


@pytest.mark.failure_mode("disk-hangs-under-reader")
def test_a_disk_that_does_not_answer_keeps_no_read_waiting_of_what_is_elsewhere(node: ReaderNode) -> None:
    files = {f"{number}": os.urandom(50_000) for number in range(20)}
    far_version = small_version(node.folder / "other", files)
    both_places = small_version(node.folder / "both", {"here and there": SMALL})
    only = small_version(node.folder / "only", {"here": SMALL})
    givers = {name: Giver(node.folder, f"giver-{name}") for name in ("other", "both")}
    for version, name in ((far_version, "other"), (both_places, "both")):
        givers[name].put(version.manifest, node.folder / name / "source")
        givers[name].process.start()

    def on(tier: Path, version: Version, giver: str) -> Path:
        before, node.tier = node.tier, tier
        root = node.register(version, tables=table_of(holder_of(givers[giver]), HERE))
        node.tier = before
        return root

    point = node.folder / "hung"
    with hung_disk(point):
        root = on(node.tier, far_version, "other")
        hung = [on(point, both_places, "both") / "here and there", on(point, only, "other") / "here"]
        node.start()
        begun = [_read_in_background(path) for path in hung]
        longest = 0.0
        for name, content in files.items():
            began = time.monotonic()
            assert (root / name).read_bytes() == content
            longest = max(longest, time.monotonic() - began)
        assert longest < at_this_load(1)
        eventually(lambda: begun[0] == [SMALL], deadline=10)
        assert node.serves()

        # Threads that wait for the disk keep the process that is killed, and its lock.
        for number in range(KILLS):
            drop_page_cache()
            for process in random.Random(number).sample(living(node), 2):
                os.kill(process, signal.SIGKILL)
            began = time.monotonic()
            for name, content in files.items():
                assert (root / name).read_bytes() == content
            assert time.monotonic() - began < at_this_load(1.5), number
        eventually(node.serves, deadline=20)
        node.reader.kill()  # the reserve serves, in the same way
        drop_page_cache()
        for name, content in files.items():
            assert (root / name).read_bytes() == content
    assert "does not answer" in node.reader.tail(lines=50)
    for giver in givers.values():
        giver.process.kill()


@pytest.mark.failure_mode("disk-hangs-under-reader")
def test_a_version_whose_manifest_a_disk_does_not_give_keeps_no_other_waiting(node: ReaderNode) -> None:
    files = {f"{number}": os.urandom(5_000) for number in range(5)}
    version = small_version(node.folder / "other", files)
    hung = small_version(node.folder / "hung", {"never": SMALL})
    giver = Giver(node.folder, "giver")
    giver.put(version.manifest, node.folder / "other/source")
    giver.process.start()
    root, unknown = (
        node.register(registered, tables=table_of(holder_of(giver))) for registered in (version, hung)
    )
    point = node.folder / "disk"
    registration = node.own.registered.read(unknown.name)
    assert registration is not None
    on_disk = msgspec.structs.replace(registration, manifest=str(point / "manifest"), tiers=(str(point),))
    write_atomically(node.own.versions / unknown.name, msgspec.json.encode(on_disk))
    with hung_disk(point):
        node.start()
        begun = _read_in_background(unknown / "never")
        for name, content in files.items():
            assert (root / name).read_bytes() == content
        for process in living(node):
            os.kill(process, signal.SIGKILL)
        drop_page_cache()
        for name, content in files.items():
            assert (root / name).read_bytes() == content
        assert not begun
    giver.process.kill()


def test_parts_of_a_large_file_that_are_here_are_read_here_and_the_rest_elsewhere(node: ReaderNode) -> None:
    extent, content = 1 << 20, random.Random(5).randbytes((9 << 20) + 5)
    source = node.folder / "source"
    source.mkdir()
    (source / "large").write_bytes(content)
    version = folder_version(source, store=node.folder / "manifests", cut=Cut(extent, extent))
    giver, disk, manifest = Giver(node.folder, "giver"), Disk(node.tier), version.manifest
    disk.prepare()
    local_blocks = {0, 1, 4, 9}
    giver.put(manifest, source)
    for block in range(manifest.blocks):
        part = content[block * extent : (block + 1) * extent]
        if block in local_blocks:
            put_part(disk, manifest, block, part)
            (giver.tier / "agent/spool" / str(manifest.block_ids[block])).unlink()
    giver.process.start()
    root = node.register(version, tables=table_of(holder_of(giver), HERE))
    node.start()
    assert (root / "large").read_bytes() == content
    local = sum(len(content[block * extent : (block + 1) * extent]) for block in local_blocks)
    assert node.metric("tdcs_reader_read_bytes_total", origin="disk") >= local
    # What goes is read elsewhere, and never as zeros.
    giver.put(manifest, source)
    for block in (1, 4):
        disk.unspool(int(manifest.block_ids[block]))
    drop_page_cache()
    assert (root / "large").read_bytes() == content
    assert node.metric("tdcs_reader_errors_total") == 0
