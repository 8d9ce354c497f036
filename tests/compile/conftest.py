"""Helpers of the tests that compile models."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import onnx
import pytest

from tdcs_train.compile.job import Outcome, compile_model

os.environ.setdefault("TVM_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

Compile = Callable[..., Outcome]


@pytest.fixture
def compiled(tmp_path: Path) -> Compile:
    """Compiles an ONNX model into the folder `artifacts` of the test."""

    def run(
        model: onnx.ModelProto,
        *,
        backends: Sequence[str] = ("onednn", "blas"),
        target: str = "x86-64-v2",
        name: str = "model",
    ) -> Outcome:
        source = tmp_path / f"{name}.onnx"
        onnx.save(model, source)
        return compile_model(
            str(source), target=target, backends=backends, output=str(tmp_path / "artifacts")
        )

    return run
