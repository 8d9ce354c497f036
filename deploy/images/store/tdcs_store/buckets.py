"""Buckets on the gateway's volume: filled whole or not at all, with a manifest of checksums next to them.

``ROOT/buckets/NAME`` is the bucket (the gateway serves ``ROOT/buckets``), ``ROOT/manifests/NAME.json`` its
manifest. A bucket is made in ``ROOT/staging`` and renamed into place, the manifest is written last: a kill
in between leaves a bucket without a manifest, which the next fill makes again.
"""

import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from .content import CHUNK, content, plan
from .state import write_json

_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_ETAG, _TYPE = "user.etag", "user.content-type"
"""Where the gateway keeps what S3 tells about an object."""
_TYPES = {".jpg": "image/jpeg", ".json": "application/json"}

Manifest = dict[str, Any]
Stream = tuple[str, Iterable[bytes]]


class BucketError(ValueError):
    """A bucket could not be filled or found; says why and what to do."""


class Buckets:
    """The buckets and manifests below one folder."""

    def __init__(self, *, root: Path) -> None:
        self.folder = root / "buckets"
        self._manifests = root / "manifests"
        self._staging = root / "staging"
        self._summaries: dict[str, tuple[int, Manifest]] = {}
        shutil.rmtree(self._staging, ignore_errors=True)  # what a killed fill left behind
        for folder in (self.folder, self._manifests, self._staging):
            folder.mkdir(parents=True, exist_ok=True)

    def manifest(self, name: str) -> Manifest | None:
        """``{bucket, parameters, totalBytes, totalFiles, files: [{path, size, sha256}]}``, None if not filled."""
        try:
            manifest: Manifest = json.loads((self._manifests / f"{_checked(name)}.json").read_text())
        except FileNotFoundError:
            return None
        return manifest

    def summaries(self) -> list[Manifest]:
        """The manifests without their files; each is read again only when it changed."""
        changed_at = {path.stem: path.stat().st_mtime_ns for path in self._manifests.glob("[!.]*.json")}
        for name, changed in changed_at.items():
            if self._summaries.get(name, (0, {}))[0] != changed:
                manifest = self.manifest(name)
                if manifest is not None:
                    self._summaries[name] = (changed, summary(manifest))
        return [self._summaries[name][1] for name in sorted(changed_at) if name in self._summaries]

    def holds(self, name: str, parameters: Manifest) -> Manifest | None:
        """The manifest, if the bucket was filled with these parameters and still has every file in its size."""
        manifest = self.manifest(name)
        if manifest is None or manifest["parameters"] != parameters:
            return None
        bucket = self.folder / name
        try:
            whole = all((bucket / file["path"]).stat().st_size == file["size"] for file in manifest["files"])
        except OSError:
            return None
        return manifest if whole else None

    def fill_from_seed(self, name: str, *, files: int, sizes: tuple[int, int], seed: str) -> Manifest:
        """Fill a bucket with made content; nothing is written when it holds just that already."""
        parameters = {"kind": "files", "files": files, "sizes": list(sizes), "seed": seed}
        need = files * sizes[1]
        self._require_space(name, need)
        streams = (
            (file.path, content(seed=seed, file=file)) for file in plan(files=files, sizes=sizes, seed=seed)
        )
        return self.holds(name, parameters) or self._fill(name, parameters, streams)

    def fill_from_archive(
        self, name: str, *, parameters: Manifest, sha256: str, archive: IO[bytes]
    ) -> Manifest:
        """Fill a bucket with the regular files of a tar stream, whose checksum tells that all of it came."""
        try:
            return self._fill(name, parameters, _members(name, _Hashed(archive), sha256))
        except tarfile.TarError as error:
            raise BucketError(f"bucket {name}: what was sent is not a whole tar archive ({error})") from error

    def remove(self, name: str) -> Manifest | None:
        """Remove a bucket that was filled, with its manifest; gives that, None if there was none."""
        manifest = self.manifest(name)
        if manifest is None:
            return None
        (self._manifests / f"{name}.json").unlink(missing_ok=True)
        self._summaries.pop(name, None)
        staging = Path(tempfile.mkdtemp(dir=self._staging, prefix=f"{name}-"))
        try:
            (self.folder / name).rename(staging / "old")
        except FileNotFoundError:
            pass  # a client of S3 has removed it
        finally:
            shutil.rmtree(staging)
        return manifest

    def _fill(self, name: str, parameters: Manifest, streams: Iterable[Stream]) -> Manifest:
        bucket = self.folder / _checked(name)
        staging = Path(tempfile.mkdtemp(dir=self._staging, prefix=f"{name}-"))
        try:
            folder = staging / "new"
            folder.mkdir(mode=0o755)
            files = [_write(folder, path, chunks) for path, chunks in streams]
            (self._manifests / f"{name}.json").unlink(missing_ok=True)
            if bucket.exists():
                bucket.rename(staging / "old")
            folder.rename(bucket)
        except OSError as error:
            raise BucketError(
                f"bucket {name} could not be written: {error}; free space or fill less"
            ) from error
        finally:
            shutil.rmtree(staging)
        manifest = {
            "bucket": name,
            "parameters": parameters,
            "totalBytes": sum(file["size"] for file in files),
            "totalFiles": len(files),
            "files": files,
        }
        write_json(self._manifests / f"{name}.json", manifest)
        return manifest

    def _require_space(self, name: str, need: int) -> None:
        free = shutil.disk_usage(self.folder).free
        if need > free * 0.9 and not (self.folder / name).exists():
            raise BucketError(
                f"bucket {_checked(name)} needs up to {need} bytes and the store's volume has {free} free: "
                "ask for fewer or smaller files"
            )


def summary(manifest: Manifest) -> Manifest:
    """A manifest without its list of files."""
    return {key: value for key, value in manifest.items() if key != "files"}


def _write(root: Path, path: str, chunks: Iterable[bytes]) -> Manifest:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    sha256, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    with target.open("xb") as file:
        for chunk in chunks:
            file.write(chunk)
            sha256.update(chunk)
            md5.update(chunk)
            size += len(chunk)
    os.setxattr(target, _ETAG, f'"{md5.hexdigest()}"'.encode())
    os.setxattr(target, _TYPE, _TYPES.get(target.suffix, "binary/octet-stream").encode())
    return {"path": path, "size": size, "sha256": sha256.hexdigest()}


class _Hashed(io.RawIOBase):
    """Reads through to a stream and hashes what passes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.sha256 = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.sha256.update(data)
        return data


def _members(name: str, archive: _Hashed, sha256: str) -> Iterator[Stream]:
    with tarfile.open(fileobj=archive, mode="r|") as tar:
        for member in tar:
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts:
                raise BucketError(f"bucket {name}: the archive names {member.name!r}, outside of the bucket")
            file = tar.extractfile(member) if member.isfile() else None
            if file is not None:
                yield str(path), iter(partial(file.read, CHUNK), b"")
    while archive.read(CHUNK):  # what pads an archive
        pass
    # tarfile takes an archive that was cut between two members for a whole one
    if archive.sha256.hexdigest() != sha256:
        raise BucketError(f"bucket {name}: the archive that came is not the one that was sent: send it again")


def _checked(name: str) -> str:
    if not _BUCKET.fullmatch(name):
        raise BucketError(
            f"{name!r} is no bucket name: 3 to 63 lower-case letters, digits and dashes, no dash at the ends"
        )
    return name
