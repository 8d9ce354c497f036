"""Caches of Triton's kernels as artifacts: packed once, for one GPU and one version of Triton, restored where both fit.

Triton keeps each kernel in a folder of its own, named by a digest of what it was made from, and looks it up by that. A
file for each group names the kernel's files by absolute paths, which are written again where a cache is restored.
"""

import io
import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tdcs_train.artifacts.loading import read_checked
from tdcs_train.artifacts.manifest import FILE, ArtifactError, Manifest, decode
from tdcs_train.errors import InputError

RUNTIME = "triton"
_GROUP = re.compile(r"__grp__[\w.-]+\.json")
_FOLDER = re.compile(r"[A-Za-z0-9_-]{8,128}")
_NAME = re.compile(r"[A-Za-z0-9_][\w.+-]{0,250}")
_SCRATCH = ".restoring-"


@dataclass(frozen=True, kw_only=True)
class Restored:
    """What restoring did: so many kernels were brought, and so many were there already, which stayed as they were."""

    manifest: Manifest
    brought: int
    present: int


def default_folder() -> Path:
    """Where Triton looks for its cache."""
    home = Path(os.environ.get("TRITON_HOME") or Path.home())
    return Path(os.environ.get("TRITON_CACHE_DIR") or home / ".triton" / "cache")


def restore_triton_cache(
    folder: str | Path,
    *,
    name: str,
    capability: tuple[int, int] | None,
    triton: str | None,
    into: str | Path | None = None,
) -> Restored:
    """Bring the kernels of an artifact into Triton's cache. Each kernel appears whole or not at all.

    Args:
        folder: a folder of artifacts, such as a Dataset's mount.
        name: what the cache was called when it was packed.
        capability: the compute capability of the GPU, as `torch.cuda.get_device_capability()` says it; None: there is
            no GPU.
        triton: the version of Triton that is installed, None without one.
        into: Triton's cache; by default TRITON_CACHE_DIR, or Triton's own default.

    Raises:
        ArtifactError: no artifact fits, with every reason; or the one that does is damaged.
    """
    root = Path(folder)
    refusals: list[str] = []
    for place, manifest in _manifests(root, name):
        if reason := refusal(manifest, capability=capability, triton=triton, machine=os.uname().machine):
            refusals.append(f"{place.name}: {reason}")
            continue
        try:
            return _restored(manifest, read_checked(place, manifest.library), Path(into or default_folder()))
        except ArtifactError as error:
            refusals.append(f"{place.name}: {error}")
    reasons = "; ".join(refusals[:5]) or "there is none of this name"
    raise ArtifactError(
        f"no cache of Triton's kernels called {name} in {root} fits this machine ({reasons}). Triton compiles them "
        "again; `tdcs-train triton pack` makes an artifact of a cache that is filled"
    )


def refusal(
    manifest: Manifest, *, capability: tuple[int, int] | None, triton: str | None, machine: str
) -> str | None:
    """Why kernels are of no use on a machine; None if they are."""
    if capability is None:
        return f"it is for {manifest.target}, and this machine has no GPU"
    if manifest.target != (own := target_of(capability)):
        return f"it is for {manifest.target}, and this machine's GPU is {own}"
    if manifest.tools["machine"] != machine:
        return f"its launchers are for {manifest.tools['machine']}, and this machine is {machine}"
    made_with = manifest.tools["triton"]
    if triton is None:
        return f"it needs Triton {made_with}, which is not installed: pip install triton=={made_with}"
    if triton != made_with:
        return f"it was made with Triton {made_with}, and this machine has {triton}"
    return None


def target_of(capability: tuple[int, int]) -> str:
    """The target of a compute capability."""
    return f"cuda-{capability[0]}{capability[1]}"


def _manifests(root: Path, name: str) -> Iterator[tuple[Path, Manifest]]:
    try:
        folders = (
            [root] if (root / FILE).is_file() else sorted(path for path in root.iterdir() if path.is_dir())
        )
    except OSError as error:
        raise ArtifactError(
            f"the artifacts in {root} cannot be listed: {error.strerror}; is the Dataset mounted?"
        ) from error
    for place in folders:
        try:
            manifest = decode((place / FILE).read_bytes())
        except (OSError, ArtifactError):
            continue  # another artifact's, whose own loader says what is wrong
        if manifest.tools.get(RUNTIME) and manifest.model.name == name:
            yield place, manifest


