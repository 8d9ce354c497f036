"""A model of which the toy device takes a part: `tdcs-train compile model.py:model`."""

import onnx
from onnx import TensorProto, helper

SHAPE = (2, 6)


def model() -> onnx.ModelProto:
    """`y = relu(a * b) * exp(b)`: the device takes both products and the relu, the host computes exp."""
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["product"]),
        helper.make_node("Relu", ["product"], ["positive"]),
        helper.make_node("Exp", ["b"], ["factor"]),
        helper.make_node("Mul", ["positive", "factor"], ["y"]),
    ]
    tensors = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("a", "b", "y")
    }
    graph = helper.make_graph(nodes, "toy", [tensors["a"], tensors["b"]], [tensors["y"]])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
