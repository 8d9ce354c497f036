"""What is built is opened before it is called built, and compared with host code where a user gives inputs."""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.compile.models import FLOAT, Network

from tdcs_train import artifacts
from tdcs_train.artifacts.manifest import ArtifactError
from tdcs_train.artifacts.node import this_node
from tdcs_train.backends import Backend, GeneratedCode, Region, c_file, c_module
from tdcs_train.compile import job, opening
from tdcs_train.errors import InputError

EXAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "examples" / "toy-backend" / "toy_backend.py"
TARGET = "x86-64-v2"


def toy() -> Any:
    spec = importlib.util.spec_from_file_location("toy_backend", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wrong(scale: str) -> Backend:
    """The example's back end, whose products are off."""
    example = toy()

    def codegen(region: Region) -> GeneratedCode:
        text = c_file(region, [example._source(region).replace("] * right", f"] * {scale} * right")])
        text = text.replace("[i + lane] * in", f"[i + lane] * {scale} * in")
        return GeneratedCode(module=c_module(region, text), text=text)

    backend: Backend = replace(example.TOY, codegen=codegen)
    return backend


@pytest.fixture
def model(tmp_path: Path) -> Path:
    net = Network()
    onnx.save(
        net.model({"a": [2, 6], "b": [2, 6]}, [net.op("Exp", net.op("Mul", "a", "b"))]), tmp_path / "m.onnx"
    )
    return tmp_path / "m.onnx"


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    random = np.random.default_rng(1)
    a, b = random.standard_normal((2, 2, 6)).astype(np.float32)
    np.savez(tmp_path / "in.npz", a=a, b=b)
    return tmp_path / "in.npz"


def built(
    model: Path, backends: Sequence[Backend], monkeypatch: pytest.MonkeyPatch, **options: Any
) -> job.Outcome:
    monkeypatch.setattr(job, "find_all", lambda _: list(backends))
    return job.compile_model(
        str(model),
        target=TARGET,
        backends=[backend.name for backend in backends],
        output=str(model.parent / "out"),
        **options,
    )


def test_a_back_end_that_computes_what_host_code_does_passes(
    model: Path, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = built(model, [toy().TOY], monkeypatch, check=inputs)
    assert outcome.opened
    assert outcome.built
    assert outcome.difference is not None
    assert outcome.difference < 1e-6
    assert built(model, [toy().TOY], monkeypatch).built is False


def test_a_back_end_that_computes_something_else_is_not_written(
    model: Path, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        InputError, match=r"the output .* differs from that of host code by .* Compile it without toy"
    ):
        built(model, [wrong("1.1f")], monkeypatch, check=inputs)
    assert not list((model.parent / "out").glob("*"))
    slightly = built(model, [wrong("1.0001f")], monkeypatch, check=inputs)
    assert slightly.difference is not None
    assert 0 < slightly.difference < opening.TOLERANCE
    with pytest.raises(InputError, match="and 1e-07 is allowed"):
        built(model, [wrong("1.0001f")], monkeypatch, check=inputs, tolerance=1e-7)


def test_what_cannot_be_opened_is_not_written(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ArtifactError("the artifact 1 cannot be opened: undefined symbol: lost")

    monkeypatch.setattr(opening, "open_model", refuse)
    with pytest.raises(
        InputError, match=r"m\.onnx was compiled, but .* undefined symbol: lost; nothing was written"
    ):
        built(model, [], monkeypatch)
    assert not list((model.parent / "out").glob("*"))


@pytest.mark.parametrize(
    ("found", "wanted", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.2),
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.nan, 1.0], [2.0, 1.0], np.inf),
        ([np.inf, 1.0], [np.inf, 1.0], 0.0),
        ([1, 2], [1, 3], np.inf),
        ([0.0], [0.0], 0.0),
    ],
)
def test_how_far_outputs_are_apart(found: list[float], wanted: list[float], difference: float) -> None:
    kind = np.float32 if isinstance(wanted[0], float) else np.int64
    assert opening._difference(np.array(found, kind), np.array(wanted, kind)) == pytest.approx(difference)