def read_kernels(folder: Path, *, target: str, triton: str) -> bytes:
    """The kernels of a cache as a tar archive, the same bytes for the same kernels.

    Raises:
        InputError: it is no cache of Triton, or a kernel of it is for another GPU or of another version.
    """
    try:
        kernels = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError as error:
        raise InputError(f"the cache {folder} cannot be read: {error.strerror}") from error
    files: dict[str, bytes] = {}
    compiled = 0
    for kernel in kernels:
        if not _FOLDER.fullmatch(kernel.name):
            raise InputError(f"{folder} is no cache of Triton: it has the folder {kernel.name}")
        for path in sorted(kernel.iterdir()):
            if path.name.startswith("tmp.") or path.name == "lock":
                continue  # of a process that writes it now, or was killed
            if path.is_symlink() or not path.is_file() or not _NAME.fullmatch(path.name):
                raise InputError(f"{folder} is no cache of Triton: {kernel.name} has {path.name}")
            content = path.read_bytes()
            if _GROUP.fullmatch(path.name):
                content = _group(content, path, lambda child: Path(child).name)
            elif path.suffix == ".json":
                compiled += _checked(content, path, target=target, triton=triton)
            files[f"{kernel.name}/{path.name}"] = content
    if not compiled:
        raise InputError(
            f"{folder} has no kernel that Triton has compiled: run the program once, and pack it then"
        )
    return _packed(files)


def _checked(content: bytes, path: Path, *, target: str, triton: str) -> bool:
    """Whether a file describes a kernel.

    Raises:
        InputError: it does, and the kernel is for another GPU or of another version of Triton.
    """
    made = _json(content, path)
    described = made.get("target")
    if not isinstance(described, Mapping):
        return False
    backend, arch = described.get("backend"), described.get("arch")
    if f"{backend}-{arch}" != target:
        raise InputError(
            f"the kernel {path} is for {backend}-{arch}, not for {target}: use a cache for each GPU"
        )
    if (version := made.get("triton_version", triton)) != triton:
        raise InputError(
            f"the kernel {path} was made with Triton {version}, not {triton}: use a new cache, and fill it again"
        )
    return True


def _packed(files: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def unpacked(content: bytes) -> dict[str, dict[str, bytes]]:
    """The files of each kernel.

    Raises:
        ArtifactError: the archive is none, or has what no cache has.
    """
    kernels: dict[str, dict[str, bytes]] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for member in archive:
                folder, separator, name = member.name.partition("/")
                file = archive.extractfile(member) if member.isreg() else None
                if file is None or not (separator and _FOLDER.fullmatch(folder) and _NAME.fullmatch(name)):
                    raise ArtifactError(f"its archive has {member.name}, which no cache of Triton has")
                kernels.setdefault(folder, {})[name] = file.read()
    except tarfile.TarError as error:
        raise ArtifactError(f"its archive cannot be read: {error}") from error
    return kernels


def _restored(manifest: Manifest, content: bytes, cache: Path) -> Restored:
    brought = present = 0
    kernels = unpacked(content)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=cache))
        try:
            for folder, files in kernels.items():
                final = (cache / folder).absolute()
                if final.is_dir() and any(final.iterdir()):
                    present += 1
                    continue
                (scratch / folder).mkdir()
                for name, data in files.items():
                    path = scratch / folder / name
                    is_group = _GROUP.fullmatch(name) is not None
                    path.write_bytes(
                        _group(data, path, lambda child, at=final: str(at / child)) if is_group else data
                    )
                try:
                    os.rename(scratch / folder, final)
                except OSError:
                    if not final.is_dir():
                        raise
                    present += 1  # another process was first
                else:
                    brought += 1
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise ArtifactError(
            f"the kernels cannot be written to {cache}: {error.strerror}; set TRITON_CACHE_DIR to a folder that can be"
        ) from error
    return Restored(manifest=manifest, brought=brought, present=present)


def _group(content: bytes, path: Path, rename: Any) -> bytes:
    children = _json(content, path).get("child_paths")
    if not isinstance(children, Mapping):
        raise InputError(f"{path} is no group of Triton's: it names no child_paths")
    renamed = {str(name): rename(str(child)) for name, child in children.items()}
    return json.dumps({"child_paths": renamed}).encode()


def _json(content: bytes, path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(content)
    except ValueError as error:
        raise InputError(f"{path} is no JSON: {error}") from error
    return value if isinstance(value, Mapping) else {}
