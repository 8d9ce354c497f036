"""Random models of everything that tables know, and of what they must refuse or leave to the host."""

from typing import Any

import numpy as np
import onnx
from tests.compile.models import Network

IMAGES, MATRICES = "images", "matrices"


def random_model(seed: int, graphs: int) -> onnx.ModelProto:
    """Several random graphs side by side in one model, so that compiling is paid once; one output each at least."""
    net = Network(seed)
    inputs: dict[str, list[int | str]] = {}
    outputs: list[str] = []
    for number in range(graphs):
        kind = IMAGES if net.random.random() < 0.6 else MATRICES
        shape = _image_shape(net) if kind == IMAGES else _matrix_shape(net)
        name = f"x{number}"
        inputs[name] = list(shape)
        outputs += _grow(net, name, shape)
    return net.model(inputs, outputs)


def _image_shape(net: Network) -> tuple[int, ...]:
    return (
        int(net.random.integers(1, 3)),
        int(net.random.choice([2, 4, 6])),
        *net.random.integers(5, 10, 2).tolist(),
    )


def _matrix_shape(net: Network) -> tuple[int, ...]:
    lead = net.random.integers(1, 4, int(net.random.integers(1, 3))).tolist()
    return (*lead, int(net.random.integers(2, 9)), int(net.random.integers(2, 9)))


def _grow(net: Network, name: str, shape: tuple[int, ...]) -> list[str]:
    """Add operators, each to a random earlier value; what nothing reads is an output."""
    values: list[tuple[str, tuple[int, ...]]] = [(name, shape)]
    read: set[str] = set()
    for _ in range(int(net.random.integers(3, 9))):
        # mostly the newest value, so that chains appear, else any: values that are read twice
        place = -1 if net.random.random() < 0.7 else int(net.random.integers(len(values)))
        source, size = values[place]
        result = (
            _image_op(net, source, size, values) if len(size) == 4 else _matrix_op(net, source, size, values)
        )
        if result is not None:
            read.add(source)
            values.append(result)
    # every third graph also gives a value that others read
    extra = [tensor for tensor, _ in values[1:-1] if net.random.random() < 0.15]
    return sorted({tensor for tensor, _ in values[1:] if tensor not in read} | set(extra))


def _image_op(
    net: Network, x: str, shape: tuple[int, ...], values: list[tuple[str, tuple[int, ...]]]
) -> tuple[str, tuple[int, ...]] | None:
    batch, channels, height, width = shape
    choice = net.random.choice(
        ["conv", "conv", "conv", "relu", "max", "avg", "global", "binary", "bias", "host", "norm"]
    )
    if choice == "conv":
        kernel = int(net.random.choice([1, 2, 3]))
        stride, pad, rate = (int(net.random.integers(*bounds)) for bounds in ((1, 3), (0, 2), (1, 3)))
        groups = int(net.random.choice([divisor for divisor in (1, 2, channels) if channels % divisor == 0]))
        filters = groups * int(net.random.integers(1, 5))
        sizes = [(size + 2 * pad - rate * (kernel - 1) - 1) // stride + 1 for size in (height, width)]
        if min(sizes) < 1:
            return None
        inputs = [x, net.normal(filters, channels // groups, kernel, kernel)]
        if net.random.random() < 0.5:
            inputs.append(net.normal(filters, scale=0.3))
        options: dict[str, Any] = {
            "kernel_shape": [kernel] * 2,
            "strides": [stride] * 2,
            "pads": [pad] * 4,
            "group": groups,
        }
        return net.op("Conv", *inputs, dilations=[rate] * 2, **options), (batch, filters, *sizes)
    if choice in {"max", "avg"}:
        stride, pad = int(net.random.integers(1, 3)), int(net.random.integers(0, 2))
        up = bool(net.random.random() < 0.2)
        sizes = [
            int(np.ceil((size + 2 * pad - 2) / stride) if up else (size + 2 * pad - 2) // stride) + 1
            for size in (height, width)
        ]
        if min(sizes) < 1 or (up and pad):
            return None
        pooling: dict[str, Any] = {
            "kernel_shape": [2, 2],
            "strides": [stride] * 2,
            "pads": [pad] * 4,
            "ceil_mode": int(up),
        }
        if choice == "avg":
            pooling["count_include_pad"] = int(net.random.integers(0, 2))
        output = net.op("MaxPool" if choice == "max" else "AveragePool", x, **pooling)
        return output, (batch, channels, *sizes)
    if choice == "global":
        return net.op("GlobalAveragePool", x), (batch, channels, 1, 1)
    if choice == "bias":  # also added to what is no convolution
        return net.op("Add", x, net.normal(1, channels, 1, 1, scale=1.0)), shape
    if choice == "norm":
        return net.norm(x, channels), shape
    return _any_op(net, choice, x, shape, values)


def _matrix_op(
    net: Network, x: str, shape: tuple[int, ...], values: list[tuple[str, tuple[int, ...]]]
) -> tuple[str, tuple[int, ...]] | None:
    choice = net.random.choice(
        ["matmul", "matmul", "gemm", "self", "relu", "binary", "bias", "host", "transpose"]
    )
    if choice == "matmul":
        columns = int(net.random.integers(1, 9))
        batched = len(shape) > 2 and net.random.random() < 0.4
        lead = shape[:-2] if batched else ()
        if batched and net.random.random() < 0.3:
            lead = (1,) * len(lead)  # the batch of one side is broadcast
        weights = net.normal(*lead, shape[-1], columns, scale=0.5)
        return net.op("MatMul", x, weights), (*shape[:-1], columns)
    if choice == "gemm":
        if len(shape) != 2:
            return None
        columns = int(net.random.integers(1, 9))
        bias = net.normal(*((columns,) if net.random.random() < 0.7 else (shape[0], 1)), scale=0.5)
        return net.op("Gemm", x, net.normal(columns, shape[1], scale=0.5), bias, transB=1), (
            shape[0],
            columns,
        )
    if choice == "self":  # a product of two computed values
        swapped = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        return net.op("MatMul", x, net.op("Transpose", x, perm=swapped)), (*shape[:-1], shape[-2])
    if choice == "transpose":
        order = net.random.permutation(len(shape)).tolist()
        return net.op("Transpose", x, perm=order), tuple(shape[axis] for axis in order)
    if choice == "bias":
        return net.op("Add", x, net.normal(shape[-1], scale=1.0)), shape
    return _any_op(net, choice, x, shape, values)


def _any_op(
    net: Network, choice: str, x: str, shape: tuple[int, ...], values: list[tuple[str, tuple[int, ...]]]
) -> tuple[str, tuple[int, ...]]:
    if choice == "relu":
        return net.op("Relu", x), shape
    if choice == "host":
        return net.op(str(net.random.choice(["Tanh", "Sigmoid", "Softmax", "Abs"])), x), shape
    candidates = [name for name, size in values if size == shape]
    operand = str(net.random.choice(candidates)) if candidates else x
    return net.op(str(net.random.choice(["Add", "Sub", "Mul"])), x, operand), shape
