"""Indices that a user gives never reach outside of a table."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tests.compile.conftest import Compile

from tdcs_train import artifacts
from tdcs_train.errors import InputError

TABLE = np.arange(800, dtype=np.float32).reshape(200, 4)
SHAPES = {"Gather": [3], "GatherElements": [3, 4], "GatherND": [3, 1]}
IDS = {"Gather": (3,), "GatherElements": (3, 4), "GatherND": (3, 1)}


def model(kind: str, *, computed: bool) -> onnx.ModelProto:
    """A model that chooses rows by its input, or by twice its input."""
    nodes = [helper.make_node("Add", ["ids", "ids"], ["twice"])] if computed else []
    nodes.append(helper.make_node(kind, ["table", "twice" if computed else "ids"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "rows",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, SHAPES[kind])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4])],
        [numpy_helper.from_array(TABLE, "table")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def ids(kind: str, *values: int) -> np.ndarray[Any, Any]:
    return np.broadcast_to(
        np.array(values, dtype=np.int64).reshape(3, *[1] * (len(IDS[kind]) - 1)), IDS[kind]
    ).copy()


def opened(compiled: Compile, tmp_path: Path, proto: onnx.ModelProto) -> artifacts.CompiledModel:
    compiled(proto, backends=(), name="rows")
    return artifacts.load(str(tmp_path / "artifacts"), model="rows")


@pytest.mark.parametrize("kind", ["Gather", "GatherElements"])
def test_an_index_outside_of_the_table_is_refused_with_the_rows_that_there_are(
    compiled: Compile, tmp_path: Path, kind: str
) -> None:
    rows = opened(compiled, tmp_path, model(kind, computed=False))
    expected = TABLE[[0, 199, -200]]
    np.testing.assert_array_equal(rows.run({"ids": ids(kind, 0, 199, -200)})["y"], expected)
    for wrong in (200, 10**9, -201):
        with pytest.raises(
            InputError, match=rf"ids of rows has the index {wrong}.* 200 rows: .* from -200 to 199"
        ):
            rows.run({"ids": ids(kind, 0, 1, wrong)})


@pytest.mark.parametrize("kind", ["Gather", "GatherElements", "GatherND"])
def test_a_computed_index_outside_of_the_table_is_refused(
    compiled: Compile, tmp_path: Path, kind: str
) -> None:
    rows = opened(compiled, tmp_path, model(kind, computed=True))
    np.testing.assert_array_equal(rows.run({"ids": ids(kind, 0, -1, 99)})["y"], TABLE[[0, -2, 198]])
    np.testing.assert_array_equal(rows.run({"ids": ids(kind, 0, 1, 99)})["y"], TABLE[[0, 2, 198]])
    for wrong in (100, 10**9, 2**60, -101, -(2**60)):
        with pytest.raises(
            InputError, match="inputs of rows lead to an index outside of a table of 200 rows"
        ):
            rows.run({"ids": ids(kind, 0, 1, wrong)})


Arrays = dict[str, np.ndarray[Any, Any]]
IMAGES = np.arange(32, dtype=np.float32).reshape(2, 1, 4, 4)
FLAT = np.ones((1, 1, 2, 2), dtype=np.float32)
BOXES = np.array([[0, 0, 2, 2], [1, 1, 3, 3]], dtype=np.float32)
WAYS: dict[str, tuple[list[onnx.NodeProto], Arrays, Arrays, list[Arrays]]] = {
    "cast, expanded and cut": (
        [
            helper.make_node("Cast", ["ids"], ["wide"], to=TensorProto.INT64),
            helper.make_node("Unsqueeze", ["wide", "one"], ["column"]),
            helper.make_node("Slice", ["column", "zero", "one"], ["cut"]),
            helper.make_node("Gather", ["table", "cut"], ["y"]),
        ],
        {"table": TABLE, "one": np.array([1]), "zero": np.array([0])},
        {"ids": np.array([-200, 500], dtype=np.int32)},
        [{"ids": np.array([wrong, 0], dtype=np.int32)} for wrong in (200, -201, 10**9)],
    ),
    "ScatterElements": (
        [helper.make_node("ScatterElements", ["table", "ids", "new"], ["y"])],
        {"table": TABLE, "new": np.ones((1, 4), dtype=np.float32)},
        {"ids": np.array([[0, 199, -200, -1]])},
        [{"ids": np.array([[0, 1, 2, wrong]])} for wrong in (200, -201, 10**9)],
    ),
    "ScatterND": (
        [helper.make_node("ScatterND", ["table", "ids", "new"], ["y"])],
        {"table": TABLE, "new": np.ones(2, dtype=np.float32)},
        {"ids": np.array([[0, 3], [-200, -4]])},
        [{"ids": np.array([[0, 0], wrong])} for wrong in ([200, 0], [0, 4], [-201, 0], [0, -5], [0, 10**9])],
    ),
    "MaxUnpool": (
        [helper.make_node("MaxUnpool", ["x", "ids"], ["y"], kernel_shape=[2, 2], strides=[2, 2])],
        {"x": FLAT},
        {"ids": np.array([0, 3, 8, 15]).reshape(1, 1, 2, 2)},
        [{"ids": np.array([0, 3, 8, wrong]).reshape(1, 1, 2, 2)} for wrong in (16, -17, 10**9)],
    ),
    "RoiAlign": (
        [
            helper.make_node(
                "RoiAlign", ["x", "boxes", "ids"], ["y"], output_height=2, output_width=2, sampling_ratio=1
            )
        ],
        {"x": IMAGES, "boxes": BOXES},
        {"ids": np.array([0, 1])},
        [{"ids": np.array([0, wrong])} for wrong in (2, -1, 10**9)],
    ),
    "MaxRoiPool": (
        [helper.make_node("MaxRoiPool", ["x", "boxes"], ["y"], pooled_shape=[2, 2])],
        {"x": IMAGES},
        {"boxes": np.array([[0, 0, 0, 2, 2], [1, 1, 1, 3, 3]], dtype=np.float32)},
        [
            {"boxes": np.array([[0, 0, 0, 2, 2], [wrong, 1, 1, 3, 3]], dtype=np.float32)}
            for wrong in (2, -1, 1e9, np.nan)
        ],
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_operator_that_takes_indices_reaches_outside_of_its_table(
    compiled: Compile, tmp_path: Path, way: str
) -> None:
    nodes, weights, good, wrongs = WAYS[way]
    rank = {"cast, expanded and cut": 3, "ScatterElements": 2, "ScatterND": 2}.get(way, 4)
    graph = helper.make_graph(
        nodes,
        "rows",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in good.items()
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, list("abcd"[:rank]))],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    rows = opened(compiled, tmp_path, proto)
    output = rows.run(good)["y"]
    if way != "MaxRoiPool":  # which ONNX's reference does not have
        np.testing.assert_allclose(output, ReferenceEvaluator(proto).run(None, good)[0], rtol=1e-6)
    for wrong in wrongs:
        with pytest.raises(InputError, match="rows"):
            rows.run(wrong)
    np.testing.assert_array_equal(rows.run(good)["y"], output)


def test_a_negative_size_that_an_input_asks_for_is_refused(compiled: Compile, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Tile", ["table", "times"], ["y"])],
        "rows",
        [helper.make_tensor_value_info("times", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"])],
        [numpy_helper.from_array(TABLE, "table")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    rows = opened(compiled, tmp_path, proto)
    assert rows.run({"times": np.array([1, 2])})["y"].shape == (200, 8)
    with pytest.raises(InputError, match=r"rows lead to the shape \(0, -8\) of the output y"):
        rows.run({"times": np.array([0, -2])})
