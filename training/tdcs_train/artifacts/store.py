"""Where artifacts are written: a folder or an S3 bucket. An artifact appears whole or not at all.

Every artifact has a folder of its own, named by its key, with the manifest and the two files that it names. Their names
contain their digests, so that two writers of one key never mix their files.
"""

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tdcs_train.artifacts.manifest import FILE, ArtifactError, Manifest, decode, encode
from tdcs_train.errors import InputError

SCRATCH = ".writing-"
STALE_SECONDS = 24 * 3600
"""A scratch folder this old belongs to a writer that was killed."""


class ArtifactStore(Protocol):
    """A place for artifacts."""

    def find(self, key: str) -> Manifest | None:
        """The manifest of the whole artifact with this key, None if it is absent or damaged."""

    def publish(self, manifest: Manifest, files: Mapping[str, Path]) -> bool:
        """Write an artifact from files by name; False when another writer was first, whose artifact stays.

        Raises:
            InputError: the place cannot be written, or is full.
        """

    def location(self, key: str) -> str:
        """Where the artifact of this key is, for people."""


class FolderStore:
    """Artifacts in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def location(self, key: str) -> str:
        return str(self.folder / key)

    def find(self, key: str) -> Manifest | None:
        folder = self.folder / key
        try:
            manifest = decode((folder / FILE).read_bytes())
            sizes = {
                spec.name: (folder / spec.name).stat().st_size
                for spec in (manifest.library, manifest.parameters)
            }
        except (FileNotFoundError, NotADirectoryError, ArtifactError):
            return None
        except OSError as error:
            raise InputError(
                f"{folder} cannot be read: {error.strerror}; mend its permissions or choose another folder with -o"
            ) from error
        whole = all(sizes[spec.name] == spec.bytes for spec in (manifest.library, manifest.parameters))
        return manifest if whole and manifest.key == key else None

    def publish(self, manifest: Manifest, files: Mapping[str, Path]) -> bool:
        with _explained(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._remove_stale()
            scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=self.folder))
            try:
                for name, source in files.items():
                    shutil.copyfile(source, scratch / name)
                (scratch / FILE).write_bytes(encode(manifest))
                for path in scratch.iterdir():
                    path.chmod(0o444)
                    _sync(path)
                scratch.chmod(0o755)
                _sync(scratch)
                return self._rename(scratch, manifest.key)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)

    def _rename(self, scratch: Path, key: str) -> bool:
        final = self.folder / key
        for _ in range(10):  # each time another writer may come between
            try:
                os.rename(scratch, final)
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise
                if self.find(key) is not None:
                    return False
                # What is there is damaged: out of the way with it, by a rename too.
                grave = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=self.folder))
                try:
                    os.rename(final, grave / "damaged")
                except FileNotFoundError:
                    pass
                finally:
                    shutil.rmtree(grave, ignore_errors=True)
            else:
                _sync(self.folder)
                return True
        raise InputError(f"{final} keeps changing while it is written: stop the other writers")

    def _remove_stale(self) -> None:
        for path in self.folder.glob(f"{SCRATCH}*"):
            try:
                if time.time() - path.stat().st_mtime > STALE_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)
            except FileNotFoundError:
                continue  # its writer has just ended


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise InputError(
                f"{folder} is full, nothing was written: free some space or choose another with -o"
            ) from error
        reason = error.strerror or str(error)
        raise InputError(
            f"the artifact cannot be written to {folder}: {reason}; choose another folder with -o"
        ) from error


def open_store(output: str, *, endpoint: str | None = None) -> ArtifactStore:
    """The store that an `-o` argument names: a folder, or `s3://bucket/prefix`.

    Raises:
        InputError: it is neither, or there is an endpoint for a folder.
    """
    if not output:
        raise InputError("the output is empty: give -o a folder or s3://bucket/prefix")
    scheme, separator, location = output.partition("://")
    if not separator:
        if output.startswith("s3:"):
            raise InputError(f"the output {output} is no bucket: write s3://bucket/prefix")
        if endpoint is not None:
            raise InputError(
                f"the output {output} is a folder, which has no endpoint: "
                "leave --endpoint out, or write -o s3://bucket/prefix"
            )
        return FolderStore(Path(output))
    if scheme != "s3":
        raise InputError(f"artifacts are written to a folder or to s3://bucket/prefix, not to {output}")
    if not location.partition("/")[0]:
        raise InputError(f"the output {output} names no bucket: write s3://bucket/prefix")
    from tdcs_train.artifacts.bucket import BucketStore

    return BucketStore(output, endpoint=endpoint)
