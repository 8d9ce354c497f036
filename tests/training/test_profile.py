"""The profile of a model: times by layer, bytes, edges, and errors that name the file."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from tests.training import models
from torch import nn

from tdcs_train.cli.main import main
from tdcs_train.model.measuring import Subject, profile
from tdcs_train.plan.profile_text import parse, render


class Sleep(torch.autograd.Function):
    """An operator that takes a known time forward and backward."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor, ahead: float, back: float) -> torch.Tensor:
        context.back = back
        time.sleep(ahead)
        return values.clone()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        time.sleep(context.back)
        return gradients[0], None, None


class Slow(nn.Module):
    def __init__(self, ahead: float, back: float) -> None:
        super().__init__()
        self.ahead, self.back = ahead, back

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return Sleep.apply(values, self.ahead, self.back)


def test_times_belong_to_the_layers_that_took_them() -> None:
    model = nn.Sequential(
        nn.Linear(4, 4), Slow(0.04, 0.06), nn.Linear(4, 4), Slow(0.02, 0.0), nn.Linear(4, 3)
    )
    subject = Subject(
        model=model, batch=lambda: (torch.randn(2, 4), torch.tensor([0, 1])), loss=models.cross_entropy
    )
    graph = profile(subject, steps=9, leaves=("1", "3"))
    times = [(layer.forward_ms, layer.backward_ms) for layer in graph.layers.values()]
    assert 40 <= times[2][0] < 60
    assert 60 <= times[2][1] < 80
    assert 20 <= times[4][0] < 40
    small = [ahead for number, (ahead, _) in enumerate(times) if number not in (2, 4)]
    small += [back for number, (_, back) in enumerate(times) if number != 2]
    assert max(small) < 10


def test_bytes_and_edges_are_those_of_the_model() -> None:
    subject = Subject(model=models.Residual(), batch=lambda: models.images(4, 1), loss=models.cross_entropy)
    graph = profile(subject, steps=2)
    stem = graph.layers["node2"]
    assert stem.description.startswith("Conv2d(3, 8")
    assert list(stem.activation_bytes) == [4 * 8 * 16 * 16 * 4]
    assert stem.parameter_bytes == (3 * 8 * 9 + 8) * 4
    scale = next(layer for layer in graph.layers.values() if layer.description == "mul")
    assert scale.parameter_bytes == 8 * 4
    assert graph.parameter_bytes == sum(p.numel() * 4 for p in models.Residual().parameters())
    skips = [name for name in graph.successors["node2"] if graph.layers[name].description in ("add", "iadd")]
    assert len(skips) == 2, "the stem skips its own block, and all blocks"
    assert parse(render(graph)).edges == graph.edges


def test_a_state_of_several_tensors_is_a_list_of_sizes() -> None:
    subject = Subject(
        model=models.Translator(), batch=lambda: models.sentences(3, 1), loss=models.cross_entropy
    )
    graph = profile(subject, steps=2)
    encoder = next(layer for layer in graph.layers.values() if layer.description.startswith("LSTM"))
    assert list(encoder.activation_bytes) == [3 * 7 * 16 * 4, 3 * 16 * 4, 3 * 16 * 4]


SCRIPT = """
import torch
def model(): return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
def batch(samples): return torch.randn(samples, 6), torch.zeros(samples, dtype=torch.int64)
loss = torch.nn.functional.cross_entropy
number = 3
"""


def test_the_command_writes_a_profile_that_the_planner_reads(tmp_path: Path) -> None:
    script, graph = tmp_path / "train.py", tmp_path / "graph.txt"
    script.write_text(SCRIPT)
    words = ["profile", f"{script}:model", "--batch", "4", "--steps", "3", "-o", str(graph)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    plan = ["plan", "--profile", str(graph), "--workers", "2", "--bandwidth", "1Gbit", "--json"]
    planned = CliRunner().invoke(main, plan)
    assert planned.exit_code == 0, planned.output
    assert json.loads(planned.output)["stages"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("train.py", "is not FILE.py:NAME"),
        ("other.py:model", "other.py is no file"),
        ("train.py:net", "has no 'net' for the model; it has batch, loss, model"),
        ("train.py:number", "number is a int; it must be a module"),
        ("broken.py:model", "broken.py cannot be run: ZeroDivisionError"),
    ],
)
def test_a_script_that_cannot_be_measured_is_refused_with_its_name(
    tmp_path: Path, target: str, message: str
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    result = CliRunner().invoke(main, ["profile", str(tmp_path / target), "--batch", "4"])
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
