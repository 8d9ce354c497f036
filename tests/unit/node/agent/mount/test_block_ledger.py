"""What a ledger says after any events is what its blocks say, one by one; what it costs follows what is here."""

from __future__ import annotations

import os
import random
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tdcs.model import slots
from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS, Assignment, Part, Peer, SourceAccess
from tdcs.model.file_blocks import Cut
from tdcs.model.manifest import Manifest
from tdcs.model.manifest_builder import ManifestBuilder
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.failed_fetches import Failure

PATHS = ("a", "b/c")
PEER = Peer(node="n", address="127.0.0.1:1", slots=ALL_SLOTS)


def manifest_of(files: int, *, blocks: int = 3) -> Manifest:
    """Files in three folders with none to so many blocks."""
    builder = ManifestBuilder(path="/datasets/1", source="s3://b", cut=Cut(10, 10))
    builder.add_listed(
        (f"{('a', 'b/c', 'd')[number % 3]}/{number:05}".encode(), 10 * (number % (blocks + 1)), b'"x"')
        for number in range(files)
    )
    return builder.manifest()


def in_slots(manifest: Manifest, bitmap: bytes) -> npt.NDArray[np.bool_]:
    """Of each block whether its slot is one of these."""
    return slots.mask_of(bitmap)[manifest.block_slots]


