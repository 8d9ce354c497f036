"""Loads the best artifact that this node can run. Nothing of an artifact is opened before it was checked."""

import hashlib
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tdcs_train.artifacts.choice import by_preference, is_of_model, refusal
from tdcs_train.artifacts.manifest import FILE, ArtifactError, FileSpec, Manifest, command_line, decode
from tdcs_train.artifacts.node import Node, this_node
from tdcs_train.artifacts.session import CompiledModel, open_model
from tdcs_train.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Refused:
    """An artifact that was not taken, and why."""

    folder: Path
    reason: str


def load(
    folder: str | Path,
    *,
    model: str,
    prefer: Sequence[str] = ("onednn", "blas"),
    compile_missing: bool = False,
    node: Node | None = None,
) -> CompiledModel:
    """Load the best artifact of a model that this node can run.

    Args:
        folder: a folder of artifacts, such as a Dataset's mount.
        model: the model's name, its digest, or the path of its ONNX file.
        prefer: back ends, or `onnxruntime`, the best first. Names that are unknown here are legal: an artifact has its
            code with it.
        compile_missing: compile the model here if no artifact can be taken, also where the folder is missing. `model`
            must then be the path of an ONNX file or `module.py:name`. The result is kept for this process only.
        node: what this node is; by default found out.

    Raises:
        InputError: `folder` is a bucket, or `prefer` no list.
        ArtifactError: no artifact can be taken; the message has every reason and the command that makes one.
    """
    begin = time.monotonic()
    _check_arguments(folder, prefer)
    root, local_node = Path(folder), node or this_node()
    digest = _digest_of(model)
    usable: dict[str, tuple[Path, Manifest]] = {}
    refusals: list[Refused] = []
    source = model if _names_a_source(model) else None
    models: set[str] = set()
    unlisted = ""
    try:
        artifacts = _read_all(root)
    except ArtifactError as error:
        if not compile_missing:
            raise
        artifacts = []
        unlisted = str(error)
    for place, manifest, reason in artifacts:
        if manifest is None:
            refusals.append(Refused(folder=place, reason=reason))
            continue
        models.add(manifest.model.name)
        if is_of_model(manifest, model, digest):
            source = manifest.model.source
            if (why := refusal(manifest, local_node)) is not None:
                refusals.append(Refused(folder=place, reason=why))
            else:
                usable[manifest.key] = (place, manifest)
    for manifest in by_preference((manifest for _, manifest in usable.values()), prefer):
        place = usable[manifest.key][0]
        try:
            library = read_checked(place, manifest.library)
            parameters = (
                library
                if manifest.parameters == manifest.library
                else read_checked(place, manifest.parameters)
            )
            return open_model(
                manifest, library=library, parameters=parameters, compiled_here=False, begin=begin
            )
        except ArtifactError as error:
            refusals.append(Refused(folder=place, reason=str(error)))
    if compile_missing:
        try:
            return _compile_here(model, prefer=prefer, node=local_node, begin=begin)
        except InputError as error:
            if not unlisted:
                raise
            raise ArtifactError(f"{unlisted} Compiling the model here instead failed: {error}") from error
    raise ArtifactError(
        _nothing_usable(
            root, model=model, source=source, models=models, prefer=prefer, node=local_node, refused=refusals
        )
    )


def _check_arguments(folder: str | Path, prefer: object) -> None:
    if str(folder).startswith("s3:"):
        raise InputError(
            f"{folder} is a bucket, and artifacts are loaded from a folder: mount the bucket as a Dataset and load "
            "from its mountPath"
        )
    if isinstance(prefer, str):
        raise InputError(f"prefer is a list of back ends: write prefer=[{prefer!r}]")


def _names_a_source(model: str) -> bool:
    """Whether this can be the source of a model, as `tdcs-train compile` takes it, and not only its name."""
    path, separator, name = model.rpartition(":")
    return model.endswith(".onnx") or bool(separator and name and path.endswith(".py"))


