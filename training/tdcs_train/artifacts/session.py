"""An opened artifact: the model, ready to run."""

import ctypes
import importlib.util
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tdcs_train.artifacts.manifest import ArtifactError, GuardSpec, Manifest
from tdcs_train.errors import InputError

CPU = 1
POOLED_ALLOCATOR = 2
ALIGNMENT = 64
"""TVM's code may assume that tensors begin at a multiple of this many bytes."""


class CompiledModel:
    """A model that was compiled, with its weights; one call at a time.

    Attributes:
        manifest: what the artifact says of itself.
        compiled_here: whether it was compiled by this process.
        seconds_to_load: from the call of `load` until the model could run.
    """

    def __init__(
        self,
        manifest: Manifest,
        *,
        main: Any,
        weights: list[Any],
        compiled_here: bool,
        seconds_to_load: float,
    ) -> None:
        self.manifest = manifest
        self.compiled_here = compiled_here
        self.seconds_to_load = seconds_to_load
        self._main = main
        self._weights = weights

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Run the model: arrays by the names of its inputs to arrays by the names of its outputs.

        Raises:
            InputError: an input is missing, unknown, no array, or has another shape or type than the model takes; or
                the model fails with these inputs, as where their open dimensions do not fit each other.
        """
        import tvm_ffi

        specs, model = self.manifest.inputs, self.manifest.model.name
        check_names(inputs, wanted=[spec.name for spec in specs], model=model)
        for spec in specs:
            check_input(spec.name, inputs[spec.name], shape=spec.shape, dtype=spec.dtype)
        for bound in self.manifest.bounds:
            _check_indices(bound.input, inputs[bound.input], size=bound.size, model=model)
        arguments = [tvm_ffi.from_dlpack(aligned(inputs[spec.name])) for spec in specs]
        try:
            output = self._main(*arguments, *self._weights)
        except Exception as error:  # TVM raises what its C++ code names
            reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
            shapes = ", ".join(f"{spec.name} {inputs[spec.name].shape}" for spec in specs)
            raise InputError(
                f"the model {model} fails with the inputs {shapes}: {reason[:400]}; check their shapes"
            ) from error
        tensors = [output] if isinstance(output, tvm_ffi.Tensor) else list(output)
        if self.manifest.guards:
            _check_guards(self.manifest.guards, np.from_dlpack(tensors.pop()), model=model)
        names = (spec.name for spec in self.manifest.outputs)
        outputs = dict(zip(names, tensors, strict=True))
        for name, tensor in outputs.items():
            if min(tensor.shape, default=0) < 0:
                shape = tuple(int(size) for size in tensor.shape)
                raise InputError(
                    f"the inputs of {model} lead to the shape {shape} of the output {name}: give sizes of at least 0"
                )
        return {name: np.from_dlpack(tensor) for name, tensor in outputs.items()}


def _check_indices(name: str, values: NDArray[Any], *, size: int, model: str) -> None:
    """Refuses indices that point outside of the weights that they choose from."""
    if not values.size:
        return
    least, most = int(values.min()), int(values.max())
    if least < -size or most >= size:
        raise InputError(
            f"the input {name} of {model} has the index {most if most >= size else least}, and the weights that it "
            f"chooses from have {size} rows: give indices from {-size} to {size - 1}"
        )


def _check_guards(guards: Sequence[GuardSpec], outside: NDArray[Any], *, model: str) -> None:
    """Refuses results for which an index was kept inside of its table that pointed outside."""
    for guard, flag in zip(guards, outside, strict=True):
        if flag > 0:
            rows = " x ".join("an open number of" if size is None else str(size) for size in guard.sizes)
            raise InputError(
                f"the inputs of {model} lead to an index outside of a table of {rows} rows ({guard.operator}): give "
                "inputs whose indices are inside"
            )


def open_model(
    manifest: Manifest, *, library: bytes, parameters: bytes, compiled_here: bool, begin: float
) -> CompiledModel:
    """Open an artifact of which everything was checked.

    Args:
        library: the content of the shared library; these bytes are what is opened, whatever happens to the file.
        parameters: the content of the file of weights.
        begin: when loading began, by `time.monotonic`.

    Raises:
        ArtifactError: the library cannot be opened, or the weights are not those of the manifest.
    """
    if manifest.runtime is not msgspec.UNSET and manifest.runtime.name == "openvino":
        from tdcs_train.artifacts.openvino_session import open_openvino

        return open_openvino(manifest, library, parameters, compiled_here=compiled_here, begin=begin)
    if manifest.runtime is not msgspec.UNSET:
        from tdcs_train.artifacts.onnxruntime_session import open_optimised

        return open_optimised(manifest, library, compiled_here=compiled_here, begin=begin)
    tvm_ffi = _runtime()
    weights = _weights(manifest, parameters)
    return CompiledModel(
        manifest,
        main=_open_library(tvm_ffi, manifest, library, weights),
        weights=[weights[name] for name in manifest.weights],
        compiled_here=compiled_here,
        seconds_to_load=time.monotonic() - begin,
    )


def _open_library(tvm_ffi: Any, manifest: Manifest, library: bytes, weights: Mapping[str, Any]) -> Any:
    """The function `main` of the library, ready to be called; regions have taken their weights."""
    # A file of its own: what was checked is what is opened, and neither a mount that goes away nor a file that is cut
    # short can end the process later. Its name must be new, since the dynamic linker knows libraries by name.
    try:
        with tempfile.TemporaryDirectory(prefix="tdcs-train-") as scratch:
            path = Path(scratch, "model.so")
            path.write_bytes(library)
            opened = tvm_ffi.load_module(str(path))
        machine = opened["vm_load_executable"]()
        machine["vm_initialization"](CPU, 0, POOLED_ALLOCATOR)
        for region in manifest.regions:
            if region.binds_weights and region.weights:
                bind = opened.get_function(f"{region.symbol}__bind", query_imports=True)
                bind(*(weights[name] for name in region.weights))
        return machine["main"]
    except OSError as error:
        raise ArtifactError(
            f"the artifact {manifest.key} cannot be copied to {tempfile.gettempdir()}: {error.strerror}; "
            "set TMPDIR to a folder that can be written"
        ) from error
    except Exception as error:  # TVM raises what its C++ code names
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ArtifactError(f"the artifact {manifest.key} cannot be opened: {reason}") from error


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """The array itself if it is compact and aligned as TVM wants it, else a copy that is."""
    compact = (
        array if array.flags.c_contiguous else np.ascontiguousarray(array)
    )  # which gives a scalar an axis
    if compact.ctypes.data % ALIGNMENT == 0 and compact.flags.writeable:
        return compact
    room = np.empty(compact.nbytes + ALIGNMENT, dtype=np.uint8)
    offset = -room.ctypes.data % ALIGNMENT
    copy = room[offset : offset + compact.nbytes].view(compact.dtype).reshape(compact.shape)
    copy[...] = compact
    return copy


def _runtime() -> Any:
    """TVM's FFI with its runtime library. The compiler, which is 80 times as large, is not loaded."""
    import tvm_ffi

    if "tvm" not in sys.modules:
        spec = importlib.util.find_spec("tvm")
        if spec is None or spec.origin is None:
            raise ArtifactError("TVM is not installed: pip install 'tdcs-train[artifacts]'")
        ctypes.CDLL(str(Path(spec.origin).parent / "lib" / "libtvm_runtime.so"), mode=ctypes.RTLD_GLOBAL)
    return tvm_ffi


