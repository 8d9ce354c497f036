"""Models as people write them are profiled, planned and run in three stages, or refused by name."""

from typing import Any

import pytest
import torch
from tests.training import threads
from tests.training.model.zoo import ZOO, Case, classes
from torch import nn

from tdcs_train.errors import InputError
from tdcs_train.model.errors import ModelError
from tdcs_train.model.measuring import Subject, profile
from tdcs_train.model.splitting import split
from tdcs_train.model.tracing import examples_of, trace
from tdcs_train.pipeline.plan_file import StagePlan, plan_of
from tdcs_train.pipeline.runtime import Recipe, traced_by
from tdcs_train.pipeline.stage import StageCompute
from tdcs_train.pipeline.worker import Settings
from tdcs_train.plan.graph import check
from tdcs_train.plan.options import Level, Options
from tdcs_train.plan.pipeline_plan import plan_pipeline
from tdcs_train.plan.profile_text import parse, render

torch.set_num_threads(1)
STEPS, MICRO = 4, 2


def batches(case: Case) -> list[Any]:
    return [case.batch(torch.Generator().manual_seed(number)) for number in range(STEPS * MICRO)]


def made(case: Case) -> Any:
    torch.manual_seed(0)
    return case.make()


def sgd(parameters: list[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=rate, momentum=0.9)


def alone(case: Case) -> list[float]:
    """The losses of one process."""
    model = made(case)
    model = model.module() if hasattr(model, "graph_signature") else getattr(model, "_orig_mod", model)
    optimizer, losses = sgd(list(model.parameters()), 0.05), []
    for step in range(STEPS):
        optimizer.zero_grad()
        for inputs, labels in batches(case)[step * MICRO : (step + 1) * MICRO]:
            if isinstance(inputs, dict):
                output = model(**inputs)
            else:
                output = model(*(inputs if isinstance(inputs, tuple) else (inputs,)))
            loss = case.loss(output, labels)
            (loss / MICRO).backward()
            losses.append(float(loss.detach()))
        optimizer.step()
    return losses


def planned(case: Case) -> StagePlan:
    """A plan of three stages, by way of the text of the profile."""
    subject = Subject(model=made(case), batch=lambda: batches(case)[0], loss=case.loss)
    graph = profile(subject, steps=1)
    check(graph, source="profile")
    graph = parse(render(graph))
    plan = plan_pipeline(graph, Options(levels=(Level(machines=3, bandwidth=1e8),), straight=True))
    stages = [{"nodes": list(stage.nodes), "replicas": stage.replicas} for stage in plan.stages]
    inputs = [
        {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape)} for tensor in plan.inputs
    ]
    return plan_of({"stages": stages, "inputs": inputs}, source="plan")


def in_stages(case: Case, plan: StagePlan) -> list[float]:
    """The losses of three stages, each a thread, that are given every micro-batch."""
    settings = Settings(mode="flush", micro_batches=MICRO)

    def cut() -> Any:
        recipe = Recipe(
            model=made(case), loss=case.loss, optimizer=sgd, learning_rate=0.05, settings=settings
        )
        return split(traced_by(recipe, plan), plan.stages)

    workers = threads.workers_of(
        [StageCompute(cut(), stage, case.loss, recomputes=stage in plan.recomputing) for stage in range(3)],
        settings=settings,
        optimizer=sgd,
        learning_rate=0.05,
    )
    threads.run(workers, batches(case), count=STEPS)
    return workers[-1].losses


@pytest.mark.parametrize("name", ZOO)
def test_a_model_is_profiled_planned_and_run_in_three_stages_or_refused_by_name(name: str) -> None:
    case = ZOO[name]
    if case.refused:
        with pytest.raises(InputError) as refusal:
            planned(case)
        assert case.refused in str(refusal.value)
        return
    assert in_stages(case, planned(case)) == pytest.approx(alone(case), abs=1e-5)


def test_a_module_that_cannot_be_traced_is_left_whole_and_named_with_its_line() -> None:
    case, notes = ZOO["experts by data"], list[str]()
    subject = Subject(model=made(case), batch=lambda: batches(case)[0], loss=case.loss)
    profile(subject, steps=1, note=notes.append)
    assert len(notes) == 1
    assert notes[0].startswith("router is left whole at ")
    assert "`if x.mean() > 0:`" in notes[0]
    assert "depends on the data" in notes[0]


def test_dropout_that_looks_at_the_mode_is_off_in_evaluation() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(self.layer(x), 0.5, self.training)

    model, inputs = Model(), torch.ones(2, 8)
    module = trace(model).graph_module
    assert not torch.equal(module(inputs)[0], model.layer(inputs))
    module.eval()
    assert torch.equal(module(inputs)[0], model.layer(inputs))


def test_inputs_of_another_shape_than_a_branch_was_traced_for_are_refused_at_the_guard() -> None:
    case = ZOO["cell in a loop"]
    traced = trace(made(case), example=examples_of(batches(case)[0][0]))
    traced.graph_module(torch.zeros(3, 6, 8))
    with pytest.raises(ModelError, match=r"traced where x.size\(1\) is 6"):
        traced.graph_module(torch.zeros(3, 7, 8))


class Views(nn.Module):
    """Changes a view in place, which a graph does not repeat."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 5)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        values = self.layer(values)
        values[:, 0].mul_(3.0)
        return values


@pytest.mark.parametrize(
    ("model", "remedy"),
    [
        (Views(), "it is the model's own forward: move"),
        # No ReLU: it gives 0 for what is below 0, changed or not.
        (nn.Sequential(Views(), nn.Tanh()), r"--leaf NAME, of 0\)"),
    ],
)
def test_a_graph_that_computes_something_else_is_refused_with_what_can_be_done(
    model: nn.Module, remedy: str
) -> None:
    subject = Subject(model=model, batch=lambda: ZOO["unused layers"].batch(torch.Generator()), loss=classes)
    with pytest.raises(ModelError, match=f"does not compute what the model computes.*{remedy}"):
        profile(subject, steps=1)


class HandedOnTwice(nn.Module):
    """The second layer returns the tensor that it was given, and a later one reads it by both names."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        y = x.contiguous()
        output: torch.Tensor = self.last(torch.tanh(y) + x)
        return output


def test_a_tensor_that_a_stage_hands_on_under_two_names_has_its_gradient_once() -> None:
    case = Case(HandedOnTwice, ZOO["unused layers"].batch, classes)
    stages = [
        {"nodes": nodes, "replicas": 1} for nodes in (["node2"], ["node3"], ["node4", "node5", "node6"])
    ]
    assert in_stages(case, plan_of({"stages": stages}, source="plan")) == pytest.approx(alone(case), abs=1e-5)


def test_a_refusal_names_some_of_many_layers() -> None:
    with pytest.raises(ModelError, match=r"--layers layers\.0,.*layers\.11,\.\.\. of 20\)$"):
        planned(ZOO["cache in the output"])


def test_most_of_the_zoo_runs() -> None:
    assert len(ZOO) >= 25
    assert sum(not case.refused for case in ZOO.values()) >= 25
