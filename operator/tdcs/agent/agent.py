"""The agent: makes its disk equal to what the operator assigned, and says how far it is.

One event loop decides; threads bring blocks (`source_carrier`, `peer_carrier`) and look at the folders (`inventory`);
calls to the worker run in the loop (`registrar`). At rest it only compares the times of two folders.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tdcs.agent.assignments import AssignmentFolder
from tdcs.agent.backoff import pause
from tdcs.agent.checks import Checker
from tdcs.agent.disk import Disk
from tdcs.agent.frames import News
from tdcs.agent.inventory import Inventory
from tdcs.agent.kept import KeptByViews
from tdcs.agent.lanes import Lanes
from tdcs.agent.ledger import Ledger
from tdcs.agent.mount import MountWork, Patience
from tdcs.agent.peer_carrier import PeerCarrier
from tdcs.agent.processors import Processors
from tdcs.agent.registrar import Registrar, lanes_now
from tdcs.agent.room import InFlight, Room
from tdcs.agent.source_carrier import IN_FLIGHT_BYTES, SourceCarrier
from tdcs.agent.strays import Strays
from tdcs.engine.agents import AgentState, Assignment, MountState
from tdcs.engine.alluxio.local_blocks import LocalBlocks
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.transfer import ManifestFetcher, ManifestUnavailableError
from tdcs.planning.manifest_format import BadManifestError

_log: Final = logging.getLogger(__name__)

_BUSY_TICK: Final = 0.1
_REST_TICK: Final = 1.0
_STATE_SECONDS: Final = 0.5
_STATE_SHARE: Final = 20
_REGISTERED_A_LANE: Final = 16
_DROPPED_AT_ONCE: Final = 256
_IDLE_SECONDS: Final = 1.0


class VersionError(Exception):
    """An assignment is older than the one that is known; the text names the mount and both versions."""


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """What an agent is.

    Attributes:
        node: name of its node.
        capacity_bytes: what the worker may hold.
        journal: identity of the journal that the blocks belong to.
        patience: how long peers are waited for.
    """

    node: str
    capacity_bytes: int
    journal: str
    patience: Patience = field(default_factory=Patience)


class Agent:
    """One node's agent. Use `run` for its life; all other methods in the same event loop unless they say otherwise.

    Args:
        settings: what it is.
        disk: its folders, made ready for the journal.
        worker: RPCs of the worker whose folder this is.
        fetcher: gets manifests into the disk's folder of them.
    """

    def __init__(
        self,
        *,
        settings: AgentSettings,
        disk: Disk,
        worker: LocalBlocks,
        manifests: ManifestFolder,
        fetcher: ManifestFetcher,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings: Final = settings
        self.disk: Final = disk
        self.manifests: Final = manifests
        self._fetcher: Final = fetcher
        self._clock: Final = clock
        self._assignments: Final = AssignmentFolder(disk.assignments)
        self.mounts: dict[str, MountWork] = {}
        self._lock: Final = threading.RLock()
        self.room: Final = Room(capacity=settings.capacity_bytes, free=disk.free_bytes, clock=clock)
        self.registrar: Final = Registrar(worker=worker, disk=disk, clock=clock)
        self.inventory: Final = Inventory(disk=disk, room=self.room, lock=self._lock, clock=clock)
        self.kept: Final = KeptByViews(disk=disk, clock=clock)
        self._strays: Final = Strays(
            disk=disk, manifests=manifests, inventory=self.inventory, registrar=self.registrar
        )
        self._processors: Final = Processors()
        self._stopped: Final = threading.Event()
        self._lanes: Final = Lanes(
            sources=SourceCarrier(
                disk=disk, room=self.room, stopped=self._stopped, in_flight=InFlight(IN_FLIGHT_BYTES)
            ),
            peers=PeerCarrier(
                disk=disk,
                room=self.room,
                journal=settings.journal,
                stopped=self._stopped,
                answer_seconds=settings.patience.answer,
            ),
            ended=self.wake,
            clock=clock,
        )
        self.checker: Final = Checker(disk=disk, registrar=self.registrar, stopped=self._stopped)
        self._state = AgentState(
            node=settings.node,
            instance=secrets.token_hex(8),
            revision=0,
            capacity_bytes=settings.capacity_bytes,
            journal=settings.journal,
        )
        self._state_due = 0.0
        self._changed = asyncio.Condition()
        self._wake = asyncio.Event()
        self._background: dict[str, asyncio.Task[Any]] = {}
        self._manifest_failures: dict[str, tuple[int, float]] = {}
        self._idle_due = 0.0
        self._idle_processors = 0.0
        self.ready = False

    # For the operator.

    @property
    def state(self) -> AgentState:
        """The last state."""
        return self._state

    async def state_after(self, *, instance: str, revision: int, wait_seconds: float) -> AgentState:
        """The state as soon as it is another one than that of `revision`, at the latest after so many seconds."""
        async with self._changed:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_seconds):
                    await self._changed.wait_for(
                        lambda: self._state.instance != instance or self._state.revision != revision
                    )
        return self._state

    def assign(self, assignments: Sequence[Assignment]) -> None:
        """Work by these assignments. All or none.

        Raises:
            VersionError: One is older than what is known.
        """
        for assignment in assignments:
            known = self.mounts.get(assignment.mount)
            version = known.wanted.version if known is not None and known.wanted is not None else 0
            if assignment.version < version:
                raise VersionError(
                    f"assignment {assignment.version} of {assignment.mount} is older than {version}, which node "
                    f"{self.settings.node} works by; the operator has to take the higher number"
                )
        for assignment in assignments:
            mount = self._mount(assignment.mount)
            if mount.wanted == assignment:
                continue
            with self._noting(mount.path):
                self._assignments.write(assignment)
            mount.assign(assignment)
            self.checker.assign(assignment.mount, assignment.check)
        self._publish(at_once=True)
        self.wake()

    def forget(self, mounts: Sequence[str]) -> None:
        """Drop all blocks of these mounts and forget them; unknown ones are fine."""
        for path in mounts:
            mount = self.mounts.get(path)
            if mount is None:
                continue
            with self._lock:
                mount.forgotten = True
                mount.wanted = None
            with self._noting(path):
                self._assignments.forget(path)
        self.wake()

    @contextmanager
    def _noting(self, path: str) -> Iterator[None]:
        """A disk that is full keeps no assignment from being worked by: a drop may be what makes room."""
        try:
            yield
        except OSError as error:
            _log.warning("what was assigned of %s cannot be noted on the disk: %s", path, error)

    def wake(self) -> None:
        """Look at what is to be done soon."""
        self._wake.set()

    def feed(self, mount: str, instance: int, place: int, wait_seconds: float) -> News:
        """What became readable of a mount; for the block service, in any thread."""
        found = self.mounts.get(mount)
        if found is None:
            self._stopped.wait(min(wait_seconds, 1.0))
            return News(1, 0, ())
        return found.readable.after(instance=instance, place=place, wait_seconds=wait_seconds)

    # Life.

    async def run(self) -> None:
        """Work until cancelled."""
        self._lanes.loop = asyncio.get_running_loop()
        for known in await asyncio.to_thread(self._assignments.read):
            mount = self._mount(known.mount)
            mount.forgotten = known.forgotten
            await self._open(mount, known.manifest)
        await asyncio.to_thread(self.inventory.look, list(self.mounts.values()))
        self.ready = True
        try:
            while True:
                busy = await self._tick()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_BUSY_TICK if busy else _REST_TICK):
                        await self._wake.wait()
                self._wake.clear()
        finally:
            self._stopped.set()
            for mount in self.mounts.values():
                mount.readable.close()
            for task in self._background.values():
                task.cancel()
            await asyncio.gather(*self._background.values(), return_exceptions=True)

    async def _tick(self) -> bool:
        """Start what is to be done; whether something is."""
        # One that runs may have begun before what makes another one due: that is asked when it has ended.
        if "inventory" not in self._background and self.inventory.due():
            self._start_look()
        if self.kept.due(held=self.inventory.generation):
            self._start("kept", asyncio.to_thread(self.kept.look))
        busy = False
        bringing = False
        working = [mount for mount in self.mounts.values() if not mount.at_rest()]
        for mount in working:
            self._follow_manifest(mount)
            if self.inventory.complete:
                self._lanes.start(mount)
            mount.pass_over_silent_peers()
            bringing = bringing or self._brings(mount)
        lanes = lanes_now(
            bringing=bringing,
            idle=self._idle(),
            waited=self._clock() - self.registrar.registered_at,
        )
        for mount in list(self.mounts.values()):
            busy = self.checker.start(mount, self._start) or busy
        for mount in working:
            busy = self._start_registration(mount, lanes=lanes) or busy
            if mount.forgotten and self._forgotten(mount):
                self._remove(mount)
        self._start_strays()
        self._publish()
        return busy or bringing or bool(self._background)

    def _brings(self, mount: MountWork) -> bool:
        return mount.source_lanes > 0 or any(health.lanes for health in mount.health.values())

    def _start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Run something beside the loop unless it runs already. Work that gives 0 found nothing to do: the next look
        has time until the next tick, or the loop would never rest while a worker is away.
        """
        if name in self._background:
            work.close()
            return
        task = asyncio.create_task(work, name=name)
        self._background[name] = task

        def ended(done: asyncio.Task[Any]) -> None:
            self._background.pop(name, None)
            if not done.cancelled() and (error := done.exception()) is not None:
                _log.error("%s failed: %s", name, error, exc_info=error)
            elif not done.cancelled() and done.result() == 0:
                return
            self._state_due = min(self._state_due, self._clock() + _STATE_SECONDS)
            self.wake()

        task.add_done_callback(ended)

    # Manifests.

    def _mount(self, path: str) -> MountWork:
        mount = self.mounts.get(path)
        if mount is None:
            mount = self.mounts[path] = MountWork(
                path=path,
                lock=self._lock,
                room=self.room,
                clock=self._clock,
                patience=self.settings.patience,
            )
        return mount

    def _follow_manifest(self, mount: MountWork) -> None:
        wanted = mount.wanted
        if wanted is None or (mount.ledger is not None and mount.ledger.manifest.digest == wanted.manifest):
            return
        _, until = self._manifest_failures.get(mount.path, (0, 0.0))
        if self._clock() >= until:
            self._start(f"manifest {mount.path}", self._get_manifest(mount, wanted))

    async def _get_manifest(self, mount: MountWork, wanted: Assignment) -> None:
        try:
            await self._fetcher.fetch(digest=wanted.manifest, urls=wanted.manifest_urls)
            await self._open(mount, wanted.manifest)
        except (ManifestUnavailableError, BadManifestError, OSError, ValueError) as error:
            failures = self._manifest_failures.get(mount.path, (0, 0.0))[0] + 1
            self._manifest_failures[mount.path] = (
                failures,
                self._clock() + pause(failures, first=0.5, most=30.0),
            )
            _log.warning("%s", error)
        else:
            self._manifest_failures.pop(mount.path, None)

    async def _open(self, mount: MountWork, digest: str) -> None:
        """Count by this manifest from now on; blocks of the one before it that it lacks become strangers."""

        def read() -> Ledger:
            return Ledger(self.manifests.open(digest))

        try:
            ledger = await asyncio.to_thread(read)
        except FileNotFoundError:
            return
        with self._lock:
            before, mount.ledger = mount.ledger, ledger
            if before is not None:
                ledger.adopt(before)
            if mount.wanted is not None and mount.wanted.manifest == digest:
                ledger.assign(mount.wanted)
        mount.readable.restart(())
        self.inventory.require()
        if before is not None:
            await self._look_now()
        self.wake()

    async def _look_now(self) -> None:
        while "inventory" in self._background:
            await asyncio.wait([self._background["inventory"]])
        self._start_look()
        await asyncio.wait([self._background["inventory"]])

    def _start_look(self) -> None:
        self._start("inventory", asyncio.to_thread(self.inventory.look, list(self.mounts.values())))

    # Bringing, registering, dropping.

    def _idle(self) -> float:
        """Processors that were idle lately; looked at once a second."""
        now = self._clock()
        if now >= self._idle_due:
            self._idle_due, self._idle_processors = now + _IDLE_SECONDS, self._processors.idle()
        return self._idle_processors

    def _start_registration(self, mount: MountWork, *, lanes: int) -> bool:
        ledger = mount.ledger
        if ledger is None or not self.inventory.complete:
            return False
        with self._lock:
            to_register, to_drop = ledger.waiting(all_blocks=mount.forgotten)
        if to_drop and (mount.forgotten or mount.wanted is not None):
            self._start(f"drop {mount.path}", self.registrar.drop(mount, most=_DROPPED_AT_ONCE))
        if to_register and lanes and not mount.forgotten:
            work = self.registrar.register(mount, most=_REGISTERED_A_LANE * lanes, lanes=lanes)
            self._start(f"register {mount.path}", work)
        return bool(to_register or to_drop)

    def _forgotten(self, mount: MountWork) -> bool:
        with self._lock:
            ledger = mount.ledger
            return ledger is None or not (ledger.held.any() or ledger.claimed.any())

    def _remove(self, mount: MountWork) -> None:
        del self.mounts[mount.path]
        mount.readable.close()
        self._assignments.remove(mount.path)
        self._prune()

    def _prune(self) -> None:
        digests = {mount.ledger.manifest.digest for mount in self.mounts.values() if mount.ledger is not None}
        digests |= {mount.wanted.manifest for mount in self.mounts.values() if mount.wanted is not None}
        self._start("prune", asyncio.to_thread(self.manifests.prune, keep=digests))

    def _start_strays(self) -> None:
        """Remove what lies here and belongs to nothing: blocks of older versions, and spooled ones of nobody.

        Only when every mount is known by an assignment of the operator and by its manifest. Blocks in the worker's
        folder that no manifest of ours ever named may be others' and stay.
        """
        if not self.mounts or not self.inventory.strangers or not self.inventory.complete:
            return
        for mount in self.mounts.values():
            if mount.wanted is None or mount.ledger is None:
                return
            if mount.ledger.manifest.digest != mount.wanted.manifest:
                return
        if self._strays.due():
            self._start("strays", self._remove_strays())

    async def _remove_strays(self) -> int:
        """How many were removed."""
        current = {mount.ledger.manifest.digest for mount in self.mounts.values() if mount.ledger is not None}
        removed, left = await self._strays.remove(current=current)
        if not removed and not left:
            self._prune()
        return removed

    # State.

    def _publish(self, *, at_once: bool = False) -> None:
        now = self._clock()
        if now < self._state_due and not at_once:
            return
        mounts: dict[str, MountState] = {}
        for path, mount in self.mounts.items():
            check = self.checker.state(path)
            mounts[path] = msgspec.structs.replace(mount.state(), check=check)
        state = msgspec.structs.replace(
            self._state,
            used_bytes=self.room.used + self.kept.bytes,
            kept_bytes=self.kept.bytes,
            disk_free_bytes=_rounded(self.disk.free_bytes()),
            mounts=mounts,
        )
        if state != self._state:
            self._state = msgspec.structs.replace(state, revision=self._state.revision + 1)
            self._start("tell", self._tell())
        took = self._clock() - now
        self._state_due = now + max(_STATE_SECONDS, took * _STATE_SHARE)

    async def _tell(self) -> int:
        async with self._changed:
            self._changed.notify_all()
        return 0


def _rounded(free: int) -> int:
    """Free space in steps, so that another process's small file is no news."""
    return free >> 24 << 24
