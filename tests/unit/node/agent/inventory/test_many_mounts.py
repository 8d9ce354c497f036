"""Looks of an agent with many mounts: what each has is found, and looked up in manifests once."""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import pytest

from tdcs.model.cache_engine import Block, CachedFile
from tdcs.model.manifest import Manifest
from tdcs.model.manifest_builder import ManifestBuilder
from tdcs.node.agent.blocks.inventory import Inventory
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork

Ids = npt.NDArray[np.int64]
MOUNTS, EACH = 40, 50


def manifest_of(path: str, ids: list[int]) -> Manifest:
    """Files of one block each, with these ids."""
    builder = ManifestBuilder(path=path, source="s3://b")
    builder.add(
        CachedFile(
            path=f"f{number:05}",
            length=100,
            tag='"x"',
            blocks=(Block(id=identity, length=100, offset=0, source_path="", mount_id=1),),
        )
        for number, identity in enumerate(ids)
    )
    return builder.manifest()


class Disk:
    """Folders with these ids."""

    def __init__(self) -> None:
        self.in_spool: set[int] = set()
        self.in_worker: set[int] = set()

    def spooled(self) -> Ids:
        return np.array(sorted(self.in_spool), dtype=np.int64)

    def registered_ids(self) -> Ids:
        return np.array(sorted(self.in_worker), dtype=np.int64)

    def size(self, identity: int) -> int:
        return 100

    def changed_at(self) -> tuple[int, int]:
        return (1, 1)


def test_what_appears_and_goes_in_many_mounts_is_known_and_looked_up_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(3)
    numbers = rng.sample(range(1 << 50), MOUNTS * EACH + 30)
    ids = [numbers[place * EACH : (place + 1) * EACH] for place in range(MOUNTS)]
    lock, room, disk = threading.RLock(), Room(capacity=1 << 50, free=lambda: 1 << 50), Disk()
    works = [MountWork(path=f"/datasets/{place}", lock=lock, room=room) for place in range(MOUNTS)]
    for work, mine in zip(works, ids, strict=True):
        work.opened(Ledger(manifest_of(work.path, mine)))
    inventory = Inventory(disk=disk, room=room, lock=lock)  # type: ignore[arg-type]
    asked = list[int]()
    among = Manifest.blocks_among

    def counted(manifest: Manifest, block_ids: Ids) -> tuple[Ids, Ids]:
        asked.append(len(block_ids))
        return among(manifest, block_ids)

    monkeypatch.setattr(Manifest, "blocks_among", counted)
    strangers = set(numbers[-30:])
    for _ in range(6):
        disk.in_spool = {identity for mine in ids for identity in mine if rng.random() < 0.3} | strangers
        disk.in_worker = {identity for mine in ids for identity in mine if rng.random() < 0.3}
        inventory.look(works)
        for work, mine in zip(works, ids, strict=True):
            here = set(mine) & (disk.in_spool | disk.in_worker)
            assert work.ledger is not None
            manifest = work.ledger.manifest
            assert set(manifest.block_ids[work.ledger.right_blocks()].tolist()) == here
        assert set(inventory.strangers) == strangers
        assert room.used == 100 * len(disk.in_spool | disk.in_worker)
    asked.clear()
    inventory.look(works)
    assert set(asked) == {30}, "only what no manifest has is looked for again"
    newer = manifest_of(works[0].path, ids[0][10:])
    works[0].opened(Ledger(newer))
    inventory.look(works)
    assert works[0].ledger is not None
    found = set(newer.block_ids[works[0].ledger.right_blocks()].tolist())
    assert found == set(ids[0][10:]) & (disk.in_spool | disk.in_worker)


@pytest.mark.parametrize(("blocks", "asked"), [(1, 3), (100, 1), (100, 5), (100, 90), (100, 2_000), (5, 0)])
def test_ids_are_found_whichever_side_has_more_of_them(blocks: int, asked: int) -> None:
    rng = random.Random(blocks * asked)
    mine = rng.sample(range(1, 5_000), blocks)
    manifest = manifest_of("/m", mine)
    ids = np.array(sorted(rng.sample(range(1, 5_000), asked)), dtype=np.int64)
    places, numbers = manifest.blocks_among(ids)
    expected = manifest.blocks_at(ids)
    found = np.full(len(ids), -1)
    found[places] = numbers
    assert found.tolist() == expected.tolist()


def test_a_ledger_that_is_replaced_during_a_look_gets_what_the_folders_have() -> None:
    lock, room, disk = threading.RLock(), Room(capacity=1 << 50, free=lambda: 1 << 50), Disk()
    work = MountWork(path="/m", lock=lock, room=room)
    work.opened(Ledger(manifest_of("/m", [5, 6, 7])))
    inventory = Inventory(disk=disk, room=room, lock=lock)  # type: ignore[arg-type]
    disk.in_worker = {5, 7}
    inventory.look([work])
    late = SimpleNamespace(done=False)
    placed = inventory._placed_before

    def replaced(*arguments: object) -> object:
        found = placed(*arguments)  # type: ignore[arg-type]
        if not late.done:
            late.done = True
            work.opened(Ledger(manifest_of("/m", [4, 5, 6, 7])))
        return found

    inventory._placed_before = replaced  # type: ignore[method-assign, assignment]
    inventory.look([work])
    assert late.done
    assert work.ledger is not None
    assert work.ledger.manifest.block_ids[work.ledger.right_blocks()].tolist() == [5, 7]