def _weights(manifest: Manifest, parameters: bytes) -> dict[str, Any]:
    import tvm_ffi
    from safetensors.numpy import load

    try:
        arrays = load(parameters)
    except Exception as error:  # safetensors has an error class that it does not export
        raise ArtifactError(f"the weights of the artifact {manifest.key} cannot be read: {error}") from error
    if missing := sorted(set(manifest.weights) - set(arrays)):
        raise ArtifactError(f"the artifact {manifest.key} lacks the weights {', '.join(missing[:5])}")
    return {name: tvm_ffi.from_dlpack(aligned(arrays[name])) for name in manifest.weights}


def check_names(inputs: object, *, wanted: Sequence[str], model: str) -> None:
    signature = f"the model {model} has the inputs {', '.join(wanted)}"
    if not isinstance(inputs, Mapping):
        raise InputError(
            f"the inputs are a {type(inputs).__name__}: give a mapping of names to arrays; {signature}"
        )
    faults = []
    if missing := [name for name in wanted if name not in inputs]:
        faults.append(f"the call lacks {', '.join(missing)}")
    if unknown := sorted(str(name) for name in inputs if name not in wanted):
        faults.append(f"the model does not know {', '.join(unknown)}")
    if faults:
        raise InputError(f"{signature}: {'; '.join(faults)}")


def check_input(name: str, array: object, *, shape: tuple[int | None, ...] | None, dtype: str) -> None:
    if not isinstance(array, np.ndarray):
        raise InputError(f"the input {name} is a {type(array).__name__}: give a numpy array of {dtype}")
    if str(array.dtype) != dtype:
        raise InputError(f"the input {name} is {array.dtype}, the model takes {dtype}")
    if shape is None:
        return
    fits = len(shape) == array.ndim and all(
        declared is None or declared == size for declared, size in zip(shape, array.shape, strict=True)
    )
    if not fits:
        sizes = ", ".join("any" if size is None else str(size) for size in shape)
        raise InputError(f"the input {name} has the shape {array.shape}, the model takes ({sizes})")
    if 0 in array.shape and 0 not in shape:
        raise InputError(f"the input {name} has the shape {array.shape}: give at least one element")
