"""A folder of manifests, each a file named by its digest: written at once or not at all, opened as a memory map."""

import contextlib
import mmap
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import IO, Final

from tdcs.api import names
from tdcs.engine.confined_path import plain_folder
from tdcs.model.manifest import Manifest
from tdcs.model.manifest_builder import ManifestBuilder
from tdcs.model.manifest_format import DIGEST_LENGTH, BadManifestError

_DIGEST: Final = re.compile(f"[0-9a-f]{{{DIGEST_LENGTH}}}")
_PARTIAL: Final = ".partial-"
_PROGRESS: Final = ".listing-"
_PROGRESS_SECONDS: Final = 86_400.0
"""What came of a listing that nobody has gone on with for so long is removed."""


def _progress_name(mount: str) -> str:
    return f"{_PROGRESS}{names.mount_digest(mount)}"


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def open_manifest_file(descriptor: int, *, digest: str) -> Manifest:
    """The manifest in an open file, as a memory map; the descriptor is closed. Raises BadManifestError."""
    with open(descriptor, "rb") as opened:
        try:
            content = mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)
        except ValueError as error:
            raise BadManifestError(f"manifest {digest} is an empty file") from error
    return Manifest(content, digest=digest)


class ManifestFolder:
    """Manifests in one folder, which is made when the first one is written. Several processes may use it.

    The calls touch the disk: run `write` and `prune` in a thread.

    Args:
        path: the folder.
        confined: others may write to the folders above it: where one of them is a symbolic link, every call raises
            OSError. Each call opens the folder again, so it does not matter when a link is put there.
    """

    def __init__(self, path: Path, *, confined: bool = False) -> None:
        self.path: Final = path
        self.confined: Final = confined

    def file(self, digest: str) -> Path:
        """Where a manifest is, or would be; raises ValueError for what is no digest."""
        if not is_digest(digest):
            raise ValueError(f"{digest!r} is no manifest's digest: {DIGEST_LENGTH} hexadecimal digits")
        return self.path / digest

    def has(self, digest: str) -> bool:
        name = self.file(digest).name
        try:
            with self._opened() as folder:
                return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return False

    def digests(self) -> frozenset[str]:
        return frozenset(filter(is_digest, self._names()))

    def open(self, digest: str) -> Manifest:
        """A manifest as a memory map: takes milliseconds and no memory, whatever its size.

        It stays readable when the file is removed.

        Raises:
            FileNotFoundError: It is not here.
            BadManifestError: The file is damaged; remove it and fetch it again.
        """
        name = self.file(digest).name
        with self._opened() as folder:
            return open_manifest_file(
                os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder), digest=digest
            )

    def write(self, builder: ManifestBuilder, *, check: Callable[[], None] = lambda: None) -> str:
        """Finish a manifest and keep it; its digest. Raises OSError when the disk does not take it.

        Args:
            check: called before it is kept; when it raises, it is not.
        """
        with self.partial() as file:
            digest = builder.finish(file.write)
            check()
            self.keep(file, digest=digest)
        return digest

    @contextlib.contextmanager
    def partial(self) -> Iterator[IO[bytes]]:
        """A new file in the folder under a name of its own. It is removed at the end unless `keep` was called."""
        with self._opened(make=True) as folder:

            def opener(name: str, flags: int) -> int:
                return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)

            with open(f"{_PARTIAL}{secrets.token_hex(8)}", "xb", opener=opener) as file:
                try:
                    yield file
                finally:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(file.name, dir_fd=folder)

    def scratch(self) -> IO[bytes]:
        """A new file on the folder's disk that has no name, and goes when it is closed. Raises OSError."""
        with self._opened(make=True) as folder:
            return tempfile.TemporaryFile(dir=f"/proc/self/fd/{folder}")

    def open_progress(self, mount: str) -> int:
        """A descriptor of the file of what has come of a mount's listing, which is made if there is none. Raises
        OSError."""
        with self._opened(make=True) as folder:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(_progress_name(mount), flags, 0o600, dir_fd=folder)

    def remove_progress(self, mount: str) -> None:
        """Remove it. Raises OSError."""
        with contextlib.suppress(FileNotFoundError), self._opened() as folder:
            os.unlink(_progress_name(mount), dir_fd=folder)

    def keep(self, file: IO[bytes], *, digest: str) -> None:
        """Give a file of `partial` its digest as its name, once its bytes are on the disk."""
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), 0o644)
        name = self.file(digest).name
        with self._opened() as folder:
            os.replace(file.name, name, src_dir_fd=folder, dst_dir_fd=folder)

    def remove(self, digest: str) -> None:
        """Remove a manifest; one that is not here is fine."""
        name = self.file(digest).name
        with contextlib.suppress(FileNotFoundError), self._opened() as folder:
            os.unlink(name, dir_fd=folder)

    def prune(
        self, *, keep: Iterable[str], mounts: Collection[str] = (), unused_seconds: float = 0.0
    ) -> list[str]:
        """Remove all manifests but these; the digests of those that are gone.

        Args:
            keep: digests of manifests that are used.
            mounts: paths of mounts of which all manifests stay: which one is used is not known now.
            unused_seconds: what is younger stays all the same.
        """
        removed, now = [], time.time()
        for digest in sorted(self.digests().difference(keep)):
            with contextlib.suppress(FileNotFoundError):
                with self._opened() as folder:
                    written = os.stat(digest, dir_fd=folder, follow_symlinks=False).st_mtime
                young = now - written < unused_seconds
                if not young and not (mounts and self._is_of(digest, mounts)):
                    self.remove(digest)
                    removed.append(digest)
        self._prune_progress(now)
        return removed

    def _prune_progress(self, now: float) -> None:
        for name in self._names():
            if name.startswith(_PROGRESS):
                with contextlib.suppress(FileNotFoundError), self._opened() as folder:
                    written = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
                    if now - written > _PROGRESS_SECONDS:
                        os.unlink(name, dir_fd=folder)

    def _is_of(self, digest: str, mounts: Collection[str]) -> bool:
        try:
            return self.open(digest).path in mounts
        except BadManifestError:
            return False

    def clear_partial(self) -> None:
        """Remove what killed processes left of unfinished files. At the start only: it would take a running write's."""
        for name in self._names():
            if name.startswith(_PARTIAL):
                with contextlib.suppress(FileNotFoundError), self._opened() as folder:
                    os.unlink(name, dir_fd=folder)

    def _names(self) -> list[str]:
        """All names in the folder; none while it is not there."""
        with contextlib.suppress(FileNotFoundError), self._opened() as folder:
            return os.listdir(f"/proc/self/fd/{folder}")
        return []

    @contextlib.contextmanager
    def _opened(self, *, make: bool = False) -> Iterator[int]:
        """A descriptor of the folder; raises OSError."""
        if self.confined:
            with plain_folder(os.fspath(self.path), make=make) as folder:
                yield folder
            return
        if make:
            self.path.mkdir(parents=True, exist_ok=True)
        folder = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield folder
        finally:
            os.close(folder)
