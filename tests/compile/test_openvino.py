"""Artifacts of OpenVINO: converted once, opened by the version that made them, and right."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.compile.models import FLOAT, Network, mlp, random_inputs

from tdcs_train import artifacts
from tdcs_train.artifacts.manifest import ArtifactError
from tdcs_train.artifacts.node import this_node
from tdcs_train.compile import onnxruntime_build
from tdcs_train.compile.onnxruntime_job import optimise_model
from tdcs_train.compile.openvino_job import convert_model
from tdcs_train.errors import InputError

INPUTS = random_inputs(mlp())
TARGET = "x86-64-v2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the MLP by OpenVINO and by ONNX Runtime, and its inputs."""
    place = tmp_path_factory.mktemp("made")
    onnx.save(mlp(), place / "mlp.onnx")
    np.savez(place / "inputs.npz", allow_pickle=False, **INPUTS)
    optimise_model(str(place / "mlp.onnx"), target=TARGET, output=str(place / "artifacts"))
    outcome = convert_model(
        str(place / "mlp.onnx"), target=TARGET, output=str(place / "artifacts"), check=place / "inputs.npz"
    )
    assert outcome.opened
    assert outcome.difference is not None
    assert outcome.difference < 1e-5
    return place


def test_both_runtimes_give_the_same(folder: Path) -> None:
    converted = artifacts.load(folder / "artifacts", model="mlp", prefer=["openvino"])
    optimised = artifacts.load(folder / "artifacts", model="mlp", prefer=["onnxruntime"])
    assert (type(converted).__name__, type(optimised).__name__) == ("OpenvinoModel", "OptimisedModel")
    assert converted.manifest.inputs == optimised.manifest.inputs
    expected, actual = optimised.run(INPUTS), converted.run(INPUTS)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=1e-5)
    (name,) = INPUTS
    with pytest.raises(InputError, match="the model takes float32"):
        converted.run({name: INPUTS[name].astype(np.float64)})


def test_the_same_key_builds_nothing(folder: Path) -> None:
    again = convert_model(str(folder / "mlp.onnx"), target=TARGET, output=str(folder / "artifacts"))
    assert not again.built
    files = {path.suffix for path in (folder / "artifacts" / again.manifest.key).iterdir()}
    assert files == {".bin", ".json", ".xml"}


def test_other_machines_refuse_it(folder: Path, tmp_path: Path) -> None:
    convert_model(str(folder / "mlp.onnx"), target=TARGET, output=str(tmp_path))
    here = this_node()
    for node, reason in (
        (replace(here, openvino=None), "it needs OpenVINO .*pip install openvino=="),
        (replace(here, openvino="0.1"), "it was made with OpenVINO .* has 0.1"),
        (replace(here, features=here.features - {"ssse3"}), "is for x86-64-v2, and this node lacks ssse3"),
        (replace(here, machine="aarch64"), "is for x86-64-v2, this node is aarch64"),
    ):
        with pytest.raises(ArtifactError, match=reason):
            artifacts.load(tmp_path, model="mlp", node=node)


def test_what_differs_from_the_reference_is_not_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = onnxruntime_build.with_shapes

    def other_weights(content: onnx.ModelProto, shapes: dict[str, tuple[int, ...]]) -> onnx.ModelProto:
        model = original(content, shapes)
        for weight in model.graph.initializer:
            weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * 2, weight.name))
        return model

    monkeypatch.setattr(onnxruntime_build, "with_shapes", other_weights)
    (name,) = INPUTS
    with pytest.raises(InputError, match="differs from that of host code"):
        convert_model(
            str(folder / "mlp.onnx"),
            target=TARGET,
            output=str(tmp_path / "store"),
            shapes={name: INPUTS[name].shape},
            check=folder / "inputs.npz",
        )
    assert not (tmp_path / "store").exists()


def test_an_open_batch_and_two_outputs_keep_their_names_and_order(tmp_path: Path) -> None:
    network = Network()
    network.nodes.append(onnx.helper.make_node("Add", ["b", "a"], ["total"]))
    network.nodes.append(onnx.helper.make_node("Sub", ["b", "a"], ["rest"]))
    values = {
        name: onnx.helper.make_tensor_value_info(name, FLOAT, ["batch", 3])
        for name in ("a", "b", "rest", "total")
    }
    graph = onnx.helper.make_graph(
        network.nodes, "two", [values["a"], values["b"]], [values["rest"], values["total"]]
    )
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), tmp_path / "two.onnx"
    )
    convert_model(str(tmp_path / "two.onnx"), target=TARGET, output=str(tmp_path / "store"))
    model = artifacts.load(tmp_path / "store", model="two", prefer=["openvino"])
    assert [spec.shape for spec in model.manifest.inputs] == [(None, 3), (None, 3)]
    a, b = np.ones((2, 3), np.float32), np.full((2, 3), 5, np.float32)
    outputs = model.run({"a": a, "b": b})
    assert list(outputs) == ["rest", "total"]
    np.testing.assert_array_equal(outputs["rest"], b - a)
    np.testing.assert_array_equal(outputs["total"], b + a)


def test_what_openvino_cannot_convert_is_named(tmp_path: Path) -> None:
    network = Network()
    network.nodes.append(onnx.helper.make_node("Unheard", ["a"], ["b"], domain="nobody.example"))
    values = [onnx.helper.make_tensor_value_info(name, FLOAT, [3]) for name in ("a", "b")]
    graph = onnx.helper.make_graph(network.nodes, "odd", values[:1], values[1:])
    operators = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("nobody.example", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=operators), tmp_path / "odd.onnx")
    with pytest.raises(InputError, match=r"OpenVINO cannot convert .*odd\.onnx: .*Unheard"):
        convert_model(str(tmp_path / "odd.onnx"), target=TARGET, output=str(tmp_path / "store"))
