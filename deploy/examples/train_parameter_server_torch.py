"""Train the classifier of train_images_torch.py with parameter servers, the transfers in the order of a plan.

    train_parameter_server_torch.py --data /data --epochs 2

Needs TDCS_PS_HOSTS, the host and port of every server: a TrainingJob for PyTorch with the role PS sets it, for all
pods. A pod with RANK is a worker; it reads its share of the files, and each layer waits for its own parameters only.
A pod without RANK is the server of its JOB_COMPLETION_INDEX; it holds parameters until worker 0 has ended.

Without `--order` the parameters of earlier layers travel first. With `--order plan.json`, which `tdcs-train order
--json` has written for the profile of train_images_torch.py:model, they travel by the plan. A line of an epoch:

    {"epoch": 1, "worker": 0, "loss": 0.61, "images_per_second": 900.0, "waited_for_parameters": 1.2, ...}

The last line has `"done": true` and what the trace of the latest 10,000 tensors says, gradients at a worker and
parameters at a server: `order_kept` is the share of them at which nothing of greater priority waited, `overtook`
the number of those that left before one that had waited for longer. `sent_last` has for each server the parameters of
the last step in the order in which their gradients left.
"""

import argparse
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn
from train_images_torch import (  # type: ignore[import-not-found, unused-ignore]
    MOMENTUM,
    argument_parser,
    loader_of,
    loss,
    network,
    say,
    tensors,
)

from tdcs_train.environment import number_from
from tdcs_train.errors import InputError, ended_by_input_errors
from tdcs_train.loader import find_images
from tdcs_train.model.tracing import trace
from tdcs_train.peers.listening import listen
from tdcs_train.ps.parameters import priorities_of
from tdcs_train.ps.server import ParameterServer
from tdcs_train.ps.transmissions import OrderKept
from tdcs_train.ps.worker import ServedModel

Address = tuple[str, int]


def hosts_from(environment: Mapping[str, str]) -> list[Address]:
    """The servers, from the variable TDCS_PS_HOSTS."""
    text = environment.get("TDCS_PS_HOSTS", "")
    found: list[Address] = []
    for part in text.split(","):
        name, _, port = part.rpartition(":")
        if not name or not port.isdecimal() or not 0 < int(port) < 65536:
            raise InputError(
                f"the variable TDCS_PS_HOSTS is {text!r}, not host:port,...; give the TrainingJob the role PS"
            )
        found.append((name, int(port)))
    return found


def priorities_from(path: Path | None, model: nn.Module) -> dict[str, int] | None:
    """The priority of each parameter of the model, by a plan."""
    if path is None:
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a plan: {error}") from error
    return priorities_of(document, trace(model), source=str(path))


def main() -> None:
    """A worker or a server, as the variables say."""
    parser = argument_parser(__doc__)
    parser.add_argument("--order", type=Path, help="the plan of `tdcs-train order --json`")
    parser.add_argument(
        "--workers", type=int, help="of the job; needed by the servers, which have no WORLD_SIZE"
    )
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    with ended_by_input_errors():
        if not asked.classes:
            raise InputError("give --classes: servers see no file")
        hosts = hosts_from(os.environ)
        torch.manual_seed(asked.seed)
        net = network(image_size=asked.image_size, classes=asked.classes, hidden=asked.hidden)
        priorities = priorities_from(asked.order, net)
        if "RANK" in os.environ:
            work(asked, net, hosts, priorities)
        else:
            serve(asked, net, hosts, priorities)


def serve(
    asked: argparse.Namespace, net: nn.Module, hosts: list[Address], priorities: dict[str, int] | None
) -> None:
    """Hold parameters until worker 0 has ended."""
    if not asked.workers:
        raise InputError("give --workers: servers have no WORLD_SIZE")
    number = number_from(
        os.environ,
        "JOB_COMPLETION_INDEX",
        default=0,
        below=len(hosts),
        remedy=f"TDCS_PS_HOSTS has {len(hosts)} servers",
    )
    server = ParameterServer(
        net,
        lambda parameters: torch.optim.SGD(parameters, lr=asked.learning_rate, momentum=MOMENTUM),
        listener=listen(hosts[number][1], backlog=64),
        workers=asked.workers,
        number=number,
        servers=len(hosts),
        priorities=priorities,
    )
    server.serve()
    say(done=True, server=number, **order_fields(server.order_kept))


def order_fields(found: OrderKept) -> dict[str, object]:
    """What the last line says of the order."""
    return {"order_kept": round(found.share, 4), "overtook": found.overtook}


def work(
    asked: argparse.Namespace, net: nn.Module, hosts: list[Address], priorities: dict[str, int] | None
) -> None:
    """Train on this worker's share of the files."""
    started = time.monotonic()
    workers = number_from(
        os.environ, "WORLD_SIZE", least=1, remedy="a job with framework PyTorch sets it for its workers"
    )
    rank = number_from(os.environ, "RANK", below=workers, remedy=f"WORLD_SIZE is {workers}")
    samples, classes = find_images(asked.data)
    if len(classes) != asked.classes:
        raise InputError(f"{asked.data} has {len(classes)} classes, --classes is {asked.classes}")
    loader = loader_of(asked, samples, rank=rank, world_size=workers)
    losses: list[float] = []
    with ServedModel(net, hosts, worker=rank, workers=workers, priorities=priorities) as served:
        say(event="start", worker=rank, workers=workers, servers=len(hosts), files=len(samples))
        for epoch in range(1, asked.epochs + 1):
            begin, waited, total = time.monotonic(), served.waited, 0.0
            for batch in loader.epoch(epoch):
                images, labels = tensors(batch)
                found = loss(net(images), labels)
                found.backward()
                total += float(found)
            seconds = time.monotonic() - begin
            losses.append(total / len(loader))
            assert loader.report is not None
            say(
                **loader.report.fields(),
                worker=rank,
                loss=round(losses[-1], 4),
                images_per_second=round(len(loader) * asked.batch * workers / seconds, 1),
                waited_for_parameters=round(served.waited - waited, 3),
            )
        served.wait()
        last = [order[-len(set(order)) :] for order in served.sent_order]
    loader.close()
    say(
        done=True,
        worker=rank,
        first_loss=round(losses[0], 4),
        last_loss=round(losses[-1], 4),
        **order_fields(served.order_kept),
        sent_last=last,
        seconds=round(time.monotonic() - started, 1),
    )


if __name__ == "__main__":
    main()
