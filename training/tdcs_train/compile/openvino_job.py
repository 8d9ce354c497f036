"""Converts a model into OpenVINO's own format as an artifact, unless the store already has it.

The format is the same on every processor; what depends on one is made when it is opened.
"""

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdcs_train.artifacts.manifest import Manifest, RuntimeSpec, TensorSpec
from tdcs_train.artifacts.session import CompiledModel
from tdcs_train.compile import onnxruntime_build
from tdcs_train.compile.job import Outcome
from tdcs_train.compile.model_file import Model
from tdcs_train.compile.runtime_job import Built, Maker, Wish, make_artifact
from tdcs_train.errors import InputError


def convert_model(
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
    """As `compile_model`, for OpenVINO. `check` compares with ONNX's own reference in numpy.

    Raises:
        InputError: something given cannot be used; the message says what.
    """
    wish = Wish(
        source=source,
        target=target,
        output=output,
        endpoint=endpoint,
        shapes=shapes,
        name=name,
        check=check,
        tolerance=tolerance,
    )
    return make_artifact(wish, _maker)


def _maker() -> Maker:
    try:
        version = importlib.metadata.version("openvino")
    except importlib.metadata.PackageNotFoundError as error:
        raise InputError("OpenVINO is not installed: pip install openvino") from error
    return Maker(spec=RuntimeSpec(name="openvino", version=version), level="f32", build=_build, plain=_plain)


def _build(model: Model, folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> Built:
    import openvino

    if not hasattr(model.content, "graph"):
        raise InputError(
            f"{model.source} is no ONNX model, and OpenVINO takes no other here: export it to ONNX"
        )
    content = onnxruntime_build.with_shapes(model.content, shapes) if shapes else model.content
    if content.ByteSize() > onnxruntime_build.MOST_BYTES:
        raise InputError(f"{model.source} has more than 2 GiB, which is not written to one file")
    source = folder / "model.onnx"
    source.write_bytes(content.SerializeToString())
    library, weights = folder / "model.xml", folder / "model.bin"
    try:
        # Not openvino.convert_model, which tells a server of its makers how often it is used.
        converted = openvino.Core().read_model(source)
        openvino.save_model(converted, library, compress_to_fp16=False)
    except Exception as error:  # what OpenVINO's C++ code raises
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = (lines[-1] if lines else type(error).__name__)[:400]
        raise InputError(f"OpenVINO cannot convert {model.source}: {reason}") from error
    weights.touch()  # a model without weights has no such file
    own = {initializer.name for initializer in content.graph.initializer}
    inputs = [value.name for value in content.graph.input if value.name not in own]
    outputs = [value.name for value in content.graph.output]
    return Built(
        library=(library, ".xml"),
        parameters=(weights, ".bin"),
        inputs=_specs(converted.inputs, inputs, source=model.source),
        outputs=_specs(converted.outputs, outputs, source=model.source),
    )


def _specs(ports: Any, names: list[str], *, source: str) -> tuple[TensorSpec, ...]:
    """Inputs or outputs, in OpenVINO's order, by the names that the model gives them."""
    specs = []
    for place, port in enumerate(ports):
        aliases = port.get_names() & set(names)
        if len(ports) != len(names) or not aliases:
            raise InputError(
                f"OpenVINO keeps the inputs and outputs of {source} otherwise than the model names them "
                f"({', '.join(sorted(port.get_names())) or place}): use another runtime"
            )
        shape = port.get_partial_shape()
        sizes = (
            None
            if shape.rank.is_dynamic
            else tuple(None if size.is_dynamic else size.get_length() for size in shape)
        )
        dtype = str(np.dtype(port.get_element_type().to_dtype()))
        specs.append(TensorSpec(name=min(aliases, key=names.index), dtype=dtype, shape=sizes))
    return tuple(specs)


class _Reference(CompiledModel):
    """The model in ONNX's own reference, which is slow and independent of every runtime."""

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """As of a CompiledModel."""
        outputs = [spec.name for spec in self.manifest.outputs]
        try:
            arrays = self._main.run(outputs, dict(inputs))
        except Exception as error:  # whatever numpy and onnx raise
            raise InputError(
                f"ONNX's reference cannot run {self.manifest.model.source} with these inputs: {error}"
            ) from error
        return dict(zip(outputs, map(np.asarray, arrays), strict=True))


def _plain(model: Model, manifest: Manifest) -> CompiledModel:
    from onnx.reference import ReferenceEvaluator

    return _Reference(
        manifest, main=ReferenceEvaluator(model.content), weights=[], compiled_here=True, seconds_to_load=0.0
    )
