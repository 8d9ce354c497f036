"""Container images written without a container engine: an archive as ``docker save`` makes it.

For images that are a few static programs: layers are plain tar files with fixed times and owners, so equal content
is an equal image, and images that share a layer carry it once.
"""

import hashlib
import io
import json
import posixpath
import tarfile
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

DEFAULT_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A file of a layer at ``path`` (without a leading slash): a copy of ``source``, a text, or a link."""

    path: str
    source: Path | None = None
    content: bytes = b""
    link: str = ""
    hard: bool = False
    mode: int = 0o755


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer on disk and its digest."""

    file: Path
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Image:
    """What an archive shall hold under the name ``reference``."""

    reference: str
    layers: Sequence[Layer]
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    env: Sequence[str] = field(default=(DEFAULT_PATH,))


def write_layer(file: Path, entries: Iterable[Entry]) -> Layer:
    """Writes a layer; folders on the way to an entry come by themselves."""
    folders: set[str] = set()
    with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as tar:
        for entry in entries:
            for parent in reversed(PurePosixPath(entry.path).parents):
                name = str(parent)
                if name != "." and name not in folders:
                    folders.add(name)
                    info = _info(name, mode=0o1777 if name == "tmp" else 0o755)
                    info.type = tarfile.DIRTYPE
                    tar.addfile(info)
            info = _info(entry.path, mode=entry.mode)
            if entry.link:
                info.type = tarfile.LNKTYPE if entry.hard else tarfile.SYMTYPE
                info.linkname = entry.link
                folders.add(entry.path)  # a linked folder must not be made again by what comes below it
                tar.addfile(info)
            elif entry.source is not None:
                info.size = entry.source.stat().st_size
                with entry.source.open("rb") as data:
                    tar.addfile(info, data)
            else:
                info.size = len(entry.content)
                tar.addfile(info, io.BytesIO(entry.content))
    with file.open("rb") as data:
        return Layer(file=file, sha256=hashlib.file_digest(data, "sha256").hexdigest())


def write_archive(file: Path, images: Iterable[Image], *, architecture: str) -> None:
    """Writes an archive of images that ``docker load`` and ``ctr images import`` take."""
    manifest: list[dict[str, object]] = []
    written: set[str] = set()
    with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as tar:
        for image in images:
            for layer in image.layers:
                name = f"{layer.sha256}/layer.tar"
                if name not in written:
                    written.add(name)
                    info = _info(name, mode=0o644)
                    info.size = layer.file.stat().st_size
                    with layer.file.open("rb") as data:
                        tar.addfile(info, data)
            config = _config(image, architecture=architecture)
            config_name = f"{hashlib.sha256(config).hexdigest()}.json"
            if config_name not in written:
                written.add(config_name)
                _add(tar, config_name, config)
            manifest.append(
                {
                    "Config": config_name,
                    "RepoTags": [image.reference],
                    "Layers": [f"{layer.sha256}/layer.tar" for layer in image.layers],
                }
            )
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def write_delta(saved: Path, file: Path, *, name: str, present: Container[str]) -> None:
    """Rewrites what ``docker save`` wrote as an OCI archive without the layers that the receiver has.

    ``present`` are digests (``sha256:...``) of blobs there, ``name`` is the image's full name in the archive. Layers
    go uncompressed, so that a layer's digest is the one that docker knows it by.
    """
    with tarfile.open(saved) as old, tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as new:
        (entry,) = json.loads(_read(old, "manifest.json"))
        config = _read(old, entry["Config"])
        digests: list[str] = json.loads(config)["rootfs"]["diff_ids"]
        layers: list[dict[str, object]] = []
        written: set[str] = set()
        for layer, digest in zip(entry["Layers"], digests, strict=True):
            member = old.getmember(layer)
            while member.issym():  # an equal layer elsewhere in the archive
                member = old.getmember(
                    posixpath.normpath(posixpath.join(posixpath.dirname(layer), member.linkname))
                )
            layers.append({"mediaType": _LAYER_TYPE, "digest": digest, "size": member.size})
            data = old.extractfile(member)
            if digest not in present and digest not in written and data is not None:
                written.add(digest)
                info = _info(_blob(digest), mode=0o644)
                info.size = member.size
                new.addfile(info, data)
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST_TYPE,
            "config": {"mediaType": _CONFIG_TYPE, "digest": _digest(config), "size": len(config)},
            "layers": layers,
        }
        raw = json.dumps(manifest).encode()
        described = {
            "mediaType": _MANIFEST_TYPE,
            "digest": _digest(raw),
            "size": len(raw),
            "annotations": {"io.containerd.image.name": name},
        }
        _add(new, _blob(_digest(config)), config)
        _add(new, _blob(_digest(raw)), raw)
        _add(new, "index.json", json.dumps({"schemaVersion": 2, "manifests": [described]}).encode())
        _add(new, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')


_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
_LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    data = tar.extractfile(name)
    return b"" if data is None else data.read()


def _config(image: Image, *, architecture: str) -> bytes:
    config = {
        "created": "1970-01-01T00:00:00Z",
        "architecture": architecture,
        "os": "linux",
        "config": {"Env": list(image.env), "Entrypoint": list(image.entrypoint), "Cmd": list(image.command)},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.sha256}" for layer in image.layers]},
        # without its name the programs of two equal images would be one image, and one name would be lost
        "comment": image.reference,
    }
    return json.dumps(config, sort_keys=True).encode()


def _info(name: str, *, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode = mode
    info.mtime = 0
    return info


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = _info(name, mode=0o644)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))
