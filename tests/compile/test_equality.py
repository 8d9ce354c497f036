"""Every back end computes what TVM's own code does, and the partition is sound: convex, complete, nothing twice."""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.compile.conftest import Compile
from tests.compile.models import REAL, random_inputs
from tests.compile.random_graphs import random_model
from tests.compile.relax_graph import not_convex, operator_graph

from tdcs_train import artifacts
from tdcs_train.backends import find_all
from tdcs_train.compile.model_file import read_onnx
from tdcs_train.compile.model_import import import_model
from tdcs_train.compile.partition import merge_regions
from tdcs_train.compile.simplify import lift_weights, simplify

BACKENDS = (("onednn",), ("blas",), ("onednn", "blas"))
GRAPHS_IN_A_MODEL = 10
MODELS = int(os.environ.get("TDCS_TRAIN_RANDOM_MODELS", "2"))
"""How many random models of ten graphs; the deep form takes 10, that is 100 graphs."""


def assert_every_backend_equals_plain_tvm(model: onnx.ModelProto, compiled: Compile, folder: Path) -> None:
    inputs = random_inputs(model)
    compiled(model, backends=())
    expected = artifacts.load(folder, model="model", prefer=()).run(inputs)
    for backends in BACKENDS:
        outcome = compiled(model, backends=backends)
        loaded = artifacts.load(Path(outcome.location), model="model")
        assert loaded.manifest.regions, f"{backends} took nothing"
        for _ in range(2):  # buffers that are used again must not keep the last run's values
            results = loaded.run(inputs)
        assert results.keys() == expected.keys()
        for name, result in results.items():
            scale = max(1.0, float(np.abs(expected[name]).max()))
            np.testing.assert_allclose(
                result / scale, expected[name] / scale, atol=1e-4, err_msg=f"{backends} {name}"
            )


def assert_partitions_are_sound(model: onnx.ModelProto, path: Path) -> None:
    onnx.save(model, path)
    module, _ = lift_weights(simplify(import_model(read_onnx(path), {}).module))
    original = operator_graph(module)
    for backends in BACKENDS:
        tables = {backend.name: tuple(backend.table()) for backend in find_all(backends)}
        merged = operator_graph(merge_regions(module, tables, []))
        assert Counter(merged.names) == Counter(original.names), f"{backends} lost or doubled an operator"
        assert not_convex(merged) == set()
        assert any(merged.regions)


@pytest.mark.parametrize("name", list(REAL))
def test_real_models_equal_plain_tvm(name: str, compiled: Compile, tmp_path: Path) -> None:
    model = REAL[name]()
    assert_partitions_are_sound(model, tmp_path / "sound.onnx")
    assert_every_backend_equals_plain_tvm(model, compiled, tmp_path / "artifacts")


@pytest.mark.parametrize("seed", range(MODELS))
def test_random_graphs_equal_plain_tvm(seed: int, compiled: Compile, tmp_path: Path) -> None:
    model = random_model(1000 + seed, GRAPHS_IN_A_MODEL)
    assert_partitions_are_sound(model, tmp_path / "sound.onnx")
    assert_every_backend_equals_plain_tvm(model, compiled, tmp_path / "artifacts")
