"""A model to compile: a convolutional network for digits of 28 x 28, four at a time, as an ONNX graph.

    tdcs-train compile digits_model.py:model --name digits --target x86-64-v3 --backend onednn -o s3://compiled/

Its weights are random numbers, always the same; your own model would be an ONNX file that your training job exported.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BATCH = 4
SIZE = 28


def model() -> onnx.ModelProto:
    """The network, with fixed random weights."""
    random = np.random.default_rng(28)
    weights: list[onnx.TensorProto] = []

    def weight(*shape: int) -> str:
        fan_in = max(1, int(np.prod(shape[1:])))
        values = (random.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"weight{len(weights)}"))
        return str(weights[-1].name)

    def layer(kind: str, inputs: list[str], output: str, **attributes: object) -> onnx.NodeProto:
        return helper.make_node(kind, inputs, [output], **attributes)

    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    half = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        layer("Conv", ["image", weight(32, 1, 3, 3), weight(32)], "c1", **same),
        layer("Relu", ["c1"], "r1"),
        layer("MaxPool", ["r1"], "p1", **half),
        layer("Conv", ["p1", weight(64, 32, 3, 3), weight(64)], "c2", **same),
        layer("Relu", ["c2"], "r2"),
        layer("MaxPool", ["r2"], "p2", **half),
        layer("Flatten", ["p2"], "f"),
        layer("Gemm", ["f", weight(128, 64 * 7 * 7), weight(128)], "d1", transB=1),
        layer("Relu", ["d1"], "r3"),
        layer("Gemm", ["r3", weight(10, 128), weight(10)], "score", transB=1),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [BATCH, 1, SIZE, SIZE])
    score = helper.make_tensor_value_info("score", TensorProto.FLOAT, [BATCH, 10])
    graph = helper.make_graph(nodes, "digits", [image], [score], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
