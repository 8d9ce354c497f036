"""The example job: compiled once, then loaded by every pod that scores."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tdcs_train.artifacts.node import LIMIT_VARIABLE
from tdcs_train.compile.job import compile_model

EXAMPLES = Path(__file__).resolve().parents[2] / "deploy" / "examples"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder of ten images, and one with the model for x86-64-v2."""
    data, compiled = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("compiled")
    random = np.random.default_rng(0)
    for number in range(10):
        (data / str(number % 3)).mkdir(exist_ok=True)
        pixels = random.integers(0, 256, (28, 28), dtype=np.uint8)
        Image.fromarray(pixels).save(data / str(number % 3) / f"{number}.png")
    source = f"{EXAMPLES / 'digits_model.py'}:model"
    compile_model(
        source, target="x86-64-v2", backends=["onednn", "blas"], output=str(compiled), name="digits"
    )
    return data, compiled


def score(
    data: Path, compiled: Path, variables: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    words = ["--data", str(data), "--model", str(compiled), "--name", "digits"]
    return subprocess.run(
        [sys.executable, str(EXAMPLES / "score_images.py"), *words],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **(variables or {})},
    )


def test_pods_share_the_images_and_compile_nothing(folders: tuple[Path, Path]) -> None:
    lines = []
    for pod in range(3):
        done = score(*folders, {"JOB_COMPLETION_INDEX": str(pod), "PODS": "3"})
        assert done.returncode == 0, done.stderr
        lines.append(json.loads(done.stdout))
    assert [line["images"] for line in lines] == [4, 3, 3]
    for line in lines:
        assert (line["compiled_here"], line["target"], line["backends"]) == (False, "x86-64-v2", ["onednn"])
        assert sum(line["classes"].values()) == line["images"]
        assert 0 < line["seconds_to_load"] < line["seconds_to_first_result"]


def test_a_node_with_another_target_says_what_to_run(folders: tuple[Path, Path]) -> None:
    done = score(*folders, {LIMIT_VARIABLE: "x86-64"})
    assert (done.returncode, done.stdout) == (2, "")
    (message,) = done.stderr.splitlines()
    assert "this node lacks cx16" in message
    assert "This makes one: tdcs-train compile " in message
    assert "digits_model.py:model --name digits --target x86-64 --backend onednn --backend blas -o" in message


def test_a_folder_without_images_is_named(folders: tuple[Path, Path], tmp_path: Path) -> None:
    done = score(tmp_path, folders[1])
    assert done.returncode == 2
    assert f"{tmp_path} has no image: is the Dataset mounted there?" in done.stderr
