"""What an engine in memory remembers: workers with their blocks, mounts with what is known of their files."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tdcs.model.cache_engine import Block, Credentials, NoSuchPathError, NoSuchWorkerError

Files = Mapping[str, int]
"""What a source holds: path relative to its URI, to length in bytes."""


@dataclass(kw_only=True)
class MemoryWorker:
    """A worker: what it may hold, and the lengths of the blocks that it holds, by id."""

    capacity: int
    live: bool = True
    blocks: dict[int, int] = field(default_factory=dict)

    @property
    def used(self) -> int:
        """Bytes that it holds."""
        return sum(self.blocks.values())


@dataclass(kw_only=True)
class MemoryMount:
    """A mounted source, and its files as they were last listed: length and blocks by path."""

    uri: str
    mount_id: int
    credentials: Credentials | None = None
    store: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    known: dict[str, tuple[int, tuple[Block, ...]]] | None = None


class MemoryState:
    """The workers and mounts of an engine in memory, and the rules by which blocks come and go.

    Args:
        workers: Worker name to capacity in bytes.
    """

    def __init__(self, *, workers: Mapping[str, int]) -> None:
        self.workers = {name: MemoryWorker(capacity=capacity) for name, capacity in workers.items()}
        self.mounts: dict[str, MemoryMount] = {}
        self._by_id: dict[int, Block] = {}
        self._ids = itertools.count(16777216)
        self._mount_ids = itertools.count(1)

    def add_mount(self, *, path: str, uri: str) -> None:
        """Mount a source at a path, unless something is mounted there."""
        self.mounts.setdefault(path, MemoryMount(uri=uri, mount_id=next(self._mount_ids)))

    def learn(self, *, mount: MemoryMount, files: Files, block_size: int) -> None:
        """Bring what is known of the mount's files up to the source; a changed file gets new blocks, its old
        ones go.
        """
        before = mount.known or {}
        after: dict[str, tuple[int, tuple[Block, ...]]] = {}
        for name, length in files.items():
            old = before.get(name)
            if old is not None and old[0] == length:
                after[name] = old
            else:
                after[name] = (
                    length,
                    self._cut(mount=mount, name=name, length=length, block_size=block_size),
                )
        for name, (_length, blocks) in before.items():
            if after.get(name, (None, None))[1] is not blocks:
                self.forget(blocks)
        mount.known = after

    def _cut(self, *, mount: MemoryMount, name: str, length: int, block_size: int) -> tuple[Block, ...]:
        blocks = tuple(
            Block(
                id=next(self._ids),
                length=min(block_size, length - offset),
                offset=offset,
                source_path=f"{mount.uri}/{name}",
                mount_id=mount.mount_id,
            )
            for offset in range(0, length, block_size)
        )
        self._by_id.update({block.id: block for block in blocks})
        return blocks

    def block(self, block_id: int) -> Block | None:
        """A block that some mount has, by its id."""
        return self._by_id.get(block_id)

    def located(self, block: Block) -> Block:
        """A block with the live workers that hold it."""
        holders = frozenset(
            name for name, worker in self.workers.items() if worker.live and block.id in worker.blocks
        )
        return Block(
            id=block.id,
            length=block.length,
            offset=block.offset,
            source_path=block.source_path,
            mount_id=block.mount_id,
            workers=holders,
        )

    def forget(self, blocks: Iterable[Block]) -> None:
        """No worker holds these any more."""
        for block in blocks:
            for worker in self.workers.values():
                worker.blocks.pop(block.id, None)

    def mount_at(self, *, path: str, attempted: str) -> MemoryMount:
        """What is mounted at a path.

        Raises:
            NoSuchPathError: Nothing is.
        """
        mount = self.mounts.get(path)
        if mount is None:
            raise NoSuchPathError(
                attempted=attempted,
                reason="nothing is mounted there",
                remedy="MemoryMount the source first",
                path=path,
            )
        return mount

    def live_worker(self, name: str) -> MemoryWorker:
        """A worker that is there and alive.

        Raises:
            NoSuchWorkerError: It is not.
        """
        worker = self.workers.get(name)
        if worker is None or not worker.live:
            raise NoSuchWorkerError(
                attempted=f"use worker {name}",
                reason="it is lost" if worker else "no worker of that name has registered",
                remedy="Wait for the worker's pod to be ready, or choose another node",
                worker=name,
                retryable=True,
            )
        return worker
