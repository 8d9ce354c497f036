"""Computes with numpy what follows from weights alone.

TVM's own pass builds a program for each such operator, a second each; for the few operators that imported models have
between their weights numpy does it at once. What is not in this table is left to TVM's pass.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

Array = NDArray[Any]
MOST_ELEMENTS = 1 << 26
"""A result with more elements stays an operator: broadcasting could make a constant larger than all weights."""


def _binary(compute: Callable[[Array, Array], Array]) -> Callable[[Sequence[Array], Any], Array]:
    return lambda arrays, _: compute(arrays[0], arrays[1])


def _expand(arrays: Sequence[Array], call: Any) -> Array:
    return np.expand_dims(arrays[0], tuple(int(axis) for axis in call.attrs.axis))


def _permute(arrays: Sequence[Array], call: Any) -> Array:
    axes = call.attrs.axes
    return np.transpose(arrays[0], None if axes is None else [int(axis) for axis in axes])


def _reshape(arrays: Sequence[Array], call: Any) -> Array:
    return np.reshape(arrays[0], [int(size) for size in call.ty.shape.values])


FOLDED: Mapping[str, Callable[[Sequence[Array], Any], Array]] = {
    "relax.add": _binary(np.add),
    "relax.divide": _binary(np.divide),
    "relax.expand_dims": _expand,
    "relax.multiply": _binary(np.multiply),
    "relax.permute_dims": _permute,
    "relax.reshape": _reshape,
    "relax.sqrt": lambda arrays, _: np.sqrt(arrays[0]),
    "relax.subtract": _binary(np.subtract),
}


def fold(module: Any) -> Any:
    """The module with the operators of the table computed where all their tensors are float32 constants."""

    @relax.expr_functor.mutator
    class Folder(relax.PyExprMutator):  # type: ignore[misc]
        def __init__(self, module: Any) -> None:
            super().__init__(module)
            self.constants: dict[Any, Any] = {}

        def visit_var_binding_(self, binding: Any) -> None:
            value = self.visit_expr(binding.value)
            if isinstance(value, tvm.ir.GenericConst) and isinstance(binding.var, relax.DataflowVar):
                self.constants[binding.var] = value
            else:
                super().visit_var_binding_(binding)

        def visit_dataflow_var_(self, op: Any) -> Any:
            return self.constants[op] if op in self.constants else super().visit_dataflow_var_(op)

        def visit_call_(self, op: Any) -> Any:
            call = super().visit_call_(op)
            compute = FOLDED.get(getattr(call.op, "name", ""))
            if compute is None:
                return call
            arrays = [_array(argument) for argument in call.args if not isinstance(argument, relax.ShapeExpr)]
            constants = [array for array in arrays if array is not None]
            if (
                len(constants) < len(arrays)
                or np.prod([max(array.size, 1) for array in constants]) > MOST_ELEMENTS**2
            ):
                return call
            constant = compute(constants, op)
            fits = constant.dtype == np.float32 and constant.size <= MOST_ELEMENTS
            return relax.const(np.ascontiguousarray(constant), "float32") if fits else call

    main = module["main"]
    folded = Folder(module).visit_expr(main)
    updated = module.clone() if hasattr(module, "clone") else module
    updated.update_func(module.get_global_var("main"), folded)
    return updated


def _array(expression: Any) -> Array | None:
    value: Any = getattr(expression, "value", None)
    if value is None:
        return None
    if hasattr(value, "numpy"):
        array: Array = value.numpy()
        return array if array.dtype == np.float32 else None
    dtype = str(getattr(getattr(expression, "ty", None), "dtype", ""))
    return np.asarray(value, dtype=np.float32) if dtype == "float32" else None
