"""One worker of the benchmark `links`: runs each way of training it is given, in turn, and prints what it measured."""

import argparse
import datetime
import itertools
import json
import os
import socket
import time
from collections.abc import Iterator
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


def profiled(samples: int, steps: int) -> str:
    """The profile of the model, its updates included."""
    subject = Subject(
        model=model(),
        batch=lambda: batch(samples),
        loss=cross_entropy,
        optimizer=lambda parameters: sgd(parameters, RATE),
    )
    return render(profile(subject, steps=steps))


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


def pipeline(samples: int, steps: int, plan: StagePlan, membership: Membership) -> dict[str, Any]:
    """The speed from empty to empty, the seconds of a mini-batch while the pipeline is full, and those computed."""
    recipe = Recipe(model=model(), loss=cross_entropy, optimizer=sgd, learning_rate=RATE)
    with Pipeline(recipe, plan, membership) as running:
        batches = endless(samples) if running.is_first else None
        running.train(batches, count=4)
        summary = running.train(batches, count=steps)
        backwards = [event.end for event in running.worker.events if event.act.direction == "backward"]
    # The first backward waits for the pipeline to fill. No forward stands before the last one: that takes less.
    full = backwards[1:-1]
    return {
        "samples_per_second": round(samples * steps / summary.seconds, 1),
        "full_seconds": (full[-1] - full[0]) / (len(full) - 1),
        "compute_seconds": [round(stage.compute / steps, 4) for stage in summary.stages],
    }


def rated(speed: float) -> dict[str, Any]:
    return {"samples_per_second": round(speed, 1)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True, help="5 at least")
    parser.add_argument("--cuts", default="", help="layers of the first stage, such as 3,7")
    parser.add_argument(
        "--ahead", type=int, nargs="*", default=[], help="cuts that are measured with one more in flight, too"
    )
    parser.add_argument("--bytes", type=int, default=0)
    parser.add_argument("--profile", action="store_true", help="only print a profile")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.profile:
        print(json.dumps({"way": "profile", "text": profiled(options.samples, options.steps)}), flush=True)
        return
    rank, master, port = int(os.environ["RANK"]), os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    rate = bandwidth(master, rank, size=options.bytes, port=port + 500)
    if rank == 0:
        print(json.dumps({"way": "link", "bytes_per_second": rate}), flush=True)
    distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    distributed.barrier()  # both workers profile at a time: in training neither has the memory to itself
    text = profiled(options.samples, options.steps)
    ways: dict[str, dict[str, Any]] = {"profile": {"text": text}}
    distributed.barrier()
    if rank == 0:
        ways["one worker"] = rated(one_worker(options.samples, options.steps))
    distributed.barrier()
    ways["data parallel"] = rated(data_parallel(options.samples, options.steps, rank))
    nodes = [f"node{number}" for number in range(2, 2 + len(model()))]
    for number, cut in enumerate(int(cut) for cut in options.cuts.split(",")):
        for ahead in (0, 1) if cut in options.ahead else (0,):
            plan = StagePlan((tuple(nodes[:cut]), tuple(nodes[cut:])), (1, 1), ahead)
            meeting = Membership(
                master=master, port=port + 1 + 2 * number + ahead, rank=rank, world_size=2, timeout=60
            )
            name = f"cut {cut}, one ahead" if ahead else f"cut {cut}"
            ways[name] = pipeline(options.samples, options.steps, plan, meeting)
    if rank == 0:
        for way, figures in ways.items():
            print(json.dumps({"way": way, **figures}), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
