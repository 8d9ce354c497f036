"""One of the two workers of a run of the benchmark `digits`: trains until 97 % are classified right, prints when."""

import datetime
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as distributed
from bench.training.digits import JUDGED, TRAINED
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from train_images_torch import loss, network  # type: ignore[import-not-found, unused-ignore]

from tdcs_train.peers.rendezvous import membership_from
from tdcs_train.pipeline import checkpoint
from tdcs_train.pipeline.plan_file import StagePlan
from tdcs_train.pipeline.runtime import Pipeline, Recipe
from tdcs_train.pipeline.worker import Settings

DATA = Path("/results/digits.npz")
UPDATE, MICRO, EVERY, GOAL = 64, 4, 25, 0.97
RATE, MOMENTUM = 0.05, 0.9
# the first convolution with its pooling, and the rest
PLAN = StagePlan((("node2", "node3", "node4"), tuple(f"node{number}" for number in range(5, 12))), (1, 1))


class Digits:
    """The digits, and the order of a seed."""

    def __init__(self, seed: int) -> None:
        with numpy.load(DATA) as content:
            self.images = torch.from_numpy(content["images"][: TRAINED + JUDGED])
            self.labels = torch.from_numpy(content["labels"][: TRAINED + JUDGED])
        self.seed = seed

    def batches(self, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Batches of one epoch after another, each epoch in an order of its own."""
        chooser = torch.Generator().manual_seed(self.seed)
        while True:
            order = torch.randperm(TRAINED, generator=chooser)
            for begin in range(0, TRAINED - UPDATE + 1, UPDATE):
                for part in order[begin : begin + UPDATE].split(size):
                    yield self.images[part], self.labels[part]

    def right(self, net: nn.Module) -> float:
        """The share of unseen digits that are told right."""
        with torch.no_grad():
            answers = net(self.images[TRAINED:]).argmax(1)
        return float((answers == self.labels[TRAINED:]).float().mean())


def fresh(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model: nn.Module = network(image_size=28, classes=10, hidden=64)
    return model


def sgd(parameters: list[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=rate, momentum=MOMENTUM)


class Clock:
    """Updates and seconds so far, and the share that is right."""

    def __init__(self) -> None:
        self.updates, self.seconds, self.right = 0, 0.0, 0.0

    def row(self, way: str, seed: int) -> dict[str, Any]:
        has_reached = self.right >= GOAL
        epochs = self.updates / (TRAINED // UPDATE) if has_reached else None
        return {"way": way, "seed": seed, "epochs": epochs, "seconds": self.seconds, "right": self.right}


def data_parallel(seed: int, rank: int, epochs: int) -> Clock:
    distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    clock, digits = Clock(), Digits(seed)
    net = DistributedDataParallel(fresh(seed))
    optimizer = sgd(list(net.parameters()), RATE)
    batches = (batch for number, batch in enumerate(digits.batches(UPDATE // 2)) if number % 2 == rank)
    while clock.right < GOAL and clock.updates < epochs * TRAINED // UPDATE:
        distributed.barrier()
        begin = time.monotonic()
        for _ in range(EVERY):
            images, labels = next(batches)
            optimizer.zero_grad()
            loss(net(images), labels).backward()
            optimizer.step()
        distributed.barrier()
        clock.seconds += time.monotonic() - begin
        clock.updates += EVERY
        clock.right = digits.right(net.module)  # equal at both workers
    distributed.destroy_process_group()
    return clock


def pipeline(way: str, seed: int, rank: int, epochs: int) -> Clock:
    clock, digits, whole = Clock(), Digits(seed), fresh(seed)
    settings = Settings(mode="stash" if way == "stash" else "flush", micro_batches=MICRO)
    recipe = Recipe(model=fresh(seed), loss=loss, optimizer=sgd, learning_rate=RATE, settings=settings)
    folder = Path("/results") / f"{way}-{seed}"
    with Pipeline(recipe, PLAN, membership_from(facts={}, timeout=60)) as running:
        batches = digits.batches(UPDATE if way == "stash" else UPDATE // MICRO) if running.is_first else None
        while clock.right < GOAL and clock.updates < epochs * TRAINED // UPDATE:
            clock.seconds += running.train(batches, count=EVERY).seconds
            clock.updates += EVERY
            running.save(folder)
            parts = [checkpoint.load(folder, stage=s, step=running.done) for s in (0, 1)]
            whole.load_state_dict({name: value for part in parts for name, value in part.model.items()})
            clock.right = digits.right(whole)
    return clock


def main() -> None:
    way, seed, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    clock = data_parallel(seed, rank, epochs) if way == "data parallel" else pipeline(way, seed, rank, epochs)
    if rank == 0:
        print(json.dumps(clock.row(way, seed)), flush=True)


if __name__ == "__main__":
    main()
