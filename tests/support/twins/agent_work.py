"""What agents in memory do: bring blocks, drop them, compare them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import numpy as np
from tests.support.twins.agent_mount import CannotError, Mask, TwinFailure, TwinMount, TwinNode
from tests.support.twins.engine import MemoryEngine, Operation

from tdcs.model import slots
from tdcs.model.agent_state import CheckState, FailureCode, FileFailure
from tdcs.model.cache_engine import Credentials, EngineError

FAILURES_NAMED = 20
TICK = 0.02
REST_TICK = 0.25
"""Between two looks at a mount of which nothing was to be done for `REST_AFTER` looks: hundreds of them would take the
time of a core otherwise. A new assignment is looked at at once."""
REST_AFTER = 100
RATE_STEP = 0.1
RETRY_FIRST = 0.05
RETRY_MAX = 1.0
PEER_PATIENCE = 2.0
"""Seconds after which a block that no peer has given is read from the source."""


class TwinWork:
    """The work of all agents of a cache in memory.

    Args:
        engine: the cache; agents have the blocks of its workers.

    Attributes:
        away: nodes with agents that cannot be reached; they go on with their work.
        hung: nodes with agents that answer no call.
        foreign: bytes that others take of a node's disk.
        rotten: says of a node and a file whether every copy there differs from the source.
        corrupted: single copies (node and block id) that differ, until they are replaced.
    """

    def __init__(self, *, engine: MemoryEngine) -> None:
        self._engine = engine
        self.away: set[str] = set()
        self.hung: set[str] = set()
        self.foreign: dict[str, int] = {}
        self.rotten: Callable[[str, str], bool] = lambda node, path: False
        self.corrupted: set[tuple[str, int]] = set()

    async def _work(self, node: TwinNode, mount: TwinMount) -> None:
        """Make the disk as it is assigned, for as long as the mount is known."""
        idle = 0
        while True:
            worker = self._engine.state.workers.get(node.name)
            moved, mount.news = len(mount.moved), asyncio.Event()
            if worker is not None and worker.live:
                with contextlib.suppress(EngineError, CannotError):  # its worker has died meanwhile, say
                    mount.working = await self._sweep(node, mount)
            resting = not mount.working and not mount.failed and len(mount.moved) == moved
            idle = idle + 1 if resting else 0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK if idle < REST_AFTER else REST_TICK):
                    await mount.news.wait()
                    idle = 0

    async def _sweep(self, node: TwinNode, mount: TwinMount) -> bool:
        """One look at all blocks; gives whether something is left that can be done."""
        held = self._held(node, mount)
        await self._drop(node, mount, held)
        blocks_to_pull, from_peers = mount.wanted("All"), mount.wanted("Peers")
        self._forget_failures(node, mount, blocks_to_pull)
        is_left, manifest = False, mount.manifest
        for block in np.flatnonzero((blocks_to_pull | from_peers) & ~self._held(node, mount)).tolist():
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
            is_left |= await self._bring(node, mount, block, source=bool(blocks_to_pull[block]))
        if mount.manifest is manifest:
            await self._compare(node, mount)
        return is_left

    def _forget_failures(self, node: TwinNode, mount: TwinMount, wanted: Mask) -> None:
        """Files that are not wanted here any more, or are here by now, are no failures."""
        open_blocks = wanted & ~self._held(node, mount)
        for path in [path for path, failure in mount.failed.items() if failure.code != "Wrong"]:
            file = mount.manifest.file_at(path.encode("utf-8", "surrogateescape"))
            numbers = mount.manifest.blocks_of(file) if file is not None else range(0)
            if not open_blocks[numbers.start : numbers.stop].any():
                del mount.failed[path]

    async def _bring(self, node: TwinNode, mount: TwinMount, block: int, *, source: bool) -> bool:
        """Bring one block, from a peer or the source; gives whether it is still to come."""
        peer = self._peer_with(node, mount, block)
        if peer is None:
            if not source:
                return False
            since = mount.waiting.setdefault(block, time.monotonic())
            is_origin = slots.mask_of(mount.assignment.origin)[mount.manifest.block_slots[block]]
            if not is_origin and mount.assignment.peers and time.monotonic() - since < PEER_PATIENCE:
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
        failure = mount.failed.get(path)
        tries = failure.tries + 1 if failure is not None else 1
        code: FailureCode = "SourceAway"
        if isinstance(error, CannotError):
            code = error.code
        elif not isinstance(error, EngineError):
            raise error
        reason = error.reason if isinstance(error, EngineError) else str(error)
        pause = min(RETRY_FIRST * 2 ** min(tries - 1, 16), RETRY_MAX)
        mount.failed[path] = TwinFailure(
            code=code, reason=reason, tries=tries, again_at=time.monotonic() + pause
        )
        return False

    async def _transfer(self, node: TwinNode, mount: TwinMount, block: int, peer: str | None) -> None:
        length, block_id = int(mount.manifest.block_lengths[block]), int(mount.manifest.block_ids[block])
        path = mount.path_of(block)
        file_bytes = int(mount.manifest.lengths[mount.manifest.file_of(block)])
        name = "copy" if peer is not None else "put"
        if self._engine.before is not None:
            await self._engine.before(Operation(name=name, worker=node.name, length=length))
        if peer is None:
            await self._read(node, mount, block_id, path, length, file_bytes)
        worker = self._engine.state.live_worker(node.name)
        if worker.used + length + self.foreign.get(node.name, 0) > worker.capacity:
            raise CannotError("NoRoom", f"only {worker.capacity - worker.used} bytes are free on {node.name}")
        worker.blocks[block_id] = length
        mount.moved.append((time.monotonic(), name, length))
        if peer is None:
            mount.source_bytes += length
            self._engine.source_bytes_read += length
        else:
            mount.peer_bytes += length
            self._engine.copied_bytes += length

    async def _read(
        self, node: TwinNode, mount: TwinMount, block_id: int, path: str, length: int, file_bytes: int
    ) -> None:
        """What reading a block from the source takes, and how it can fail."""
        bytes_left = float(length)
        while bytes_left > 0 and (rate := mount.assignment.bandwidth) is not None:
            seconds = min(bytes_left / rate, RATE_STEP)  # the share may change meanwhile
            await asyncio.sleep(seconds)
            bytes_left -= seconds * rate
        await self._engine.give(length)
        uri = mount.manifest.header.source
        files = self._engine.sources.get(uri)
        if files is None:
            raise CannotError("SourceAway", f"{uri}: there is no such bucket or folder")
        source_access = mount.assignment.source
        if source_access is not None and not self._engine.takes(
            Credentials(
                access_key_id=source_access.access_key_id,
                secret_access_key=source_access.secret_access_key,
                session_token=source_access.session_token,
            ),
            uri=uri,
        ):
            raise CannotError("SourceAway", f"{uri}: the source refused the credentials")
        now = (files() if callable(files) else files).get(path)
        if now is None:
            raise CannotError("Missing", "the source has it no more")
        if now != file_bytes:
            raise CannotError("Changed", "it has changed at the source since it was listed")
        if self._engine.refuse is not None:
            reason = self._engine.refuse(node.name, f"{uri}/{path}")
            if reason is not None:
                raise CannotError("Unreadable", reason)

    async def _drop(self, node: TwinNode, mount: TwinMount, held: Mask) -> None:
        to_drop = held & slots.mask_of(mount.assignment.drop)[mount.manifest.block_slots]
        to_drop &= ~mount.wanted("All", "Peers", "Nothing")
        if not to_drop.any():
            return
        mount.working = True
        if self._engine.before is not None:
            await self._engine.before(Operation(name="drop", worker=node.name))
        # The hook may have waited: what is wanted by now stays.
        to_drop &= slots.mask_of(mount.assignment.drop)[mount.manifest.block_slots]
        to_drop &= ~mount.wanted("All", "Peers", "Nothing")
        for block in np.flatnonzero(to_drop).tolist():
            self._remove(node, int(mount.manifest.block_ids[block]))

    def _remove(self, node: TwinNode, block_id: int) -> None:
        self._engine.state.workers[node.name].blocks.pop(block_id, None)
        self.corrupted.discard((node.name, block_id))

    async def _compare(self, node: TwinNode, mount: TwinMount) -> None:
        """The comparison that is asked for, once."""
        check = mount.assignment.check
        if check is None or (mount.check is not None and mount.check.done):
            return
        part = next(
            (part_of_mount for part_of_mount in mount.assignment.parts if part_of_mount.name == check.part),
            None,
        )
        mask = mount.blocks_of(part) if part is not None else np.ones(mount.manifest.blocks, dtype=np.bool_)
        refused = mask & np.isin(mount.manifest.block_ids, np.array(sorted(mount.refused), dtype=np.int64))
        if check.percent < 100:
            mask = mask & (mount.manifest.block_slots < max(slots.SLOTS * check.percent // 100, 1))
            if not mask.any():  # a few files: one at least
                mask = mount.blocks_of(part) if part is not None else mask
        files: set[int] = set()
        compared = 0
        wrong: dict[str, FileFailure] = {}
        for block in np.flatnonzero(mask & self._held(node, mount) | refused).tolist():
            block_id, path = int(mount.manifest.block_ids[block]), mount.path_of(block)
            length = int(mount.manifest.block_lengths[block])
            if refused[block]:
                mount.refused.discard(block_id)
                mount.failed.pop(path, None)
                await self._transfer(node, mount, block, None)
            for last in (True,) if refused[block] else (False, True):
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
                    mount.failed[path] = TwinFailure(code="Wrong", reason=text)
                else:
                    await self._transfer(node, mount, block, None)
        mount.check = CheckState(
            id=check.id,
            done=True,
            files=len(files),
            bytes=compared,
            wrong=tuple(wrong[path] for path in sorted(wrong)[:FAILURES_NAMED]),
            wrong_count=len(wrong),
        )

    def _is_wrong(self, node: TwinNode, block_id: int, path: str) -> bool:
        return (node.name, block_id) in self.corrupted or self.rotten(node.name, path)

    def _peer_with(self, node: TwinNode, mount: TwinMount, block: int) -> str | None:
        block_id = int(mount.manifest.block_ids[block])
        slot = int(mount.manifest.block_slots[block])
        for peer in mount.assignment.peers:
            worker = self._engine.state.workers.get(peer.node)
            if worker is None or not worker.live or peer.node in self.away | self.hung:
                continue
            if block_id in worker.blocks and slots.mask_of(peer.slots)[slot]:
                return peer.node
        return None

    def _held(self, node: TwinNode, mount: TwinMount) -> Mask:
        """Of the blocks of the manifest those that are here."""
        ids = np.fromiter(self._engine.state.workers[node.name].blocks, dtype=np.int64)
        held = np.zeros(mount.manifest.blocks, dtype=np.bool_)
        numbers = mount.manifest.blocks_at(ids) if len(ids) else np.array([], dtype=np.int64)
        held[numbers[numbers >= 0]] = True
        return held
