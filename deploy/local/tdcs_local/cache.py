"""Expensive products, kept outside the checkout in folders keyed by what they were made of.

A product is made in a scratch folder and renamed into place, so whatever ends a build, a folder with the
product's name is whole. One lock per product name keeps two builds of it apart; a lock dies with its process.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from filelock import FileLock, Timeout

from tdcs_local.errors import LocalError
from tdcs_local.paths import cache_root

KEPT_VERSIONS = 4
"""As many as there are releases of Kubernetes to test with, so that none is built again in a round of all."""
KEY_LENGTH = 16


def digest(parts: Iterable[str | bytes]) -> str:
    """A key of some texts; their borders count, so ("ab", "c") and ("a", "bc") differ."""
    sha = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        sha.update(len(raw).to_bytes(8, "big"))
        sha.update(raw)
    return sha.hexdigest()[:KEY_LENGTH]


def files_digest(root: Path, files: Iterable[Path]) -> str:
    """A key of files: their paths below ``root``, whether they are executable, and their content."""
    parts: list[str | bytes] = []
    for file in sorted(files):
        executable = "x" if file.stat().st_mode & 0o100 else "-"
        parts += [f"{file.relative_to(root)}:{executable}", file.read_bytes()]
    return digest(parts)


def outdated(versions: Iterable[tuple[float, str]], *, current: str, keep: int = KEPT_VERSIONS) -> list[str]:
    """Which versions to drop: all but the ``keep`` last used, never the current one."""
    newest_first = [name for _, name in sorted(versions, reverse=True) if name != current]
    return newest_first[max(0, keep - 1) :]


@contextmanager
def locked(name: str, *, on_wait: Callable[[], None] | None = None, timeout: float = -1) -> Iterator[None]:
    """Holds the machine-wide lock of that name; ``on_wait`` is called once if another process has it."""
    folder = cache_root() / "locks"
    make_folder(folder)
    lock = FileLock(folder / f"{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if on_wait is not None:
            on_wait()
        try:
            lock.acquire(timeout=timeout)
        except Timeout as error:
            raise LocalError(
                what=f"another process is busy with {name}",
                why=f"its lock {folder / name}.lock was not released within {timeout:.0f} s",
                remedy="wait for the other run to end, or end it, then run again",
            ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def shared(name: str, *, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Holds the lock of that name together with others that share it; waits while one has it :func:`exclusive`."""
    with _open_lock(name) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is not None:
                on_wait()
            fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def exclusive(name: str) -> Iterator[bool]:
    """Holds the lock of that name alone, if it is free now; yields whether it does."""
    with _open_lock(name) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def product_folder(name: str, key: str) -> Path:
    """Where a product made of these inputs is, once it is made."""
    return cache_root() / "products" / name / key


def product(
    name: str,
    key: str,
    build: Callable[[Path], None],
    *,
    on_wait: Callable[[], None] | None = None,
    keep: int = KEPT_VERSIONS,
) -> Path:
    """The folder of product ``name`` made of inputs ``key``; if missing, ``build(scratch)`` makes it.

    The ``keep`` versions that were used last stay.

    Errors of ``build`` pass through, and leave nothing behind.
    """
    folder = product_folder(name, key)
    home = folder.parent
    if folder.is_dir():
        _touch(folder)
        return folder
    with locked(f"product-{name}", on_wait=on_wait):
        if folder.is_dir():  # made by the process that held the lock
            return folder
        make_folder(home)
        for leftover in home.glob(".scratch-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        scratch = home / f".scratch-{os.getpid()}"
        try:
            scratch.mkdir()
            build(scratch)
            scratch.rename(folder)
        except OSError as error:
            raise LocalError(
                what=f"{name} could not be put into the cache",
                why=str(error),
                remedy=f"see that {home} is writable and has room, or set TDCS_CACHE to another folder",
            ) from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        versions = [(entry.stat().st_mtime, entry.name) for entry in home.iterdir() if entry.is_dir()]
        for old in outdated(versions, current=key, keep=keep):
            shutil.rmtree(home / old, ignore_errors=True)
    return folder


def link_or_copy(source: Path, target: Path) -> None:
    """Puts a file at a second place, where nothing is: a hard link where both are on one disk, else a copy."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP}:
            raise
        shutil.copy2(source, target)


def make_folder(folder: Path) -> None:
    """Makes a folder of the cache, or says in a sentence why it can't be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LocalError(
            what=f"cannot make the cache folder {folder}",
            why=str(error),
            remedy="make it writable, or set TDCS_CACHE to a folder that is",
        ) from error


def _open_lock(name: str) -> IO[bytes]:
    """The file of a lock; the lock ends with the file, or with the process."""
    folder = cache_root() / "locks"
    make_folder(folder)
    return (folder / f"{name}.lock").open("ab")


def _touch(folder: Path) -> None:
    """Marks a version as used, so that it outlives others; a cache of somebody else's may refuse."""
    with contextlib.suppress(OSError):
        os.utime(folder)
