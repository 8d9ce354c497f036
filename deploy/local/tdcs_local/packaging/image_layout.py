"""A container image as an OCI image layout, made of the archive that `docker save` writes.

Engines before 25 write an archive of Docker's own form. Layers and configuration are the same in both forms, so an
image keeps its id. `skopeo copy oci:FOLDER docker://REGISTRY/NAME:TAG` or `crane push` bring it into a registry.
"""

import gzip
import hashlib
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

from tdcs_local.packaging.oci_layout import INDEX, MANIFEST

IMAGE_CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def write_image_layout(*, archive: Path, tag: str, folder: Path) -> str:
    """Write the layout of the one image of an archive into a new folder; gives the digest of its manifest.

    Args:
        archive: as `docker save REFERENCE` writes it.
        tag: the name of the image in the layout.
        folder: must not exist.

    Raises:
        FileExistsError: there is such a folder.
        ValueError: the archive holds no image, or more than one.
    """
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    with tarfile.open(archive) as tar:
        images = json.loads(_content(tar, "manifest.json"))
        if len(images) != 1:
            raise ValueError(f"{archive} holds {len(images)} images, not one")
        (image,) = images
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _blob(blobs, _content(tar, image["Config"]), media_type=IMAGE_CONFIG),
            "layers": [_layer(blobs, tar, name) for name in image["Layers"]],
        }
    entry = _blob(blobs, json.dumps(manifest).encode(), media_type=MANIFEST)
    annotated = {**entry, "annotations": {"org.opencontainers.image.ref.name": tag}}
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [annotated]}
    (folder / "index.json").write_text(json.dumps(index), encoding="utf-8")
    (folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}), encoding="utf-8")
    return str(entry["digest"])


def _content(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is not a file in {tar.name!r}")
    return file.read()


def _layer(blobs: Path, tar: tarfile.TarFile, name: str) -> dict[str, Any]:
    """A layer, compressed without a time, so that equal layers are equal blobs."""
    file = tar.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is not a file in {tar.name!r}")
    draft = blobs / "draft"
    with (
        draft.open("wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, mtime=0, filename="") as packed,
    ):
        shutil.copyfileobj(file, packed, 1 << 20)
    with draft.open("rb") as written:
        digest = hashlib.file_digest(written, "sha256").hexdigest()
    size = draft.stat().st_size
    draft.rename(blobs / digest)
    return {"mediaType": LAYER, "digest": f"sha256:{digest}", "size": size}


def _blob(blobs: Path, content: bytes, *, media_type: str) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}
