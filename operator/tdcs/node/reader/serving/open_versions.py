"""The versions that are read now: their trees, and who holds their blocks."""

import functools
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tdcs.api import names
from tdcs.engine.confined_path import is_private, open_plain_file
from tdcs.engine.holder_table import HolderTable
from tdcs.engine.read_reports import ReadFailure
from tdcs.engine.reader_files import Registration
from tdcs.listing.folder import open_manifest_file
from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS
from tdcs.model.manifest_format import BadManifestError
from tdcs.node.reader.registration import ReaderFolder, write_atomically
from tdcs.node.reader.serving.holder_order import across_zones, slot_holders, source_readers
from tdcs.node.reader.serving.local_disks import LocalDisks
from tdcs.node.reader.serving.version_tree import VersionTree

_log: Final = logging.getLogger(__name__)

_NOTHING: Final = HolderTable()
_PIECE: Final = 1 << 20
_LOOK_SECONDS: Final = 0.1


class OpenVersion:
    """A version with its manifest open.

    Args:
        registration: of the node plugin.
        tree: its files.
        node: name of this node; it needs no connection to its own disk.

    Attributes:
        file_lengths, block_ends, block_ids, block_lengths, block_slots: columns of the manifest, to take one number of
            them at a time: of an array that takes three times as long.
        refused: folder below each tier in which the agent notes its wrong copies of blocks.
        table: who holds what of its mount.
        loads_here: address of this node's own agent while that may be bringing some of the mount; empty else.
        read_at, registered_at: of the files with the table and the registration that were read last.
    """

    def __init__(
        self, *, number: int, name: str, registration: Registration, tree: VersionTree, node: str
    ) -> None:
        self.number: Final = number
        self.name: Final = name
        self.registration: Final = registration
        self.tree: Final = tree
        self.manifest: Final = tree.manifest
        self.file_lengths: Final = self.manifest.lengths.data
        self.block_ends: Final = self.manifest.block_ends.data
        self.block_ids: Final = self.manifest.block_ids.data
        self.block_lengths: Final = self.manifest.block_lengths.data
        self.block_slots: Final = self.manifest.block_slots.data
        self.refused: Final = names.refused_folder(mount=tree.manifest.path)
        self.table = _NOTHING
        self.across_zones = frozenset[str]()
        self.loads_here = ""
        self.read_at: tuple[int, int] | None = None
        self.registered_at: tuple[int, int] | None = None
        self._node: Final = node
        self._slot_holders: dict[int, tuple[str, ...]] = {}
        self._slot_readers: dict[int, tuple[str, ...]] = {}
        self._present = ALL_SLOTS

    def set_table(self, table: HolderTable) -> None:
        self.table = table
        self.across_zones = across_zones(table)
        self._slot_holders.clear()
        self._slot_readers.clear()
        own_agent = next((holder for holder in table.holders if holder.node == self._node), None)
        self._present = (
            own_agent.present if own_agent else NO_SLOTS if table.holders and self._node else ALL_SLOTS
        )
        self.loads_here = (
            own_agent.address
            if own_agent and own_agent.reads_source and own_agent.complete != ALL_SLOTS
            else ""
        )

    def may_be_here(self, block: int) -> bool:
        """Whether a block may be on this node, by what its agent said last."""
        slot = self.block_slots[block]
        return bool(self._present[slot >> 3] & (0x80 >> (slot & 7)))

    def blocks_of(self, file: int) -> range:
        return range(self.block_ends[file - 1] if file else 0, self.block_ends[file])

    def holders(self, slot: int) -> tuple[str, ...]:
        """Addresses of the agents that may have a block of a slot, those that have all of the slot first."""
        addresses = self._slot_holders.get(slot)
        if addresses is None:
            addresses = slot_holders(self.table, slot=slot, node=self._node)
            self._slot_holders[slot] = addresses
        return addresses

    def source_readers(self, slot: int) -> tuple[str, ...]:
        """Addresses of the agents that can read the source: see `source_readers`."""
        addresses = self._slot_readers.get(slot)
        if addresses is None:
            addresses = self._slot_readers[slot] = source_readers(self.table, slot=slot, node=self._node)
        return addresses


def stamp_of(file: str | Path) -> tuple[int, int]:
    status = os.stat(file)
    return status.st_mtime_ns, status.st_ino


class StillOpeningError(Exception):
    """A version is being opened: its disk has not given its manifest yet."""


class _Opened(NamedTuple):
    """What its disk has of a version: a tree, or the reason why there is none."""

    tree: VersionTree | None
    reason: str = ""


