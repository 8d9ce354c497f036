"""Pipelines of threads in one process."""

import copy
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tdcs_train.model.splitting import split
from tdcs_train.model.tracing import trace
from tdcs_train.pipeline.links import Link
from tdcs_train.pipeline.local import Exchange, LocalLink, LocalReducer
from tdcs_train.pipeline.order import place_of
from tdcs_train.pipeline.stage import Loss, StageCompute
from tdcs_train.pipeline.values import Packet
from tdcs_train.pipeline.worker import Settings, Worker

Batch = tuple[Any, Any]
MakeOptimizer = Callable[[list[nn.Parameter], float], torch.optim.Optimizer]


def chain(widths: Sequence[int]) -> nn.Sequential:
    """Dense layers with tanh between: every second layer has parameters."""
    layers: list[nn.Module] = []
    for before, width in itertools.pairwise(widths):
        layers += [nn.Linear(before, width), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def workers(
    model: nn.Module,
    stages: Sequence[Sequence[str]],
    replicas: Sequence[int],
    *,
    loss: Loss,
    settings: Settings,
    optimizer: MakeOptimizer,
    learning_rate: float,
    exchange: Exchange | None = None,
    ahead: int = 0,
) -> list[Worker]:
    """The workers of a pipeline; each has a copy of the model."""
    exchange = exchange or Exchange()
    reducers = [LocalReducer(count) for count in replicas]
    stage_workers = []
    for rank in range(sum(replicas)):
        place = place_of(rank, replicas)
        cut = split(trace(copy.deepcopy(model)), stages)
        compute = StageCompute(cut, place.stage, loss)
        rate = learning_rate * (place.own / replicas[0] if settings.mode == "stash" else 1.0)
        stage_workers.append(
            Worker(
                place=place,
                compute=compute,
                settings=settings,
                link=LocalLink(exchange, place),
                reducer=reducers[place.stage],
                optimizer=optimizer(list(compute.parameters.values()), rate),
                ahead=ahead,
            )
        )
    return stage_workers


def workers_of(
    stages: Sequence[StageCompute], *, settings: Settings, optimizer: MakeOptimizer, learning_rate: float
) -> list[Worker]:
    """The workers of stages with one worker each."""
    exchange, replicas = Exchange(), [1] * len(stages)
    stage_workers = []
    for rank, compute in enumerate(stages):
        place, parameters = place_of(rank, replicas), list(compute.parameters.values())
        stage_workers.append(
            Worker(
                place=place,
                compute=compute,
                settings=settings,
                link=LocalLink(exchange, place),
                reducer=LocalReducer(1),
                optimizer=optimizer(parameters, learning_rate) if parameters else None,
            )
        )
    return stage_workers


def run(made: Sequence[Worker], batches: Sequence[Batch], *, count: int) -> None:
    """Trains with `count` mini-batches; `batches` are those of the whole pipeline."""
    failures: list[BaseException] = []

    def work(worker: Worker) -> None:
        feed: Iterator[Batch] | None = None
        if worker.place.is_first:
            feed = iter(batches[worker.place.replica :: worker.place.own])
        try:
            worker.run(feed, count=count)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def weights_of(made: Sequence[Worker]) -> dict[str, torch.Tensor]:
    """The newest weights of all stages by their names in the model; of replica 0."""
    weights = {}
    for worker in made:
        if worker.place.replica == 0:
            for name, parameter in worker.compute.parameters.items():
                weights[worker.compute.part.names[name]] = parameter.detach().clone()
    return weights


@dataclass(frozen=True)
class SlowLink:
    """A link on which each packet is late by one of some delays."""

    link: Link
    delays: Sequence[float]
    rank: int

    def arriving(self, batch: int) -> Packet:
        packet = self.link.arriving(batch)
        self._wait(batch)
        return packet

    def pass_on(self, packet: Packet) -> None:
        self._wait(packet.batch + 1)
        self.link.pass_on(packet)

    def returning(self, batch: int) -> Packet:
        packet = self.link.returning(batch)
        self._wait(batch + 2)
        return packet

    def pass_back(self, packet: Packet) -> None:
        self._wait(packet.batch + 3)
        self.link.pass_back(packet)

    def _wait(self, number: int) -> None:
        time.sleep(self.delays[(7 * self.rank + 3 * number) % len(self.delays)])
