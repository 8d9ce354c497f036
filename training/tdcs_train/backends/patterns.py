"""Dataflow patterns that tables share. Imports TVM's compiler, so only tables that are being made import this."""

from typing import Any

from tvm.relax.dpl import is_op, wildcard


def call(op: str, *arguments: Any) -> Any:
    """A call of `relax.<op>`; arguments that are not given are any tensors, two of them for binary operators."""
    return is_op(f"relax.{op}")(*arguments)


def binary(op: str) -> Any:
    """An operator of two tensors."""
    return call(op, wildcard(), wildcard())


def unary(op: str) -> Any:
    """An operator of one tensor."""
    return call(op, wildcard())


def with_bias(pattern: Any) -> Any:
    """The pattern's result plus another tensor, on either side."""
    return call("add", pattern, wildcard()) | call("add", wildcard(), pattern)


def with_relu(pattern: Any) -> Any:
    """The pattern's result through relu."""
    return call("nn.relu", pattern)


def dense() -> Any:
    """A product with a transposed matrix, as fully connected layers have it."""
    return call("matmul", wildcard(), call("permute_dims", wildcard()))
