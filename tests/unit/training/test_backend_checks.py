"""What tables take and what back ends write, as pure functions: no TVM is needed."""

from dataclasses import replace
from pathlib import Path

import pytest

from tdcs_train.artifacts.loading import load
from tdcs_train.artifacts.manifest import ArtifactError
from tdcs_train.artifacts.node import cpu_features
from tdcs_train.artifacts.targets import TARGETS, find_target, limit, runnable
from tdcs_train.backends import checks
from tdcs_train.backends.blas.source import c_source
from tdcs_train.backends.graph import Input, Match, Node, Region, Step, TensorType
from tdcs_train.backends.onednn.graph_text import graph_text

F10 = TensorType(shape=(10, 10), dtype="float32")


def step(op: str, *inputs: TensorType, output: TensorType, **more: object) -> Step:
    return Step(op=op, inputs=inputs, output=output, sources=(None,) * len(inputs), attributes=more)  # type: ignore[arg-type]


def region(
    *nodes: Node, inputs: int = 4, outputs: tuple[int, ...] = (6,), weights: tuple[int, ...] = ()
) -> Region:
    tensors = tuple(Input(id=place, type=F10, weight=place in weights) for place in range(inputs))
    return Region(symbol="subgraph_0", backend="x", inputs=tensors, nodes=nodes, outputs=outputs)


def node(number: int, kind: str, *inputs: int) -> Node:
    return Node(id=number, kind=kind, inputs=inputs, output=F10, steps=(), attributes={})


EXAMPLE = (node(4, "add", 0, 1), node(5, "sub", 4, 2), node(6, "mul", 5, 3))


def test_the_text_of_a_region_names_weights_and_what_leaves_it() -> None:
    text = graph_text(region(*EXAMPLE, weights=(3,), outputs=(5, 6)))
    assert "weight 3 10 10\n" in text
    assert text.endswith("mul 6 inputs: 5 3 shape: 10 10\noutput 5 6\n")
    assert "output" not in graph_text(region(*EXAMPLE))


def test_the_c_source_has_a_buffer_only_for_what_stays_inside() -> None:
    source = c_source(region(*EXAMPLE, outputs=(5, 6)))
    assert "buf4 = (float*)malloc(400)" in source
    assert "buf5" not in source
    assert "subgraph_0_1(buf4, in2, out0);" in source
    assert "subgraph_0_2(out0, in3, out1);" in source


def test_a_tensor_that_leaves_twice_is_copied() -> None:
    source = c_source(region(*EXAMPLE, outputs=(6, 6)))
    assert "for (int64_t i = 0; i < 100; ++i) out1[i] = out0[i];" in source


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (replace(F10, dtype="float16"), "a tensor of float16, not float32"),
        (replace(F10, shape=(None, 10)), "known only at run time"),
        (replace(F10, shape=None), "known only at run time"),
        (replace(F10, shape=(0, 10)), "an empty tensor"),
    ],
)
def test_a_tensor_that_no_library_takes_is_refused_with_a_reason(tensor: TensorType, reason: str) -> None:
    assert reason in (checks.static_float32(Match(steps=(step("add", tensor, F10, output=F10),))) or "")
    assert checks.static_float32(Match(steps=(step("add", F10, F10, output=F10),))) is None


@pytest.mark.parametrize(
    ("bias", "taken"),
    [((7,), True), ((1, 7), True), ((5, 7), False), ((5, 1), False), ((1,), False)],
)
def test_only_one_number_for_each_column_is_a_bias_of_a_product(bias: tuple[int, ...], taken: bool) -> None:
    left, right = TensorType(shape=(5, 6), dtype="float32"), TensorType(shape=(6, 7), dtype="float32")
    result = TensorType(shape=(5, 7), dtype="float32")
    product = step("matmul", left, right, output=result)
    added = Step(
        op="add", inputs=(result, TensorType(shape=bias, dtype="float32")), output=result, sources=(0, None)
    )
    assert (checks.bias_along(-1)(Match(steps=(product, added))) is None) is taken


def test_a_target_runs_where_all_its_features_are() -> None:
    v3 = find_target("x86-64-v3")
    assert [target.name for target in runnable(v3.features)] == ["x86-64-v3", "x86-64-v2", "x86-64"]
    assert [target.name for target in runnable(v3.features - {"fma"})] == ["x86-64-v2", "x86-64"]
    everything = TARGETS[-1].features | {"sha_ni"}
    limited = limit(everything, target=find_target("x86-64-v2"))
    assert [target.name for target in runnable(limited)] == ["x86-64-v2", "x86-64"]
    assert "sha_ni" in limited


def test_a_feature_counts_only_if_every_processor_has_it() -> None:
    assert cpu_features("flags\t\t: sse4_1 avx2\nbugs\t: x\nflags\t\t: sse4_1\n") == {"sse4_1"}
    assert cpu_features("") == frozenset()


def test_a_missing_folder_is_said_also_where_the_model_cannot_be_compiled_instead(tmp_path: Path) -> None:
    missing = tmp_path / "unmounted"
    with pytest.raises(ArtifactError) as caught:
        load(missing, model="resnet", compile_missing=True)
    first, second = str(caught.value).split(" Compiling the model here instead failed: ")
    assert first == (
        f"the artifacts in {missing} cannot be listed: No such file or directory; is the Dataset mounted?"
    )
    assert "give the path of its .onnx file" in second
