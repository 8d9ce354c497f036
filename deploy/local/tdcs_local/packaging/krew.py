"""`kubectl tdcs` as a plugin of krew: an archive with a launcher, and the manifest that krew's index takes.

The command itself is the Python package `tdcs`. The launcher runs one that is installed, else one of the release's own
version by uv or pipx.
"""

import gzip
import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import yaml

PLUGIN = "tdcs"
API_VERSION = "krew.googlecontainertools.github.com/v1alpha2"

LAUNCHER = """#!/bin/sh
# kubectl tdcs: runs the command tdcs, which is a Python package (3.11 or later).
set -e
if command -v tdcs >/dev/null 2>&1; then exec tdcs "$@"; fi
if command -v uvx >/dev/null 2>&1; then exec uvx --from "tdcs==@VERSION@" tdcs "$@"; fi
if command -v pipx >/dev/null 2>&1; then exec pipx run --spec "tdcs==@VERSION@" tdcs "$@"; fi
echo "kubectl tdcs needs the Python package tdcs: install it (pip install tdcs==@VERSION@), or uv, or pipx" >&2
exit 1
"""

PLATFORMS = (("linux", "amd64"), ("linux", "arm64"), ("darwin", "amd64"), ("darwin", "arm64"))
"""The launcher is a shell script: the archive is the same for all of them."""


def write_plugin(*, version: str, url: str, license_file: Path, folder: Path) -> Path:
    """Write the archive and the manifest into a folder; gives the manifest.

    Args:
        version: of the release, without a v.
        url: where the release's files will be downloaded from, without the name of a file.
        license_file: goes into the archive, as krew demands.
        folder: where to write.
    """
    archive = folder / f"kubectl-{PLUGIN}-{version}.tar.gz"
    launcher = LAUNCHER.replace("@VERSION@", version).encode()
    archive.write_bytes(
        _archive({f"kubectl-{PLUGIN}": (launcher, 0o755), "LICENSE": (license_file.read_bytes(), 0o644)})
    )
    manifest = _manifest(
        version=version,
        uri=f"{url.rstrip('/')}/{archive.name}",
        digest=hashlib.sha256(archive.read_bytes()).hexdigest(),
    )
    path = folder / f"{PLUGIN}.yaml"
    path.write_text(yaml.safe_dump(manifest, sort_keys=False, width=110), encoding="utf-8")
    return path


def _manifest(*, version: str, uri: str, digest: str) -> dict[str, Any]:
    names = (f"kubectl-{PLUGIN}", "LICENSE")
    return {
        "apiVersion": API_VERSION,
        "kind": "Plugin",
        "metadata": {"name": PLUGIN},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "Cache-aware deep-learning jobs",
            "description": (
                "Shows datasets, caches and training jobs of TDCS (status, top, ui), explains why a pod is where it is "
                "(explain), and says what would become of a job before it is applied (plan).\n"
            ),
            "caveats": "Needs the Python package tdcs, or uv or pipx, which fetch it.\n",
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": system, "arch": machine}},
                    "uri": uri,
                    "sha256": digest,
                    "bin": f"kubectl-{PLUGIN}",
                    "files": [{"from": name, "to": "."} for name in names],
                }
                for system, machine in PLATFORMS
            ],
        },
    }


def _archive(files: dict[str, tuple[bytes, int]]) -> bytes:
    """A tar.gz that is the same whenever and by whomever it is made."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=0) as zipped:
        zipped.write(plain.getvalue())
    return packed.getvalue()
