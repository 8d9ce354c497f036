"""Indices that a user gives never reach outside of a table."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
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
def test_a_computed_index_stays_inside_of_the_table(compiled: Compile, tmp_path: Path, kind: str) -> None:
    rows = opened(compiled, tmp_path, model(kind, computed=True))
    np.testing.assert_array_equal(rows.run({"ids": ids(kind, 0, -1, 99)})["y"], TABLE[[0, -2, 198]])
    np.testing.assert_array_equal(rows.run({"ids": ids(kind, 0, 1, 99)})["y"], TABLE[[0, 2, 198]])
    for wrong in (100, 10**9, 2**60, -101, -(2**60)):
        found = rows.run({"ids": ids(kind, 0, 1, wrong)})["y"]
        np.testing.assert_array_equal(found[:2], TABLE[[0, 2]])
        assert set(found[2]) <= set(TABLE.flat)
