"""An opened artifact of OpenVINO: a model in its own format, which it compiles for this processor as it is opened."""

import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdcs_train.artifacts.manifest import ArtifactError, Manifest
from tdcs_train.artifacts.session import CompiledModel, check_input, check_names
from tdcs_train.errors import InputError


class OpenvinoModel(CompiledModel):
    """A model in OpenVINO, with as many threads as OMP_NUM_THREADS says."""

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """As of a CompiledModel."""
        specs, model = self.manifest.inputs, self.manifest.model.name
        check_names(inputs, wanted=[spec.name for spec in specs], model=model)
        for spec in specs:
            check_input(spec.name, inputs[spec.name], shape=spec.shape, dtype=spec.dtype)
        arrays = {place: np.ascontiguousarray(inputs[spec.name]) for place, spec in enumerate(specs)}
        try:
            results = self._main.infer_new_request(arrays)
            outputs = {
                spec.name: np.array(results[place]) for place, spec in enumerate(self.manifest.outputs)
            }
        except Exception as error:  # what OpenVINO's C++ code raises
            raise InputError(
                f"the model {model} fails with these inputs: {_reason(error)}; check shapes and indices"
            ) from error
        return outputs


def open_openvino(
    manifest: Manifest, library: bytes, parameters: bytes, *, compiled_here: bool, begin: float
) -> CompiledModel:
    """Open the content of an artifact.

    Raises:
        ArtifactError: OpenVINO cannot open it.
    """
    try:
        compiled = compiled_model(library, parameters)
        if (len(compiled.inputs), len(compiled.outputs)) != (len(manifest.inputs), len(manifest.outputs)):
            raise ArtifactError("its model has other inputs and outputs than its manifest names")
    except Exception as error:  # what OpenVINO's C++ code raises
        raise ArtifactError(f"the artifact {manifest.key} cannot be opened: {_reason(error)}") from error
    return OpenvinoModel(
        manifest,
        main=compiled,
        weights=[],
        compiled_here=compiled_here,
        seconds_to_load=time.monotonic() - begin,
    )


def compiled_model(library: bytes, parameters: bytes) -> Any:
    """A model on the processor, in the precision that it has: OpenVINO would else compute in bfloat16 on some."""
    import openvino

    core = openvino.Core()
    options: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    if threads := os.environ.get("OMP_NUM_THREADS", ""):
        options["INFERENCE_NUM_THREADS"] = int(threads)
    return core.compile_model(core.read_model(library, parameters), "CPU", options)


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:400]
