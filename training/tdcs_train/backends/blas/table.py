"""What `blas` takes: products of matrices with bias and relu, and sums, differences and products of equal shapes."""

from collections.abc import Sequence

from tdcs_train.backends import checks
from tdcs_train.backends.backend import Row
from tdcs_train.backends.patterns import binary, dense, unary, with_bias, with_relu


def rows() -> Sequence[Row]:
    """The table; longer patterns first."""
    product = checks.all_of(checks.static_float32, checks.product_of_matrices, checks.bias_along(-1))
    transposed = checks.all_of(product, checks.swaps_last_two)
    equal = checks.all_of(checks.static_float32, checks.same_shapes)
    table: list[Row] = []
    for name, pattern, check in (("dense", dense(), transposed), ("matmul", binary("matmul"), product)):
        table += [
            Row(name=f"{name}_bias_relu", pattern=with_relu(with_bias(pattern)), check=check),
            Row(name=f"{name}_bias", pattern=with_bias(pattern), check=check),
            Row(name=f"{name}_relu", pattern=with_relu(pattern), check=check),
            Row(name=name, pattern=pattern, check=check),
        ]
    return (
        *table,
        Row(name="add", pattern=binary("add"), check=equal),
        Row(name="sub", pattern=binary("subtract"), check=equal),
        Row(name="mul", pattern=binary("multiply"), check=equal),
        Row(name="relu", pattern=unary("nn.relu"), check=checks.static_float32),
    )
