"""Stages that compute their forward again give what the others give, and keep less."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.training import threads
from tests.training.model import test_zoo
from tests.training.model.zoo import ZOO, classes
from torch import nn

from tdcs_train.model.errors import PlanError
from tdcs_train.model.splitting import split
from tdcs_train.model.tracing import trace
from tdcs_train.pipeline.computing_again import computed_again
from tdcs_train.pipeline.plan_file import StagePlan, plan_of
from tdcs_train.pipeline.stage import StageCompute
from tdcs_train.pipeline.values import Packet
from tdcs_train.pipeline.worker import Settings


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(4 * 14 * 14, 5),
    )


def worked(*, recomputes: bool) -> dict[str, Any]:
    """What the first of two stages makes of a mini-batch, and the bytes that autograd has kept of it."""
    layers = [f"node{number}" for number in range(2, 8)]
    cut = split(trace(model()), [layers[:5], layers[5:]])
    stage = StageCompute(cut, 0, classes, recomputes=recomputes)
    inputs, labels = ZOO["VGG"].batch(torch.Generator().manual_seed(2))
    saved_bytes = 0

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal saved_bytes
        saved_bytes += tensor.nbytes
        return tensor

    torch.manual_seed(3)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        packet = stage.forward(stage.enter(0, inputs, labels), version=0)
    after = torch.rand(1)
    (name,) = stage.part.leaving
    _, gradients = stage.backward(Packet(0, {name: [torch.ones_like(packet.values[name])]}))
    return {
        "left": packet.values[name].detach(),
        "gradients": [gradient for gradient in gradients if gradient is not None],
        "buffers": list(stage.part.module.buffers()),
        "random": after,
        "random after": torch.rand(1),
        "kept": saved_bytes,
    }


def test_values_gradients_statistics_and_random_numbers_are_those_of_one_forward() -> None:
    plain, again = worked(recomputes=False), worked(recomputes=True)
    saved_bytes = plain.pop("kept"), again.pop("kept")
    assert len(plain["gradients"]) == 4
    torch.testing.assert_close(again, plain, rtol=0, atol=0)
    assert saved_bytes[1] < saved_bytes[0] / 2  # what arrives is kept


@pytest.mark.parametrize(
    "name", ["ResNet", "GPT with tied weights", "BERT", "reentrant checkpoints", "in place"]
)
def test_models_train_in_stages_that_compute_again_as_in_one_process(name: str) -> None:
    case = ZOO[name]
    plan = test_zoo.planned(case)
    losses = test_zoo.in_stages(case, replace(plan, recomputing=frozenset(range(3))))
    assert losses == pytest.approx(test_zoo.alone(case), abs=1e-5)


def test_older_weights_are_those_with_which_a_forward_is_computed_again() -> None:
    layers = [["node2", "node3", "node4"], ["node5", "node6", "node7"]]
    losses = []
    for recomputes in (False, True):
        torch.manual_seed(1)
        plain = nn.Sequential(*(nn.Linear(8, 8) if number % 2 == 0 else nn.Tanh() for number in range(6)))
        stages = [
            StageCompute(split(trace(plain), layers), number, classes, recomputes=recomputes)
            for number in range(2)
        ]
        workers = threads.workers_of(
            stages, settings=Settings(mode="stash"), optimizer=test_zoo.sgd, learning_rate=0.1
        )
        batches = [ZOO["unused layers"].batch(torch.Generator().manual_seed(number)) for number in range(6)]
        threads.run(workers, batches, count=6)
        assert stages[0].weights.most_held == 2
        losses.append(workers[-1].losses)
    assert losses[1] == pytest.approx(losses[0], abs=1e-6)


def test_a_stage_that_changes_what_arrives_is_refused() -> None:
    inputs = torch.ones(2, 8)

    def change(values: torch.Tensor) -> torch.Tensor:
        return values.mul_(2).sum()

    with pytest.raises(PlanError, match="a stage changes what arrives at it in place"):
        computed_again(change, nn.Linear(2, 2), [inputs])


def test_a_plan_says_which_stages_compute_again() -> None:
    document: Any = {
        "stages": [
            {"nodes": ["node2"], "replicas": 1, "recomputes": True},
            {"nodes": ["node3"], "replicas": 1},
        ]
    }
    stage_plan = plan_of(document, source="plan")
    assert stage_plan == StagePlan((("node2",), ("node3",)), (1, 1), recomputing=frozenset({0}))
    document["stages"][1]["recomputes"] = 1
    with pytest.raises(PlanError, match=r"stages\[1\].recomputes is 1; it must be true or false"):
        plan_of(document, source="plan")
