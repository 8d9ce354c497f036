"""A disk under load: blocks come from a source, a peer and reads, large files are filled extent by extent, blocks are
dropped and come again, while others sync."""

from __future__ import annotations

import ctypes
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from tests.support.dataplane.agents import Version, block_of, fill, folder_version
from tests.support.waiting import eventually

from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS, Peer
from tdcs.model.block_identity import identity_of
from tdcs.model.file_blocks import Cut
from tdcs.node.agent.block_service import BlockService
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.partial_file import BusyError
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.agent.mount.transfer_limits import InFlight
from tdcs.node.agent.transfer.peer_puller import PeerPuller
from tdcs.node.agent.transfer.read_fills import ReadFills
from tdcs.node.agent.transfer.source_puller import IN_FLIGHT_BYTES, PIECE_BYTES, SourcePuller
from tdcs.node.extents import extent_place
from tdcs.node.wire.frames import PART_BYTES, News, SourceWanted

LANES = 6
LOADED, GIVEN, READ = "/datasets/loaded", "/datasets/given", "/datasets/read"
LARGE = "/datasets/large"
EXTENT = 1 << 16
"""Bytes of an extent of the large files: each is filled by some ten writes of the disk."""


@dataclass(frozen=True)
class Sources:
    """What is loaded from a source, from a peer and by reads, and files of several extents: versions of four mounts,
    and their blocks by id."""

    loaded: Version
    given: Version
    read: Version
    large: Version
    blocks: Mapping[int, bytes]


def sources(work: Path, *, seed: int) -> Sources:
    """Small files and a few that are read in several pieces."""
    rng = random.Random(seed)
    loaded = {f"small/{number:03}": rng.randbytes(rng.randrange(1, 40_000)) for number in range(150)}
    loaded |= {
        f"large/{number}": rng.randbytes(PIECE_BYTES + rng.randrange(PIECE_BYTES)) for number in range(2)
    }
    read = {f"read/{number}": rng.randbytes(3 * PART_BYTES + number) for number in range(3)}
    read |= {f"tiny/{number}": rng.randbytes(3000 + number) for number in range(40)}
    given_files = {f"given/{number:03}": rng.randbytes(rng.randrange(1, 20_000)) for number in range(100)}
    versions, blocks = [], dict[int, bytes]()
    for place, (mount, files) in enumerate(((LOADED, loaded), (GIVEN, given_files), (READ, read))):
        folder = fill(work / f"source-{place}", files)
        version = folder_version(folder, store=work / "manifests", mount=mount)
        versions.append(version)
        blocks |= {block_of(version.manifest, name): content for name, content in files.items()}
    large = {f"large/{number}": rng.randbytes((3 + number) * EXTENT + 100 * number) for number in range(4)}
    folder = fill(work / "source-large", large)
    cut = folder_version(folder, store=work / "manifests", mount=LARGE, cut=Cut(EXTENT, EXTENT))
    for number, block in enumerate(cut.manifest.block_ids.tolist()):
        begin, path = cut.manifest.offset(number), cut.manifest.file_path(cut.manifest.file_of(number))
        blocks[block] = large[path.decode()][begin : begin + EXTENT]
    return Sources(loaded=versions[0], given=versions[1], read=versions[2], large=cut, blocks=blocks)


@contextmanager
def giver(work: Path, found: Sources) -> Iterator[Peer]:
    """Another agent's block service, which has the blocks that a peer gives."""
    disk = Disk(work / "giver")
    disk.prepare()
    ids = [int(block_id) for block_id in found.given.manifest.block_ids]
    for block in ids:
        (disk.spool / str(block)).write_bytes(found.blocks[block])
    service = BlockService(disk=disk, feed=lambda *_: News(1, len(ids), ids))
    try:
        yield Peer(
            node="giver", address=f"127.0.0.1:{service.start(host='127.0.0.1', port=0)}", slots=ALL_SLOTS
        )
    finally:
        service.close()


