"""What `onednn` takes: convolutions, products of matrices, pooling, relu and sums, differences, products of equal
shapes."""

from collections.abc import Sequence

from tdcs_train.backends import checks
from tdcs_train.backends.backend import Check, Row
from tdcs_train.backends.patterns import binary, dense, unary, with_bias, with_relu

CONVOLUTION = ("strides", "padding", "dilation", "groups")
POOLING = ("pool_size", "strides", "padding", "count_include_pad")


def rows() -> Sequence[Row]:
    """The table; longer patterns first."""
    static = checks.static_float32
    convolution = checks.all_of(static, checks.nchw_convolution, checks.bias_along(1))
    product = checks.all_of(static, checks.product_of_matrices, checks.bias_along(-1))
    transposed = checks.all_of(product, checks.swaps_last_two)
    pooling = checks.all_of(static, checks.nchw_pooling)
    equal = checks.all_of(static, checks.same_shapes)
    return (
        *_with_extras("conv2d", binary("nn.conv2d"), convolution, CONVOLUTION),
        *_with_extras("dense", dense(), transposed),
        *_with_extras("matmul", binary("matmul"), product),
        Row(name="max_pool2d", pattern=unary("nn.max_pool2d"), check=pooling, attributes=POOLING[:-1]),
        Row(name="avg_pool2d", pattern=unary("nn.avg_pool2d"), check=pooling, attributes=POOLING),
        Row(
            name="global_avg_pool2d",
            pattern=unary("mean"),
            check=checks.all_of(static, checks.mean_of_planes),
        ),
        Row(name="add_relu", pattern=with_relu(binary("add")), check=equal),
        Row(name="add", pattern=binary("add"), check=equal),
        Row(name="sub", pattern=binary("subtract"), check=equal),
        Row(name="mul", pattern=binary("multiply"), check=equal),
        Row(name="relu", pattern=unary("nn.relu"), check=static),
    )


def _with_extras(name: str, pattern: object, check: Check, attributes: tuple[str, ...] = ()) -> list[Row]:
    forms = {
        f"{name}_bias_relu": with_relu(with_bias(pattern)),
        f"{name}_bias": with_bias(pattern),
        f"{name}_relu": with_relu(pattern),
        name: pattern,
    }
    return [
        Row(name=form, pattern=variant, check=check, attributes=attributes) for form, variant in forms.items()
    ]
