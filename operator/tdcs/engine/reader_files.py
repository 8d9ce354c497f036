"""The folder of a node's remote-read client: the versions that the node plugin registers there for it, and which files
are the client's own, where it runs as a user that is not root.

The folder stays root's: whoever takes such a client over can put nothing in the place of what root's processes write
there, read, or mount on.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from tdcs.engine.pod_wait_table import POD_WAITS

HOLDERS: Final = "holders"
FAILURES: Final = "failures"
READERS: Final = "readers"
KEEPERS: Final = "keepers"
SERVING: Final = "serving"

_FOLDERS: Final = (HOLDERS, FAILURES)
_FILES: Final = (POD_WAITS, READERS, KEEPERS, SERVING)
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CALLERS: Final = 0o660

MOST_VERSIONS: Final = (1 << 24) - 1
"""The highest number that a version can have."""
DRAFT: Final = ".new"
"""What follows a file's name while it is written."""

_LAST_NUMBER: Final = "last-number"
_FIRST_DAY: Final = 1_767_225_600
"""The first second of 2026."""
_SECONDS_A_NUMBER: Final = 64
_NAME: Final = re.compile(rb"[a-z0-9][a-z0-9.-]{0,251}\.[0-9a-f]{32}")


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a dataset on a node, as its node plugin registers it with the remote-read client.

    Attributes:
        number: of the version on this node: its files and folders are known to the kernel by it, so no other version
            ever gets it. One that is 0 is not shown.
        path: of the mount in the cache, `/datasets/<id>`.
        manifest: file with its manifest.
        tiers: folders of this node's cache, which may hold some of its blocks.
    """

    number: int = 0
    cluster: str
    path: str
    manifest: str
    tiers: tuple[str, ...] = ()


class RegisteredVersions:
    """The registrations of a node: a file for each, which is there as a whole or not at all.

    A file is named CLUSTER.DIGEST, as the version's folder in the client's file system is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder

    def names(self) -> list[str]:
        with suppress(FileNotFoundError):
            return sorted(name for name in os.listdir(self.folder) if _NAME.fullmatch(os.fsencode(name)))
        return []

    def read(self, name: str) -> Registration | None:
        """The registration of this name; None when there is none that can be read."""
        if not _NAME.fullmatch(os.fsencode(name)):
            return None
        try:
            return msgspec.json.decode((self.folder / name).read_bytes(), type=Registration)
        except (OSError, msgspec.MsgspecError):
            return None

    def by_number(self) -> dict[int, list[str]]:
        """The versions that are registered with each number: one. Of more than one none has it by right."""
        names_by_number: dict[int, list[str]] = {}
        for name in self.names():
            registration = self.read(name)
            if registration is not None:
                names_by_number.setdefault(registration.number, []).append(name)
        return names_by_number


class VersionNumbers:
    """Gives versions their numbers, for the node plugin.

    A number is never given twice: the kernel may know files by it for as long as a pod has them open, also when their
    version is registered no more. So the last one is on the disk before a version has it. When that file is lost, they
    go on from the time of day, which is ahead of all of them unless one was given a minute.

    Args:
        root: the client's folder.
        now: seconds since 1970.
    """

    def __init__(
        self, root: Path, *, registered: RegisteredVersions, now: Callable[[], float] = time.time
    ) -> None:
        self._last: Final = root / _LAST_NUMBER
        self._registered: Final = registered
        self._now: Final = now
        self._numbers: Final[dict[str, int]] = {}

    def register(self, name: str, registration: Registration) -> None:
        """Have a version registered as this says, with its number, or with a new one. Raises OSError."""
        self._registered.folder.mkdir(parents=True, exist_ok=True)
        with _turn(self._registered.folder):
            present = self._registered.read(name)
            numbers = {
                existing.number
                for other_name in self._registered.names()
                if other_name != name and (existing := self._registered.read(other_name)) is not None
            }
            number = (present.number if present is not None else 0) or self._numbers.get(name, 0)
            if not number or number in numbers:
                number = self._next(numbers)
            self._numbers[name] = number
            numbered = msgspec.structs.replace(registration, number=number)
            if present != numbered:
                write_durably(self._registered.folder / name, msgspec.json.encode(numbered))

    def _next(self, numbers: set[int]) -> int:
        try:
            last = int(self._last.read_bytes())
        except (FileNotFoundError, ValueError):
            last = int(self._now() - _FIRST_DAY) // _SECONDS_A_NUMBER
        number = max(last, 0, *numbers) + 1
        if number > MOST_VERSIONS:
            raise OSError(f"this node has shown {MOST_VERSIONS} versions; remove {self._last} and reboot it")
        write_durably(self._last, b"%d\n" % number)
        return number


def give_files(root: Path, *, user: int) -> None:
    """Have a client of this user write what is its own. The caller is root; raises OSError."""
    root.mkdir(parents=True, exist_ok=True)
    for name in _FOLDERS:
        with suppress(FileExistsError):
            (root / name).mkdir()
        _give(os.open(root / name, _FOLDER), user)
    for name in _FILES:
        _give(os.open(root / name, _FILE, 0o600), user)


def admit(socket: Path, *, user: int) -> None:
    """Have a client of this user connect to the holder's socket. Raises OSError."""
    os.chmod(socket, _CALLERS)
    os.chown(socket, -1, user, follow_symlinks=False)


def write_durably(file: Path, content: bytes) -> None:
    """Replace a small file: it has the old or the new content, also after a power cut. Raises OSError."""
    draft = file.with_name(f"{file.name}{DRAFT}")
    with draft.open("wb") as written:
        written.write(content)
        written.flush()
        os.fsync(written.fileno())
    os.replace(draft, file)
    folder = os.open(file.parent, _FOLDER)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """One process, and one thread of it, at a time."""
    descriptor = os.open(folder, _FOLDER)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _give(descriptor: int, user: int) -> None:
    try:
        os.fchown(descriptor, user, user)
    finally:
        os.close(descriptor)
