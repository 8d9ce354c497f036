"""The example of the reference, `((a + b) - c) * d` on 10 x 10, by both built-in back ends."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tests.compile.conftest import Compile
from tests.compile.models import Network
from tests.compile.relax_graph import OperatorGraph, not_convex
from tvm import relax

from tdcs_train import artifacts
from tdcs_train.backends import find_all
from tdcs_train.compile.model_file import read_onnx
from tdcs_train.compile.model_import import import_model
from tdcs_train.compile.partition import Partition, partition

REFERENCE = """\
subgraph_0
input 0 10 10
input 1 10 10
input 2 10 10
input 3 10 10
add 4 inputs: 0 1 shape: 10 10
sub 5 inputs: 4 2 shape: 10 10
mul 6 inputs: 5 3 shape: 10 10
"""


def example(*, with_exp: bool = False) -> Any:
    net = Network()
    x = net.op("Sub", net.op("Add", "a", "b"), "c")
    if with_exp:
        x = net.op("Exp", x)
    return net.model(dict.fromkeys("abcd", (10, 10)), [net.op("Mul", x, "d")])


def arrays() -> dict[str, Any]:
    random = np.random.default_rng(7)
    return {name: random.standard_normal((10, 10)).astype(np.float32) for name in "abcd"}


def parts_of(model: Any, tmp_path: Path, backend: str) -> Partition:
    import onnx

    onnx.save(model, tmp_path / "m.onnx")
    module = import_model(read_onnx(tmp_path / "m.onnx"), {}).module
    return partition(module, backends=find_all([backend]), weights=0)


def test_the_graph_text_of_the_example_is_that_of_the_reference(tmp_path: Path) -> None:
    (code,) = parts_of(example(), tmp_path, "onednn").codes
    assert code.text == REFERENCE
    assert code.module.inspect_source() == REFERENCE


def test_the_c_source_of_the_example_has_one_function_a_node(tmp_path: Path) -> None:
    parts = parts_of(example(), tmp_path, "blas")
    (region,), (code,) = parts.regions, parts.codes
    assert [node.kind for node in region.nodes] == ["add", "sub", "mul"]
    assert re.findall(r"^static void (\w+)\(", code.text, re.MULTILINE) == [
        f"subgraph_0_{n}" for n in range(3)
    ]
    assert re.findall(r"^int (\w+)\(", code.text, re.MULTILINE) == ["__tvm_ffi_subgraph_0"]


@pytest.mark.parametrize("backend", ["blas", "onednn"])
def test_the_example_saved_and_loaded_equals_numpy(backend: str, compiled: Compile, tmp_path: Path) -> None:
    outcome = compiled(example(), backends=[backend])
    assert [region.backend for region in outcome.manifest.regions] == [backend]
    assert outcome.manifest.host == ()
    inputs = arrays()
    (result,) = artifacts.load(tmp_path / "artifacts", model="model").run(inputs).values()
    np.testing.assert_array_equal(result, ((inputs["a"] + inputs["b"]) - inputs["c"]) * inputs["d"])


@pytest.mark.parametrize("backend", ["blas", "onednn"])
def test_with_an_exp_inside_there_are_two_regions_and_the_host(
    backend: str, compiled: Compile, tmp_path: Path
) -> None:
    outcome = compiled(example(with_exp=True), backends=[backend])
    assert [region.nodes for region in outcome.manifest.regions] == [("add", "sub"), ("mul",)]
    assert outcome.manifest.host == ("exp",)
    inputs = arrays()
    (result,) = artifacts.load(tmp_path / "artifacts", model="model").run(inputs).values()
    expected = np.exp((inputs["a"] + inputs["b"]) - inputs["c"]) * inputs["d"]
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_a_region_module_saved_to_bytes_and_loaded_computes_the_same(tmp_path: Path) -> None:
    (code,) = parts_of(example(), tmp_path, "onednn").codes
    copy = tvm.get_global_func("ffi.Module.load_from_bytes.tdcs_onednn")(code.text.encode())
    tensors = [tvm.runtime.tensor(array) for array in arrays().values()]
    results = [tvm.runtime.empty((10, 10), "float32") for _ in range(2)]
    code.module["subgraph_0"](*tensors, results[0])
    copy["subgraph_0"](*tensors, results[1])
    np.testing.assert_array_equal(results[0].numpy(), results[1].numpy())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("subgraph_0\n", "no nodes"),
        (REFERENCE.replace("mul 6", "pow 6"), "unknown node pow"),
        (REFERENCE.replace("inputs: 5 3", "inputs: 5 9"), "reads 9"),
        (REFERENCE.replace("inputs: 5 3", "inputs: 5 x"), "damaged"),
        (REFERENCE.replace("inputs: 5 3", "inputs: 5"), "reads 1 tensors"),
        (REFERENCE.replace("mul 6", "conv2d 6"), "no attribute groups"),
        (REFERENCE.replace("input 1 10 10", "input 4 10 10"), "out of order"),
    ],
)
def test_a_damaged_graph_text_is_refused_by_the_runtime_module(text: str, reason: str) -> None:
    from tdcs_train.backends.onednn.runtime_build import runtime_object

    tvm.runtime.load_module(str(runtime_object().library))
    with pytest.raises((ValueError, RuntimeError), match=reason):
        tvm.get_global_func("ffi.Module.load_from_bytes.tdcs_onednn")(text.encode())


def test_a_dynamic_shape_is_refused_by_the_table_and_computed_by_the_host(
    compiled: Compile, tmp_path: Path
) -> None:
    net = Network()
    outcome = compiled(net.model({"x": ["batch", 8]}, [net.op("Relu", net.dense("x", 8, 4))]))
    assert outcome.manifest.regions == ()
    assert "matmul" in outcome.manifest.host
    assert {
        "shape that is known only at run time" in refusal.reason for refusal in outcome.manifest.refusals
    } == {True}
    loaded = artifacts.load(tmp_path / "artifacts", model="model")
    for batch in (1, 5):
        (result,) = loaded.run({"x": np.ones((batch, 8), np.float32)}).values()
        assert result.shape == (batch, 4)


def test_the_check_for_convexity_finds_a_region_that_is_not() -> None:
    graph = OperatorGraph(names=["add", "exp", "mul"], reads=[set(), {0}, {0, 1}], regions=["r", None, "r"])
    assert not_convex(graph) == {"r"}
    graph.regions = ["r", None, None]
    assert not_convex(graph) == set()


def test_relax_modules_are_taken_as_they_are(tmp_path: Path) -> None:
    source = tmp_path / "made.py"
    source.write_text(
        "import tvm\nfrom tvm import relax\n"
        "def model():\n"
        "    builder = relax.BlockBuilder()\n"
        "    x = relax.Var('x', relax.TensorType((2, 3), 'float32'))\n"
        "    with builder.function('main', [x]):\n"
        "        with builder.dataflow():\n"
        "            y = builder.emit_output(relax.op.nn.relu(x))\n"
        "        builder.emit_func_output(y)\n"
        "    return builder.get()\n"
    )
    from tdcs_train.compile.job import compile_model

    outcome = compile_model(
        f"{source}:model", target="x86-64-v2", backends=["onednn"], output=str(tmp_path / "out")
    )
    assert [region.nodes for region in outcome.manifest.regions] == [("relu",)]
    (result,) = (
        artifacts.load(tmp_path / "out", model="model").run({"x": -np.ones((2, 3), np.float32)}).values()
    )
    assert not result.any()
    assert relax is not None
