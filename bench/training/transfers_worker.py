"""The worker, or the server, of the benchmark `transfers`; and the models that it measures."""

import argparse
import itertools
import json
import random
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tdcs_train.model.measuring import Subject, profile
from tdcs_train.model.tracing import trace
from tdcs_train.plan.order_plan import document, plan_order
from tdcs_train.plan.transfer_order import Rule
from tdcs_train.ps.parameters import priorities_of
from tdcs_train.ps.server import ParameterServer
from tdcs_train.ps.worker import ServedModel

PORT = 29100
RATE = 1e-4
CLASSES = 10


def vgg16() -> nn.Module:
    """VGG16 with its dense layers of 4,096; images of 32 x 32 leave 512 values for the first of them."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
        if width:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        else:
            layers.append(nn.MaxPool2d(2))
    dense = [nn.Flatten(), nn.Linear(512, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU()]
    return nn.Sequential(*layers, *dense, nn.Linear(4096, CLASSES))


class Block(nn.Module):
    """Two convolutions and a skip; with a stride the skip is a convolution."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.skip = nn.Conv2d(channels, width, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        out = torch.relu(self.first_norm(self.first(values)))
        return torch.relu(self.second_norm(self.second(out)) + self.skip(values))


def resnet32() -> nn.Module:
    """ResNet32 for 32 x 32: three groups of five blocks, 16, 32 and 64 wide."""
    blocks: list[nn.Module] = []
    channels = 16
    for width in (16, 32, 64):
        for number in range(5):
            blocks.append(Block(channels, width, 2 if width > 16 and number == 0 else 1))
            channels = width
    stem = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))


class ConvolutionsAndLstm(nn.Module):
    """Convolutions whose rows are the steps of an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            *(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU()),
            *(nn.MaxPool2d(2), nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        )
        self.lstm = nn.LSTM(128 * 8, 256, batch_first=True)
        self.dense = nn.Linear(256, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        values = self.convolutions(images).permute(0, 2, 1, 3).flatten(2)
        steps, _ = self.lstm(values)
        return self.dense(steps[:, -1])


MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "VGG16": (vgg16, 16),
    "ResNet32": (resnet32, 32),
    "CNN+LSTM": (ConvolutionsAndLstm, 32),
}
"""Each with its batch."""


def loss(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output, labels)


def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=RATE)


class Case:
    """A model and its mini-batch, equal in all processes."""

    def __init__(self, name: str) -> None:
        make, samples = MODELS[name]
        torch.manual_seed(1)
        self.make, self.samples = make, samples
        self.images, self.labels = torch.rand(samples, 3, 32, 32), torch.randint(CLASSES, (samples,))

    def fresh(self) -> nn.Module:
        torch.manual_seed(2)
        return self.make()

    def seconds_alone(self) -> tuple[float, int]:
        """An iteration without any server, and the bytes of the parameters."""
        net, times = self.fresh(), []
        for _ in range(6):
            begin = time.monotonic()
            net.zero_grad()
            loss(net(self.images), self.labels).backward()
            times.append(time.monotonic() - begin)
        size = sum(p.numel() * p.element_size() for p in net.parameters() if p.requires_grad)
        return statistics.median(times[2:]), size

    def planned(self, bandwidth: float) -> dict[str, int]:
        """The priorities that `tdcs-train order` gives for the model's profile and the link."""
        subject = Subject(model=self.fresh(), batch=lambda: (self.images, self.labels), loss=loss)
        plan = plan_order(
            profile(subject, steps=3), bandwidth=bandwidth, rule=Rule.SEARCHED, orders=1, seed=0
        )
        return priorities_of(document(plan), trace(self.fresh()), source="the plan")


def shuffled(names: list[str], seed: int) -> dict[str, int]:
    """A random order."""
    places = list(range(len(names)))
    random.Random(seed).shuffle(places)  # noqa: S311  (an experiment, no secret)
    return dict(zip(names, places, strict=True))


def visits(options: argparse.Namespace) -> list[tuple[int, int]]:
    """(port, order) of each visit; order 0 is the planned one.

    It comes once for every random one, before or behind it in turn: so a machine that becomes slower meets both alike.
    """
    orders: list[int] = []
    for number in range(options.rounds * options.orders):
        pair = [0, 1 + number % options.orders]
        orders += pair[::-1] if number % 2 else pair
    return [(PORT + number, order) for number, order in enumerate(orders)]


def serve(options: argparse.Namespace, case: Case) -> None:
    """All visits in turn. A server needs no priority of its own kind: it is given what the worker has."""
    plan: dict[str, int] | None = None
    with socket.create_server(("", PORT - 1)) as meeting:
        worker, _ = meeting.accept()
        with worker, worker.makefile() as lines:
            plan = json.loads(lines.readline())
    for port, order in visits(options):
        model = case.fresh()
        names = [name for name, _ in model.named_parameters()]
        ParameterServer(
            model,
            sgd,
            listener=socket.create_server(("", port), backlog=16),
            workers=1,
            priorities=plan if order == 0 else shuffled(names, order),
        ).serve()


def work(options: argparse.Namespace, case: Case, host: str) -> None:
    """Train with each order in turn, and print what its iterations took."""
    plan = case.planned(options.bandwidth)
    until = time.monotonic() + 60
    while True:
        try:
            meeting = socket.create_connection((host, PORT - 1), timeout=5)
            break
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
    with meeting:
        meeting.sendall(json.dumps(plan).encode() + b"\n")
    for port, order in visits(options):
        net = case.fresh()
        names = [name for name, _ in net.named_parameters()]
        priorities = plan if order == 0 else shuffled(names, order)
        ends: list[float] = []
        with ServedModel(net, [(host, port)], worker=0, workers=1, priorities=priorities):
            for _ in range(1 + options.steps):
                loss(net(case.images), case.labels).backward()
                ends.append(time.monotonic())
        row: dict[str, Any] = {
            "order": order,
            "seconds": [end - begin for begin, end in itertools.pairwise(ends)],
        }
        print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=list(MODELS), required=True)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--bandwidth", type=float, default=0.0)
    parser.add_argument("--orders", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--serve", default="")
    parser.add_argument("--work", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    case = Case(options.model)
    if options.profile:
        seconds, size = case.seconds_alone()
        print(json.dumps({"seconds": seconds, "bytes": size}), flush=True)
    elif options.serve:
        serve(options, case)
    else:
        work(options, case, options.work)


if __name__ == "__main__":
    main()
