"""A packaged chart as an OCI image layout: `oras cp` or `skopeo copy` bring it into any registry, as `helm push` would.

See the OCI image specification (image-layout) and Helm's media types.
"""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import yaml

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CHART_CONFIG = "application/vnd.cncf.helm.config.v1+json"
CHART_CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


def write_layout(*, chart: Path, folder: Path) -> str:
    """Write the layout of a packaged chart into a new folder; gives the digest of its manifest.

    Raises:
        FileExistsError: there is such a folder.
    """
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    metadata = _chart_yaml(chart)
    config = _blob(blobs, json.dumps(metadata).encode(), media_type=CHART_CONFIG)
    content = _blob(blobs, chart.read_bytes(), media_type=CHART_CONTENT)
    annotations = {
        "org.opencontainers.image.title": metadata["name"],
        "org.opencontainers.image.version": metadata["version"],
        "org.opencontainers.image.description": metadata.get("description", ""),
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [content],
        "annotations": annotations,
    }
    entry = _blob(blobs, json.dumps(manifest).encode(), media_type=MANIFEST)
    # A tag of a registry has no plus.
    tag = str(metadata["version"]).replace("+", "_")
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [{**entry, "annotations": {"org.opencontainers.image.ref.name": tag}}],
    }
    (folder / "index.json").write_text(json.dumps(index), encoding="utf-8")
    (folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}), encoding="utf-8")
    return str(entry["digest"])


def _chart_yaml(chart: Path) -> dict[str, Any]:
    with tarfile.open(chart) as archive:
        member = next(
            entry for entry in archive if entry.name.count("/") == 1 and entry.name.endswith("/Chart.yaml")
        )
        file = archive.extractfile(member)
        assert file is not None
        document: dict[str, Any] = yaml.safe_load(file.read())
    return document


def _blob(blobs: Path, content: bytes, *, media_type: str) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}
