"""Cache agents in memory, on the workers of a `MemoryEngine`: the twin of the real ones, for tests.

It keeps the contract of `tdcs.model.agent_state` and fails as the real ones do: slow, hung, away, forgetful, without
room, with files that cannot be read, have changed or are wrong. Each transfer of a block is announced to the engine's
`before` hook (`put` from the source, `copy` from a peer, `drop`, `digest`), so a test can hold it back or fail it.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
from tests.support.twins.agent_mount import (
    TwinFailure,
    TwinMount,
    TwinNode,
    failure_counts,
    part_state,
    stop,
)
from tests.support.twins.agent_work import FAILURES_NAMED, TwinWork
from tests.support.twins.engine import MemoryEngine

from tdcs.model import slots
from tdcs.model.agent_state import (
    AgentError,
    AgentState,
    Assignment,
    FileFailure,
    MountState,
    SourceCount,
    SourceToCount,
    echo_of,
)
from tdcs.model.cache_engine import SourceError
from tdcs.model.file_blocks import block_count
from tdcs.model.manifest import Manifest
from tdcs.model.manifest_format import encoded

RATE_SECONDS = 1.0
CALL_SECONDS = 5.0


class MemoryAgents(TwinWork):
    """`Agents` in memory.

    Args:
        engine: the cache; agents have the blocks of its workers.
        manifests: opens a manifest by its digest.

    Attributes:
        calls: what the agents were asked, by node.
        finds: the files that a node finds in every source that it counts, where these are others than are there.
        refuses_counts: whether the agents count no source now.
    """

    def __init__(self, *, engine: MemoryEngine, manifests: Callable[[str], Manifest]) -> None:
        super().__init__(engine=engine)
        self._manifests = manifests
        self._nodes: dict[str, TwinNode] = {}
        self._instances = itertools.count(1)
        self.calls: list[tuple[str, str]] = []
        self.finds: dict[str, dict[str, int]] = {}
        self.refuses_counts = False

    # What a test does to the world.

    def restart(self, node: str, *, forgets: bool = False) -> None:
        """An agent's process starts again: it counts by the same manifests, knows what was wrong, and waits for
        assignments; or has nothing.
        """
        old = self._node(node)
        for mount in old.mounts.values():
            stop(mount)
        new = self._nodes[node] = TwinNode(node, f"{node}-{next(self._instances)}")
        for path, mount in {} if forgets else old.mounts.items():
            assignment = Assignment(
                mount=path,
                version=0,
                manifest=mount.assignment.manifest,
                early_files=mount.assignment.early_files,
            )
            wrong = {name: failure for name, failure in mount.failed.items() if failure.code == "Wrong"}
            self._begin(
                new,
                path,
                TwinMount(
                    assignment=assignment,
                    manifest=mount.manifest,
                    check=mount.check,
                    refused=set(mount.refused),
                    failed=wrong,
                ),
            )

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
        manifest = self._manifests(self._engine.known_versions[path])
        held = self._engine.state.live_worker(node).blocks
        for name in files:
            file = manifest.file_at(encoded(name))
            assert file is not None
            for block in manifest.blocks_of(file):
                held[int(manifest.block_ids[block])] = int(manifest.block_lengths[block])

    # The protocol.

    def assigned(self, path: str) -> dict[str, Assignment]:
        """What each agent works by, of a mount."""
        return {
            name: node.mounts[path].assignment for name, node in self._nodes.items() if path in node.mounts
        }

    def states(self) -> Mapping[str, AgentState]:
        return {
            name: self._state(self._node(name))
            for name, worker in self._engine.state.workers.items()
            if worker.live and name not in self.away
        }

    async def assign(self, *, node: str, assignments: Sequence[Assignment]) -> None:
        mine = await self._called(node, "assign")
        for assignment in assignments:
            current_mount = mine.mounts.get(assignment.mount)
            if (
                current_mount is not None
                and current_mount.assignment != assignment
                and current_mount.assignment.version >= assignment.version
            ):
                raise AgentError(
                    f"the agent of {node} refuses version {assignment.version} of {assignment.mount}: it works by "
                    f"version {current_mount.assignment.version}; look at its state again",
                    node=node,
                )
        for assignment in assignments:
            self._take(mine, assignment)

    async def count_source(self, *, node: str, source: SourceToCount) -> SourceCount:
        await self._called(node, "count_source")
        if self.refuses_counts:
            raise AgentError(f"the agent of {node} counts another source", node=node)
        try:
            sizes_by_path = self.finds.get(node) or self._engine.source_files(uri=source.source.uri, path="")
        except SourceError as error:
            return SourceCount(failure=str(error))
        sizes = sizes_by_path.values()
        files = sum(map(block_count, sizes))
        return SourceCount(
            files=min(files, source.files + 1), bytes=sum(sizes) if files <= source.files else 0
        )

    async def drop_mounts(self, *, node: str, mounts: Sequence[str]) -> None:
        mine = await self._called(node, "forget")
        for path in mounts:
            mount = mine.mounts.pop(path, None)
            if mount is None:
                continue
            stop(mount)
            held = self._engine.state.workers[node].blocks
            for block in mount.manifest.block_ids.tolist():
                held.pop(block, None)

    async def close(self) -> None:
        tasks = []
        for node in self._nodes.values():
            for mount in node.mounts.values():
                tasks += stop(mount)
        await asyncio.gather(*tasks, return_exceptions=True)

    # Inside.

    def _node(self, name: str) -> TwinNode:
        if name not in self._nodes:
            self._nodes[name] = TwinNode(name, f"{name}-{next(self._instances)}")
        return self._nodes[name]

    async def _called(self, node: str, call: str) -> TwinNode:
        self.calls.append((node, call))
        worker = self._engine.state.workers.get(node)
        if node in self.hung:
            await asyncio.sleep(CALL_SECONDS)
        if worker is None or not worker.live or node in self.away | self.hung:
            raise AgentError(
                f"the agent of {node} does not answer ({call}); see the worker's pod there", node=node
            )
        return self._node(node)

    def _take(self, node: TwinNode, assignment: Assignment) -> None:
        mount = node.mounts.get(assignment.mount)
        if mount is None:
            mount = TwinMount(assignment=assignment, manifest=self._manifests(assignment.manifest))
            self._begin(node, assignment.mount, mount)
        elif mount.assignment.manifest != assignment.manifest:
            outdated = set(mount.manifest.block_ids.tolist())
            mount.manifest, mount.failed, mount.waiting = self._manifests(assignment.manifest), {}, {}
            for block in outdated - set(mount.manifest.block_ids.tolist()):
                self._remove(node, block)
            mount.looked_up = {}
        mount.assignment = assignment
        mount.selections = {}
        if assignment.check is None:
            mount.check, mount.refused = None, set()
            mount.failed = {
                path: failure for path, failure in mount.failed.items() if failure.code != "Wrong"
            }
        elif mount.check is not None and assignment.check.id != mount.check.id:
            mount.check = None
        moving = mount.moving
        if moving is not None:
            block = mount.manifest.block_at(moving[0])
            if block is None or not mount.wanted("All", "Peers")[block]:
                moving[1].cancel()
        mount.working = True
        mount.news.set()

    def _begin(self, node: TwinNode, path: str, mount: TwinMount) -> None:
        node.mounts[path] = mount
        mount.task = asyncio.create_task(self._work(node, mount), name=f"agent {node.name} {path}")

    def _state(self, node: TwinNode) -> AgentState:
        worker = self._engine.state.workers[node.name]
        state = AgentState(
            node=node.name,
            instance=node.instance,
            revision=node.revision,
            capacity_bytes=worker.capacity,
            used_bytes=worker.used,
            disk_free_bytes=max(worker.capacity - worker.used - self.foreign.get(node.name, 0), 0),
            address=f"{node.name}:29991",
            mounts={path: self._mount_state(node, mount) for path, mount in node.mounts.items()},
        )
        if state != node.last:
            node.revision += 1
            node.last = state = msgspec.structs.replace(state, revision=node.revision)
        return state

    def _mount_state(self, node: TwinNode, mount: TwinMount) -> MountState:
        manifest, assignment = mount.manifest, mount.assignment
        held = self._held(node, mount)
        having = np.bincount(manifest.block_slots[held], minlength=slots.SLOTS)
        held_bytes = int(manifest.block_lengths[held].sum())
        now = time.monotonic()
        while mount.moved and now - mount.moved[0][0] > RATE_SECONDS:
            mount.moved.popleft()
        failing, failing_here = np.zeros((2, manifest.blocks), dtype=np.bool_)
        failed: dict[str, TwinFailure] = {}
        for path, failure in sorted(mount.failed.items()):
            numbers = mount.blocks_of_file(path)
            if numbers is not None:
                failing[numbers.start : numbers.stop] = True
                failing_here[numbers.start : numbers.stop] = failure.code in {"Unreadable", "SourceAway"}
                if failure.code != "Wrong" and held[numbers.start : numbers.stop].all():
                    continue  # it has just come
            failed[path] = failure
        return MountState(
            mount=assignment.mount,
            version=assignment.version,
            echo=echo_of(assignment) if assignment.version else "",
            manifest=manifest.digest,
            held_bytes=held_bytes,
            complete=slots.of_mask(having == mount.columns.blocks_of_slots),
            present=slots.of_mask(having > 0),
            parts=tuple(part_state(mount, part, held, failing) for part in assignment.parts),
            failures=failure_counts(mount, failed, held),
            failing=slots.bitmap(manifest.block_slots[failing & ~held]),
            failing_here=slots.bitmap(manifest.block_slots[failing_here & ~held]),
            source_away=any(file_failure.code == "SourceAway" for file_failure in failed.values()),
            no_room=any(file_failure.code == "NoRoom" for file_failure in failed.values()),
            failed=tuple(
                FileFailure(path=path, code=file_failure.code, reason=file_failure.reason)
                for path, file_failure in list(failed.items())[:FAILURES_NAMED]
            ),
            source_bytes=mount.source_bytes,
            peer_bytes=mount.peer_bytes,
            source_rate=sum(size for _, name, size in mount.moved if name == "put"),
            peer_rate=sum(size for _, name, size in mount.moved if name == "copy"),
            busy=mount.working,
            check=mount.check,
            fills=held_bytes < assignment.fill_bytes,
            early_files=assignment.early_files,
        )