class Load:
    """Loads onto a disk, reads, and drops, in threads, for as long as the body of `with` runs."""

    def __init__(self, disk: Disk, found: Sources, *, peer: Peer, seed: int) -> None:
        self._disk = disk
        self._rng = random.Random(seed)
        self._stopped = threading.Event()
        self._room = Room(capacity=1 << 30, free=disk.free_bytes)
        self._lock = threading.RLock()
        self._loaded = self._mount(found.loaded)
        self._peer = peer
        self._given = self._mount(found.given, origin=NO_SLOTS, peers=(peer,))
        self._read = self._mount(found.read, origin=NO_SLOTS, parts=(), fill_bytes=1 << 30)
        self._blocks = found.blocks
        self._large = found.large.manifest
        self._fills = ReadFills(disk=disk, room=self._room)
        self._puller = SourcePuller(
            disk=disk, room=self._room, stopped=self._stopped, in_flight=InFlight(IN_FLIGHT_BYTES)
        )
        self._peers = PeerPuller(disk=disk, room=self._room, stopped=self._stopped, answer_seconds=5)
        work = [self._pull] * LANES + [
            self._pull_given,
            self._read_parts,
            self._read_parts,
            self._drop,
            self._write_extents,
            self._write_extents,
            self._drop_extents,
            self._sync,
        ]
        self._threads = [threading.Thread(target=target, daemon=True) for target in work]
        self.dropped = {LOADED: 0, GIVEN: 0, READ: 0, LARGE: 0}

    def run(self, *, seconds: float, drops: int) -> None:
        """For so long, and until so many blocks of each kind were dropped; what was begun is then ended."""
        for thread in self._threads:
            thread.start()
        time.sleep(seconds)
        with suppress(AssertionError):  # whoever looks at `dropped` says what it was
            eventually(lambda: min(self.dropped.values()) >= drops, deadline=60)
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _mount(self, version: Version, **assignment: Any) -> MountWork:
        mount = MountWork(path=version.manifest.path, lock=self._lock, room=self._room)
        ledger = Ledger(version.manifest)
        ledger.observe(np.arange(0))
        mount.opened(ledger)
        mount.assign(version.assignment(**assignment))
        return mount

    def _pull(self) -> None:
        while not self._stopped.is_set():
            self._puller.run(self._loaded)
            self._stopped.wait(0.01)

    def _pull_given(self) -> None:
        while not self._stopped.is_set():
            self._peers.run(self._given, self._peer)
            self._stopped.wait(0.01)

    def _read_parts(self) -> None:
        """Reads the files' parts in any order, the first part last: it is then the last that is written."""
        ledger = self._read.ledger
        assert ledger is not None
        manifest, rng = ledger.manifest, random.Random(self._rng.random())
        while not self._stopped.is_set():
            file = rng.randrange(len(manifest))
            (number,) = manifest.blocks_of(file)
            block = int(manifest.block_ids[number])
            content = memoryview(self._blocks[block])
            for offset in reversed(range(0, len(content), PART_BYTES)):
                piece = content[offset : offset + PART_BYTES]
                read = SourceWanted(
                    mount=READ,
                    block=block,
                    path=manifest.file_path(file),
                    offset=offset,
                    length=len(piece),
                    size=len(content),
                    tag=manifest.tag(file),
                )
                self._fills.keep(self._read, read, piece)
                self._stopped.wait(rng.random() * 0.01)

    def _drop(self) -> None:
        """Drops a block now and then, so that the disk gives its places to others."""
        while not self._stopped.wait(0.002):
            mount = self._rng.choice((self._loaded, self._given, self._read))
            ledger = mount.ledger
            assert ledger is not None
            with self._lock:
                held = [block for block in ledger.right_blocks().tolist() if not ledger.in_work(block)]
                claimed = ledger.claim([self._rng.choice(held)]) if held else []
            for number in claimed:
                self._disk.unspool(int(ledger.manifest.block_ids[number]))
                mount.dropped(ledger, number)
                self.dropped[mount.path] += 1

    def _write_extents(self) -> None:
        """Fills large files, extent by extent in any order."""
        rng = random.Random(self._rng.random())
        while not self._stopped.wait(rng.random() * 0.01):
            number = rng.randrange(self._large.blocks)
            block = int(self._large.block_ids[number])
            if block in self._disk.large:
                continue
            content = self._blocks[block]
            with (
                suppress(BusyError),  # the other one writes it, or its file is being copied
                self._disk.create(block, place=extent_place(self._large, number)) as partial,
            ):
                half = len(content) // 2
                partial.write(memoryview(content[half:]), offset=half)
                partial.write(memoryview(content[:half]), offset=0)
                self._disk.keep(
                    partial,
                    block=block,
                    identity=identity_of(self._large, number),
                    length=len(content),
                    content_hash=xxhash.xxh3_64_intdigest(content),
                )

    def _drop_extents(self) -> None:
        """Drops an extent now and then, more often of files that are whole: what is left of these is copied."""
        rng = random.Random(self._rng.random())
        while not self._stopped.wait(rng.random() * 0.05):
            file = rng.randrange(len(self._large))
            held = [
                block
                for block in self._large.block_ids[self._large.blocks_of(file)].tolist()
                if block in self._disk.large
            ]
            whole = len(held) == len(self._large.blocks_of(file))
            if held and (whole or rng.random() < 0.1):
                self.dropped[LARGE] += self._disk.large.drop(rng.choice(held))

    def _sync(self) -> None:
        """As the kernel does with what is old, and other programs of the node with all that there is."""
        libc = ctypes.CDLL(None, use_errno=True)
        folder = os.open(self._disk.tier, os.O_RDONLY)
        try:
            while not self._stopped.wait(self._rng.random() * 0.3):
                libc.syncfs(folder)
        finally:
            os.close(folder)
