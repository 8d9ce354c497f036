"""The profile of a model: times by layer, bytes, edges, and errors that name the file."""

import json
import re
import sys
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


class TurnedClock:
    """A clock that only layers move on, so that what else the machine does takes no time."""

    def __init__(self) -> None:
        self.now = 0.0

    def mark(self) -> float:
        return self.now

    def seconds(self, begin: float, end: float) -> float:
        return end - begin


class Turns(torch.autograd.Function):
    """An operator that takes a known time forward and backward."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor, clock: TurnedClock, ahead: float, back: float) -> Any:
        context.clock, context.back = clock, back
        clock.now += ahead
        return values.clone()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        context.clock.now += context.back
        return gradients[0], None, None, None


class Slow(nn.Module):
    def __init__(self, clock: TurnedClock, ahead: float, back: float) -> None:
        super().__init__()
        self.clock, self.ahead, self.back = clock, ahead, back

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return Turns.apply(values, self.clock, self.ahead, self.back)


def test_times_belong_to_the_layers_that_took_them() -> None:
    clock = TurnedClock()
    model = nn.Sequential(
        nn.Linear(4, 4), Slow(clock, 0.04, 0.06), nn.Linear(4, 4), Slow(clock, 0.02, 0.0), nn.Linear(4, 3)
    )
    subject = Subject(
        model=model,
        batch=lambda: (torch.randn(2, 4), torch.tensor([0, 1])),
        loss=models.cross_entropy,
        clock=clock,
    )
    graph = profile(subject, steps=3, leaves=("1", "3"))
    times = [(layer.forward_ms, layer.backward_ms) for layer in graph.layers.values()]
    assert times[2] == pytest.approx((40, 60))
    assert times[4] == pytest.approx((20, 0))
    assert [pair for number, pair in enumerate(times) if number not in (2, 4)] == [(0, 0)] * (len(times) - 2)


class SlowUpdate(torch.optim.SGD):
    """An optimizer of which a step takes 30 ms."""

    def step(self, closure: Any = None) -> None:
        time.sleep(0.03)


def test_updates_count_as_part_of_the_backward_of_layers_that_are_trained() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    model[2].requires_grad_(False)
    subject = Subject(
        model=model,
        batch=lambda: (torch.randn(2, 4), torch.tensor([0, 1])),
        loss=models.cross_entropy,
        optimizer=lambda parameters: SlowUpdate(parameters, lr=0.1),
    )
    back = [layer.backward_ms for layer in profile(subject, steps=3).layers.values()]
    # The others' own times grow with what else the machine does, and the sleep of 30 ms is none of theirs.
    assert back[1] >= 30
    assert max(back[:1] + back[2:]) < back[1] - 15


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
def sgd(parameters): return torch.optim.SGD(parameters, lr=0.1)
def wrong(parameters): return 3
number = 3
"""


def test_the_command_writes_a_profile_that_the_planner_reads(tmp_path: Path) -> None:
    script, graph = tmp_path / "train.py", tmp_path / "graph.txt"
    script.write_text(SCRIPT)
    words = ["profile", f"{script}:model", "--batch", "4", "--steps", "3", "-o", str(graph)]
    result = CliRunner().invoke(main, [*words, "--optimizer", "sgd"])
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
        ("train.py:net", "has no 'net' for the model; it has batch, loss, model, number, sgd, torch, wrong"),
        ("train.py:model --optimizer=adam", "has no 'adam' for the optimizer (--optimizer NAME)"),
        ("train.py:model --optimizer=wrong", "wrong made a int; it must make an optimizer of torch"),
        (
            "train.py:model --device=cuda",
            "on this machine; profile where training runs, or with --device cpu",
        ),
        ("train.py:number", "number is a int; it must be a module"),
        ("broken.py:model", "broken.py cannot be run: ZeroDivisionError"),
    ],
)
def test_a_script_that_cannot_be_measured_is_refused_with_its_name(
    tmp_path: Path, target: str, message: str
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    script, *more = target.split()
    result = CliRunner().invoke(main, ["profile", str(tmp_path / script), "--batch", "4", *more])
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


FAULTS = {
    "a model that raises": (
        "def model(): raise RuntimeError('no weights')",
        "model fails when .*: no weights",
    ),
    "a model that ends": ("def model(): raise SystemExit(0)", r"model fails when it is called as model\(\)"),
    "a model with an argument": ("def model(size): pass", r"called as model\(\): TypeError: .* 'size'"),
    "a script that ends": ("import sys; sys.exit(0)", r"ends itself while it is read \(SystemExit: 0\)"),
    "batches that fail": ("def batch(samples): raise KeyError('x')", r"called as batch\(4\): KeyError: 'x'"),
    "a loss that is a number": ("def loss(output, labels): return 3.0", "loss returned a float; it must"),
    "a loss for each sample": ("def loss(output, labels): return output", r"returned a shape \(4, 3\)"),
    "a loss that fails": ("def loss(output, labels): return {}[1]", r"called as loss\(.*: KeyError: 1"),
    "an optimizer of nothing": ("def sgd(): pass", r"called as sgd\(parameters\): TypeError"),
    "a model of nothing": (
        "model = torch.nn.Flatten()",
        "the model Flatten has no parameters that are trained",
    ),
    "another size": (
        "def batch(samples): return torch.randn(samples, 5), None",
        "fails on its own mini-batch",
    ),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_of_the_script_is_one_sentence_with_code_2(tmp_path: Path, what: str) -> None:
    text, message = FAULTS[what]
    script = tmp_path / "train.py"
    script.write_text(f"{SCRIPT}{text}\n")
    words = ["profile", f"{script}:model", "--batch", "4", "--steps", "1", "--optimizer", "sgd"]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, result.output.count("\n")) == (2, 1), result.output
    assert re.search(message, result.output)


def test_a_script_imports_its_neighbours_and_leaves_the_path_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_a_script.py").write_text(SCRIPT)
    (tmp_path / "train.py").write_text("from neighbour_of_a_script import batch, loss, model\n")
    path = list(sys.path)
    words = ["profile", f"{tmp_path / 'train.py'}:model", "--batch", "4", "--steps", "1"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert sys.path == path


def test_an_output_that_cannot_be_is_refused_before_the_measurement(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise RuntimeError('measured')")
    for output, message in (
        (tmp_path / "absent" / "graph.txt", "absent is no folder"),
        (tmp_path, "is a folder"),
    ):
        words = ["profile", f"{script}:model", "--batch", "4", "-o", str(output)]
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 2
        assert message in result.output
