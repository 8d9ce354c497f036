"""The agent: makes its disk equal to what the operator assigned, and says how far it is.

One event loop decides; threads bring blocks (`transfer`), drop them and look at the folders (`blocks`). At rest it only
compares the times of the folders.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from tdcs.listing.folder import ManifestFolder
from tdcs.listing.transfer import ManifestFetcher
from tdcs.model.agent_state import AgentState, Assignment, MountState
from tdcs.node.agent.agent_settings import AgentSettings, VersionError
from tdcs.node.agent.background import BackgroundWork
from tdcs.node.agent.blocks.block_lengths import BlockLengths
from tdcs.node.agent.blocks.checker import Checker
from tdcs.node.agent.blocks.dropper import Dropper
from tdcs.node.agent.blocks.inventory import Inventory
from tdcs.node.agent.blocks.strays import Strays
from tdcs.node.agent.blocks.view_bytes import KeptByViews
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.mount_notes import MountNotes
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.failure_notes import FailureNotes
from tdcs.node.agent.manifest_opener import ManifestOpener
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.agent.mount.source_state import SourceState
from tdcs.node.agent.mount.transfer_limits import InFlight
from tdcs.node.agent.node_processor import this_processor
from tdcs.node.agent.state_bound import bounded
from tdcs.node.agent.state_feed import StateFeed
from tdcs.node.agent.transfer.lanes import Lanes
from tdcs.node.agent.transfer.peer_puller import PeerPuller
from tdcs.node.agent.transfer.processors import Processors
from tdcs.node.agent.transfer.read_fills import ReadFills
from tdcs.node.agent.transfer.source_puller import IN_FLIGHT_BYTES, SourcePuller
from tdcs.node.wire.frames import News, SourceWanted
from tdcs.trust.contexts import Contexts

_log: Final = logging.getLogger(__name__)

_BUSY_TICK: Final = 0.1

_REST_TICK: Final = 1.0

_IDLE_ENOUGH: Final = 0.3
"""Processors with nothing to do, of which others than blocks that are brought may have some."""

_DROPPED_AT_ONCE: Final = 256


class KnownMount(msgspec.Struct, frozen=True, kw_only=True):
    """A mount as it is kept on the disk.

    Attributes:
        forgotten: all of it is to be dropped; the process ended before that was done.
        early_files: see `Assignment`.
    """

    mount: str
    manifest: str
    forgotten: bool = False
    early_files: int = 0


class AssignmentFolder(MountNotes[KnownMount]):
    """The mounts that this agent works on."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, kind=KnownMount)

    def assigned(self, assignment: Assignment) -> None:
        self.write(
            KnownMount(
                mount=assignment.mount, manifest=assignment.manifest, early_files=assignment.early_files
            )
        )

    def forgotten(self, mount: str) -> None:
        for note in self.read():
            if note.mount == mount:
                self.write(msgspec.structs.replace(note, forgotten=True))


