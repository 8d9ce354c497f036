"""Cache agents in memory, on the workers of a `MemoryEngine`: the twin of the real ones, for tests.

It keeps the contract of `tdcs.engine.agents` and fails as the real ones do: slow, hung, away, forgetful, without
room, with files that cannot be read, have changed or are wrong. Each transfer of a block is announced to the engine's
`before` hook (`put` from the source, `copy` from a peer, `drop`, `digest`), so a test can hold it back or fail it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from tdcs.engine.agents import (
    AgentError,
    AgentState,
    Assignment,
    CheckState,
    FailureCode,
    FileFailure,
    MountState,
    Part,
    PartState,
)
from tdcs.engine.memory import MemoryEngine, Operation
from tdcs.engine.protocol import EngineError
from tdcs.planning.manifest import Manifest
from tdcs.planning.manifest_format import decoded
from tdcs.policy import slots

Mask = npt.NDArray[np.bool_]

FAILURES_NAMED = 20
TICK = 0.02
RETRY_FIRST = 0.05
RETRY_MAX = 1.0
PEER_PATIENCE = 2.0
"""Seconds after which a block that no peer has given is read from the source."""
RATE_SECONDS = 1.0
CALL_SECONDS = 5.0


@dataclass(kw_only=True)
class _Failed:
    code: FailureCode
    reason: str
    tries: int = 1
    again_at: float = 0.0


@dataclass(kw_only=True)
class _Mount:
    """What one agent knows of one mount."""

    assignment: Assignment
    manifest: Manifest
    working: bool = False
    moving: tuple[int, asyncio.Task[None]] | None = None
    failed: dict[str, _Failed] = field(default_factory=dict)
    waiting: dict[int, float] = field(default_factory=dict)
    check: CheckState | None = None
    refused: set[int] = field(default_factory=set)
    source_bytes: int = 0
    peer_bytes: int = 0
    moved: deque[tuple[float, str, int]] = field(default_factory=deque)
    selections: dict[tuple[bytes, tuple[str, ...]], Mask] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None

    def blocks_of(self, part: Part) -> Mask:
        """The blocks that a part means."""
        key = (part.slots, part.paths)
        if key not in self.selections:
            mask = slots.mask_of(part.slots)[self.manifest.block_slots]
            if part.paths:
                mask &= self.manifest.blocks_in(self.manifest.selected(part.paths)[0])
            self.selections[key] = mask
        return self.selections[key]

    def wanted(self, *pulls: str) -> Mask:
        """The blocks that some part with one of these ways of pulling means."""
        found = np.zeros(self.manifest.blocks, dtype=np.bool_)
        for part in self.assignment.parts:
            if part.pull in pulls:
                found |= self.blocks_of(part)
        return found

    def path_of(self, block: int) -> str:
        return decoded(self.manifest.file_path(self.manifest.file_of(block)))


class _Node:
    def __init__(self, name: str, instance: str) -> None:
        self.name = name
        self.instance = instance
        self.revision = 0
        self.mounts: dict[str, _Mount] = {}
        self.told: AgentState | None = None


class MemoryAgents:
    """`Agents` in memory.

    Args:
        engine: the cache; agents have the blocks of its workers.
        manifests: opens a manifest by its digest.

    Attributes:
        away: nodes with agents that cannot be reached; they go on with their work.
        hung: nodes with agents that answer no call.
        foreign: bytes that others take of a node's disk.
        rotten: says of a node and a file whether every copy there differs from the source.
        corrupted: single copies (node and block id) that differ, until they are replaced.
        calls: what the agents were asked, by node.
    """

    def __init__(self, *, engine: MemoryEngine, manifests: Callable[[str], Manifest]) -> None:
        self._engine = engine
        self._manifests = manifests
        self._nodes: dict[str, _Node] = {}
        self._instances = itertools.count(1)
        self.away: set[str] = set()
        self.hung: set[str] = set()
        self.foreign: dict[str, int] = {}
        self.rotten: Callable[[str, str], bool] = lambda node, path: False
        self.corrupted: set[tuple[str, int]] = set()
        self.calls: list[tuple[str, str]] = []

    # What a test does to the world.

    def restart(self, node: str, *, forgets: bool = False) -> None:
        """An agent's process starts anew: it counts by the same manifests and waits for assignments; or has nothing."""
        old = self._node(node)
        for mount in old.mounts.values():
            _stop(mount)
        new = self._nodes[node] = _Node(node, f"{node}-{next(self._instances)}")
        for path, mount in {} if forgets else old.mounts.items():
            kept = Assignment(mount=path, version=0, manifest=mount.assignment.manifest)
            self._begin(new, path, _Mount(assignment=kept, manifest=mount.manifest))

    def resume(self) -> None:
        """Go on after `close`, in the event loop that runs now: as if nothing had been."""
        for node in self._nodes.values():
            for path, mount in node.mounts.items():
                self._begin(node, path, mount)

    def evict(self, node: str, *, count: int) -> None:
        """The worker throws some blocks out on its own."""
        blocks = self._engine.state.workers[node].blocks
        for block in list(blocks)[:count]:
            del blocks[block]

    def read(self, node: str, *, path: str, files: Sequence[str]) -> None:
        """Jobs on a node read files, and its worker keeps them."""
        known = self._engine.state.mounts[path].known or {}
        for name in files:
            for block in known[name][1]:
                self._engine.state.workers[node].blocks[block.id] = block.length

    # The protocol.

    def states(self) -> Mapping[str, AgentState]:
        return {
            name: self._state(self._node(name))
            for name, worker in self._engine.state.workers.items()
            if worker.live and name not in self.away
        }

    async def assign(self, *, node: str, assignments: Sequence[Assignment]) -> None:
        mine = await self._called(node, "assign")
        for assignment in assignments:
            known = mine.mounts.get(assignment.mount)
            if known is not None and known.assignment.version > assignment.version:
                raise AgentError(
                    f"the agent of {node} refuses version {assignment.version} of {assignment.mount}: it works by "
                    f"version {known.assignment.version}; look at its state again",
                    node=node,
                )
        for assignment in assignments:
            self._take(mine, assignment)

    async def forget(self, *, node: str, mounts: Sequence[str]) -> None:
        mine = await self._called(node, "forget")
        for path in mounts:
            gone = mine.mounts.pop(path, None)
            if gone is None:
                continue
            _stop(gone)
            held = self._engine.state.workers[node].blocks
            for block in gone.manifest.block_ids.tolist():
                held.pop(block, None)

    async def close(self) -> None:
        tasks = []
        for node in self._nodes.values():
            for mount in node.mounts.values():
                tasks += _stop(mount)
        await asyncio.gather(*tasks, return_exceptions=True)

    # Inside.

    def _node(self, name: str) -> _Node:
        if name not in self._nodes:
            self._nodes[name] = _Node(name, f"{name}-{next(self._instances)}")
        return self._nodes[name]

    async def _called(self, node: str, call: str) -> _Node:
        self.calls.append((node, call))
        worker = self._engine.state.workers.get(node)
        if node in self.hung:
            await asyncio.sleep(CALL_SECONDS)
        if worker is None or not worker.live or node in self.away | self.hung:
            raise AgentError(
                f"the agent of {node} does not answer ({call}); see the worker's pod there", node=node
            )
        return self._node(node)

    def _take(self, node: _Node, assignment: Assignment) -> None:
        known = node.mounts.get(assignment.mount)
        if known is None:
            known = _Mount(assignment=assignment, manifest=self._manifests(assignment.manifest))
            self._begin(node, assignment.mount, known)
        elif known.assignment.manifest != assignment.manifest:
            # What was of the version before, and is of none now, is removed by the master with its file.
            known.manifest, known.failed, known.waiting = self._manifests(assignment.manifest), {}, {}
        known.assignment = assignment
        known.selections = {}
        if known.check is not None and (assignment.check is None or assignment.check.id != known.check.id):
            known.check, known.refused = None, set()
            known.failed = {path: one for path, one in known.failed.items() if one.code != "Wrong"}
        moving = known.moving
        if moving is not None:
            block = known.manifest.block_at(moving[0])
            if block is None or not known.wanted("All", "Peers")[block]:
                moving[1].cancel()
        known.working = True

    def _begin(self, node: _Node, path: str, mount: _Mount) -> None:
        node.mounts[path] = mount
        mount.task = asyncio.create_task(self._work(node, mount), name=f"agent {node.name} {path}")

    async def _work(self, node: _Node, mount: _Mount) -> None:
        """Make the disk as it is assigned, for as long as the mount is known."""
        while True:
            worker = self._engine.state.workers.get(node.name)
            if worker is not None and worker.live:
                with contextlib.suppress(EngineError, _CannotError):  # its worker has died meanwhile, say
                    mount.working = await self._sweep(node, mount)
            await asyncio.sleep(TICK)

    async def _sweep(self, node: _Node, mount: _Mount) -> bool:
        """One look at all blocks; gives whether something is left that can be done."""
        held = self._held(node, mount)
        await self._drop(node, mount, held)
        wanted, from_peers = mount.wanted("All"), mount.wanted("Peers")
        self._forget_failures(node, mount, wanted)
        left, manifest = False, mount.manifest
        for block in np.flatnonzero((wanted | from_peers) & ~self._held(node, mount)).tolist():
            if mount.manifest is not manifest:
                return True  # another version has come meanwhile
            if not mount.wanted("All", "Peers")[block]:
                continue  # another assignment has come meanwhile
            if int(mount.manifest.block_ids[block]) in mount.refused:
                continue
            failed = mount.failed.get(mount.path_of(block))
            if failed is not None and time.monotonic() < failed.again_at:
                continue
            mount.working = True
            left |= await self._bring(node, mount, block, source=bool(wanted[block]))
        if mount.manifest is manifest:
            await self._compare(node, mount)
        return left

    def _forget_failures(self, node: _Node, mount: _Mount, wanted: Mask) -> None:
        """Files that are not wanted here any more, or are here by now, are no failures."""
        open_blocks = wanted & ~self._held(node, mount)
        for path in [path for path, one in mount.failed.items() if one.code != "Wrong"]:
            file = mount.manifest.file_at(path.encode("utf-8", "surrogateescape"))
            numbers = mount.manifest.blocks_of(file) if file is not None else range(0)
            if not open_blocks[numbers.start : numbers.stop].any():
                del mount.failed[path]

    async def _bring(self, node: _Node, mount: _Mount, block: int, *, source: bool) -> bool:
        """Bring one block, from a peer or the source; gives whether it is still to come."""
        peer = self._peer_with(node, mount, block)
        if peer is None:
            if not source:
                return False
            since = mount.waiting.setdefault(block, time.monotonic())
            own = slots.mask_of(mount.assignment.origin)[mount.manifest.block_slots[block]]
            if not own and mount.assignment.peers and time.monotonic() - since < PEER_PATIENCE:
                return True
            if mount.assignment.source is None:
                return False
        mount.waiting.pop(block, None)
        path = mount.path_of(block)
        task = asyncio.create_task(self._transfer(node, mount, block, peer))
        mount.moving = (int(mount.manifest.block_ids[block]), task)
        await asyncio.wait({task})
        mount.moving = None
        if task.cancelled():
            return False
        error = task.exception()
        if error is None:
            mount.failed.pop(path, None)
            return False
        known = mount.failed.get(path)
        tries = known.tries + 1 if known is not None else 1
        code: FailureCode = "SourceAway"
        if isinstance(error, _CannotError):
            code = error.code
        elif not isinstance(error, EngineError):
            raise error
        reason = error.reason if isinstance(error, EngineError) else str(error)
        pause = min(RETRY_FIRST * 2 ** min(tries - 1, 16), RETRY_MAX)
        mount.failed[path] = _Failed(code=code, reason=reason, tries=tries, again_at=time.monotonic() + pause)
        return False

    async def _transfer(self, node: _Node, mount: _Mount, block: int, peer: str | None) -> None:
        length, block_id = int(mount.manifest.block_lengths[block]), int(mount.manifest.block_ids[block])
        path = mount.path_of(block)
        file_bytes = int(mount.manifest.lengths[mount.manifest.file_of(block)])
        name = "copy" if peer is not None else "put"
        if self._engine.before is not None:
            await self._engine.before(Operation(name=name, worker=node.name, length=length))
        if peer is None:
            await self._read(node, mount, block_id, path, length, file_bytes)
        elif self._engine.refuse_copy is not None:
            found = self._engine.state.block(block_id)
            reason = self._engine.refuse_copy(peer, node.name, found) if found is not None else None
            if reason:
                raise _CannotError("Unreadable", reason)
        worker = self._engine.state.live_worker(node.name)
        if worker.used + length + self.foreign.get(node.name, 0) > worker.capacity:
            raise _CannotError(
                "NoRoom", f"only {worker.capacity - worker.used} bytes are free on {node.name}"
            )
        worker.blocks[block_id] = length
        mount.moved.append((time.monotonic(), name, length))
        if peer is None:
            mount.source_bytes += length
            self._engine.source_bytes_read += length
        else:
            mount.peer_bytes += length
            self._engine.copied_bytes += length

    async def _read(
        self, node: _Node, mount: _Mount, block_id: int, path: str, length: int, file_bytes: int
    ) -> None:
        """What reading a block from the source takes, and how it can fail."""
        rate = mount.assignment.bandwidth
        if rate is not None:
            await asyncio.sleep(length / rate)
        uri = mount.manifest.header.source
        files = self._engine.sources.get(uri)
        if files is None:
            raise _CannotError("SourceAway", f"{uri}: there is no such bucket or folder")
        now = (files() if callable(files) else files).get(path)
        if now is None:
            raise _CannotError("Missing", "the source has it no more")
        if now != file_bytes:
            raise _CannotError("Changed", "it has changed at the source since it was listed")
        found = self._engine.state.block(block_id)
        if found is not None and self._engine.refuse is not None:
            reason = self._engine.refuse(node.name, found)
            if reason is not None:
                raise _CannotError("Unreadable", reason)

    async def _drop(self, node: _Node, mount: _Mount, held: Mask) -> None:
        gone = held & slots.mask_of(mount.assignment.drop)[mount.manifest.block_slots]
        gone &= ~mount.wanted("All", "Peers", "Nothing")
        if not gone.any():
            return
        mount.working = True
        if self._engine.before is not None:
            await self._engine.before(Operation(name="drop", worker=node.name))
        # The hook may have waited: what is wanted by now stays.
        gone &= slots.mask_of(mount.assignment.drop)[mount.manifest.block_slots]
        gone &= ~mount.wanted("All", "Peers", "Nothing")
        for block in np.flatnonzero(gone).tolist():
            self._remove(node, int(mount.manifest.block_ids[block]))

    def _remove(self, node: _Node, block_id: int) -> None:
        self._engine.state.workers[node.name].blocks.pop(block_id, None)
        self.corrupted.discard((node.name, block_id))

    async def _compare(self, node: _Node, mount: _Mount) -> None:
        """The comparison that is asked for, once."""
        asked = mount.assignment.check
        if asked is None or (mount.check is not None and mount.check.done):
            return
        part = next((one for one in mount.assignment.parts if one.name == asked.part), None)
        meant = mount.blocks_of(part) if part is not None else np.ones(mount.manifest.blocks, dtype=np.bool_)
        if asked.percent < 100:
            meant = meant & (mount.manifest.block_slots < max(slots.SLOTS * asked.percent // 100, 1))
            if not meant.any():  # a few files: one at least
                meant = mount.blocks_of(part) if part is not None else meant
        files: set[int] = set()
        compared = 0
        wrong: dict[str, FileFailure] = {}
        for block in np.flatnonzero(meant & self._held(node, mount)).tolist():
            block_id, path = int(mount.manifest.block_ids[block]), mount.path_of(block)
            length = int(mount.manifest.block_lengths[block])
            for last in (False, True):
                if self._engine.before is not None:
                    await self._engine.before(Operation(name="digest", worker=node.name, length=length))
                if not self._is_wrong(node, block_id, path):
                    files.add(mount.manifest.file_of(block))
                    compared += length
                    break
                self._remove(node, block_id)
                if last:
                    text = "the copy here differs from the source, also when loaded again"
                    wrong[path] = FileFailure(path=path, code="Wrong", reason=text)
                    mount.refused.add(block_id)
                    mount.failed[path] = _Failed(code="Wrong", reason=text)
                else:
                    await self._transfer(node, mount, block, None)
        mount.check = CheckState(
            id=asked.id,
            done=True,
            files=len(files),
            bytes=compared,
            wrong=tuple(wrong[path] for path in sorted(wrong)[:FAILURES_NAMED]),
            wrong_count=len(wrong),
        )

    def _is_wrong(self, node: _Node, block_id: int, path: str) -> bool:
        return (node.name, block_id) in self.corrupted or self.rotten(node.name, path)

    def _peer_with(self, node: _Node, mount: _Mount, block: int) -> str | None:
        block_id = int(mount.manifest.block_ids[block])
        slot = int(mount.manifest.block_slots[block])
        for peer in mount.assignment.peers:
            worker = self._engine.state.workers.get(peer.node)
            if worker is None or not worker.live or peer.node in self.away | self.hung:
                continue
            if block_id in worker.blocks and slots.mask_of(peer.slots)[slot]:
                return peer.node
        return None

    def _held(self, node: _Node, mount: _Mount) -> Mask:
        """Of the blocks of the manifest those that lie here."""
        ids = np.fromiter(self._engine.state.workers[node.name].blocks, dtype=np.int64)
        found = np.zeros(mount.manifest.blocks, dtype=np.bool_)
        numbers = mount.manifest.blocks_at(ids) if len(ids) else np.array([], dtype=np.int64)
        found[numbers[numbers >= 0]] = True
        return found

    def _state(self, node: _Node) -> AgentState:
        worker = self._engine.state.workers[node.name]
        found = AgentState(
            node=node.name,
            instance=node.instance,
            revision=node.revision,
            capacity_bytes=worker.capacity,
            used_bytes=worker.used,
            disk_free_bytes=max(worker.capacity - worker.used - self.foreign.get(node.name, 0), 0),
            address=f"{node.name}:29991",
            mounts={path: self._mount_state(node, mount) for path, mount in node.mounts.items()},
        )
        if found != node.told:
            node.revision += 1
            node.told = found = _with_revision(found, node.revision)
        return found

    def _mount_state(self, node: _Node, mount: _Mount) -> MountState:
        manifest, assignment = mount.manifest, mount.assignment
        held = self._held(node, mount)
        lacking = np.bincount(manifest.block_slots[~held], minlength=slots.SLOTS)
        having = np.bincount(manifest.block_slots[held], minlength=slots.SLOTS)
        now = time.monotonic()
        while mount.moved and now - mount.moved[0][0] > RATE_SECONDS:
            mount.moved.popleft()
        failing = np.zeros(manifest.blocks, dtype=np.bool_)
        for path in mount.failed:
            file = manifest.file_at(path.encode("utf-8", "surrogateescape"))
            if file is not None:
                numbers = manifest.blocks_of(file)
                failing[numbers.start : numbers.stop] = True
        return MountState(
            mount=assignment.mount,
            version=assignment.version,
            manifest=manifest.digest,
            held_bytes=int(manifest.block_lengths[held].sum()),
            complete=slots.of_mask(lacking == 0),
            present=slots.of_mask(having > 0),
            registered_bytes=int(manifest.block_lengths[held].sum()),
            parts=tuple(_part_state(mount, part, held, failing) for part in assignment.parts),
            failed_count=len(mount.failed),
            failed=tuple(
                FileFailure(path=path, code=one.code, reason=one.reason)
                for path, one in sorted(mount.failed.items())[:FAILURES_NAMED]
            ),
            source_bytes=mount.source_bytes,
            peer_bytes=mount.peer_bytes,
            source_rate=sum(size for _, name, size in mount.moved if name == "put"),
            peer_rate=sum(size for _, name, size in mount.moved if name == "copy"),
            busy=mount.working,
            check=mount.check,
        )


class _CannotError(Exception):
    """A block that cannot be had now."""

    def __init__(self, code: FailureCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def _part_state(mount: _Mount, part: Part, held: Mask, failing: Mask) -> PartState:
    manifest = mount.manifest
    meant = mount.blocks_of(part)
    lengths = manifest.block_lengths
    counts = np.diff(manifest.block_ends, prepend=np.uint32(0))
    with_blocks = np.flatnonzero(counts > 0)
    firsts = manifest.block_ends[with_blocks] - counts[with_blocks]
    empty = 0
    if slots.mask_of(part.slots)[0]:
        empty = int((manifest.selected(part.paths)[0] & (counts == 0)).sum())
    return PartState(
        name=part.name,
        wanted_bytes=int(lengths[meant].sum()),
        held_bytes=int(lengths[meant & held].sum()),
        wanted_files=int(meant[firsts].sum()) + empty,
        held_files=int((meant & held)[firsts].sum()) + empty,
        failed_bytes=int(lengths[meant & ~held & failing].sum()),
    )


def _with_revision(state: AgentState, revision: int) -> AgentState:
    return msgspec.structs.replace(state, revision=revision)


def _stop(mount: _Mount) -> list[asyncio.Task[None]]:
    tasks = [task for task in (mount.task, mount.moving[1] if mount.moving else None) if task is not None]
    for task in tasks:
        task.cancel()
    return tasks
