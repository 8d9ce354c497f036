"""Operators that take indices from a model's inputs: none of them may reach outside of its table.

TVM's code reads and writes wherever an index points: an id of 200 into 200 rows reads foreign memory, and one of 10^9
ends the process. So every index is kept inside of its axis, and those that come straight from an input are known by
their bounds, so that a run refuses them with a sentence instead.
"""

from typing import Any

import numpy
import tvm
from tvm import relax

from tdcs_train.artifacts.manifest import BoundSpec


def bounds_of(graph: Any) -> tuple[BoundSpec, ...]:
    """The inputs of an ONNX graph that are indices into weights, with the rows that there are."""
    sizes = {each.name: tuple(each.dims) for each in graph.initializer}
    inputs = {each.name for each in graph.input} - set(sizes)
    least: dict[str, int] = {}
    for node in graph.node:
        if node.op_type not in ("Gather", "GatherElements") or len(node.input) < 2:
            continue
        table, indices = node.input[0], node.input[1]
        axis = next((each.i for each in node.attribute if each.name == "axis"), 0)
        if indices in inputs and table in sizes and -len(sizes[table]) <= axis < len(sizes[table]):
            rows = sizes[table][axis]
            least[indices] = min(rows, least.get(indices, rows))
    return tuple(BoundSpec(input=name, size=size) for name, size in sorted(least.items()))


def keep_inside(module: Any) -> Any:
    """The module with the indices of every take, gather and scatter kept inside of the axes that they point into."""

    @relax.expr_functor.mutator
    class Keeper(relax.PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = super().visit_call_(call)
            kind = getattr(call.op, "name", "")
            if kind == "relax.take" and str(call.attrs.mode) == "fast":
                return relax.op.take(call.args[0], call.args[1], axis=call.attrs.axis, mode="clip")
            if kind in ("relax.gather_elements", "relax.scatter_elements"):
                size = _size(call.args[0], int(call.attrs.axis))
                if size is not None:
                    return _with_indices(call, self.builder_.emit(_inside(call.args[1], size)))
            if kind in ("relax.gather_nd", "relax.scatter_nd"):
                first = int(call.attrs.batch_dims) if kind == "relax.gather_nd" else 0
                depth = _size(call.args[1], -1)
                sizes = [_size(call.args[0], first + place) for place in range(depth or 0)]
                if depth and all(size is not None for size in sizes):
                    return _with_indices(call, self.builder_.emit(_inside(call.args[1], sizes)))
            return call

    main = module["main"]
    keeper = Keeper(module)
    changed = keeper.visit_expr(main)
    module = tvm.IRModule({**module.functions, module.get_global_var("main"): changed}, module.attrs)
    return relax.transform.Normalize()(module)


def _size(value: Any, axis: int) -> int | None:
    """The size of an axis, where it is known."""
    shape = getattr(value.ty, "shape", None)
    if shape is None or not hasattr(shape, "values"):
        return None
    sizes = list(shape.values)
    size = sizes[axis] if -len(sizes) <= axis < len(sizes) else None
    value = getattr(size, "value", None)
    return None if value is None else int(value)


def _inside(indices: Any, sizes: Any) -> Any:
    """Indices that count from the end where they are negative, kept between the first and the last of an axis."""
    dtype = indices.ty.dtype.dtype
    size = relax.const(numpy.array(sizes, dtype=dtype), dtype)
    last = relax.const(numpy.array(sizes, dtype=dtype) - 1, dtype)
    zero = relax.const(0, dtype)
    counted = relax.op.where(relax.op.less(indices, zero), relax.op.add(indices, size), indices)
    return relax.op.maximum(relax.op.minimum(counted, last), zero)


def _with_indices(call: Any, indices: Any) -> Any:
    arguments = list(call.args)
    arguments[1] = indices
    return relax.Call(call.op, arguments, call.attrs, call.ty_args)
