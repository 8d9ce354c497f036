"""Compiles a model for one target into an artifact, unless the store already has it."""

import functools
import hashlib
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tdcs_train.artifacts.key import artifact_key
from tdcs_train.artifacts.manifest import (
    FORMAT,
    BackendSpec,
    FileSpec,
    LibrarySpec,
    Manifest,
    ModelSpec,
    RefusalSpec,
    RegionSpec,
    sealed,
)
from tdcs_train.artifacts.node import this_node, tvm_version
from tdcs_train.artifacts.source import source_name
from tdcs_train.artifacts.store import open_store
from tdcs_train.artifacts.targets import Target, find_target
from tdcs_train.backends.backend import Backend
from tdcs_train.backends.registry import find_all
from tdcs_train.compile import opening, tuning
from tdcs_train.compile.model_file import Model, read_model
from tdcs_train.compile.toolchain import tool_versions
from tdcs_train.errors import InputError

ROOM_FOR_CODE = 32 << 20
"""Bytes of scratch space for object files and the library; those of large models have some megabytes."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What compiling gave.

    Attributes:
        location: where the artifact is.
        built: whether this call built it.
        seconds: that it took.
        opened: whether it was opened here; not where this node cannot run its target.
        difference: from host code, as a part of the largest value of an output; None where it was not compared.
    """

    manifest: Manifest
    location: str
    built: bool
    seconds: float
    opened: bool = False
    difference: float | None = None


def compile_model(
    source: str,
    *,
    target: str,
    backends: Sequence[str],
    output: str,
    endpoint: str | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    name: str | None = None,
    check: Path | None = None,
    tolerance: float | None = None,
    tune: float | None = None,
    records: Path | None = None,
) -> Outcome:
    """Compile a model, or find that this was done before. What is built is opened once before it is written.

    Args:
        source: an ONNX file, or `module.py:name`.
        target: the target's name.
        backends: back ends in order of preference; none gives TVM's own code.
        output: a folder or `s3://bucket/prefix`.
        endpoint: the S3 server's address, if it is not Amazon's.
        shapes: shapes of inputs that the model leaves open.
        name: the model's name in the artifact, if not the file's.
        check: a file of arrays by the names of the model's inputs: run with them, the artifact must give what host code
            gives. It is built again for that, also where the store has it.
        tolerance: how far it may be from host code, as a part of the largest value of an output.
        tune: minutes to tune TVM's own code for.
        records: an artifact's file of records to begin tuning with.

    Raises:
        InputError: something given cannot be used; the message says what.
    """
    begin = time.monotonic()
    if name is not None and not name.strip():
        raise InputError("the name is empty: give --name some text, or leave it out for the file's name")
    processor, implementations = find_target(target), find_all(backends)
    for backend in implementations:
        if backend.targets is not None and target not in backend.targets:
            targets = ", ".join(sorted(backend.targets))
            raise InputError(f"the back end {backend.name} has no code for {target}: it knows {targets}")
    store = open_store(output, endpoint=endpoint)
    model = read_model(source)
    version = tvm_version()
    if version is None:
        raise InputError("TVM is not installed: pip install 'tdcs-train[compile]'")
    specs = tuple(BackendSpec(name=backend.name, version=backend.version) for backend in implementations)
    tools = tool_versions(implementations)
    options: dict[str, Any] = {
        "name": name or model.name,  # what `load` looks for
        "indices": "checked",  # artifacts from before that do not say which indices were outside
        "shapes": {key: list(shape) for key, shape in sorted((shapes or {}).items())},
    }
    if tune is not None:
        tuning.check(processor)
        options["tune"] = tune
        if records is not None:
            origin = tuning.Origin(model=model.digest, target=target, tvm=version)
            options["records"] = tuning.digest_of(tuning.read_records(records, origin=origin))
    key_of = functools.partial(
        artifact_key, model=model.digest, target=target, backends=specs, tvm=version, tools=tools
    )
    key = key_of(options=options)
    inputs = inputs_for(check, processor) if check is not None else None
    if inputs is None and (existing_manifest := store.find(key)) is not None:
        return Outcome(
            manifest=existing_manifest,
            location=store.location(key),
            built=False,
            seconds=time.monotonic() - begin,
        )
    with tempfile.TemporaryDirectory(prefix="tdcs-train-") as scratch:
        build = functools.partial(
            _build, model=model, processor=processor, shapes=shapes or {}, name=options["name"]
        )
        fixed = {"key": key, "tvm": version, "tools": tools, "options": options}
        make = functools.partial(build, backends=implementations, fixed={**fixed, "backends": specs})
        manifest, files = make(Path(scratch))
        untuned = opened = opening.open_built(manifest, files)
        difference = None
        if tune is not None:
            assert untuned is not None, "tuning is refused where the target does not run"
            subject = tuning.Subject(
                source=source, shapes=dict(shapes or {}), target=target, backends=tuple(backends)
            )
            with tuning.searched(subject, untuned, minutes=tune, records=records) as found:
                (tuned_folder := Path(scratch, "tuned")).mkdir()
                candidate = make(tuned_folder, tuned=found.database())
                opened = opening.open_built(*candidate)
                assert opened is not None, "as the untuned one"
                speeds = tuning.compared(untuned, opened, inputs)
                if speeds.gain >= 1:
                    manifest, files = candidate
                else:
                    # Under a key of its own: the next command with this budget tunes again.
                    opened, options = untuned, {**options, "kept": "untuned"}
                    key = key_of(options=options)
                    manifest = msgspec.structs.replace(manifest, key=key, options=options)
                written = found.best(Path(scratch, "records"))
                spec = file_spec(written, "records", ".json")
                files = {**files, spec.name: written}
                manifest = sealed(
                    msgspec.structs.replace(manifest, tuning=found.spec(speeds, minutes=tune, records=spec))
                )
        if opened is not None and inputs is not None:
            difference = 0.0
            limit = opening.TOLERANCE if tolerance is None else tolerance
            if implementations:
                with tempfile.TemporaryDirectory(prefix="tdcs-train-") as alongside:
                    host = opening.open_built(
                        *build(Path(alongside), backends=(), fixed={**fixed, "backends": ()})
                    )
                assert host is not None, "the same target as that of the artifact, which was opened"
                difference = opening.compare(opened, host, inputs, tolerance=limit)
            elif opened is not untuned:
                assert untuned is not None, "the same target"
                difference = opening.compare(opened, untuned, inputs, tolerance=limit)
            else:
                opened.run(inputs)
        is_published = store.publish(manifest, files)
        stored_manifest = manifest if is_published else store.find(key)
    if stored_manifest is None:
        raise InputError(
            f"the artifact {key} in {output} was removed while it was written: run the command again"
        )
    return Outcome(
        manifest=stored_manifest,
        location=store.location(key),
        built=is_published,
        seconds=time.monotonic() - begin,
        opened=opened is not None,
        difference=difference,
    )


