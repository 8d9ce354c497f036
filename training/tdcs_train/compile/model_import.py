"""Turns a model into a Relax module, and says what it takes and gives."""

import io
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from tvm import relax

from tdcs_train.artifacts.manifest import BoundSpec, GuardSpec, TensorSpec
from tdcs_train.compile.index_bounds import bounds_of, keep_inside
from tdcs_train.compile.model_file import Model
from tdcs_train.compile.relax_reader import tensor_type
from tdcs_train.errors import InputError

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A Relax module with the function `main`, and the tensors that it takes and gives."""

    module: Any
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    bounds: tuple[BoundSpec, ...] = ()
    """Inputs that are indices into weights."""
    guards: tuple[GuardSpec, ...] = ()
    """Operators that choose by indices: what the last output of `main` is about, if there are any."""


def import_model(model: Model, shapes: Shapes) -> Imported:
    """Import a model.

    Args:
        model: what was read.
        shapes: shapes of inputs that the model leaves open.

    Raises:
        InputError: an operator is unknown, or a shape does not fit.
    """
    if hasattr(model.content, "graph"):
        module, outputs = _import_onnx(model, shapes)
    elif shapes:
        raise InputError(f"{model.source} is a Relax module, which has its shapes: leave --shape out")
    else:
        module, outputs = model.content, ()
    try:
        main = module["main"]
    except (KeyError, ValueError) as error:
        raise InputError(f"{model.source} has no function main") from error
    inputs = tuple(
        TensorSpec(name=str(param.name), dtype=tensor_type(param).dtype, shape=tensor_type(param).shape)
        for param in main.params
    )
    if odd := [spec.name for spec in inputs if not spec.dtype]:
        raise InputError(f"{model.source} has an input that is no tensor: {', '.join(odd)}")
    output_specs = _outputs(main, outputs)
    if odd := [spec.name for spec in output_specs if not spec.dtype]:
        raise InputError(
            f"{model.source} has an output that is no tensor: {', '.join(odd)}; leave it out of the model"
        )
    guarded = keep_inside(module)
    return Imported(
        module=guarded.module,
        guards=guarded.guards,
        inputs=inputs,
        outputs=output_specs,
        bounds=bounds_of(model.content.graph) if hasattr(model.content, "graph") else (),
    )


def _import_onnx(model: Model, shapes: Shapes) -> tuple[Any, tuple[str, ...]]:
    from tvm.relax.frontend.onnx import from_onnx

    graph = model.content.graph
    weights = {initializer.name for initializer in graph.initializer}
    inputs = {value_info.name for value_info in graph.input} - weights
    if unknown := sorted(set(shapes) - inputs):
        raise InputError(
            f"{model.source} has no input {', '.join(unknown)}: its inputs are {', '.join(sorted(inputs))}"
        )
    for value in graph.input:
        if value.name in shapes:
            check_shape(
                value.name, shapes[value.name], declared=_declared(value), model=PurePath(model.source).name
            )
    with _quiet():
        module, reason = _imported(
            from_onnx, model.content, {name: list(shape) for name, shape in shapes.items()} or None
        )
    if module is None:
        match = _UNKNOWN_OPERATORS.match(reason)
        if match is not None:
            raise InputError(_no_operator(model.source, graph, match["names"].split(", ")))
        raise InputError(f"{model.source} cannot be imported: {reason[:400]}")
    return module, tuple(value_info.name for value_info in graph.output)


def _imported(importer: Any, content: Any, shapes: dict[str, list[int]] | None) -> tuple[Any | None, str]:
    """A Relax module, or None and why there is none. What the importer had begun is gone when this returns."""
    try:
        return importer(content, shape_dict=shapes), ""
    except Exception as error:  # of many kinds, from TVM's Python and C++ code
        return None, (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def _quiet() -> Iterator[None]:
    """TVM's importer prints what it meets, from Python and from C++, also for what is raised here in a sentence."""
    sys.stdout.flush()
    sys.stderr.flush()
    copies = [os.dup(1), os.dup(2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for descriptor in (1, 2):
            os.dup2(nowhere, descriptor)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            yield
    finally:
        for descriptor, before in zip((1, 2), copies, strict=True):
            os.dup2(before, descriptor)
        for descriptor in (*copies, nowhere):
            os.close(descriptor)


_UNKNOWN_OPERATORS = re.compile(r"The following operators are not supported for frontend ONNX: (?P<names>.+)")
"""What TVM's importer says of operators that it does not have."""

_RECURRENT = (
    "write its steps out before the export, as a loop over torch.nn.LSTMCell, GRUCell or RNNCell does"
)
_REMEDIES = {
    "LSTM": _RECURRENT,
    "GRU": _RECURRENT,
    "RNN": _RECURRENT,
    "Loop": "export it with a number of rounds that is fixed, so that they are written out",
    "Scan": "export it with a number of rounds that is fixed, so that they are written out",
    "If": "export the branch that is taken",
}


def _no_operator(source: str, graph: Any, kinds: Sequence[str]) -> str:
    """The one sentence about operators that cannot be imported: which, at which nodes, and what to do instead."""
    kind = kinds[0]
    nodes = [node.name or ", ".join(node.output) for node in graph.node if node.op_type == kind]
    where = f" (node {nodes[0]}{f' and {len(nodes) - 1} more' if nodes[1:] else ''})" if nodes else ""
    suffix = f"; it does not know {', '.join(kinds[1:])}, either" if kinds[1:] else ""
    remedy = _REMEDIES.get(
        kind, "express it by other operators before the export, or run this part outside of the model"
    )
    return f"{source} has the operator {kind}{where}, which TVM cannot compile: {remedy}{suffix}"


def check_shape(
    name: str, shape: tuple[int, ...], *, declared: tuple[int | str, ...] | None, model: str
) -> None:
    """Check that a shape for an input does not contradict what the model declares; pure.

    Args:
        declared: sizes, and names of what is open; None if the model does not say.

    Raises:
        InputError: another rank, another fixed size, or two sizes for one name.
    """
    if declared is None:
        return
    size_of: dict[str, int] = {}
    fits = len(shape) == len(declared) and all(
        size == dimension
        if isinstance(dimension, int)
        else dimension == "?" or size_of.setdefault(dimension, size) == size
        for size, dimension in zip(shape, declared, strict=True)
    )
    if not fits:
        shape_text = ", ".join(str(dimension) for dimension in declared) + ("," if len(declared) == 1 else "")
        raise InputError(
            f"--shape {name}={','.join(str(size) for size in shape)} does not fit {model}, which declares {name} as "
            f"({shape_text}): give the open sizes only"
        )


def _declared(value: Any) -> tuple[int | str, ...] | None:
    """The shape that an ONNX input declares; an open dimension without a name is a question mark."""
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.dim_value > 0 else dim.dim_param or "?" for dim in kind.shape.dim)


def _outputs(main: Any, names: tuple[str, ...]) -> tuple[TensorSpec, ...]:
    return_type = main.ret_ty
    kinds = list(return_type.fields) if isinstance(return_type, relax.TupleType) else [return_type]
    types = [tensor_type(_Typed(kind)) for kind in kinds]
    output_names = (
        names if len(names) == len(types) else tuple(f"output{place}" for place in range(len(types)))
    )
    return tuple(
        TensorSpec(name=name, dtype=kind.dtype, shape=kind.shape)
        for name, kind in zip(output_names, types, strict=True)
    )


@dataclass(frozen=True)
class _Typed:
    ty: Any
