"""The tutorial's runtime module: it computes what host code computes, in a process that has not the package."""

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
from tests.compile.models import Network

EXAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "examples" / "toy-engine"


def test_a_runtime_module_is_saved_in_the_artifact_and_made_again_from_it(tmp_path: Path) -> None:
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
    folder, source = tmp_path / "packages", tmp_path / "source"
    (source / "toy_engine").mkdir(parents=True)
    for name in ("pyproject.toml", "toy_engine/__init__.py", "toy_engine/runtime.cc"):
        (source / name).write_bytes((EXAMPLE / name).read_bytes())
    subprocess.run(
        [*pip, "--no-build-isolation", "--target", str(folder), str(source)], check=True, timeout=120
    )
    net = Network()
    x = net.op("Mul", net.op("Mul", "a", "b"), "a")
    onnx.save(net.model({"a": [2, 6], "b": [2, 6]}, [x, net.op("Exp", "b")]), tmp_path / "m.onnx")

    words = ["compile", str(tmp_path / "m.onnx"), "--target", "x86-64-v2", "--backend", "toy_engine"]
    made = subprocess.run(
        [sys.executable, "-m", "tdcs_train.cli", *words, "-o", str(tmp_path / "out"), "--json"],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])},
    )
    assert made.returncode == 0, made.stderr
    manifest = json.loads(made.stdout)["manifest"]
    assert [region["nodes"] for region in manifest["regions"]] == [["mul", "mul"]]
    script = (
        "import numpy as np\nfrom tdcs_train import artifacts\n"
        "a, b = np.random.default_rng(0).standard_normal((2, 2, 6)).astype(np.float32)\n"
        f"model = artifacts.load({str(tmp_path / 'out')!r}, model='m', prefer=['toy_engine'])\n"
        "product, power = model.run({'a': a, 'b': b}).values()\n"
        "np.testing.assert_allclose(product, a * b * a, rtol=1e-5)\n"
        "np.testing.assert_allclose(power, np.exp(b), rtol=1e-5)\n"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert loaded.returncode == 0, loaded.stderr