def read_checked(folder: Path, spec: FileSpec) -> bytes:
    """A file of an artifact, if it is what the manifest says.

    Raises:
        ArtifactError: it is missing, cannot be read, or is damaged.
    """
    path = folder / spec.name
    try:
        with path.open("rb") as file:
            content = file.read(spec.bytes + 1)
    except OSError as error:
        raise ArtifactError(f"its file {spec.name} cannot be read: {error.strerror}") from error
    if len(content) != spec.bytes:
        size = "more" if len(content) > spec.bytes else f"{len(content)}"
        raise ArtifactError(
            f"its file {spec.name} has {size} bytes, not the {spec.bytes} that the manifest names"
        )
    if hashlib.sha256(content).hexdigest() != spec.sha256:
        raise ArtifactError(
            f"its file {spec.name} is damaged: it does not have the digest that the manifest names"
        )
    return content


def _read_all(root: Path) -> list[tuple[Path, Manifest | None, str]]:
    """Every folder with its manifest, or with the reason why it has none; `root` may itself be an artifact."""
    try:
        folders = (
            [root]
            if (root / FILE).is_file()
            else sorted(path for path in root.iterdir() if _is_candidate(path))
        )
    except OSError as error:
        raise ArtifactError(
            f"the artifacts in {root} cannot be listed: {error.strerror}; is the Dataset mounted?"
        ) from error
    entries: list[tuple[Path, Manifest | None, str]] = []
    for folder in folders:
        try:
            entries.append((folder, decode((folder / FILE).read_bytes()), ""))
        except OSError as error:
            entries.append((folder, None, f"its {FILE} cannot be read: {error.strerror}"))
        except ArtifactError as error:
            entries.append((folder, None, str(error)))
    return entries


def _is_candidate(path: Path) -> bool:
    return not path.name.startswith(".") and path.is_dir()


def _digest_of(model: str) -> str | None:
    if not model.endswith(".onnx") or not Path(model).is_file():
        return None
    from tdcs_train.compile.model_file import read_onnx

    return read_onnx(Path(model)).digest


def _compile_here(model: str, *, prefer: Sequence[str], node: Node, begin: float) -> CompiledModel:
    import tempfile

    if not _names_a_source(model):
        raise ArtifactError(
            f"there is no artifact of {model} to load, and it cannot be compiled here by this name: give the path of "
            "its .onnx file, or module.py:name, as model"
        )
    if not node.targets:
        raise ArtifactError(f"nothing can be compiled for {node.machine}")
    from tdcs_train.compile.job import compile_model

    with tempfile.TemporaryDirectory(prefix="tdcs-train-") as scratch:
        outcome = compile_model(model, target=node.targets[0].name, backends=prefer, output=scratch)
        place = Path(scratch, outcome.manifest.key)
        return open_model(
            outcome.manifest,
            library=read_checked(place, outcome.manifest.library),
            parameters=read_checked(place, outcome.manifest.parameters),
            compiled_here=True,
            begin=begin,
        )


def _nothing_usable(
    root: Path,
    *,
    model: str,
    source: str | None,
    models: Collection[str],
    prefer: Sequence[str],
    node: Node,
    refused: Sequence[Refused],
) -> str:
    reasons = [f"{entry.folder.name}: {entry.reason}" for entry in refused[:5]]
    if len(refused) > 5:
        reasons.append(f"and {len(refused) - 5} more")
    why = "; ".join(reasons) or "there is none of this model"
    if source is None:
        # With no artifact of this name it may be a slip of the pen.
        why += (
            f"; the folder has {', '.join(sorted(models)[:10])}" if models else "; the folder has no artifact"
        )
    if not node.targets:
        return f"no artifact of {model} in {root} can run on this node ({why})"
    command = command_line(
        model=source or "MODEL.onnx",
        target=node.targets[0].name,
        backends=tuple(prefer),
        output="s3://BUCKET/PREFIX",
        name=model if model != source else None,
    )
    return f"no artifact of {model} in {root} can run on this node ({why}). This makes one: {command}"
