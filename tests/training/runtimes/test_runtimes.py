"""Stages of a plan in the pipelines of other packages compute what one process computes."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.model import test_zoo
from tests.training.model.zoo import ZOO
from tests.training.processes import CHECKOUT, Job

from tdcs_train.model.errors import PlanError
from tdcs_train.model.measuring import Subject, profile
from tdcs_train.pipeline.plan_file import StagePlan
from tdcs_train.pipeline.runtime import Recipe
from tdcs_train.pipeline.worker import Settings
from tdcs_train.plan.graph import Graph, check
from tdcs_train.plan.options import Level, Options
from tdcs_train.plan.pipeline_plan import plan_pipeline
from tdcs_train.plan.profile_text import parse, render
from tdcs_train.runtimes.inputs import check_recipe, check_replicas, sliced
from tdcs_train.runtimes.stage_module import arrive, leave

pytestmark = pytest.mark.timeout(300)
SCRIPT = CHECKOUT / "tests" / "training" / "runtimes" / "runtime_worker.py"
needs_deepspeed = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed here"
)


def planned(name: str, replicas: list[int], *, recomputes: bool) -> str:
    """A plan of the model with so many stages, as `tdcs-train plan --json` writes it."""
    case = ZOO[name]
    subject = Subject(model=test_zoo.made(case), batch=lambda: test_zoo.batches(case)[0], loss=case.loss)
    graph = profile(subject, steps=1)
    check(graph, source="profile")
    # Every layer takes as long, so that a plan is the same each time.
    layers = {
        name: layer if layer.is_input else replace(layer, forward_ms=1.0, backward_ms=2.0)
        for name, layer in graph.layers.items()
    }
    graph = Graph(layers, graph.edges)
    options = Options(levels=(Level(machines=len(replicas), bandwidth=1e8),), straight=True)
    plan = plan_pipeline(parse(render(graph)), options)
    return json.dumps(
        {
            "stages": [
                {"nodes": list(stage.nodes), "replicas": count, "recomputes": recomputes}
                for stage, count in zip(plan.stages, replicas, strict=True)
            ],
            "inputs": [
                {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape)}
                for tensor in plan.inputs
            ],
        }
    )


def run(runtime: str, name: str, replicas: list[int], folder: Path) -> list[dict[str, Any]]:
    """What each worker has printed."""
    runtime, _, again = runtime.partition(" ")
    plan = planned(name, replicas, recomputes=bool(again))
    environment = {"RUNTIME": runtime, "CASE": name, "PLAN": plan, "DS_ACCELERATOR": "cpu"}
    of_rank = {rank: {"LOCAL_RANK": str(rank)} for rank in range(sum(replicas))}
    with Job(SCRIPT, sum(replicas), folder, environment=environment, of_rank=of_rank) as job:
        codes = job.end(within=150)
        assert codes == [0] * sum(replicas), [worker.errors[-2000:] for worker in job.workers]
        return [worker.results()[-1] for worker in job.workers]


@pytest.mark.parametrize(
    ("runtime", "name", "replicas"),
    [
        ("torch", "BERT", [1, 1, 1]),
        ("gpipe computing-again", "GPT", [1, 1]),
        ("torch", "vision transformer", [2, 2]),
        pytest.param("deepspeed", "BERT", [1, 1], marks=needs_deepspeed),
        pytest.param("deepspeed", "vision transformer", [2, 2], marks=needs_deepspeed),
    ],
)
def test_losses_and_weights_are_those_of_one_process(
    runtime: str, name: str, replicas: list[int], tmp_path: Path
) -> None:
    for result in run(runtime, name, replicas, tmp_path):
        assert result["losses"] == pytest.approx(result["alone"], abs=1e-5)
        assert result["difference"] < 1e-5


def test_stages_with_different_numbers_of_replicas_are_refused_with_what_runs_them() -> None:
    plan = StagePlan((("node2",), ("node3",)), (2, 1))
    with pytest.raises(PlanError, match="the plan 2-1 has stages with different numbers of workers"):
        check_replicas(plan, runtime="torch.distributed.pipelining")


def test_a_mini_batch_that_cannot_be_divided_is_refused() -> None:
    with pytest.raises(PlanError, match="a mini-batch of 5 samples cannot be divided evenly by 2"):
        sliced((torch.ones(5, 2),), replica=0, replicas=2)


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.int16, torch.bool, torch.uint8, torch.float32]
)
def test_whole_numbers_travel_as_floating_point_numbers_and_back(dtype: torch.dtype) -> None:
    values = torch.tensor([0, 1, 2, 100], dtype=torch.float64).to(dtype)
    values = torch.cat([values, (torch.tensor([-(2**62) + 1]) if dtype == torch.int64 else values[:1])])
    (carried,) = leave(values)
    assert carried.is_floating_point()
    assert carried.requires_grad
    (arrived,) = arrive([dtype], carried)
    assert torch.equal(arrived, values)


def test_a_transposed_tensor_travels_in_the_layout_that_it_is_received_in() -> None:
    (carried,) = leave(torch.arange(6.0).reshape(2, 3).t())
    assert carried.is_contiguous()
    assert carried.tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("settings.clip_norm", {"settings": Settings(mode="flush", clip_norm=1.0)}),
        ("schedule", {"schedule": lambda _: 0.5}),
        ("stage_rates", {"stage_rates": (1.0, 0.5)}),
    ],
)
def test_settings_that_a_runtime_would_leave_out_are_refused_by_name(
    name: str, changes: dict[str, Any]
) -> None:
    case = ZOO["VGG"]
    plain = Recipe(model=test_zoo.made(case), loss=case.loss, optimizer=test_zoo.sgd, learning_rate=0.1)
    check_recipe(plain, runtime="DeepSpeed")
    with pytest.raises(PlanError, match=f"{name} of the recipe: DeepSpeed makes its own updates"):
        check_recipe(replace(plain, **changes), runtime="DeepSpeed")
