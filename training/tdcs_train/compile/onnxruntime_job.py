"""Optimises a model by ONNX Runtime into an artifact, unless the store already has it."""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tdcs_train.artifacts.key import artifact_key
from tdcs_train.artifacts.manifest import FORMAT, Manifest, ModelSpec, sealed
from tdcs_train.artifacts.onnxruntime_session import OptimisedModel, session_of
from tdcs_train.artifacts.store import open_store
from tdcs_train.artifacts.targets import find_target
from tdcs_train.compile import onnxruntime_build, opening
from tdcs_train.compile.job import Outcome, file_spec, inputs_for
from tdcs_train.compile.model_file import read_model
from tdcs_train.errors import InputError


def optimise_model(
    source: str,
    *,
    target: str,
    output: str,
    endpoint: str | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    name: str | None = None,
    check: Path | None = None,
    tolerance: float | None = None,
) -> Outcome:
    """As `compile_model`, for ONNX Runtime. `check` compares with the model as it is, without optimisation.

    Raises:
        InputError: something given cannot be used; the message says what.
    """
    begin = time.monotonic()
    if name is not None and not name.strip():
        raise InputError("the name is empty: give --name some text, or leave it out for the file's name")
    processor = find_target(target)
    store = open_store(output, endpoint=endpoint)
    model, runtime = read_model(source), onnxruntime_build.runtime_spec()
    title = name or model.name
    options = {
        "level": onnxruntime_build.LEVEL,
        "name": title,
        "shapes": {key: list(shape) for key, shape in sorted((shapes or {}).items())},
    }
    tools = {runtime.name: runtime.version}
    key = artifact_key(model=model.digest, target=target, backends=(), tvm="", tools=tools, options=options)
    inputs = inputs_for(check, processor) if check is not None else None
    if inputs is None and (existing_manifest := store.find(key)) is not None:
        return Outcome(
            manifest=existing_manifest,
            location=store.location(key),
            built=False,
            seconds=time.monotonic() - begin,
        )
    with tempfile.TemporaryDirectory(prefix="tdcs-train-") as scratch:
        path = Path(scratch, "model.onnx")
        session = onnxruntime_build.optimise(model, path, shapes=shapes or {})
        spec = file_spec(path, "model", ".onnx")
        manifest = sealed(
            Manifest(
                format=FORMAT,
                key=key,
                model=ModelSpec(name=title, source=model.source, digest=model.digest),
                target=processor.name,
                features=tuple(sorted(processor.features)),
                tvm="",
                tools=tools,
                backends=(),
                options=options,
                libraries=(),
                inputs=onnxruntime_build.tensor_specs(session.get_inputs(), source=source),
                outputs=onnxruntime_build.tensor_specs(session.get_outputs(), source=source),
                weights=(),
                regions=(),
                host=(),
                refusals=(),
                seconds={"optimise": round(time.monotonic() - begin, 3)},
                library=spec,
                parameters=spec,
                runtime=runtime,
            )
        )
        opened, difference = opening.open_built(manifest, {spec.name: path}), None
        if opened is not None and inputs is not None:
            plain = session_of(model.content.SerializeToString(), level="ORT_DISABLE_ALL")
            host = OptimisedModel(manifest, main=plain, weights=[], compiled_here=True, seconds_to_load=0.0)
            limit = opening.TOLERANCE if tolerance is None else tolerance
            difference = opening.compare(opened, host, inputs, tolerance=limit)
        is_published = store.publish(manifest, {spec.name: path})
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
