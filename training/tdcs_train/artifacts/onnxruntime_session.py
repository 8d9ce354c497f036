"""An opened artifact of ONNX Runtime: a model that it has optimised before, which it lays out for this processor."""

import os
import time
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from tdcs_train.artifacts.manifest import ArtifactError, Manifest
from tdcs_train.artifacts.session import CompiledModel, check_input, check_names
from tdcs_train.errors import InputError


class OptimisedModel(CompiledModel):
    """A model in ONNX Runtime, with as many threads as OMP_NUM_THREADS says."""

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """As of a CompiledModel."""
        specs, model = self.manifest.inputs, self.manifest.model.name
        check_names(inputs, wanted=[spec.name for spec in specs], model=model)
        for spec in specs:
            check_input(spec.name, inputs[spec.name], shape=spec.shape, dtype=spec.dtype)
        names = [spec.name for spec in self.manifest.outputs]
        try:
            arrays = self._main.run(names, dict(inputs))
        except Exception as error:  # classes of ONNX Runtime that it does not export
            raise InputError(
                f"the model {model} fails with these inputs: {_reason(error)}; check shapes and indices"
            ) from error
        return dict(zip(names, arrays, strict=True))


def open_optimised(manifest: Manifest, content: bytes, *, compiled_here: bool, begin: float) -> CompiledModel:
    """Open the content of an artifact's model.

    Raises:
        ArtifactError: ONNX Runtime cannot open it.
    """
    try:
        session = session_of(content)
    except Exception as error:  # classes of ONNX Runtime that it does not export
        raise ArtifactError(f"the artifact {manifest.key} cannot be opened: {_reason(error)}") from error
    return OptimisedModel(
        manifest,
        main=session,
        weights=[],
        compiled_here=compiled_here,
        seconds_to_load=time.monotonic() - begin,
    )


def session_of(content: bytes, *, level: str = "ORT_ENABLE_ALL", written_to: str = "") -> Any:
    """A session of ONNX Runtime on the processor, with the threads that OMP_NUM_THREADS says."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 3
    if threads := os.environ.get("OMP_NUM_THREADS", ""):
        options.intra_op_num_threads = int(threads)
    if written_to:
        options.optimized_model_filepath = written_to
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _reason(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:400]
