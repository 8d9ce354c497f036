"""Artifacts of ONNX Runtime: optimised once, loaded by the version that made them, and right."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.compile.models import mlp, random_inputs

from tdcs_train import artifacts
from tdcs_train.artifacts.manifest import ArtifactError
from tdcs_train.artifacts.node import this_node
from tdcs_train.artifacts.onnxruntime_session import session_of
from tdcs_train.compile import onnxruntime_job
from tdcs_train.compile.job import compile_model
from tdcs_train.compile.onnxruntime_job import optimise_model
from tdcs_train.errors import InputError

INPUTS = random_inputs(mlp())
TARGET = "x86-64-v2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the MLP by TVM and by ONNX Runtime."""
    place = tmp_path_factory.mktemp("made")
    onnx.save(mlp(), place / "mlp.onnx")
    compile_model(str(place / "mlp.onnx"), target=TARGET, backends=[], output=str(place / "artifacts"))
    optimise_model(str(place / "mlp.onnx"), target=TARGET, output=str(place / "artifacts"))
    return place


def test_both_runtimes_give_the_same_and_the_preferred_one_is_taken(folder: Path) -> None:
    plain = artifacts.load(folder / "artifacts", model="mlp", prefer=[])
    optimised = artifacts.load(folder / "artifacts", model="mlp", prefer=["onnxruntime"])
    assert type(plain).__name__ == "CompiledModel"
    assert type(optimised).__name__ == "OptimisedModel"
    expected, actual = plain.run(INPUTS), optimised.run(INPUTS)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=1e-5)


def test_the_same_key_builds_nothing_and_an_artifact_is_one_file(folder: Path) -> None:
    again = optimise_model(str(folder / "mlp.onnx"), target=TARGET, output=str(folder / "artifacts"))
    assert not again.built
    files = sorted(path.name for path in (folder / "artifacts" / again.manifest.key).iterdir())
    assert files == ["manifest.json", again.manifest.library.name]


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        (None, "it needs ONNX Runtime .*pip install onnxruntime=="),
        ("0.1", "it was made with ONNX Runtime .* has 0.1"),
    ],
)
def test_another_version_takes_no_artifact(
    version: str | None, reason: str, folder: Path, tmp_path: Path
) -> None:
    optimise_model(str(folder / "mlp.onnx"), target=TARGET, output=str(tmp_path))
    with pytest.raises(ArtifactError, match=reason):
        artifacts.load(tmp_path, model="mlp", node=replace(this_node(), onnxruntime=version))


def test_a_damaged_artifact_is_not_opened(folder: Path, tmp_path: Path) -> None:
    outcome = optimise_model(str(folder / "mlp.onnx"), target=TARGET, output=str(tmp_path))
    path = tmp_path / outcome.manifest.key / outcome.manifest.library.name
    path.chmod(0o644)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match="is damaged"):
        artifacts.load(tmp_path, model="mlp")


def test_what_a_model_does_not_take_is_refused(folder: Path) -> None:
    model: Any = artifacts.load(folder / "artifacts", model="mlp", prefer=["onnxruntime"])
    (name,) = INPUTS
    with pytest.raises(InputError, match="the call lacks"):
        model.run({})
    with pytest.raises(InputError, match="the model takes float32"):
        model.run({name: INPUTS[name].astype(np.float64)})


def test_results_are_compared_with_the_model_as_it_is(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "inputs.npz", allow_pickle=False, **INPUTS)

    def checked(store: str) -> float | None:
        return optimise_model(
            str(folder / "mlp.onnx"),
            target=TARGET,
            output=str(tmp_path / store),
            check=tmp_path / "inputs.npz",
        ).difference

    difference = checked("right")
    assert difference is not None
    assert difference < 1e-5
    original = session_of

    def other_weights(content: bytes, **options: Any) -> Any:
        model = onnx.load_from_string(content)
        for weight in model.graph.initializer:
            weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * 2, weight.name))
        return original(model.SerializeToString(), **options)

    monkeypatch.setattr(onnxruntime_job, "session_of", other_weights)
    with pytest.raises(InputError, match=r"nothing was written\. Compile it without this runtime"):
        checked("wrong")
    assert not (tmp_path / "wrong").exists()


def test_the_command_makes_one_and_refuses_back_ends(folder: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tdcs_train", "compile", str(folder / "mlp.onnx"), "--target", TARGET]
    words += ["--runtime", "onnxruntime", "-o", str(tmp_path / "store")]
    done = subprocess.run([*words, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["manifest"]["runtime"]["name"] == "onnxruntime"
    refused = subprocess.run([*words, "--backend", "blas"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "--backend blas is for TVM" in refused.stderr
