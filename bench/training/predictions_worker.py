"""One worker of the benchmark `predictions`: a stage of a chain of layers that sleep."""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tdcs_train.peers.rendezvous import membership_from
from tdcs_train.pipeline.plan_file import plan_of
from tdcs_train.pipeline.runtime import Pipeline, Recipe
from tdcs_train.pipeline.worker import Settings


class _Slept(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: torch.Tensor, weights: torch.Tensor, size: int, seconds: float, back: float
    ) -> torch.Tensor:
        ctx.back = back
        ctx.save_for_backward(values, weights)
        time.sleep(seconds)
        return (values[0, 0] + weights[0]).expand(1, size).clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        values, weights = ctx.saved_tensors
        time.sleep(ctx.back)
        return torch.zeros_like(values), torch.zeros_like(weights), None, None, None


class Asleep(nn.Module):
    """A layer with the time, the tensor and the parameters that it was planned with."""

    def __init__(self, layer: dict[str, Any]) -> None:
        super().__init__()
        self.layer = layer
        self.weight = nn.Parameter(torch.zeros(layer["weights"]))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        times = self.layer["forward"] / 1000, self.layer["backward"] / 1000
        output: torch.Tensor = _Slept.apply(values, self.weight, self.layer["output"], *times)
        return output


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, required=True)
    count = parser.parse_args().count
    torch.set_num_threads(1)
    layers = json.loads(Path("/results/layers.json").read_text())
    plan = plan_of(json.loads(Path("/results/plan.json").read_text()), source="plan")
    recipe = Recipe(
        model=nn.Sequential(*(Asleep(layer) for layer in layers)),
        loss=lambda output, labels: output.mean() - labels.mean(),
        optimizer=lambda parameters, rate: torch.optim.SGD(parameters, lr=rate),
        learning_rate=0.1,
        settings=Settings(mode="stash"),
        leaves=[str(number) for number in range(len(layers))],
    )
    item = (torch.zeros(1, 1000), torch.zeros(1))
    fill = 12
    with Pipeline(recipe, plan, membership_from(facts={}, timeout=120)) as pipeline:
        items = iter(lambda: item, None) if pipeline.is_first else None
        pipeline.train(items, count=fill)
        short = pipeline.train(items, count=fill).seconds
        long = pipeline.train(items, count=fill + count).seconds
        if pipeline.place.rank == 0:
            print(json.dumps({"seconds": (long - short) / count}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
