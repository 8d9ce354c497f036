"""The blocks on this node's disks: one file a block, named by its id, in the agent's spool.

A file of several blocks has one file for all of them, named by the first one (`tdcs.node.extents`). It can be linked
once it is in the folder of those that are whole.

After a start of the machine nothing is linked before the agent has looked through what may have been lost with the
power (see `tdcs.node.store_boot`).

What the agent has found to differ from the source counts as not being here, although it may be here for a while: a
wrong copy that is held open can be dropped only later.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
from array import array
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from tdcs.api import names
from tdcs.engine.confined_path import open_plain_folder
from tdcs.model.block_identity import first_blocks
from tdcs.model.manifest import Manifest
from tdcs.node.csi.views.view_plan import FileKind, Inodes, Kinds, PlannedBlocks
from tdcs.node.store_boot import boot_file, is_doubtful, is_ready

_log: Final = logging.getLogger(__name__)

_POSITIVE: Final = (1 << 63) - 1
_CLOCK_TICK: Final = 50_000_000
"""Nanoseconds: a folder's time moves in steps, so a change right after a look may not show in it."""


class Folders(NamedTuple):
    """Open folders: of blocks, and of files of several blocks that are here whole."""

    blocks: list[int]
    whole: list[int]


class Store:
    """The blocks that views can link: those of the views' own tier, and of others on the same file system."""

    def __init__(self, *, tiers: Sequence[str], mount: str) -> None:
        """`tiers` are the tiers' folders, views are in the first one; `mount`: the path of what is mounted."""
        self._home: Final = tiers[0]
        self._tiers: Final = tiers
        self._folders: Final = [
            os.path.join(os.fsencode(tier), os.fsencode(folder))
            for tier in tiers
            for folder in (names.AGENT_SPOOL, names.AGENT_WHOLE)
        ]
        refused = os.fsencode(names.refused_folder(mount=mount))
        self._refused: Final = [os.path.join(os.fsencode(tier), refused) for tier in tiers]
        self._logged = False

    def stamp(self) -> int:
        """Changes whenever a block comes, goes, or is refused; -1 when that is not reliable yet, 0 without folders.

        Take it before `scan`.
        """
        noted = [boot_file(tier) for tier in self._tiers]
        stamps = [_stamp(place) for place in (*self._folders, *self._refused, *map(os.fsencode, noted))]
        if -1 in stamps:
            return -1
        return hash(tuple(stamps)) & _POSITIVE if any(stamps) else 0

    def scan(self, *, manifest: Manifest, kinds: Kinds) -> PlannedBlocks:
        """Where what holds all of each file is, and which files have refused blocks."""
        doubtful = any(map(is_doubtful, self._tiers))
        local = np.zeros(len(manifest), dtype=np.uint64)
        for folder in self._linkable():
            identifiers, inodes = _entries(folder)
            blocks = manifest.blocks_at(identifiers)
            in_version = blocks >= 0
            files = manifest.files_of(blocks[in_version])
            whole = kinds[files] == (FileKind.PARTS if _has_whole_files(folder) else FileKind.BLOCK)
            whole &= blocks[in_version] == first_blocks(manifest, files)
            local[files[whole]] = inodes[in_version][whole]
        # After the blocks: what is refused meanwhile changes the stamp, which was taken before both.
        refused = np.concatenate([_entries(folder)[0] for folder in self._refused])
        blocks = manifest.blocks_at(refused)
        wrong = np.unique(manifest.files_of(blocks[blocks >= 0])).astype(np.int64)
        local[wrong] = 0
        return PlannedBlocks(local, wrong, doubtful)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Folders]:
        """Descriptors of the folders in which blocks and whole files may be, in the order in which to look."""
        with contextlib.ExitStack() as stack:
            folders = Folders([], [])
            for folder in self._linkable():
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    opened = _opened(folder)
                    if opened is not None:
                        (folders.whole if _has_whole_files(folder) else folders.blocks).append(opened)
                        stack.callback(os.close, opened)
            yield folders

    def _linkable(self) -> Iterator[bytes]:
        """The folders on the file system of the views, no link leads to another one, of tiers that are ready."""
        home = os.fsencode(self._home)
        ready = {os.fsencode(tier).rstrip(b"/") for tier in self._tiers if is_ready(tier)}
        for folder in self._folders:
            tier = folder
            for name in (names.AGENT_SPOOL, names.AGENT_WHOLE):
                tier = tier.removesuffix(os.fsencode(name))
            if tier.rstrip(b"/") not in ready:
                continue
            if tier.rstrip(b"/") == home.rstrip(b"/"):
                yield folder
                continue
            try:
                if os.stat(folder).st_dev == os.stat(home).st_dev:
                    yield folder
                    continue
            except FileNotFoundError:
                continue
            if not self._logged:
                self._logged = True
                _log.warning(
                    "tier %s is on another file system than the views in %s: what it holds is read remotely",
                    *(os.fsdecode(tier).rstrip("/"), self._home),
                )


def _has_whole_files(folder: bytes) -> bool:
    return folder.endswith(os.fsencode(names.AGENT_WHOLE))


def _entries(folder: bytes) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Inodes]:
    """Ids and inodes of the blocks in a folder; none when it is not there."""
    identifiers, inodes = array("q"), array("Q")
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(FileNotFoundError, NotADirectoryError))
        opened = _opened(folder)
        if opened is not None:
            stack.callback(os.close, opened)
            listing = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=opened)
            stack.callback(os.close, listing)
            for entry in stack.enter_context(os.scandir(listing)):
                if entry.name.isdigit() and (identifier := int(entry.name)) <= _POSITIVE:
                    identifiers.append(identifier)
                    inodes.append(entry.inode())
    return np.array(identifiers, dtype=np.int64), np.array(inodes, dtype=np.uint64)


def _opened(folder: bytes) -> int | None:
    """A descriptor of a folder of blocks; None, and a line in the log, where a symbolic link is in its way: the
    worker's pod may write there, and only a stranger in it makes links."""
    try:
        return open_plain_folder(folder)
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.EXDEV}:
            raise
        _log.error("%s is, or is behind, a symbolic link: it is not read", os.fsdecode(folder))
        return None


def _stamp(folder: bytes) -> int:
    """When a folder last changed; 0 when it is not there, -1 when another change may not show yet."""
    try:
        changed = os.stat(folder, follow_symlinks=False).st_mtime_ns
    except FileNotFoundError:
        return 0
    return -1 if abs(time.time_ns() - changed) < _CLOCK_TICK else changed