class Agent:
    """One node's agent. Use `run` for its life; all other methods in the same event loop unless they say otherwise.

    Args:
        settings: what it is.
        disk: its folders, made ready.
        fetcher: gets manifests into the disk's folder of them.
        tls: contexts with which other agents are spoken to; None: plain TCP.
    """

    def __init__(
        self,
        *,
        settings: AgentSettings,
        disk: Disk,
        manifests: ManifestFolder,
        fetcher: ManifestFetcher,
        tls: Contexts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings: Final = settings
        self.disk: Final = disk
        self.manifests: Final = manifests
        self.fetcher: Final = fetcher
        self._opener: Final = ManifestOpener(manifests=manifests, fetcher=fetcher, clock=clock)
        self._clock: Final = clock
        self._assignments: Final = AssignmentFolder(disk.assignments)
        self.mounts: dict[str, MountWork] = {}
        self._lock: Final = threading.RLock()
        self.room: Final = Room(capacity=settings.capacity_bytes, free=disk.free_bytes, clock=clock)
        self.dropper: Final = Dropper(disk=disk, clock=clock)
        self.inventory: Final = Inventory(disk=disk, room=self.room, lock=self._lock, clock=clock)
        self._lengths: Final = BlockLengths(disk=disk, inventory=self.inventory, clock=clock)
        self.kept_by_views: Final = KeptByViews(disk=disk, clock=clock)
        self._fills: Final = ReadFills(disk=disk, room=self.room, clock=clock)
        self._strays: Final = Strays(disk=disk, inventory=self.inventory, clock=clock)
        self._processors: Final = Processors(clock=clock)
        self._stopped: Final = threading.Event()
        self._lanes: Final = Lanes(
            sources=SourcePuller(
                disk=disk, room=self.room, stopped=self._stopped, in_flight=InFlight(IN_FLIGHT_BYTES)
            ),
            peers=PeerPuller(
                disk=disk,
                room=self.room,
                stopped=self._stopped,
                answer_seconds=settings.patience.answer,
                tls=tls.client if tls is not None else None,
            ),
            ended=self.wake,
            clock=clock,
        )
        self.checker: Final = Checker(disk=disk, room=self.room, dropper=self.dropper, stopped=self._stopped)
        self._feed: Final = StateFeed(
            AgentState(
                node=settings.node,
                instance=secrets.token_hex(8),
                revision=0,
                capacity_bytes=settings.capacity_bytes,
                target=this_processor(),
            ),
            clock=clock,
        )
        self._wake = asyncio.Event()
        self._background: Final = BackgroundWork(ended=self._ended, clock=clock)
        self._failures: Final = FailureNotes(disk=disk, clock=clock)
        self._forgotten_looks: Final[dict[str, int]] = {}
        """Mounts that were forgotten, and the look that says what is left of them."""
        self._early_manifests: Final[set[str]] = set()
        """Digests of manifests whose listings went on: nobody reads by them."""
        self.ready = False

    # For the operator.

    @property
    def state(self) -> AgentState:
        return self._feed.state

    async def state_after(self, *, instance: str, revision: int, wait_seconds: float) -> AgentState:
        """The state as soon as it is another one than that of `revision`, at the latest after so many seconds."""
        return await self._feed.after(instance=instance, revision=revision, wait_seconds=wait_seconds)

    def assign(self, assignments: Sequence[Assignment]) -> None:
        """Work by these assignments. All or none.

        Raises:
            VersionError: One is older than what is known, or another one of the same version.
        """
        for assignment in assignments:
            mount = self.mounts.get(assignment.mount)
            current = mount.assignment if mount is not None else None
            if current is None or assignment == current or assignment.version > current.version:
                continue
            how = "older than" if assignment.version < current.version else "another one than"
            raise VersionError(
                f"assignment {assignment.version} of {assignment.mount} is {how} {current.version}, which node "
                f"{self.settings.node} works by; the operator has to take a higher number"
            )
        for assignment in assignments:
            mount = self._mount(assignment.mount)
            if mount.assignment == assignment:
                continue
            with self._noting(mount.path):
                self._assignments.assigned(assignment)
            mount.assign(assignment)
            self._note_early(assignment.manifest, assignment.early_files)
            self.checker.assign(mount, assignment.check)
        self._publish(at_once=True)
        self.wake()

    def drop_mounts(self, mounts: Sequence[str]) -> None:
        """Drop all blocks of these mounts and forget them; unknown ones are fine."""
        for path in mounts:
            mount = self.mounts.get(path)
            if mount is None:
                continue
            with self._lock:
                mount.forgotten = True
                mount.assignment = None
            with self._noting(path):
                self._assignments.forgotten(path)
        self.wake()

    @contextmanager
    def _noting(self, path: str) -> Iterator[None]:
        """A disk that takes no notes ends no work: of one that is full, say, a drop may be what makes room."""
        try:
            yield
        except OSError as error:
            _log.warning("what was assigned of %s cannot be noted on the disk: %s", path, error)

    def wake(self) -> None:
        self._wake.set()

    def feed(self, mount: str, instance: int, place: int, wait_seconds: float) -> News:
        """What became readable of a mount; for the block service, in any thread."""
        known_mount = self.mounts.get(mount)
        if known_mount is None:
            self._stopped.wait(min(wait_seconds, 1.0))
            return News(1, 0, ())
        return known_mount.readable.after(instance=instance, place=place, wait_seconds=wait_seconds)

    def source_of(self, mount: str) -> SourceState | None:
        """How the source of a mount answers; None: the mount is unknown. For the block service, in any thread."""
        known_mount = self.mounts.get(mount)
        return None if known_mount is None else known_mount.source

    def read_on(self, block: int) -> None:
        """A pod of this node reads the block with this id and goes on from there; for the block service, in any
        thread."""
        for mount in list(self.mounts.values()):
            mount.read_on(block)

    def keep_read(self, piece: SourceWanted, content: memoryview) -> None:
        """Keep a piece that was read for a reader, where reads fill the cache; for the block service, in any thread."""
        mount = self.mounts.get(piece.mount)
        if mount is not None:
            self._fills.keep(mount, piece, content)

    # Life.

    async def run(self) -> None:
        self._lanes.loop = asyncio.get_running_loop()
        for note in await asyncio.to_thread(self._assignments.read):
            mount = self._mount(note.mount)
            mount.forgotten, mount.early_files = note.forgotten, note.early_files
            self._note_early(note.manifest, note.early_files)
            await self._open(mount, note.manifest)
        await asyncio.to_thread(self.inventory.look, list(self.mounts.values()))
        self._publish(at_once=True)
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
            await self._background.cancel()

    async def _tick(self) -> bool:
        # One that runs may have begun before what makes another one due: that is asked when it has ended.
        if "inventory" not in self._background and self.inventory.due():
            self._start_look()
        if self.kept_by_views.due(held=self.inventory.generation):
            self._background.start("kept", asyncio.to_thread(self.kept_by_views.look))
        if self._lengths.due():
            self._background.start("lengths", self._lengths.check())
        self._fills.give_up_idle(mounts=self.mounts)
        busy = False
        bringing = False
        working = [mount for mount in self.mounts.values() if not mount.at_rest()]
        if self.inventory.complete:
            self._lanes.start(working)
        for mount in working:
            assignment = mount.assignment
            if assignment is not None and self._opener.due(mount.path, assignment, ledger=mount.ledger):
                self._background.start(f"manifest {mount.path}", self._follow(mount, assignment))
            mount.pass_over_silent_peers()
            bringing = bringing or self._brings(mount)
        for mount in list(self.mounts.values()):
            busy = self.checker.start(mount, self._background.start) or busy
        for mount in working:
            busy = self._start_drop(mount) or busy
            if mount.forgotten and self._forgotten(mount):
                self._remove(mount)
        if self._failures.due(self.mounts.values()):
            self._background.start("failures", self._failures.keep(list(self.mounts.values())))
        if "strays" not in self._background:  # while some are removed, nobody goes through all of them
            if self._strays.due(self.mounts.values(), emptied=bool(self._forgotten_looks)):
                self._background.start("strays", self._remove_strays())
            elif (
                self._forgotten_looks
                and self._looked_since()
                and not self._strays.any_of(self._forgotten_looks)
            ):
                self._prune()
        self._publish()
        return busy or bringing or bool(self._background)

    @property
    def brings(self) -> bool:
        """Whether blocks are being brought, and no processor has time for anything else."""
        lanes = any(self._brings(mount) for mount in self.mounts.values())
        return lanes and self._processors.idle() < _IDLE_ENOUGH

    def _brings(self, mount: MountWork) -> bool:
        return mount.source.lanes > 0 or mount.peers.lanes > 0

    def _ended(self) -> None:
        self._feed.hurry()
        self.wake()

    # Mounts and their manifests.

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
            self.checker.restore(mount)
        return mount

    async def _follow(self, mount: MountWork, assignment: Assignment) -> None:
        if await self._opener.get(mount.path, assignment):
            await self._open(mount, assignment.manifest)

    async def _open(self, mount: MountWork, digest: str) -> None:
        """Count by this manifest from now on; blocks of the one before it that it lacks become strangers."""
        ledger = await self._opener.open(mount.path, digest)
        if ledger is None:
            return
        counted = mount.ledger is not None
        if not counted:
            self._failures.restore(mount.path, ledger)
        mount.opened(ledger)
        self.inventory.require()
        if counted:
            await self._look_now()
        await self._remove_early_manifests()
        self.wake()

    def _note_early(self, digest: str, files: int) -> None:
        if files:
            self._early_manifests.add(digest)

    async def _remove_early_manifests(self) -> None:
        """Remove those that another one has followed: no block that they alone name calls for it."""
        outdated = self._early_manifests - self._digests()
        self._early_manifests.difference_update(outdated)
        for digest in outdated:
            with self._noting(digest):
                await asyncio.to_thread(self.manifests.remove, digest)

    async def _look_now(self) -> None:
        await self._background.wait("inventory")
        self._start_look()
        await self._background.wait("inventory")

    def _start_look(self) -> None:
        self._background.start(
            "inventory", asyncio.to_thread(self.inventory.look, list(self.mounts.values()))
        )

    # Dropping.

    def _start_drop(self, mount: MountWork) -> bool:
        """Drop blocks of a mount that shall not be here; whether there are some."""
        if not self.inventory.complete or not mount.drops():
            return False
        self._background.start(f"drop {mount.path}", self.dropper.drop(mount, most=_DROPPED_AT_ONCE))
        return True

    def _forgotten(self, mount: MountWork) -> bool:
        with self._lock:
            ledger = mount.ledger
            return ledger is None or not (ledger.blocks_here or ledger.blocks_in_work)

    def _remove(self, mount: MountWork) -> None:
        del self.mounts[mount.path]
        mount.readable.close()
        with self._noting(mount.path):
            self.checker.remove(mount)
        with self._noting(mount.path):
            self._failures.remove(mount.path)
        # Blocks that no ledger named are known by a look that begins from now on.
        self._forgotten_looks[mount.path] = self.inventory.looks + 1 + ("inventory" in self._background)
        self.inventory.require()

    def _looked_since(self) -> bool:
        """Whether the folders were looked at since the last mount went."""
        return self.inventory.looks >= max(self._forgotten_looks.values(), default=0)

    def _prune(self) -> None:
        """Nothing is left of mounts that are gone: forget what named it."""
        # A note that stays says "forgotten": the next start of the process goes on with it.
        for path in self._forgotten_looks.keys() - self.mounts.keys():
            with self._noting(path):
                self._assignments.remove(path)
        self._forgotten_looks.clear()
        self._prune_manifests()

    def _prune_manifests(self) -> None:
        self._background.start("prune", asyncio.to_thread(self.manifests.prune, keep=self._digests()))

    def _digests(self) -> set[str]:
        """Of the manifests by which it works, or is to."""
        mounts = self.mounts.values()
        digests = {mount.ledger.manifest.digest for mount in mounts if mount.ledger is not None}
        return digests | {mount.assignment.manifest for mount in mounts if mount.assignment is not None}

    async def _remove_strays(self) -> None:
        if await self._strays.remove(self.mounts.values(), emptied=bool(self._forgotten_looks)):
            self._prune_manifests()  # an older version's blocks are gone

    def _publish(self, *, at_once: bool = False) -> None:
        if not at_once and not self._feed.due():
            return
        mounts: dict[str, MountState] = {}
        for path, mount in self.mounts.items():
            mounts[path] = msgspec.structs.replace(
                mount.state(), check=self.checker.state(path), fills=self._fills.fills(mount)
            )
        self._feed.publish(
            used_bytes=self.room.used + self.kept_by_views.bytes,
            kept_bytes=self.kept_by_views.bytes,
            disk_free_bytes=self.disk.free_bytes(),
            mounts=bounded(mounts),
        )
