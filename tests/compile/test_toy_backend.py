"""The tutorial's back end, installed as the package that it is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from tests.compile.models import Network

EXAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "examples" / "toy-backend"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a process that has the package."""
    folder, copy = tmp_path_factory.mktemp("packages"), tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "toy_backend.py"):
        (copy / name).write_bytes((EXAMPLE / name).read_bytes())
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--no-index",
        "--no-deps",
    ]
    subprocess.run(
        [*pip, "--no-build-isolation", "--target", str(folder), str(copy)], check=True, timeout=120
    )
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def run(environment: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=120, env=environment
    )


def test_a_package_adds_a_backend_that_computes_its_part(environment: dict[str, str], tmp_path: Path) -> None:
    net = Network()
    x = net.op("Relu", net.op("Mul", "a", "b"))
    y = net.op("Mul", net.op("Mul", x, "a"), net.op("Exp", "b"))
    onnx.save(net.model({"a": [2, 6], "b": [2, 6]}, [y]), tmp_path / "m.onnx")
    words = ["-m", "tdcs_train.cli", "compile", str(tmp_path / "m.onnx"), "--target", "x86-64-v2"]
    done = run(environment, *words, "--backend", "toy", "-o", str(tmp_path / "out"), "--json")
    assert done.returncode == 0, done.stderr
    manifest = json.loads(done.stdout)["manifest"]
    assert sorted(kind for region in manifest["regions"] for kind in region["nodes"]) == [
        "mul",
        "mul",
        "mul_relu",
    ]
    assert manifest["host"] == ["exp"]
    shown = run(environment, "-m", "tdcs_train.cli", "source", json.loads(done.stdout)["location"])
    assert shown.returncode == 0, shown.stderr
    for part in (
        "==== order of calls ====",
        "of the back end toy ====",
        "static int ",
        "LLVM IR ====",
        "define ",
    ):
        assert part in shown.stdout
    script = (
        "import numpy as np\nfrom tdcs_train import artifacts\n"
        "a, b = np.random.default_rng(0).standard_normal((2, 2, 6)).astype(np.float32)\n"
        f"model = artifacts.load({str(tmp_path / 'out')!r}, model='m', prefer=['toy'])\n"
        "(result,) = model.run({'a': a, 'b': b}).values()\n"
        "np.testing.assert_allclose(result, np.maximum(a * b, 0) * a * np.exp(b), rtol=1e-5)\n"
    )
    loaded = run(environment, "-c", script)
    assert loaded.returncode == 0, loaded.stderr


def test_what_its_check_refuses_is_left_to_the_host(environment: dict[str, str], tmp_path: Path) -> None:
    net = Network()
    onnx.save(net.model({"a": [3], "b": [3]}, [net.op("Mul", "a", "b")]), tmp_path / "m.onnx")
    words = ["-m", "tdcs_train.cli", "compile", str(tmp_path / "m.onnx"), "--target", "x86-64-v2"]
    done = run(environment, *words, "--backend", "toy", "-o", str(tmp_path / "out"), "--json")
    assert done.returncode == 0, done.stderr
    manifest = json.loads(done.stdout)["manifest"]
    assert manifest["host"] == ["multiply"]
    assert [refusal["reason"] for refusal in manifest["refusals"]] == [
        "the device computes 4 elements at a time"
    ]


def test_a_target_that_it_does_not_know_is_refused(environment: dict[str, str], tmp_path: Path) -> None:
    net = Network()
    onnx.save(net.model({"a": [4]}, [net.op("Mul", "a", "a")]), tmp_path / "m.onnx")
    words = ["-m", "tdcs_train.cli", "compile", str(tmp_path / "m.onnx"), "--target", "x86-64-v4"]
    done = run(environment, *words, "--backend", "toy", "-o", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "the back end toy has no code for x86-64-v4: it knows x86-64-v2, x86-64-v3" in done.stderr


def test_targets_lists_it_next_to_the_built_in_ones(environment: dict[str, str]) -> None:
    assert json.loads(run(environment, "-m", "tdcs_train.cli", "targets", "--json").stdout)["backends"] == [
        "onednn",
        "blas",
        "toy",
    ]


def test_a_broken_package_is_named(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "toy_backend.py").write_text("raise RuntimeError('no device')\n")
    first = {**environment, "PYTHONPATH": os.pathsep.join([str(tmp_path), environment["PYTHONPATH"]])}
    done = run(
        first,
        "-m",
        "tdcs_train.cli",
        "compile",
        "m.onnx",
        "--target",
        "x86-64",
        "--backend",
        "toy",
        "-o",
        "out",
    )
    assert done.returncode == 2
    assert (
        "the back end toy of the package toy-backend cannot be loaded: RuntimeError: no device" in done.stderr
    )


def test_the_commands_of_the_tutorial_give_equal_results(environment: dict[str, str], tmp_path: Path) -> None:
    compiler = ["-m", "tdcs_train.cli", "compile", f"{EXAMPLE / 'model.py'}:model", "--target", "x86-64-v2"]
    process = run(environment, *compiler, "--backend", "toy", "-o", str(tmp_path / "compiled"), "--json")
    plain = run(environment, *compiler, "-o", str(tmp_path / "plain"))
    assert (process.returncode, plain.returncode) == (0, 0), process.stderr + plain.stderr
    manifest = json.loads(process.stdout)["manifest"]
    kinds = sorted(kind for region in manifest["regions"] for kind in region["nodes"])
    assert (kinds, manifest["host"]) == (["mul", "mul_relu"], ["exp"])
    compared = subprocess.run(
        [sys.executable, str(EXAMPLE / "compare.py")],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        cwd=tmp_path,
    )
    assert compared.returncode == 0, compared.stderr
    assert compared.stdout == "equal: toy and TVM's own code\n"
