"""Models for the tests and benchmarks of compiling, as ONNX graphs with random weights."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


class Network:
    """Builds an ONNX graph; every operator's method gives the name of its result."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add an operator; gives its output's name, or several."""
        names = [f"t{len(self.nodes)}_{place}" for place in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, values: NDArray[Any] | np.generic) -> str:
        """A weight with these values."""
        name = f"weight{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def normal(self, *shape: int, scale: float | None = None) -> str:
        """A random weight; by default scaled so that values keep their size through the layer."""
        fan_in = int(np.prod(shape[1:])) or 1
        values = self.random.standard_normal(shape) * (np.sqrt(2 / fan_in) if scale is None else scale)
        return self.constant(values.astype(np.float32))

    def conv(
        self,
        x: str,
        channels: int,
        filters: int,
        kernel: int,
        *,
        stride: int = 1,
        pad: int = 0,
        groups: int = 1,
        bias: bool = True,
    ) -> str:
        """A convolution."""
        inputs = [x, self.normal(filters, channels // groups, kernel, kernel)]
        if bias:
            inputs.append(self.normal(filters, scale=0.1))
        shape: dict[str, Any] = {
            "kernel_shape": [kernel] * 2,
            "strides": [stride] * 2,
            "pads": [pad] * 4,
            "group": groups,
        }
        return str(self.op("Conv", *inputs, **shape))

    def norm(self, x: str, channels: int) -> str:
        """Batch normalisation."""
        uniform = [self.random.uniform(0.5, 1.5, channels) for _ in range(2)]
        normal = [self.random.standard_normal(channels) * 0.1 for _ in range(2)]
        values = [uniform[0], normal[0], normal[1], uniform[1]]
        names = [self.constant(array.astype(np.float32)) for array in values]
        return str(self.op("BatchNormalization", x, *names))

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        """A fully connected layer."""
        weights, bias = self.normal(outputs, inputs), self.normal(outputs, scale=0.1)
        return str(self.op("Gemm", x, weights, bias, transB=1))

    def model(self, inputs: Mapping[str, Sequence[int | str]], outputs: Sequence[str]) -> onnx.ModelProto:
        """The finished model."""
        graph = helper.make_graph(
            self.nodes,
            "model",
            [helper.make_tensor_value_info(name, FLOAT, list(shape)) for name, shape in inputs.items()],
            [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        return onnx.shape_inference.infer_shapes(model)


def mlp() -> onnx.ModelProto:
    """Three fully connected layers."""
    net = Network(1)
    x = net.op("Relu", net.dense("x", 64, 128))
    x = net.op("Relu", net.dense(x, 128, 96))
    return net.model({"x": [4, 64]}, [net.dense(x, 96, 10)])


def lenet() -> onnx.ModelProto:
    """LeNet on 28 x 28 digits."""
    net = Network(2)
    x = net.op("Relu", net.conv("x", 1, 6, 5, pad=2))
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Relu", net.conv(x, 6, 16, 5))
    x = net.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Relu", net.dense(net.op("Flatten", x), 400, 120))
    return net.model({"x": [2, 1, 28, 28]}, [net.dense(net.op("Relu", net.dense(x, 120, 84)), 84, 10)])


def resnet18(size: int = 224, *, norm: bool = True) -> onnx.ModelProto:
    """ResNet-18; without `norm` as exporters write it, with batch normalisation folded into the convolutions."""
    net = Network(3)

    def layer(x: str, channels: int, filters: int, kernel: int, stride: int = 1) -> str:
        output = net.conv(x, channels, filters, kernel, stride=stride, pad=kernel // 2, bias=not norm)
        return net.norm(output, filters) if norm else output

    x = net.op("Relu", layer("x", 3, 64, 7, 2))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for filters, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        y = layer(net.op("Relu", layer(x, channels, filters, 3, stride)), filters, filters, 3)
        short = x if (stride, channels) == (1, filters) else layer(x, channels, filters, 1, stride)
        x = net.op("Relu", net.op("Add", y, short))
        channels = filters
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.model({"x": [1, 3, size, size]}, [net.dense(x, 512, 1000)])


def mobilenet() -> onnx.ModelProto:
    """Inverted residuals with depthwise convolutions and ReLU6, like MobileNetV2."""
    net = Network(4)
    low, high = net.constant(np.float32(0)), net.constant(np.float32(6))

    def relu6(x: str) -> str:
        return str(net.op("Clip", x, low, high))

    x, channels = relu6(net.norm(net.conv("x", 3, 16, 3, stride=2, pad=1, bias=False), 16)), 16
    for filters, stride in ((16, 1), (24, 2), (24, 1), (32, 2), (32, 1)):
        wide = channels * 4
        y = relu6(net.norm(net.conv(x, channels, wide, 1, bias=False), wide))
        y = relu6(net.norm(net.conv(y, wide, wide, 3, stride=stride, pad=1, groups=wide, bias=False), wide))
        y = net.norm(net.conv(y, wide, filters, 1, bias=False), filters)
        x = net.op("Add", x, y) if (stride, channels) == (1, filters) else y
        channels = filters
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.model({"x": [1, 3, 64, 64]}, [net.dense(x, channels, 10)])


def lstm() -> onnx.ModelProto:
    """A layer of LSTM over 6 steps, unrolled, and a classifier of its last state."""
    net = Network(5)
    steps, batch, features, hidden = 6, 3, 12, 16
    weights, recurrent = (
        net.normal(features, 4 * hidden, scale=0.3),
        net.normal(hidden, 4 * hidden, scale=0.3),
    )
    bias = net.normal(4 * hidden, scale=0.1)
    inputs = net.op("Split", "x", net.constant(np.ones(steps, dtype=np.int64)), outputs=steps, axis=0)
    parts = net.constant(np.full(4, hidden, dtype=np.int64))
    state = cell = net.constant(np.zeros((batch, hidden), dtype=np.float32))
    for step in inputs:
        x = net.op("Squeeze", step, net.constant(np.array([0], dtype=np.int64)))
        sums = net.op("Add", net.op("MatMul", x, weights), net.op("MatMul", state, recurrent))
        gates = net.op("Split", net.op("Add", sums, bias), parts, outputs=4, axis=1)
        enter, leave, forget = (net.op("Sigmoid", gate) for gate in gates[:3])
        fresh = net.op("Mul", enter, net.op("Tanh", gates[3]))
        cell = net.op("Add", net.op("Mul", forget, cell), fresh)
        state = net.op("Mul", leave, net.op("Tanh", cell))
    return net.model({"x": [steps, batch, features]}, [net.dense(state, hidden, 5)])


def transformer() -> onnx.ModelProto:
    """A block of a transformer: attention with four heads, and two fully connected layers."""
    net = Network(6)
    tokens, width, heads = 10, 32, 4

    def shape(*sizes: int) -> str:
        return net.constant(np.array(sizes, dtype=np.int64))

    def layer_norm(x: str) -> str:
        scale, shift = net.normal(width, scale=1.0), net.normal(width, scale=0.1)
        return str(net.op("LayerNormalization", x, scale, shift, axis=-1))

    def project(x: str, inputs: int, outputs: int) -> str:
        return str(
            net.op(
                "Add",
                net.op("MatMul", x, net.normal(inputs, outputs, scale=0.2)),
                net.normal(outputs, scale=0.1),
            )
        )

    def split(x: str, order: Sequence[int]) -> str:
        parts = net.op("Reshape", project(x, width, width), shape(2, tokens, heads, width // heads))
        return str(net.op("Transpose", parts, perm=list(order)))

    normed = layer_norm("x")
    query, key, value = (split(normed, order) for order in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)))
    scores = net.op("Mul", net.op("MatMul", query, key), net.constant(np.float32((width // heads) ** -0.5)))
    mixed = net.op(
        "Transpose", net.op("MatMul", net.op("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3]
    )
    x = net.op("Add", "x", project(net.op("Reshape", mixed, shape(2, tokens, width)), width, width))
    y = net.op("Relu", project(layer_norm(x), width, 4 * width))
    return net.model({"x": [2, tokens, width]}, [net.op("Add", x, project(y, 4 * width, width))])


REAL: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "mlp": mlp,
    "lenet": lenet,
    "resnet18": lambda: resnet18(64, norm=False),
    "mobilenet": mobilenet,
    "lstm": lstm,
    "transformer": transformer,
}
"""The six models; ResNet-18 on small images, so that TVM's own code takes less than a second for one."""


def random_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Random arrays for the model's inputs."""
    random = np.random.default_rng(seed)
    weights = {initializer.name for initializer in model.graph.initializer}
    return {
        value_info.name: random.standard_normal(
            [dim.dim_value for dim in value_info.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for value_info in model.graph.input
        if value_info.name not in weights
    }