class Naive:
    """The same by sets of blocks."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.held, self.claimed, self.failed, self.refused = (set[int]() for _ in range(4))
        self._parts: dict[tuple[object, ...], set[int]] = {}

    def bytes(self, blocks: set[int]) -> int:
        return int(self.manifest.block_lengths[sorted(blocks)].sum())

    def part(self, part: Part) -> set[int]:
        key = (part.slots, part.paths)
        if key not in self._parts:
            selected = self.manifest.blocks_in(self.manifest.selected(part.paths)[0])
            self._parts[key] = set(np.flatnonzero(in_slots(self.manifest, part.slots) & selected).tolist())
        return self._parts[key]


def check(ledger: Ledger, naive: Naive, assignment: Assignment) -> None:
    state, manifest = ledger.state(), naive.manifest
    right = naive.held - naive.refused
    failing = (naive.failed - naive.held) | naive.refused
    assert state.held_bytes == naive.bytes(right)
    assert ledger.held_bytes() == naive.bytes(naive.held)
    present = np.bincount(manifest.block_slots[sorted(right)], minlength=slots.SLOTS)
    assert state.complete == slots.of_mask(
        present == np.bincount(manifest.block_slots, minlength=slots.SLOTS)
    )
    assert state.present == slots.of_mask(present > 0)
    files = {manifest.file_of(block) for block in failing}
    assert state.failed_count == len(files)
    assert sum(count.bytes for count in state.failures.values()) == naive.bytes(failing)
    assert set(np.flatnonzero(slots.mask_of(state.failing))) == {
        int(manifest.block_slots[b]) for b in failing
    }
    for part, part_state in zip(assignment.parts, state.parts, strict=True):
        mine = naive.part(part)
        assert (part_state.wanted_bytes, part_state.held_bytes) == (
            naive.bytes(mine),
            naive.bytes(mine & right),
        )
        assert part_state.failed_bytes == naive.bytes(mine & failing)
    blocks_to_pull = set[int]().union(*(naive.part(part) for part in assignment.parts if part.pull == "All"))
    origin, drop = in_slots(manifest, assignment.origin), in_slots(manifest, assignment.drop)
    from_source = {b for b in blocks_to_pull if origin[b]}
    missing = from_source - naive.held - naive.refused
    assert ledger.assigned.missing_slots(from_peers=False) == slots.bitmap(
        {int(manifest.block_slots[b]) for b in missing}
    )
    assert ledger.blocks_in_work == len(naive.claimed)
    blocks_of_parts = set[int]().union(*(naive.part(part) for part in assignment.parts))
    dropped = {b for b in naive.held - blocks_of_parts if drop[b]}
    assert ledger.drops(all_blocks=False) == bool((dropped | (naive.held & naive.refused)) - naive.claimed)


def assignment_of(rng: random.Random, version: int) -> Assignment:
    def some() -> bytes:
        return slots.of_mask(np.array([rng.random() < 0.5 for _ in range(slots.SLOTS)]))

    parts = [Part(name="all", slots=some(), pull=rng.choice(["All", "Nothing"]))]
    if rng.random() < 0.7:
        parts.append(Part(name="below", slots=some(), paths=PATHS[: rng.choice([1, 2])]))
    return Assignment(
        mount="/datasets/1",
        version=version,
        manifest="d",
        parts=tuple(parts),
        origin=some(),
        drop=some(),
        peers=(PEER,) if rng.random() < 0.5 else (),
    )


@pytest.mark.parametrize("seed", range(12 if os.environ.get("TDCS_DEEP") else 4))
def test_after_any_events_all_counts_are_those_of_the_blocks_themselves(seed: int) -> None:
    rng, manifest = random.Random(seed), manifest_of(150)
    ledger, naive = Ledger(manifest), Naive(manifest)
    assignment = assignment_of(rng, 1)
    ledger.observe(np.arange(0))
    ledger.assign(assignment)
    for step in range(300):
        block = rng.randrange(manifest.blocks)
        kind = rng.choice(
            ["take", "claim", "locate", "fail", "refuse", "observe", "assign", "release", "file"]
        )
        if kind == "take":
            naive.claimed |= set(ledger.take(now=float(step), most=5, most_bytes=1 << 20))
        elif kind == "claim":
            naive.claimed |= set(ledger.claim([block]))
        elif kind in {"locate", "file"} and naive.claimed:
            block = rng.choice(sorted(naive.claimed))
            place = rng.random() < 0.6
            ledger.located(block, is_here=place)
            naive.claimed.discard(block)
            naive.held.add(block) if place else naive.held.discard(block)
            if place:
                naive.failed.discard(block)
        elif kind == "fail" and naive.claimed:
            block = rng.choice(sorted(naive.claimed))
            ledger.failed(block, Failure(code="Denied", reason="403"), now=float(step))
            naive.claimed.discard(block)
            naive.failed.add(block)
        elif kind == "release" and naive.claimed:
            block = rng.choice(sorted(naive.claimed))
            ledger.release([block])
            naive.claimed.discard(block)
        elif kind == "refuse":
            refused = rng.random() < 0.5
            ledger.refuse([block], refused=refused)
            naive.refused.add(block) if refused else naive.refused.discard(block)
        elif kind == "observe":
            blocks_on_disk = {b for b in range(manifest.blocks) if rng.random() < 0.5}
            fresh, before = ledger.observe(np.array(sorted(blocks_on_disk))), naive.held
            naive.held = (blocks_on_disk - naive.claimed) | (before & naive.claimed)
            naive.failed -= naive.held
            assert set(fresh.tolist()) == naive.held - before
        elif kind == "assign":
            assignment = assignment_of(rng, step + 2)
            ledger.assign(assignment)
            naive.failed &= set[int]().union(*(naive.part(part) for part in assignment.parts))
        check(ledger, naive, assignment)


def test_what_the_way_to_the_source_may_have_caused_is_told_from_what_the_source_lacks() -> None:
    manifest = manifest_of(60)
    ledger = Ledger(manifest)
    ledger.assign(
        Assignment(
            mount=manifest.path,
            version=1,
            manifest=manifest.digest,
            parts=(Part(name="x", slots=ALL_SLOTS),),
            origin=ALL_SLOTS,
        )
    )
    by_code = dict(zip(("Unreadable", "SourceAway", "Missing", "Changed", "Denied"), range(5), strict=True))
    for code, block in by_code.items():
        ledger.claim([block])
        ledger.failed(block, Failure(code=code, reason="it fails"), now=1.0)  # type: ignore[arg-type]
    state = ledger.state()
    failing = {int(manifest.block_slots[by_code[code]]) for code in ("Unreadable", "SourceAway")}
    assert set(slots.members(state.failing_here).tolist()) == failing
    assert set(slots.members(state.failing).tolist()) >= failing


def test_a_new_version_takes_over_what_is_here_and_what_failed() -> None:
    before, manifest = Ledger(manifest_of(60)), manifest_of(90)
    before.observe(np.arange(50))
    before.assign(Assignment(mount="m", version=1, manifest="d", parts=(Part(name="p", slots=ALL_SLOTS),)))
    (block,) = before.claim([60])
    before.failed(block, Failure(code="Denied", reason="403"), now=1.0)
    ledger = Ledger(manifest)
    ledger.adopt(before)
    ids = before.manifest.block_ids
    assert set(manifest.block_ids[ledger.right_blocks()]) == set(ids[:50])
    (number,) = manifest.blocks_at(ids[60:61]).tolist()
    assert ledger.has_failed(number)


class Large:
    """A manifest of many files of one block each, without names, as columns in memory that all ledgers share."""

    def __init__(self, blocks: int) -> None:
        self.blocks, self.digest, self.path = blocks, "d", "/datasets/1"
        self.block_ends = np.arange(1, blocks + 1, dtype=np.uint32)
        self.block_slots = (np.arange(blocks, dtype=np.uint32) * 2654435761 >> 7).astype(np.uint16) % 4096
        self.block_lengths = np.full(blocks, 1000, dtype=np.int64)

    def file_ranges(self, _: object) -> list[tuple[int, int]]:
        return [(0, self.blocks)]

    def as_manifest(self) -> Any:
        return SimpleNamespace(**vars(self), file_ranges=self.file_ranges)


def test_a_node_keeps_rows_for_what_is_assigned_to_it_and_looks_at_slots_only() -> None:
    ledger = Ledger(Large(2_000_000).as_manifest())
    mine = slots.of_mask(np.arange(slots.SLOTS) < 41)
    ledger.observe(np.arange(0))
    ledger.assign(
        Assignment(
            mount="m",
            version=1,
            manifest="d",
            parts=(Part(name="p", slots=mine),),
            origin=mine,
            source=SourceAccess(uri="s3://b"),
        )
    )
    assert 15_000 < len(ledger) < 25_000
    (block,) = ledger.take(now=1.0, most=1, most_bytes=1 << 20, cursor="source")
    began = time.process_time()
    for _ in range(100):
        ledger.left()
        ledger.drops(all_blocks=False)
        ledger.ready(now=1.0, from_peers=False)
        ledger.assigned.missing_slots(from_peers=True)
    assert (time.process_time() - began) / 100 < 0.005
    ledger.located(block, is_here=True)
    assert ledger.state().parts[0].held_bytes == 1000
    ledger.assign(Assignment(mount="m", version=2, manifest="d", drop=ALL_SLOTS))
    assert len(ledger) == 1, "what is neither here nor assigned is not kept"
    assert ledger.assigned.missing_slots(from_peers=False) == NO_SLOTS


@pytest.mark.parametrize("from_peers", [False, True])
def test_what_is_brought_next_follows_what_pods_read_and_the_rest_comes_after_it(from_peers: bool) -> None:
    manifest = manifest_of(40)
    ledger = Ledger(manifest)
    ledger.observe(np.arange(0))
    ledger.assign(
        Assignment(
            mount="m",
            version=1,
            manifest=manifest.digest,
            parts=(Part(name="p", slots=ALL_SLOTS),),
            origin=NO_SLOTS if from_peers else ALL_SLOTS,
            peers=(PEER,),
            source=SourceAccess(uri="s3://b"),
        )
    )

    def take(most: int, cursor: str) -> list[int]:
        return ledger.take(now=1.0, most=most, most_bytes=1 << 30, from_peers=from_peers, cursor=cursor)

    assert take(3, "one") == [0, 1, 2]
    ledger.read_on(50)
    assert take(2, "one") == [50, 51]
    assert take(2, "another") == [52, 53], "also where another thread, or another peer, brings them"
    ledger.read_on(51)  # which is on its way
    assert take(2, "one") == [54, 55]
    assert take(1000, "one") == [*range(56, manifest.blocks), *range(3, 50)]
