"""One worker of the benchmark `averaging`: plain DistributedDataParallel and gradients by priority, in turns."""

import argparse
import datetime
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tdcs_train.data_parallel import PriorityAveraging
from tdcs_train.plan.graph import Layer, pruned
from tdcs_train.plan.profile_text import parse


class _Slept(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, weights: torch.Tensor, seconds: float, back: float) -> Any:
        ctx.back, ctx.weights = back, weights
        time.sleep(seconds)
        return values + weights.mean()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        time.sleep(ctx.back)
        return (
            gradient,
            torch.full_like(ctx.weights, float(gradient.mean()) / ctx.weights.numel()),
            None,
            None,
        )


class Asleep(nn.Module):
    """A layer that takes its time without a processor, as one on an accelerator does, with real parameters."""

    def __init__(self, layer: Layer, *, share: float) -> None:
        super().__init__()
        self.layer = layer
        self.weight = nn.Parameter(torch.randn(max(1, int(layer.parameter_bytes * share / 4))))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        back = self.layer.backward_ms / 1000
        output: torch.Tensor = _Slept.apply(values, self.weight.view(-1), self.layer.forward_ms / 1000, back)
        return output


def model(share: float) -> nn.Module:
    """The layers of the profile that take time, one after another."""
    graph = pruned(parse(Path("/results/profile.txt").read_text()))
    torch.manual_seed(1)
    layers = [graph.layers[name] for name in graph.order if graph.layers[name].seconds > 0]
    return nn.Sequential(*(Asleep(layer, share=share) for layer in layers))


def steps(way: DistributedDataParallel, optimizer: torch.optim.Optimizer, *, count: int) -> float:
    """Plain; the last loss."""
    loss = torch.zeros(())
    for _ in range(count):
        loss = way(torch.ones(4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return float(loss.detach())


def steps_by_priority(
    way: DistributedDataParallel, averaging: PriorityAveraging, *, count: int, waits: bool = True
) -> float:
    """The last loss, when all updates are made unless it does not wait."""
    loss = torch.zeros(())
    for _ in range(count):
        loss = way(torch.ones(4)).square().mean()
        loss.backward()
        averaging.step()
    if waits:
        averaging.wait()
    return float(loss.detach())


def _trial(way: DistributedDataParallel, averaging: PriorityAveraging) -> dict[str, Any]:
    """Until the faster way is chosen; what that took."""
    count, begin = 0, time.monotonic()
    averaging._use.__enter__()
    while averaging.gain is None:
        steps_by_priority(way, averaging, count=1, waits=False)
        count += 1
    averaging.wait()
    averaging._use.__exit__(None, None, None)
    return {
        "iterations": count,
        "seconds": time.monotonic() - begin,
        "gain": averaging.gain,
        "by priority": averaging.by_priority,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", type=float, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    networks = [DistributedDataParallel(model(options.share)) for _ in range(2)]
    plain, urgent = (torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9) for network in networks)
    averaging = PriorityAveraging(networks[1], urgent)
    trial = _trial(networks[1], averaging)
    steps(networks[0], plain, count=trial["iterations"])
    for number in range(options.rounds):
        for way in ("plain", "priority") if number % 2 else ("priority", "plain"):
            distributed.barrier()
            begin = time.monotonic()
            if way == "plain":
                loss = steps(networks[0], plain, count=options.steps)
            else:
                averaging._use.__enter__()
                loss = steps_by_priority(networks[1], averaging, count=options.steps)
                averaging._use.__exit__(None, None, None)
            seconds = (time.monotonic() - begin) / options.steps
            if distributed.get_rank() == 0:
                print(json.dumps({"way": way, "seconds": seconds, "loss": loss}), flush=True)
    if distributed.get_rank() == 0:
        print(json.dumps({"way": "trial", **trial}), flush=True)
    distributed.barrier()
    os._exit(0)  # without the end of gloo's groups, which wait for each other


if __name__ == "__main__":
    main()
