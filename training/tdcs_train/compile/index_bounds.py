"""Operators that take indices from a model's inputs: none of them may reach outside of its table.

TVM's code reads and writes wherever an index points: an id of 200 into 200 rows reads foreign memory, and one of 10^9
ends the process. So every index is kept inside of its axis, and the model says whether one was not, so that a run is
refused with a sentence. Those that come straight from an input are known by their bounds, and refused before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import tvm
from tvm import relax

from tdcs_train.artifacts.manifest import BoundSpec, GuardSpec
from tdcs_train.errors import InputError


def bounds_of(graph: Any) -> tuple[BoundSpec, ...]:
    """The inputs of an ONNX graph that are indices into weights, with the rows that there are."""
    sizes = {initializer.name: tuple(initializer.dims) for initializer in graph.initializer}
    inputs = {value_info.name for value_info in graph.input} - set(sizes)
    least: dict[str, int] = {}
    for node in graph.node:
        if node.op_type not in ("Gather", "GatherElements") or len(node.input) < 2:
            continue
        table, indices = node.input[0], node.input[1]
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
        if indices in inputs and table in sizes and -len(sizes[table]) <= axis < len(sizes[table]):
            rows = sizes[table][axis]
            least[indices] = min(rows, least.get(indices, rows))
    return tuple(BoundSpec(input=name, size=size) for name, size in sorted(least.items()))


@dataclass(frozen=True)
class Guarded:
    """A module whose indices stay inside of their tables, and what its last output says of indices that did not."""

    module: Any
    guards: tuple[GuardSpec, ...]
    """Of each element of the last output of `main`, which is there if this is not empty: the operator that it is of."""


def keep_inside(module: Any) -> Guarded:
    """The module with the indices of every operator kept inside of the axes that they point into.

    `main` gets one output more, where there are such operators: a number for each, which is not 0 where an index was
    outside. TVM's importer has counted negative indices from the end already, but for scatter_elements.
    """
    guards: list[GuardSpec] = []
    flags: list[Any] = []

    @relax.expr_functor.mutator
    class Keeper(relax.PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = super().visit_call_(call)
            kind = getattr(call.op, "name", "").removeprefix("relax.")
            if kind == "take" and str(call.attrs.mode) == "fast":
                axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
                indices = self._kept(call, kind, (axis,))
                return relax.op.take(call.args[0], indices, axis=call.attrs.axis, mode="clip")
            if kind in ("gather_elements", "scatter_elements"):
                axis = int(call.attrs.axis)
                return _with_indices(
                    call, self._kept(call, kind, (axis,), from_end=kind.startswith("scatter"))
                )
            if kind in ("gather_nd", "scatter_nd"):
                first = int(call.attrs.batch_dims) if kind == "gather_nd" else 0
                depth = _size(call.args[1], -1)
                if depth is None:
                    raise InputError(f"{kind} has indices of unknown depth; give their shape (--shape)")
                return _with_indices(call, self._kept(call, kind, tuple(range(first, first + depth))))
            if kind in ("vision.roi_align", "vision.roi_pool"):
                return _with_indices(call, self._images_kept(call, kind))
            return call

        def _kept(self, call: Any, kind: str, axes: tuple[int, ...], *, from_end: bool = False) -> Any:
            """The indices of a call, kept inside of these axes of its table."""
            table, indices = call.args[0], call.args[1]
            sizes = [_size(table, axis) for axis in axes]
            dtype = indices.ty.dtype.dtype
            if all(size is not None for size in sizes):
                size = relax.const(numpy.array(sizes if len(axes) > 1 else sizes[0], dtype=dtype), dtype)
            else:
                size = self.builder_.emit(_sizes_at_run(table, axes, dtype))
            one, zero = relax.const(1, dtype), relax.const(0, dtype)
            if from_end:
                indices = self.builder_.emit(
                    relax.op.where(relax.op.less(indices, zero), relax.op.add(indices, size), indices)
                )
            inside = self.builder_.emit(
                relax.op.maximum(relax.op.minimum(indices, relax.op.subtract(size, one)), zero)
            )
            self._guard(kind, relax.op.not_equal(indices, inside), sizes, indices=indices)
            return inside

        def _images_kept(self, call: Any, kind: str) -> Any:
            """Regions of images, of which the first column is the number of the image."""
            regions = call.args[1]
            dtype, images = regions.ty.dtype.dtype, _size(call.args[0], 0)
            if images is None:
                raise InputError(
                    f"{kind} takes a number of images that is not known; give the shape (--shape)"
                )
            column = self.builder_.emit(relax.op.strided_slice(regions, axes=[1], begin=[0], end=[1]))
            corners = self.builder_.emit(relax.op.strided_slice(regions, axes=[1], begin=[1], end=[5]))
            zero, last = relax.const(0, dtype), relax.const(images - 1, dtype)
            valid = relax.op.logical_and(
                relax.op.greater_equal(column, zero), relax.op.less_equal(column, last)
            )
            inside = self.builder_.emit(relax.op.where(valid, column, zero))  # also where it is no number
            self._guard(kind, relax.op.logical_not(valid), [images], indices=column)
            return self.builder_.emit(relax.op.concat([inside, corners], axis=1))

        def _guard(self, kind: str, outside: Any, sizes: Sequence[int | None], *, indices: Any) -> None:
            """Has the module say whether an index was outside."""
            if isinstance(indices, tvm.ir.GenericConst):
                values = indices.value.numpy()
                limits = numpy.array([numpy.inf if size is None else size for size in sizes])
                if values.size and not ((values >= 0) & (values < limits)).all():
                    raise InputError(
                        f"the model has a constant index outside of the {sizes} rows of a table ({kind})"
                    )
                return
            counted = self.builder_.emit(relax.op.astype(outside, "int32"))
            flag = relax.op.reshape(relax.op.max(counted), (1,))
            emit = (
                self.builder_.emit_output if self.builder_.current_block_is_dataflow() else self.builder_.emit
            )
            flags.append(emit(flag))
            guards.append(GuardSpec(operator=kind, sizes=tuple(sizes)))

    main = module["main"]
    keeper = Keeper(module)
    function = keeper.visit_expr(main)
    if flags:
        function = _with_output(function, flags)
    module = tvm.IRModule({**module.functions, module.get_global_var("main"): function}, module.attrs)
    return Guarded(relax.transform.Normalize()(module), tuple(guards))


def _with_output(function: Any, flags: Sequence[Any]) -> Any:
    """A function that returns the flags in one tensor behind what it returns now."""
    old_body, kind = function.body.body, function.ret_ty
    types = list(kind.fields) if isinstance(kind, relax.TupleType) else [kind]
    values = [relax.TupleGetItem(old_body, place) for place in range(len(types))]
    values = values if isinstance(kind, relax.TupleType) else [old_body]
    flags_type = relax.TensorType((len(flags),), "int32")
    outside = relax.Var("outside", flags_type)
    returned = relax.Var("with_outside", relax.TupleType([*types, flags_type]))
    block = relax.BindingBlock(
        [
            relax.VarBinding(outside, relax.op.concat(list(flags), axis=0)),
            relax.VarBinding(returned, relax.Tuple([*values, outside])),
        ]
    )
    body = relax.SeqExpr([*function.body.blocks, block], returned)
    return relax.Function(function.params, body, returned.ty, function.is_pure, function.attrs)


def _sizes_at_run(table: Any, axes: Sequence[int], dtype: str) -> Any:
    """Sizes of axes that are known when the model runs only, as a tensor."""
    sizes = relax.op.astype(relax.op.shape_to_tensor(relax.op.shape_of(table)), dtype)
    rank = len(table.ty.shape.values)
    dims = relax.op.take(
        sizes, relax.const(numpy.array([axis % rank for axis in axes]), "int64"), axis=0, mode="clip"
    )
    return dims if len(axes) > 1 else relax.op.reshape(dims, ())


def _size(value: Any, axis: int) -> int | None:
    """The size of an axis, where it is known."""
    shape = getattr(value.ty, "shape", None)
    if shape is None or not hasattr(shape, "values"):
        return None
    sizes = list(shape.values)
    size = sizes[axis] if -len(sizes) <= axis < len(sizes) else None
    value = getattr(size, "value", None)
    return None if value is None else int(value)


def _with_indices(call: Any, indices: Any) -> Any:
    arguments = list(call.args)
    arguments[1] = indices
    return relax.Call(call.op, arguments, call.attrs, call.ty_args)