class OpenVersions:
    """All open versions of a process.

    Args:
        disks: by whose threads versions are opened; None: they are opened at once, however long that takes.

    Attributes:
        opened: is called when a version was opened by the disks, or could not be.
    """

    def __init__(self, *, folder: ReaderFolder, node: str, disks: LocalDisks | None = None) -> None:
        self._folder: Final = folder
        self._node: Final = node
        self._disks: Final = disks
        self._opening: Final[dict[str, str]] = {}
        self._failed: Final[set[str]] = set()
        self.opened: Callable[[], None] = lambda: None
        self._open: Final[dict[int, OpenVersion]] = {}
        self._names: Final[dict[int, str]] = {}
        self._absent: Final[set[int]] = set()

    def get(self, number: int) -> OpenVersion | None:
        """The version of a number; None when it is not registered any more, or its manifest is gone.

        Raises:
            StillOpeningError: it is not known yet: ask again when `opened` was called.
        """
        version = self._open.get(number)
        if version is not None or number in self._absent:
            return version
        for name in self._folder.registered.by_number().get(number, ()):
            version = self._load(name)
        if version is None:
            self._absent.add(number)  # until the next `refresh`: a program may ask for it all the time
        return version

    def name(self, number: int) -> str:
        return self._names.get(number, f"number {number}")

    def all(self) -> list[OpenVersion]:
        """The versions that are open."""
        return list(self._open.values())

    def numbers(self) -> set[int]:
        """Of all versions that are registered."""
        return set(self._folder.registered.by_number())

    def is_open(self, number: int) -> bool:
        return number in self._open

    def named(self, name: str) -> OpenVersion | None:
        """The version of a name, as `get` has it."""
        registration = self._folder.registered.read(name)
        if registration is None:
            return None
        version = self._open.get(registration.number)
        if version is not None and version.name == name:
            return version
        return self._load(name)

    def note_failure(self, version: OpenVersion, *, path: str, reason: str, stale: bool) -> None:
        """Leave word, for the operator, of a file that could be read from nowhere."""
        failure = ReadFailure(
            cluster=version.registration.cluster,
            mount=version.registration.path,
            node=self._node,
            path=path,
            reason=reason,
            stale=stale,
        )
        try:
            write_atomically(self._folder.failures / version.name, msgspec.json.encode(failure))
        except OSError as error:
            _log.warning("that a file cannot be read cannot be noted: %s", error)

    def refresh(self) -> None:
        """Read tables of holders that have changed, and close what is registered no more."""
        self._absent.clear()
        self._failed.clear()
        for number, version in list(self._open.items()):
            try:
                stamp = stamp_of(self._folder.versions / version.name)
            except FileNotFoundError:
                del self._open[number]
                continue
            if stamp != version.registered_at:
                registration = self._folder.registered.read(version.name)
                if registration is not None and registration.number != number:
                    del self._open[number]
                    continue
                if registration is not None:
                    version.registered_at = stamp
            self._read_table(version)

    def open_all(self) -> bool:
        """Open all that is registered, but for what is on disks that do not answer; whether nothing else is missing."""
        owners, complete = self._folder.registered.by_number(), True
        for name in self._folder.registered.names():
            try:
                complete = self._load(name, owners=owners) is not None and complete
            except StillOpeningError:
                continue
        while self._disks is not None and not all(map(self._disks.hangs, self._opening.values())):
            self._disks.wait(_LOOK_SECONDS)
        return complete and not self._failed

    def _load(self, name: str, *, owners: dict[int, list[str]] | None = None) -> OpenVersion | None:
        registration = self._folder.registered.read(name)
        if registration is None or name in self._failed:
            return None
        if name in self._opening:
            raise StillOpeningError
        number = registration.number
        if owners is None:
            owners = self._folder.registered.by_number()
        if not number or owners.get(number) != [name]:
            # What the kernel knows by this number may be another version's: it is shown to nobody.
            _log.error(
                "version %s is not shown: its number %d is not its own; restart the node plugin", name, number
            )
            return None
        open_it = functools.partial(_open, registration, name)
        if self._disks is None:
            return self._note(name, registration, open_it())
        disk = self._opening[name] = _disk_of(registration)

        def opened(answer: _Opened | None) -> None:
            self._opening.pop(name, None)
            if self._note(name, registration, answer or _Opened(None, "its disk does not read it")) is None:
                self._failed.add(name)
            self.opened()

        self._disks.look(disk, open_it, opened)
        raise StillOpeningError

    def _note(self, name: str, registration: Registration, opened: _Opened) -> OpenVersion | None:
        if opened.tree is None:
            _log.warning(
                "version %s cannot be shown: %s; the node plugin registers it again", name, opened.reason
            )
            return None
        number = registration.number
        version = OpenVersion(
            number=number, name=name, registration=registration, tree=opened.tree, node=self._node
        )
        self._open[number] = version
        self._names[number] = name
        self._absent.discard(number)
        self._read_table(version)
        _log.info("version %s is open: it has %d files", name, len(version.manifest))
        return version

    def _read_table(self, version: OpenVersion) -> None:
        file = self._folder.holders / version.name
        try:
            stamp = stamp_of(file)
            if stamp == version.read_at:
                return
            content = file.read_bytes()
            version.read_at = stamp  # one that is none is not looked at again, and said once
            version.set_table(msgspec.msgpack.decode(content, type=HolderTable))
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError, msgspec.MsgspecError) as error:
            _log.warning("the table of holders %s cannot be read: %s; the last one is used", file, error)


def _disk_of(registration: Registration) -> str:
    """The disk that a version's manifest is on: that of a tier, or one of its own."""
    manifest = registration.manifest
    return next((tier for tier in registration.tiers if manifest.startswith(f"{tier}/")), manifest)


def _open(registration: Registration, name: str) -> _Opened:
    """A version as its manifest has it, which only the node plugin may change, that has checked it."""
    try:
        descriptor = open_plain_file(registration.manifest)
        try:
            if not is_private(descriptor):
                reason = f"file {registration.manifest} can be changed by others than the node plugin"
                raise BadManifestError(reason)
            # It is in memory then: to read it as it is mapped would stop all of this process while the disk does.
            at = 0
            while piece := os.pread(descriptor, _PIECE, at):
                at += len(piece)
        except BaseException:
            os.close(descriptor)
            raise
        manifest = open_manifest_file(descriptor, digest=name.rpartition(".")[2])
    except (OSError, BadManifestError) as error:
        return _Opened(None, str(error))
    return _Opened(VersionTree(manifest=manifest, number=registration.number))
