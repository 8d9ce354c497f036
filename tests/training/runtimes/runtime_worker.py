"""A worker of another package's pipeline: prints its losses, and how far its weights are from those of one process."""

import json
import os
import sys
from typing import Any

import torch
from tests.training.model.zoo import ZOO, Case
from torch import nn

from tdcs_train.errors import ended_by_input_errors
from tdcs_train.pipeline.plan_file import plan_of
from tdcs_train.pipeline.runtime import Recipe
from tdcs_train.pipeline.worker import Settings

STEPS, MICRO = 3, 2


def sgd(parameters: list[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=rate, momentum=0.9)


def made(case: Case) -> Any:
    torch.manual_seed(0)
    return case.make()


def batches(case: Case) -> list[Any]:
    return [case.batch(torch.Generator().manual_seed(number)) for number in range(STEPS)]


def parts(inputs: Any, labels: Any, count: int) -> list[Any]:
    """A mini-batch in micro-batches, in each of which a layer of BatchNorm has its own statistics."""
    size = len(labels) // count
    rows = [slice(number * size, (number + 1) * size) for number in range(count)]
    if isinstance(inputs, dict):
        return [({name: value[index] for name, value in inputs.items()}, labels[index]) for index in rows]
    tensors = inputs if isinstance(inputs, tuple) else (inputs,)
    return [(tuple(value[index] for value in tensors), labels[index]) for index in rows]


def alone(case: Case, micro: int) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The losses and weights of one process."""
    model = made(case)
    optimizer, losses = sgd(list(model.parameters()), 0.05), []
    for whole, marks in batches(case):
        optimizer.zero_grad()
        losses.append(0.0)
        for inputs, labels in parts(whole, marks, micro):
            output = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
            loss = case.loss(output, labels) / micro
            loss.backward()
            losses[-1] += float(loss.detach())
        optimizer.step()
    return losses, model.state_dict()


def main() -> None:
    torch.set_num_threads(1)
    runtime, name = os.environ["RUNTIME"], os.environ["CASE"]
    case = ZOO[name]
    plan = plan_of(json.loads(os.environ["PLAN"]), source="PLAN")
    recipe = Recipe(
        model=made(case),
        loss=case.loss,
        optimizer=sgd,
        learning_rate=0.05,
        settings=Settings(mode="flush", micro_batches=MICRO),
    )
    inputs, _ = batches(case)[0]
    pipeline: Any
    if runtime == "deepspeed":
        from tdcs_train.runtimes.deepspeed_pipeline import DeepSpeedPipeline

        pipeline = DeepSpeedPipeline(recipe, plan, inputs=inputs)
    else:
        from tdcs_train.runtimes.torch_pipelining import TorchPipeline

        torch.distributed.init_process_group("gloo")
        pipeline = TorchPipeline(recipe, plan, inputs=inputs, kind="gpipe" if runtime == "gpipe" else "1f1b")
    losses = [pipeline.step(*batch) for batch in batches(case)]
    expected, weights = alone(case, MICRO * plan.replicas[0])
    differences = [
        float((value - weights[key]).abs().max())
        for key, value in pipeline.stage.state.items()
        if key in weights and value.is_floating_point()
    ]
    print(
        json.dumps(
            {"losses": losses, "alone": expected, "weights": len(differences), "difference": max(differences)}
        ),
        flush=True,
    )
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    with ended_by_input_errors():
        main()
