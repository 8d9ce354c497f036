"""What an agent in memory knows of one mount."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tdcs.model import slots
from tdcs.model.agent_state import (
    AgentState,
    Assignment,
    CheckState,
    FailureCode,
    FailureCount,
    Part,
    PartState,
)
from tdcs.model.manifest import Manifest
from tdcs.model.manifest_format import decoded

Mask = npt.NDArray[np.bool_]


@dataclass(kw_only=True)
class TwinFailure:
    code: FailureCode
    reason: str
    tries: int = 1
    again_at: float = 0.0


class FileColumns:
    """What follows from a manifest alone, and is asked for at each look at an agent's state."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.blocks_of_slots = np.bincount(manifest.block_slots, minlength=slots.SLOTS)
        counts = np.diff(manifest.block_ends, prepend=np.uint32(0))
        with_blocks = np.flatnonzero(counts > 0)
        self.first_blocks = manifest.block_ends[with_blocks] - counts[with_blocks]
        self.empty_files = counts == 0


@dataclass(kw_only=True)
class TwinMount:
    """What one agent knows of one mount."""

    assignment: Assignment
    manifest: Manifest
    working: bool = False
    moving: tuple[int, asyncio.Task[None]] | None = None
    failed: dict[str, TwinFailure] = field(default_factory=dict)
    waiting: dict[int, float] = field(default_factory=dict)
    check: CheckState | None = None
    refused: set[int] = field(default_factory=set)
    source_bytes: int = 0
    peer_bytes: int = 0
    moved: deque[tuple[float, str, int]] = field(default_factory=deque)
    selections: dict[tuple[bytes, tuple[str, ...]], Mask] = field(default_factory=dict)
    looked_up: dict[str, range | None] = field(default_factory=dict)
    known_columns: FileColumns | None = None
    task: asyncio.Task[None] | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def blocks_of(self, part: Part) -> Mask:
        """The blocks that a part means."""
        key = (part.slots, part.paths)
        if key not in self.selections:
            mask = slots.mask_of(part.slots)[self.manifest.block_slots]
            if part.paths:
                mask &= self.manifest.blocks_in(self.manifest.selected(part.paths)[0])
            self.selections[key] = mask
        return self.selections[key]

    @property
    def columns(self) -> FileColumns:
        """Those of the manifest that it has now."""
        if self.known_columns is None or self.known_columns.manifest is not self.manifest:
            self.known_columns = FileColumns(self.manifest)
        return self.known_columns

    def blocks_of_file(self, path: str) -> range | None:
        """The numbers of a file's blocks; None for one that the manifest does not have."""
        if path not in self.looked_up:
            file = self.manifest.file_at(path.encode("utf-8", "surrogateescape"))
            self.looked_up[path] = None if file is None else self.manifest.blocks_of(file)
        return self.looked_up[path]

    def wanted(self, *pulls: str) -> Mask:
        """The blocks that some part with one of these ways of pulling means."""
        blocks = np.zeros(self.manifest.blocks, dtype=np.bool_)
        for part in self.assignment.parts:
            if part.pull in pulls:
                blocks |= self.blocks_of(part)
        return blocks

    def path_of(self, block: int) -> str:
        return decoded(self.manifest.file_path(self.manifest.file_of(block)))


class TwinNode:
    """One agent in memory."""

    def __init__(self, name: str, instance: str) -> None:
        self.name = name
        self.instance = instance
        self.revision = 0
        self.mounts: dict[str, TwinMount] = {}
        self.last: AgentState | None = None


class CannotError(Exception):
    """A block that cannot be had now."""

    def __init__(self, code: FailureCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def part_state(mount: TwinMount, part: Part, held: Mask, failing: Mask) -> PartState:
    """How far an agent is with a part."""
    manifest = mount.manifest
    blocks = mount.blocks_of(part)
    lengths, firsts = manifest.block_lengths, mount.columns.first_blocks
    empty = 0
    if slots.mask_of(part.slots)[0]:
        empty = int((manifest.selected(part.paths)[0] & mount.columns.empty_files).sum())
    return PartState(
        name=part.name,
        wanted_bytes=int(lengths[blocks].sum()),
        held_bytes=int(lengths[blocks & held].sum()),
        wanted_files=int(blocks[firsts].sum()) + empty,
        held_files=int((blocks & held)[firsts].sum()) + empty,
        failed_bytes=int(lengths[blocks & ~held & failing].sum()),
    )


def failure_counts(
    mount: TwinMount, failed: Mapping[str, TwinFailure], held: Mask
) -> dict[FailureCode, FailureCount]:
    """Files that cannot be had by code, without those that lack room or a source that answers."""
    counts: dict[FailureCode, FailureCount] = {}
    for path, failure in failed.items():
        numbers = mount.blocks_of_file(path)
        if numbers is None or failure.code in {"NoRoom", "SourceAway"}:
            continue
        absent = ~held[numbers.start : numbers.stop]
        absent_bytes = int(mount.manifest.block_lengths[numbers.start : numbers.stop][absent].sum())
        count = counts.get(failure.code, FailureCount())
        counts[failure.code] = FailureCount(files=count.files + 1, bytes=count.bytes + absent_bytes)
    return counts


def stop(mount: TwinMount) -> list[asyncio.Task[None]]:
    """End the work on a mount; gives its tasks."""
    tasks = [task for task in (mount.task, mount.moving[1] if mount.moving else None) if task is not None]
    for task in tasks:
        task.cancel()
    return tasks
