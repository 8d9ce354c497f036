"""Looks of an agent with many mounts: what each has is found, and looked up in manifests once."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tdcs.model.block_identity import identity_of, mount_key
from tdcs.model.manifest import Manifest
from tdcs.model.manifest_builder import ManifestBuilder
from tdcs.node.agent.blocks.inventory import Inventory
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.refused_blocks import RefusedBlocks
from tdcs.node.agent.disk.tier import Place
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.file_facts import FACTS, Facts

Ids = npt.NDArray[np.int64]
MOUNTS, EACH = 40, 50


def manifest_of(path: str, files: Iterable[int]) -> Manifest:
    """Files of one block each, with these numbers."""
    builder = ManifestBuilder(path=path, source="s3://b")
    builder.add_listed((f"f{number:04}".encode(), 100, b'"x"') for number in files)
    return builder.manifest()


class Disk:
    """Folders with these ids; each file says that it is a block of a manifest, or another one of that mount."""

    def __init__(self, manifests: list[Manifest], *, others: set[int]) -> None:
        self.in_spool: set[int] = set()
        self.refused = RefusedBlocks(Path("/nowhere"))
        self._facts = {
            int(identity): (3, 0, *_words(of.mount), *_words(of.file), of.offset, 100, 0)
            for manifest in manifests
            for number, identity in enumerate(manifest.block_ids)
            for of in (identity_of(manifest, number),)
        }
        first = mount_key(manifests[0].path)
        self._facts |= {
            identity: (3, 0, *_words(first), identity, identity, 0, 100, 0) for identity in others
        }

    def ids_at(self, place: Place) -> Ids:
        return np.array(sorted(self.in_spool if place is Place.SPOOL else ()), dtype=np.int64)

    def facts_at(self, place: Place, ids: list[int]) -> Facts:
        return np.frombuffer(
            b"".join(struct.pack("<II7Q", *self._facts[block_id]) for block_id in ids), dtype=FACTS
        )

    def changed_at(self) -> tuple[int, ...]:
        return (1, 1)

    def believe_nothing(self) -> None:
        """Nobody asks."""

    def look(self) -> None:
        """Nothing is named meanwhile."""

    def believe(self, *, all_but: set[int]) -> None:
        """Nobody asks."""


def _words(text: bytes) -> tuple[int, ...]:
    return struct.unpack("<QQ", text)


def test_what_appears_and_goes_in_many_mounts_is_known_and_looked_up_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(3)
    lock, room = threading.RLock(), Room(capacity=1 << 50, free=lambda: 1 << 50)
    works = [MountWork(path=f"/datasets/{place}", lock=lock, room=room) for place in range(MOUNTS)]
    manifests = [manifest_of(work.path, range(EACH)) for work in works]
    for work, manifest in zip(works, manifests, strict=True):
        work.opened(Ledger(manifest))
    ids: list[list[int]] = [manifest.block_ids.tolist() for manifest in manifests]
    strangers = set(rng.sample(range(1 << 50), 30))
    disk = Disk(manifests, others=strangers)
    inventory = Inventory(disk=disk, room=room, lock=lock)  # type: ignore[arg-type]
    lookups = list[int]()
    among = Manifest.blocks_among

    def counted(manifest: Manifest, block_ids: Ids) -> tuple[Ids, Ids]:
        lookups.append(len(block_ids))
        return among(manifest, block_ids)

    monkeypatch.setattr(Manifest, "blocks_among", counted)
    for _ in range(6):
        disk.in_spool = {identity for mine in ids for identity in mine if rng.random() < 0.5} | strangers
        inventory.look(works)
        for work, mine in zip(works, ids, strict=True):
            present = set(mine) & disk.in_spool
            assert work.ledger is not None
            manifest = work.ledger.manifest
            assert set(manifest.block_ids[work.ledger.right_blocks()].tolist()) == present
        assert set(inventory.strangers["name"].tolist()) == strangers
        assert room.used == 100 * len(disk.in_spool)
    lookups.clear()
    inventory.look(works)
    assert set(lookups) <= {0}, "nothing is looked up again"
    newer = manifest_of(works[0].path, range(10, EACH))
    works[0].opened(Ledger(newer))
    inventory.look(works)
    assert works[0].ledger is not None
    blocks = set(newer.block_ids[works[0].ledger.right_blocks()].tolist())
    assert blocks == set(ids[0]) & set(newer.block_ids.tolist()) & disk.in_spool
    assert 0 < len(blocks) < EACH - 10


@pytest.mark.parametrize(("blocks", "asked"), [(1, 3), (100, 1), (100, 5), (100, 90), (100, 2_000), (5, 0)])
def test_ids_are_found_whichever_side_has_more_of_them(blocks: int, asked: int) -> None:
    rng = random.Random(blocks * asked)
    manifest = manifest_of("/m", range(blocks))
    mine = rng.sample(manifest.block_ids.tolist(), min(asked // 2, blocks))
    strangers = rng.sample(range(1 << 62), asked - len(mine))
    ids = np.array(sorted([*mine, *strangers]), dtype=np.int64)
    places, numbers = manifest.blocks_among(ids)
    expected = manifest.blocks_at(ids)
    positions = np.full(len(ids), -1)
    positions[places] = numbers
    assert positions.tolist() == expected.tolist()
    assert len(places) == len(mine)


def test_a_ledger_that_is_replaced_during_a_look_gets_what_the_folders_have() -> None:
    lock, room = threading.RLock(), Room(capacity=1 << 50, free=lambda: 1 << 50)
    work = MountWork(path="/m", lock=lock, room=room)
    work.opened(Ledger(manifest_of("/m", [1, 2, 3])))
    newer = manifest_of("/m", [0, 1, 2, 3])
    disk = Disk([newer], others=set())
    inventory = Inventory(disk=disk, room=room, lock=lock)  # type: ignore[arg-type]
    _, first, _, last = newer.block_ids.tolist()
    disk.in_spool = {first, last}
    inventory.look([work])
    late = SimpleNamespace(done=False)
    look_up = inventory._look_up

    def replaced(*arguments: Any) -> None:
        look_up(*arguments)
        if not late.done:
            late.done = True
            work.opened(Ledger(newer))

    inventory._look_up = replaced  # type: ignore[method-assign, assignment]
    inventory.look([work])
    assert late.done
    inventory.look([work])
    assert work.ledger is not None
    assert work.ledger.looked_at
    assert newer.block_ids[work.ledger.right_blocks()].tolist() == [first, last]
