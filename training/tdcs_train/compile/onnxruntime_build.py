"""Artifacts of ONNX Runtime: the model after the optimisations that hold on every processor.

What depends on the processor (the layout of convolutions) is left to the moment of loading: ONNX Runtime would write a
model that is wrong on others.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tdcs_train.artifacts.manifest import RuntimeSpec, TensorSpec
from tdcs_train.artifacts.onnxruntime_session import session_of
from tdcs_train.compile.model_file import Model
from tdcs_train.errors import InputError

LEVEL = "ORT_ENABLE_EXTENDED"
MOST_BYTES = (2 << 30) - 1
"""Of a model in one file: protobuf's limit."""
_TYPES = {
    "double": "float64",
    "float": "float32",
    "float16": "float16",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bool": "bool",
}


def version_here() -> str:
    """The version of ONNX Runtime.

    Raises:
        InputError: It is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise InputError("ONNX Runtime is not installed: pip install onnxruntime") from error
    version: str = onnxruntime.__version__
    return version


def optimise(model: Model, path: Path, *, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """Write the optimised model to a file; the session that made it.

    Raises:
        InputError: It is no ONNX model, too large, or has what ONNX Runtime does not know.
    """
    if not hasattr(model.content, "graph"):
        raise InputError(
            f"{model.source} is no ONNX model, and ONNX Runtime takes no other: export it to ONNX"
        )
    content = model.content
    if shapes:
        content = with_shapes(content, shapes)
    if content.ByteSize() > MOST_BYTES:
        raise InputError(f"{model.source} has more than 2 GiB, which ONNX Runtime does not write to one file")
    try:
        return session_of(content.SerializeToString(), level=LEVEL, written_to=str(path))
    except Exception as error:  # classes of ONNX Runtime that it does not export
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:400]
        raise InputError(f"ONNX Runtime cannot open {model.source}: {reason}") from error


def runtime_spec() -> RuntimeSpec:
    """What the artifact needs."""
    return RuntimeSpec(name="onnxruntime", version=version_here())


def tensor_specs(given: Any, *, source: str) -> tuple[TensorSpec, ...]:
    """Inputs or outputs of a session.

    Raises:
        InputError: One is no tensor of a known type.
    """
    specs = []
    for argument in given:
        kind = argument.type.removeprefix("tensor(").removesuffix(")")
        if kind not in _TYPES:
            raise InputError(f"{argument.name} of {source} is {argument.type}, which artifacts do not carry")
        shape = tuple(size if isinstance(size, int) else None for size in argument.shape)
        specs.append(TensorSpec(name=argument.name, dtype=_TYPES[kind], shape=shape))
    return tuple(specs)


def with_shapes(content: Any, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """A copy of an ONNX model whose inputs have these shapes.

    Raises:
        InputError: the model has no such input, or another shape.
    """
    model = type(content)()
    model.CopyFrom(content)
    inputs = {value_info.name: value_info for value_info in model.graph.input}
    for name, shape in shapes.items():
        if name not in inputs:
            raise InputError(f"--shape {name}: the model has the inputs {', '.join(inputs)}")
        sizes = inputs[name].type.tensor_type.shape.dim
        if len(sizes) != len(shape):
            raise InputError(f"--shape {name}: the input has {len(sizes)} dimensions")
        for size, length in zip(sizes, shape, strict=True):
            if size.HasField("dim_value") and size.dim_value != length:
                raise InputError(
                    f"--shape {name}: the model fixes a dimension at {size.dim_value}, not {length}"
                )
            size.dim_value = length
    return model
