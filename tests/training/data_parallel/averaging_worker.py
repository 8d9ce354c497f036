"""Trains models with plain DistributedDataParallel and by priority; prints both losses and how far weights differ."""

import copy
import json
import os
from collections.abc import Callable
from unittest import mock

import torch
import torch.distributed as distributed
from tests.training import models
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tdcs_train.data_parallel import PriorityAveraging
from tdcs_train.data_parallel.trial import Trial
from tdcs_train.errors import InputError, ended_by_input_errors

STEPS = 5
TRIED_STEPS = 12


class Attention(nn.Module):
    """Its output projection is a module that is never called, and the head's weights are the embedding's.

    Without biases: those of keys, as those before a normalisation, have gradients of rounding errors alone, which Adam
    makes large.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.attention = nn.MultiheadAttention(8, 2, bias=False, batch_first=True)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        values = self.embedding(tokens)
        values, _ = self.attention(values, values, values)
        return self.head(values).mean(dim=1)


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 40),
        nn.Linear(40, 16),
    )


def sgd(values: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(values, lr=0.1, momentum=0.9, weight_decay=1e-3)


def adam(values: list[nn.Parameter]) -> torch.optim.Optimizer:
    half = len(values) // 2
    return torch.optim.AdamW([{"params": values[:half]}, {"params": values[half:], "lr": 0.03}], lr=0.01)


def batches(kind: str, rank: int, count: int = STEPS) -> list[tuple[torch.Tensor, torch.Tensor]]:
    chooser = torch.Generator().manual_seed(50 + rank)

    def inputs() -> torch.Tensor:
        if kind == "attention":
            return torch.randint(16, (4, 6), generator=chooser)
        return torch.randn(4, 1, 6, 6, generator=chooser)

    return [(inputs(), torch.randint(16, (4,), generator=chooser)) for _ in range(count)]


def train(
    kind: str,
    make: Callable[[], nn.Module],
    optimizer: Callable[..., torch.optim.Optimizer],
    *,
    priority: bool,
) -> tuple[list[float], dict[str, torch.Tensor]]:
    torch.manual_seed(3)
    model = DistributedDataParallel(make())
    updates = optimizer(list(model.parameters()))
    rates = torch.optim.lr_scheduler.StepLR(updates, step_size=2, gamma=0.5)
    losses = []
    data = batches(kind, distributed.get_rank())
    if not priority:
        for inputs, labels in data:
            loss = models.cross_entropy(model(inputs), labels)
            loss.backward()
            updates.step()
            updates.zero_grad()
            rates.step()
            losses.append(float(loss.detach()))
        return losses, copy.deepcopy(model.module.state_dict())
    with PriorityAveraging(model, updates, slice_bytes=256, trial_steps=0) as averaging:
        for inputs, labels in data:
            loss = models.cross_entropy(model(inputs), labels)
            loss.backward()
            averaging.step()
            rates.step()
            losses.append(float(loss.detach()))
        return losses, copy.deepcopy(model.module.state_dict())


def urgent_first() -> dict[str, object]:
    """The order in which slices go of which all are ready, beside that in which backward made them."""
    torch.manual_seed(3)
    model = DistributedDataParallel(convolutions(), bucket_cap_mb=0.001)
    with PriorityAveraging(model, sgd(list(model.parameters())), slice_bytes=256, trial_steps=0) as averaging:
        data = batches("convolutions", distributed.get_rank())
        models.cross_entropy(model(data[0][0]), data[0][1]).backward()
        averaging.step()
        exchange = averaging.exchange
        assert exchange is not None
        loss = models.cross_entropy(model(data[1][0]), data[1][1])
        offered: list[int] = []
        with mock.patch.object(exchange, "offer", offered.extend):
            loss.backward()
            averaging.step()
        exchange.offer(offered)
        averaging.wait()
        return {"offered": offered, "sent": list(exchange.order), "groups": averaging.groups}


class Times:
    """A clock on which an iteration takes a second, and one by priority so many."""

    def __init__(self, averaging: PriorityAveraging, by_priority: float) -> None:
        self.averaging, self.by_priority, self.now = averaging, by_priority, 0.0

    def __call__(self) -> float:
        self.now += self.by_priority if self.averaging.by_priority else 1.0
        return self.now


class Counting(PriorityAveraging):
    """Counts the buckets that DistributedDataParallel gives to the hook."""

    buckets = 0

    def _hook(self, state: object, bucket: distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        self.buckets += 1
        return super()._hook(state, bucket)


def tried(seconds: float, group: distributed.ProcessGroup | None = None) -> dict[str, object]:
    """Losses of a trial of both ways, in which worker 0 finds that an iteration by priority takes so many seconds."""
    data = batches("convolutions", distributed.get_rank(), TRIED_STEPS)
    runs = []
    for is_plain in (True, False):
        torch.manual_seed(3)
        model = DistributedDataParallel(convolutions(), process_group=group)
        updates = sgd(list(model.parameters()))
        if is_plain:
            losses = []
            for inputs, labels in data:
                loss = models.cross_entropy(model(inputs), labels)
                loss.backward()
                updates.step()
                updates.zero_grad()
                losses.append(float(loss.detach()))
            runs.append(losses)
            continue
        with Counting(model, updates, slice_bytes=256) as averaging:
            # Only worker 0 decides: what the others find is the contrary.
            rank_seconds = seconds if distributed.get_rank() == 0 else 1 / seconds
            averaging._trial = Trial(1, Times(averaging, rank_seconds))
            losses, ways, hooked = [], [], []
            for inputs, labels in data:
                loss = models.cross_entropy(model(inputs), labels)
                ways.append(averaging.by_priority)
                before = averaging.buckets
                loss.backward()
                hooked.append(averaging.buckets > before)
                averaging.step()
                losses.append(float(loss.detach()))
            runs.append(losses)
    return {"plain": runs[0], "priority": runs[1], "ways": ways, "hooked": hooked, "gain": averaging.gain}


def main() -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    for kind, make in (("convolutions", convolutions), ("attention", Attention)):
        for optimizer in (sgd, adam):
            plain, expected = train(kind, make, optimizer, priority=False)
            losses, actual = train(kind, make, optimizer, priority=True)
            difference = max(float((expected[name] - actual[name]).abs().max()) for name in expected)
            print(json.dumps({"plain": plain, "priority": losses, "difference": difference}), flush=True)
    for seconds in (0.5, 2.0):
        print(json.dumps(tried(seconds, distributed.new_group() if seconds > 1 else None)), flush=True)
    print(json.dumps(urgent_first()), flush=True)
    distributed.destroy_process_group()


def refused() -> dict[str, str]:
    """What is said of models and scripts that cannot be trained by priority."""
    messages = {}
    inner = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    unused = DistributedDataParallel(inner, find_unused_parameters=True)
    static = DistributedDataParallel(copy.deepcopy(inner), static_graph=True)
    first = distributed.new_group([0])
    models_by_name = {"unused": unused, "static": static}
    if distributed.get_rank() == 0:
        models_by_name["part"] = DistributedDataParallel(copy.deepcopy(inner), process_group=first)
    for name, module in models_by_name.items():
        try:
            PriorityAveraging(module, sgd(list(module.parameters())))
        except InputError as error:
            messages[name] = str(error)
    model = DistributedDataParallel(copy.deepcopy(inner))
    try:
        with PriorityAveraging(model, sgd(list(model.parameters())), trial_steps=0) as averaging:
            for _ in range(2):
                model(torch.ones(1, 2)).sum().backward()
                if averaging.groups:
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    model(torch.ones(1, 2))
                averaging.step()
    except InputError as error:
        messages["clipped"] = str(error)
    return messages


def killed() -> None:
    """One worker ends in the middle of training."""
    model = DistributedDataParallel(nn.Linear(2, 2))
    values = sgd(list(model.parameters()))
    with ended_by_input_errors(), PriorityAveraging(model, values, trial_steps=0) as averaging:
        for number in range(4):
            if number == 2 and distributed.get_rank() == 1:
                os._exit(9)
            model(torch.ones(1, 2)).sum().backward()
            averaging.step()


if __name__ == "__main__":
    if "KILLED" in os.environ:
        torch.set_num_threads(1)
        distributed.init_process_group("gloo")
        print(json.dumps(refused()), flush=True)
        distributed.barrier()
        killed()
    else:
        main()
