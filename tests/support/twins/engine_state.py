"""What an engine in memory remembers: workers with their blocks, mounts with what was listed of their sources."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from tdcs.model.cache_engine import Credentials, NoSuchPathError, NoSuchWorkerError

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
    """A mounted source, and its files as they were last listed: length and tag by path."""

    uri: str
    credentials: Credentials | None = None
    store: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    known: dict[str, tuple[int, str]] | None = None


class MemoryState:
    """The workers and mounts of an engine in memory.

    Args:
        workers: Worker name to capacity in bytes.
    """

    def __init__(self, *, workers: Mapping[str, int]) -> None:
        self.workers = {name: MemoryWorker(capacity=capacity) for name, capacity in workers.items()}
        self.mounts: dict[str, MemoryMount] = {}
        self._tags = itertools.count(1)

    def add_mount(self, *, path: str, uri: str) -> None:
        """Mount a source at a path, unless something is mounted there."""
        self.mounts.setdefault(path, MemoryMount(uri=uri))

    def learn(self, *, mount: MemoryMount, files: Files) -> None:
        """Bring what is known of the mount's files up to the source; a file of another length gets another tag."""
        before = mount.known or {}
        mount.known = {
            name: old
            if (old := before.get(name)) is not None and old[0] == length
            else (length, f'"{next(self._tags)}"')
            for name, length in files.items()
        }

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
                remedy="Mount the source first",
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
