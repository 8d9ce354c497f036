"""A folder of manifests, each a file named by its digest: written at once or not at all, opened as a memory map."""

import contextlib
import mmap
import os
import re
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import IO, Final

from tdcs.planning.manifest import Manifest
from tdcs.planning.manifest_builder import ManifestBuilder
from tdcs.planning.manifest_format import DIGEST_LENGTH, BadManifestError

_DIGEST: Final = re.compile(f"[0-9a-f]{{{DIGEST_LENGTH}}}")
_PARTIAL: Final = ".partial-"


def is_digest(text: str) -> bool:
    """Whether a text has the form of a manifest's digest."""
    return _DIGEST.fullmatch(text) is not None


def open_manifest(file: Path, *, digest: str) -> Manifest:
    """The manifest in a file, as a memory map. Raises FileNotFoundError, or BadManifestError when it is damaged."""
    return open_manifest_file(os.open(file, os.O_RDONLY | os.O_CLOEXEC), digest=digest)


def open_manifest_file(descriptor: int, *, digest: str) -> Manifest:
    """As `open_manifest`, for a file that is open; the descriptor is closed."""
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
    """

    def __init__(self, path: Path) -> None:
        self.path: Final = path

    def file(self, digest: str) -> Path:
        """Where a manifest is, or would be; raises ValueError for what is no digest."""
        if not is_digest(digest):
            raise ValueError(f"{digest!r} is no manifest's digest: {DIGEST_LENGTH} hexadecimal digits")
        return self.path / digest

    def has(self, digest: str) -> bool:
        """Whether a manifest is here."""
        return self.file(digest).is_file()

    def digests(self) -> frozenset[str]:
        """All manifests that are here."""
        try:
            return frozenset(filter(is_digest, os.listdir(self.path)))
        except FileNotFoundError:
            return frozenset()

    def open(self, digest: str) -> Manifest:
        """A manifest as a memory map: takes milliseconds and no memory, whatever its size.

        It stays readable when the file is removed.

        Raises:
            FileNotFoundError: It is not here.
            BadManifestError: The file is damaged; remove it and fetch it again.
        """
        return open_manifest(self.file(digest), digest=digest)

    def write(self, builder: ManifestBuilder) -> str:
        """Finish a manifest and keep it; its digest. Raises OSError when the disk does not take it."""
        with self.partial() as file:
            digest = builder.finish(file.write)
            self.keep(file, digest=digest)
        return digest

    @contextlib.contextmanager
    def partial(self) -> Iterator[IO[bytes]]:
        """A new file in the folder under a name of its own. It is removed at the end unless `keep` was called."""
        self.path.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self.path, prefix=_PARTIAL, delete=False) as file:
            try:
                yield file
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(file.name)

    def keep(self, file: IO[bytes], *, digest: str) -> None:
        """Give a file of `partial` its digest as its name, once its bytes are on the disk."""
        file.flush()
        os.fsync(file.fileno())
        os.chmod(file.name, 0o644)
        os.replace(file.name, self.file(digest))

    def remove(self, digest: str) -> None:
        """Remove a manifest; one that is not here is fine."""
        self.file(digest).unlink(missing_ok=True)

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
                young = now - self.file(digest).stat().st_mtime < unused_seconds
                if not young and not (mounts and self._is_of(digest, mounts)):
                    self.remove(digest)
                    removed.append(digest)
        return removed

    def _is_of(self, digest: str, mounts: Collection[str]) -> bool:
        try:
            return self.open(digest).path in mounts
        except BadManifestError:
            return False

    def clear_partial(self) -> None:
        """Remove what killed processes left of unfinished files. At the start only: it would take a running write's."""
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self.path):
                if name.startswith(_PARTIAL):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(self.path / name)
