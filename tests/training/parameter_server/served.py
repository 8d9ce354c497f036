"""Parameter servers that hold tensors back until a worker asks for them, and what one process learns instead.

    python3 -m tests.training.parameter_server.served --modules 200 --seed 0

trains random modules (`random_modules.py`) over servers that hold random tensors back, each beside one process, and
ends with 1 where a loss differs.
"""

import argparse
import random
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tests.training.parameter_server.random_modules import random_module
from torch import nn
from torch.utils import _pytree as pytree

from tdcs_train.ps.parameters import SharedParameter
from tdcs_train.ps.server import ParameterServer
from tdcs_train.ps.worker import ServedModel

HELD_SECONDS = 10.0
"""A tensor that nobody asks for leaves then, and the test fails by its values."""
Hold = Callable[[str, int], bool]
"""Whether the parameter of a name is held back, the n-th time that it is sent."""


@dataclass(frozen=True)
class Trained:
    """What training led to."""

    losses: list[float]
    parameters: dict[str, torch.Tensor]


class HoldingServer(ParameterServer):
    """Holds tensors back until a worker waits for them: slower than any link, and the same in every run."""

    def __init__(self, *arguments: Any, hold: Hold, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.blocked: dict[int, str] = {}
        """What each worker waits for."""
        self._hold, self._times = hold, {parameter.name: 0 for parameter in self._own.values()}

    def _send(self, each: SharedParameter, *, changed: bool = True) -> None:
        self._times[each.name] += 1
        if not self._hold(each.name, self._times[each.name] - 1):
            super()._send(each, changed=changed)
            return

        def later() -> None:
            until = time.monotonic() + HELD_SECONDS
            while each.name not in self.blocked.values() and time.monotonic() < until:
                time.sleep(0.001)
            super(HoldingServer, self)._send(each, changed=changed)

        threading.Thread(target=later, daemon=True).start()


class AskingModel(ServedModel):
    """Tells holding servers what it waits for."""

    servers: Sequence[HoldingServer] = ()
    rank = 0

    def _await(self, number: int) -> None:
        shared = self._shared[number]
        waits = torch._C._current_graph_task_id() == -1
        if waits:
            self.servers[shared.server].blocked[self.rank] = shared.name
        super()._await(number)
        if waits:
            self.servers[shared.server].blocked.pop(self.rank, None)


Make = Callable[[], nn.Module]
Step = Callable[[nn.Module, int, int], torch.Tensor]
"""The loss of a model in a step, on a worker."""
Optimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def descent(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def alone(make: Make, step: Step, *, steps: int, workers: int = 1, optimizer: Optimizer = descent) -> Trained:
    """One process that works on the mini-batches of all workers; `make` makes equal models."""
    model = make()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    update, losses = optimizer(trained), []
    for number in range(steps):
        update.zero_grad()
        for worker in range(workers):
            loss = step(model, number, worker)
            (loss / workers).backward()
            losses.append(float(loss.detach()))
        update.step()
    return Trained(losses, {name: value.detach().clone() for name, value in model.named_parameters()})


def equal(make: Make) -> Make:
    """Makes models of equal weights."""

    def made() -> nn.Module:
        torch.manual_seed(0)
        return make()

    return made


def served(
    make: Make,
    step: Step,
    *,
    steps: int,
    hold: Hold,
    workers: int = 1,
    servers: int = 1,
    optimizer: Optimizer = descent,
    schedule: Callable[[int], float] | None = None,
) -> Trained:
    """Workers and holding servers in threads of this process."""
    models = [make() for _ in range(workers)]
    failures: list[BaseException] = []
    losses: dict[tuple[int, int], float] = {}
    ends: dict[int, dict[str, torch.Tensor]] = {}
    instances = []
    for number in range(servers):
        listener = socket.create_server(("127.0.0.1", 0))
        instances.append(
            HoldingServer(
                make(),
                optimizer,
                listener=listener,
                workers=workers,
                number=number,
                servers=servers,
                timeout=60.0,
                hold=hold,
                schedule=schedule,
            )
        )
    hosts = [("127.0.0.1", server._listener.getsockname()[1]) for server in instances]

    def serve(server: HoldingServer) -> None:
        try:
            server.serve()
        except BaseException as error:
            failures.append(error)

    def work(rank: int) -> None:
        model = models[rank]
        try:
            asking = AskingModel(model, hosts, worker=rank, workers=workers, timeout=60.0)
            asking.servers, asking.rank = instances, rank
            with asking:
                for number in range(steps):
                    loss = step(model, number, rank)
                    loss.backward()
                    losses[number, rank] = float(loss.detach())
                asking.wait()
                ends[rank] = {name: value.detach().clone() for name, value in model.named_parameters()}
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=serve, args=(server,), daemon=True) for server in instances]
    threads += [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if failures:
        raise failures[0]
    return Trained([losses[key] for key in sorted(losses)], ends[0])


def difference(one: Trained, other: Trained) -> float:
    """The greatest difference of any loss, or of any parameter at the end."""
    losses = [abs(a - b) for a, b in zip(one.losses, other.losses, strict=True)]
    values = [float((one.parameters[name] - other.parameters[name]).abs().max()) for name in one.parameters]
    return max([*losses, *values])


def tensors_in(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def random_difference(seed: int) -> float:
    """How far a random module, trained over servers that hold random tensors back, is from one process."""
    chooser = random.Random(seed)
    case = random_module(seed)
    workers, servers, share = chooser.choice((1, 1, 2)), chooser.choice((1, 2)), chooser.random()
    rate, adam = chooser.choice((0.01, 0.05)), chooser.random() < 0.3

    def optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        if adam:
            return torch.optim.Adam(parameters, lr=rate / 10, eps=1e-3)
        return torch.optim.SGD(parameters, lr=rate, momentum=0.9, weight_decay=1e-3)

    def hold(name: str, time: int) -> bool:
        return random.Random(f"{seed} {name} {time}").random() < share

    make = equal(case.make)
    expected = alone(make, case.step, steps=5, workers=workers, optimizer=optimizer)
    outcome = served(
        make, case.step, steps=5, hold=hold, workers=workers, servers=servers, optimizer=optimizer
    )
    return difference(expected, outcome)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    wrong = 0
    for seed in range(options.seed, options.seed + options.modules):
        try:
            deviation = random_difference(seed)
        except Exception:
            deviation = float("nan")
            traceback.print_exc()
        if not deviation < 1e-5:
            wrong += 1
            print(f"seed {seed}: differs by {deviation:g}", flush=True)
    print(f"{options.modules - wrong} of {options.modules} random modules learn what one process learns")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