def inputs_for(check: Path, processor: Target) -> opening.Arrays:
    """The arrays to run a model with that is built for a target.

    Raises:
        InputError: This node cannot run it, or there are none.
    """
    if processor not in (local_node := this_node()).targets:
        targets = ", ".join(target.name for target in local_node.targets) or "none"
        raise InputError(
            f"--check runs the model, and this node cannot run {processor.name} (it runs {targets}): run it on a node "
            "of that target"
        )
    return opening.read_inputs(check)


def _build(
    scratch: Path,
    *,
    model: Model,
    processor: Target,
    backends: Sequence[Backend],
    shapes: Mapping[str, tuple[int, ...]],
    fixed: Mapping[str, Any],
    name: str,
    tuned: AbstractContextManager[object] | None = None,
) -> tuple[Manifest, dict[str, Path]]:
    watch = _Stopwatch()
    # Imported here: finding an artifact that is there already must not wait for TVM's compiler.
    from safetensors.numpy import save_file

    from tdcs_train.compile.library import write_library
    from tdcs_train.compile.model_import import import_model
    from tdcs_train.compile.partition import partition
    from tdcs_train.compile.simplify import lift_weights, simplify

    watch.lap("load_compiler")
    imported = import_model(model, shapes)
    watch.lap("import")
    module, weights = lift_weights(simplify(imported.module))
    watch.lap("simplify")
    _check_space(scratch, sum(array.nbytes for array in weights.values()))
    parts = partition(module, backends=backends, weights=len(weights))
    watch.lap("partition")
    library, parameters = scratch / "model.so", scratch / "weights"
    text = write_library(library, partition=parts, processor=processor, backends=backends, tuned=tuned)
    (source := scratch / "source").write_text(text)
    watch.lap("build")
    try:
        save_file(weights, parameters)
    except Exception as error:  # safetensors has an error class that it does not export
        raise InputError(
            f"the weights cannot be written to {scratch}: {error}; set TMPDIR to a folder with more space"
        ) from error
    by_name = {backend.name: backend for backend in backends}
    backend_names = {region.backend for region in parts.regions}
    library_spec = file_spec(library, "model", ".so")
    parameters_spec = file_spec(parameters, "weights", ".safetensors")
    names = list(weights)
    manifest = Manifest(
        format=FORMAT,
        model=ModelSpec(name=name, source=model.source, digest=model.digest),
        target=processor.name,
        features=tuple(sorted(processor.features)),
        libraries=tuple(
            LibrarySpec(soname=library.soname, package=library.package)
            for backend in backends
            if backend.name in backend_names
            for library in backend.libraries
        ),
        inputs=imported.inputs,
        outputs=imported.outputs,
        bounds=imported.bounds,
        guards=imported.guards,
        weights=tuple(names),
        regions=tuple(
            RegionSpec(
                symbol=region.symbol,
                backend=region.backend,
                nodes=tuple(node.kind for node in region.nodes),
                weights=bound,
                binds_weights=by_name[region.backend].binds_weights,
            )
            for region, bound in zip(parts.regions, parts.weight_names(names), strict=True)
        ),
        host=parts.host,
        refusals=tuple(
            RefusalSpec(backend=refusal.backend, row=refusal.row, reason=refusal.reason)
            for refusal in parts.refusals
        ),
        seconds=watch.laps,
        library=library_spec,
        parameters=parameters_spec,
        **fixed,
    )
    files = {
        library_spec.name: library,
        parameters_spec.name: parameters,
        source_name(library_spec.name): source,
    }
    return sealed(manifest), files


def _check_space(scratch: Path, weights: int) -> None:
    """LLVM ends the process when the disk is full, so the space is looked at before.

    Raises:
        InputError: there is too little.
    """
    free, needed = shutil.disk_usage(scratch).free, weights + ROOM_FOR_CODE
    if free < needed:
        raise InputError(
            f"no space left on device: compiling needs {needed >> 20} MiB in {scratch.parent}, which has {free >> 20} "
            "MiB free; free some or set TMPDIR to another folder"
        )


def file_spec(path: Path, stem: str, suffix: str) -> FileSpec:
    """The name of a file in an artifact, which has its digest, and how to check it."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileSpec(name=f"{stem}-{digest[:16]}{suffix}", bytes=path.stat().st_size, sha256=digest)


class _Stopwatch:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._begin = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name] = round(now - self._begin, 3)
        self._begin = now
