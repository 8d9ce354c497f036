"""One worker of the benchmark `links`: runs each way of training it is given, in turn, and prints what it measured."""

import argparse
import datetime
import itertools
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tdcs_train.model.measuring import Subject, profile
from tdcs_train.peers.rendezvous import Membership
from tdcs_train.pipeline.plan_file import StagePlan
from tdcs_train.pipeline.runtime import Pipeline, Recipe
from tdcs_train.plan.profile_text import render

RATE = 0.02


def model() -> nn.Sequential:
    """Convolutions with much computation, dense layers with many parameters: 8.5 million together."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 2048),
        nn.ReLU(),
        nn.Linear(2048, 1024),
        nn.ReLU(),
        nn.Linear(1024, 10),
    )


def batch(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(samples, 1, 28, 28), torch.randint(10, (samples,))


def cross_entropy(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output, labels)


def sgd(parameters: list[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=rate, momentum=0.9)


def endless(samples: int) -> Iterator[Any]:
    return itertools.repeat(batch(samples))


def bandwidth(address: str, rank: int, *, size: int, port: int) -> float:
    """Bytes a second from worker 1 to worker 0, over one TCP connection."""
    if rank == 0:
        with socket.create_server(("", port)) as server:
            peer, _ = server.accept()
            with peer:
                received, memory = 0, bytearray(1 << 20)
                begin = 0.0
                while count := peer.recv_into(memory):
                    received += count
                    # the first part passes at the speed of the token bucket's burst
                    if not begin and received > size // 4:
                        begin, received = time.monotonic(), 0
                return received / (time.monotonic() - begin)
    until = time.monotonic() + 20
    while True:
        try:
            peer = socket.create_connection((address, port))
            break
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
    with peer:
        peer.sendall(bytes(size))
    return 0.0


def one_worker(samples: int, steps: int) -> float:
    net, (inputs, labels) = model(), batch(samples)
    optimizer = sgd(list(net.parameters()), RATE)
    begin = 0.0
    for step in range(2 + steps):
        if step == 2:
            begin = time.monotonic()
        optimizer.zero_grad()
        cross_entropy(net(inputs), labels).backward()
        optimizer.step()
    return samples * steps / (time.monotonic() - begin)


def data_parallel(samples: int, steps: int, rank: int) -> float:
    net, (inputs, labels) = DistributedDataParallel(model()), batch(samples)
    optimizer = sgd(list(net.parameters()), RATE)
    begin = 0.0
    for step in range(2 + steps):
        if step == 2:
            distributed.barrier()
            begin = time.monotonic()
        optimizer.zero_grad()
        cross_entropy(net(inputs), labels).backward()
        optimizer.step()
    distributed.barrier()
    return 2 * samples * steps / (time.monotonic() - begin)


def pipeline(samples: int, steps: int, plan: StagePlan, membership: Membership) -> float:
    recipe = Recipe(model=model(), loss=cross_entropy, optimizer=sgd, learning_rate=RATE)
    with Pipeline(recipe, plan, membership) as running:
        own = endless(samples) if running.is_first else None
        running.train(own, count=3)
        return samples * steps / running.train(own, count=steps).seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--cuts", default="", help="layers of the first stage, such as 3,7")
    parser.add_argument("--bytes", type=int, default=0)
    parser.add_argument("--profile", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.profile:
        subject = Subject(model=model(), batch=lambda: batch(options.samples), loss=cross_entropy)
        options.profile.write_text(render(profile(subject, steps=options.steps)))
        return
    rank, master, port = int(os.environ["RANK"]), os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    rate = bandwidth(master, rank, size=options.bytes, port=port + 500)
    if rank == 0:
        print(json.dumps({"way": "link", "bytes_per_second": rate}), flush=True)
    distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    ways: dict[str, float] = {}
    if rank == 0:
        ways["one worker"] = one_worker(options.samples, options.steps)
    distributed.barrier()
    ways["data parallel"] = data_parallel(options.samples, options.steps, rank)
    nodes = [f"node{number}" for number in range(2, 2 + len(model()))]
    for number, cut in enumerate(int(cut) for cut in options.cuts.split(",")):
        plan = StagePlan((tuple(nodes[:cut]), tuple(nodes[cut:])), (1, 1))
        meeting = Membership(master=master, port=port + 1 + number, rank=rank, world_size=2, timeout=60)
        ways[f"cut {cut}"] = pipeline(options.samples, options.steps, plan, meeting)
    if rank == 0:
        for way, speed in ways.items():
            print(json.dumps({"way": way, "samples_per_second": round(speed, 1)}), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
