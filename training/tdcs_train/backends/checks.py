"""Checks that tables share: pure functions from a match to None, or to the sentence that says why not."""

from tdcs_train.backends.backend import Check
from tdcs_train.backends.graph import Match, Step, TensorType


def all_of(*checks: Check) -> Check:
    """The first refusal of these checks."""

    def judge(match: Match) -> str | None:
        return next((reason for check in checks if (reason := check(match)) is not None), None)

    return judge


def static_float32(match: Match) -> str | None:
    """Every tensor has a static shape with elements in it and is float32."""
    for step in match.steps:
        for tensor in (*step.inputs, step.output):
            if tensor.dtype != "float32":
                return f"{step.op} has a tensor of {tensor.dtype or 'unknown type'}, not float32"
            if not tensor.static:
                return f"{step.op} has a shape that is known only at run time"
            if 0 in tensor.dims:
                return f"{step.op} has an empty tensor"
    return None


def same_shapes(match: Match) -> str | None:
    """The first step's tensors have one shape: nothing is broadcast."""
    step = match.steps[0]
    shapes = {tensor.shape for tensor in (*step.inputs, step.output)}
    return None if len(shapes) == 1 else f"{step.op} broadcasts a tensor"


def bias_of(match: Match) -> TensorType | None:
    """The tensor that the match's second step adds to the first one's result."""
    for step in match.steps[1:]:
        if step.op == "add":
            return next(
                (type_ for type_, source in zip(step.inputs, step.sources, strict=True) if source is None),
                None,
            )
    return None


def bias_along(axis: int) -> Check:
    """A bias, if there is one, has one element for each place along this axis of the result."""

    def judge(match: Match) -> str | None:
        additions = [step for step in match.steps[1:] if step.op == "add"]
        if not additions:
            return None
        bias, output_dims = bias_of(match), match.steps[0].output.dims
        if match.steps[0].op == "permute_dims":
            output_dims = match.steps[1].output.dims
        if bias is None:
            return "both sides of the addition come from the product"
        if additions[0].output.dims != output_dims:
            return "the addition changes the shape"
        shape = bias.dims
        expected = [1] * len(output_dims)
        expected[axis] = output_dims[axis]
        padded = (*(1,) * (len(output_dims) - len(shape)), *shape)
        return None if padded == tuple(expected) else f"the added tensor of shape {shape} is no bias"

    return judge


def nchw_convolution(match: Match) -> str | None:
    """The convolution has the layouts NCHW and OIHW and four dimensions."""
    step = match.find("nn.conv2d")
    if step is None:
        return "there is no conv2d"
    layouts = tuple(step.attributes.get(name) for name in ("data_layout", "kernel_layout", "out_layout"))
    if layouts not in {("NCHW", "OIHW", "NCHW"), ("NCHW", "OIHW", "")}:
        return f"the layouts are {layouts}, not NCHW and OIHW"
    return _keeps_dtype(step)


def nchw_pooling(match: Match) -> str | None:
    """The pooling has the layout NCHW, no dilation and no rounding up."""
    step = match.steps[0]
    if step.attributes.get("layout") != "NCHW" or step.attributes.get("out_layout") not in {"NCHW", ""}:
        return "the layout is not NCHW"
    if step.attributes.get("ceil_mode"):
        return "the output size is rounded up"
    if set(step.attribute_ints("dilation")) != {1}:
        return "the pooling is dilated"
    padding, window = step.attribute_ints("padding"), step.attribute_ints("pool_size")
    if any(pad >= size for pad, size in zip(padding, (*window, *window), strict=True)):
        return "a window could be wholly in the padding"
    return None


def mean_of_planes(match: Match) -> str | None:
    """The mean is taken over height and width of NCHW, and keeps the dimensions."""
    step = match.steps[0]
    rank = len(step.inputs[0].dims)
    axes = step.attributes.get("axis")
    if not isinstance(axes, tuple) or rank != 4 or {axis % rank for axis in axes} != {2, 3}:
        return "the mean is not over height and width"
    return None if step.attributes.get("keepdims") else "the mean drops the dimensions"


def product_of_matrices(match: Match) -> str | None:
    """The product has matrices on both sides: equal batch dimensions, or one matrix on the right for all."""
    step = match.find("matmul")
    if step is None:
        return "there is no matmul"
    left, right = (tensor.dims for tensor in step.inputs)
    if len(left) < 2 or len(right) < 2:
        return "one side is a vector"
    if len(right) > 2 and left[:-2] != right[:-2]:
        return "the batch dimensions are broadcast"
    return _keeps_dtype(step)


def swaps_last_two(match: Match) -> str | None:
    """The transposition is that of one matrix."""
    step = match.find("permute_dims")
    if step is None:
        return "there is no permute_dims"
    if len(step.inputs[0].dims) != 2:
        return "the transposed tensor is no matrix"
    axes = step.attributes.get("axes")
    return None if axes is None or axes == (1, 0) else "the matrix is not transposed"


def _keeps_dtype(step: Step) -> str | None:
    dtype = step.attributes.get("out_dtype")
    return None if dtype in {None, "", "float32", "void"} else f"{step.op} changes the type to {dtype}"