def test_inputs_without_dimensions_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "s"], ["y"]), helper.make_node("Sqrt", ["s"], ["r"])],
        "scalars",
        [helper.make_tensor_value_info("x", FLOAT, [3]), helper.make_tensor_value_info("s", FLOAT, [])],
        [helper.make_tensor_value_info("y", FLOAT, [3]), helper.make_tensor_value_info("r", FLOAT, [])],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "s.onnx",
    )
    built(tmp_path / "s.onnx", [], monkeypatch)
    outputs = artifacts.load(tmp_path / "out", model="s").run(
        {"x": np.arange(3, dtype=np.float32), "s": np.array(4, dtype=np.float32)}
    )
    assert outputs["y"].tolist() == [0, 4, 8]
    assert outputs["r"].shape == ()
    assert float(outputs["r"]) == 2


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "Loop", "Det"])
def test_an_operator_that_cannot_be_compiled_is_named_in_one_line(kind: str, tmp_path: Path) -> None:
    info = helper.make_tensor_value_info
    if kind == "Loop":
        body = helper.make_graph(
            [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Add", ["a", "a"], ["e"])],
            "body",
            [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("a", FLOAT, [3])],
            [info("d", TensorProto.BOOL, []), info("e", FLOAT, [3])],
        )
        node = helper.make_node("Loop", ["n", "k", "x"], ["y"], name="rounds", body=body)
        value_infos = [
            info("n", TensorProto.INT64, []),
            info("k", TensorProto.BOOL, []),
            info("x", FLOAT, [3]),
        ]
    elif kind == "Det":
        node, value_infos = helper.make_node(kind, ["x"], ["y"], name="rounds"), [info("x", FLOAT, [3, 3])]
    else:
        node = helper.make_node(kind, ["x", "W", "R"], ["y"], name="rounds", hidden_size=5)
        gates = {"LSTM": 20, "GRU": 15}[kind]
        value_infos = [
            info("x", FLOAT, [7, 2, 3]),
            info("W", FLOAT, [1, gates, 3]),
            info("R", FLOAT, [1, gates, 5]),
        ]
    graph = helper.make_graph(
        [node],
        "g",
        value_infos,
        [info("y", FLOAT, {"LSTM": [7, 1, 2, 5], "GRU": [7, 1, 2, 5], "Loop": [3], "Det": []}[kind])],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "m.onnx",
    )
    words = ["compile", str(tmp_path / "m.onnx"), "--target", TARGET, "-o", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-m", "tdcs_train.cli", *words], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert f"has the operator {kind} (node rounds), which TVM cannot compile: " in done.stderr
    assert not done.stdout


def test_inputs_for_a_comparison_that_cannot_be_used_are_refused(model: Path, tmp_path: Path) -> None:
    def refused(*words: str) -> str:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tdcs_train.cli",
                "compile",
                str(model),
                "-o",
                str(tmp_path / "out"),
                *words,
            ],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        return done.stderr

    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "text.npz").write_text("no arrays")
    np.savez(tmp_path / "other.npz", c=np.zeros(3))
    target = ("--target", TARGET)
    assert "there is no file lost.npz" in refused(*target, "--check", "lost.npz")
    assert "has one array without a name" in refused(*target, "--check", str(tmp_path / "one.npy"))
    assert "holds no arrays by name" in refused(*target, "--check", str(tmp_path / "text.npz"))
    assert "lacks a, b" in refused(*target, "--check", str(tmp_path / "other.npz"))
    assert "--tolerance without --check" in refused(*target, "--tolerance", "0.1")
    if "x86-64-v4" not in {processor.name for processor in this_node().targets}:
        assert "this node cannot run x86-64-v4" in refused(
            "--target", "x86-64-v4", "--check", str(tmp_path / "one.npy")
        )
