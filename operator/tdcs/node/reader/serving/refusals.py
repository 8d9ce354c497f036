"""What the node's agent has found wrong of its copies: it is not read, and the kernel forgets what it has of it.

The agent notes a wrong copy as a file in a folder of its mount, and may take the note back soon. So the kernel tells of
it, and what a folder has is read once when it is first watched: at the start of a process, that is what came while none
served.
"""

import functools
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tdcs.node.reader.serving import inotify
from tdcs.node.reader.serving.inotify import Event, Inotify
from tdcs.node.reader.serving.local_disks import LocalDisks
from tdcs.node.reader.serving.open_versions import OpenVersion

_log: Final = logging.getLogger(__name__)

_MOST_EARLY: Final = 65536
_COMES: Final = inotify.CREATED | inotify.MOVED_HERE
_GOES: Final = inotify.DELETED | inotify.MOVED_AWAY


class _Watched(NamedTuple):
    """A folder that is there: the number of its watch, -1 without one, and what is in it."""

    watch: int
    blocks: frozenset[int]


@dataclass(slots=True, eq=False)
class _Folder:
    """Where the wrong copies of a mount on one tier are noted, and the open versions of that mount, by number."""

    tier: str
    path: str
    versions: dict[int, OpenVersion] = field(default_factory=dict)
    watch: int = -1
    blocks: set[int] = field(default_factory=set)


class Refusals:
    """Follows the refusals of the versions that are open.

    Args:
        drop: has the kernel and this process forget what they have of these blocks (their ids) of a version.
    """

    def __init__(self, *, disks: LocalDisks, drop: Callable[[OpenVersion, Iterable[int]], None]) -> None:
        self._disks: Final = disks
        self._drop: Final = drop
        self._folders: Final[dict[str, _Folder]] = {}
        self._watched: Final[dict[int, _Folder]] = {}
        self._early: Final = deque[Event](maxlen=_MOST_EARLY)
        self._looks: Final[set[str]] = set()
        self._inotify: Inotify | None = None
        try:
            self._inotify = Inotify()
        except OSError as error:
            _log.warning(
                "the kernel does not tell what agents find wrong: %s; their folders are listed", error
            )

    @property
    def fd(self) -> int:
        """Can be read when `ready` is to be called; -1: there is none."""
        return self._inotify.fd if self._inotify is not None else -1

    def has(self, version: OpenVersion, block: int) -> bool:
        """Whether the node's copy of a block (its id) is wrong."""
        for tier in version.registration.tiers:
            folder = self._folders.get(f"{tier}/{version.refused}")
            if folder is not None and block in folder.blocks:
                return True
        return False

    def follow(self, versions: Iterable[OpenVersion]) -> None:
        """Follow those of these versions and of no others; to be called a few times a second."""
        folders: dict[str, _Folder] = {}
        for version in versions:
            for tier in version.registration.tiers:
                path = f"{tier}/{version.refused}"
                folders.setdefault(path, _Folder(tier, path)).versions[version.number] = version
        for path in self._folders.keys() - folders.keys():
            self._end(self._folders.pop(path))
        for path, new_folder in folders.items():
            folder = self._folders.setdefault(path, new_folder)
            before, folder.versions = folder.versions, new_folder.versions
            if folder is not new_folder and folder.blocks:
                for number in new_folder.versions.keys() - before.keys():
                    self._drop(new_folder.versions[number], folder.blocks)
        for tier in {folder.tier for folder in self._folders.values() if folder.watch < 0}:
            self._look(tier)

    def ready(self) -> None:
        """Take what the kernel tells."""
        if self._inotify is None:
            return
        for event in self._inotify.events():
            if event.kind & inotify.OVERFLOWED:
                for folder in self._watched.values():
                    folder.watch = -1  # it is listed again
                self._watched.clear()
            elif (watched_folder := self._watched.get(event.watch)) is None:
                self._early.append(event)  # the thread that watches the folder has not said so yet
            else:
                self._take(watched_folder, event)

    def _take(self, folder: _Folder, event: Event) -> None:
        if event.kind & inotify.ENDED:
            self._watched.pop(event.watch, None)
            folder.watch = -1
            folder.blocks.clear()
        elif event.name.isdecimal():
            block = int(event.name)
            if event.kind & _COMES:
                folder.blocks.add(block)
                self._tell(folder, (block,))
            elif event.kind & _GOES:
                folder.blocks.discard(block)

    def _tell(self, folder: _Folder, blocks: Iterable[int]) -> None:
        for version in folder.versions.values():
            self._drop(version, blocks)

    def _end(self, folder: _Folder) -> None:
        if self._watched.pop(folder.watch, None) is not None and self._inotify is not None:
            self._inotify.end(folder.watch)

    def _look(self, tier: str) -> None:
        if tier in self._looks or self._disks.hangs(tier):
            return
        self._looks.add(tier)
        paths = [folder.path for folder in self._folders.values() if folder.tier == tier and folder.watch < 0]
        look = functools.partial(_watched, self._inotify, paths)
        self._disks.look(tier, look, functools.partial(self._follow, tier))

    def _follow(self, tier: str, watched_by_path: dict[str, _Watched] | None) -> None:
        self._looks.discard(tier)
        for path, watched in (watched_by_path or {}).items():
            folder = self._folders.get(path)
            if folder is None:
                continue
            new = watched.blocks - folder.blocks
            folder.blocks = set(watched.blocks)
            if watched.watch >= 0:
                folder.watch = watched.watch
                self._watched[watched.watch] = folder
            self._tell(folder, new)
        early = list(self._early)
        self._early.clear()
        for event in early:
            if (watched_folder := self._watched.get(event.watch)) is not None:
                self._take(watched_folder, event)
            elif self._looks:
                self._early.append(event)


def _watched(inotify: Inotify | None, paths: Iterable[str]) -> dict[str, _Watched]:
    """Those of these folders that are there, watched from before they are listed. In a thread of the disk."""
    watched = {}
    for path in paths:
        watch = -1
        try:
            if inotify is not None:
                watch = inotify.watch(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            _log.warning("%s is not watched, but listed: %s", path, error)
        with suppress(FileNotFoundError, NotADirectoryError):
            names = os.listdir(path)
            watched[path] = _Watched(watch, frozenset(int(name) for name in names if name.isdecimal()))
    return watched
