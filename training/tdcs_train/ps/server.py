"""A parameter server: adds up the gradients of all workers, updates, and sends each parameter as soon as it is new.

Bulk synchronous: a parameter is updated when the gradients of all workers are there. It leaves at once, the most urgent
first, so the next iteration of a worker begins while gradients of the last one are still on their way.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping

import torch
from torch import nn

from tdcs_train.peers.errors import PeerError
from tdcs_train.ps.channel import Channel, Tensors, greet, greeting
from tdcs_train.ps.classes import CONTROL
from tdcs_train.ps.parameters import SharedParameter, bytes_of, digest, shared_parameters, staging
from tdcs_train.ps.transmissions import OrderKept, order_kept, together

MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
_LOOK_SECONDS = 0.2


class ParameterServer:
    """Server `number` of `servers`; `listener` is a listening socket. `model` is made equal at all processes.

    `schedule` gives the factor of the learning rate of a step, by the steps before it.

    A parameter without a gradient at all workers stays as it is, as an optimizer leaves it; where some have one the
    others count as zeros.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: MakeOptimizer,
        *,
        listener: socket.socket,
        workers: int,
        number: int = 0,
        servers: int = 1,
        priorities: Mapping[str, int] | None = None,
        timeout: float = 120.0,
        schedule: Callable[[int], float] | None = None,
    ) -> None:
        self._listener, self._workers, self._timeout, self._number = listener, workers, timeout, number
        self._all = shared_parameters(model, servers=servers, priorities=priorities)
        by_name = dict(model.named_parameters())
        self._own = {parameter.number: parameter for parameter in self._all if parameter.server == number}
        self._values = {key: by_name[parameter.name] for key, parameter in self._own.items()}
        self._optimizers = {key: optimizer([value]) for key, value in self._values.items()}
        self._gradients = [
            {key: staging(value) for key, value in self._values.items()} for _ in range(workers)
        ]
        self._leaving = {key: staging(value) for key, value in self._values.items()}
        self._answers: dict[int, dict[int, bool]] = {key: {} for key in self._own}
        """Of each parameter, the workers whose step has come to it, and whether they had a gradient."""
        self._since: dict[int, float] = {}
        """When the first of these answers came."""
        self._lock = threading.Lock()
        self._channels: dict[int, Channel] = {}
        self._schedule, self._passed = schedule, dict.fromkeys(self._own, 0)
        self._rates = {
            key: [group["lr"] for group in optimizer.param_groups]
            for key, optimizer in self._optimizers.items()
        }
        self.steps = dict.fromkeys(self._own, 0)
        """Updates of each parameter."""

    @property
    def order_kept(self) -> OrderKept:
        """What the trace says of the order in which parameters left for the workers."""
        return together([order_kept(channel.transmissions) for channel in self._channels.values()])

    def serve(self) -> None:
        """Serves until all workers have ended.

        Raises PeerError when a worker does not come, is lost, or never sends a gradient that another one has sent.
        """
        try:
            self._accept()
            for parameter in sorted(self._own.values(), key=lambda one: -one.priority):
                self._send(parameter)
            while not all(channel.peer_done for channel in self._channels.values()):
                for channel in self._channels.values():
                    if channel.error and not channel.peer_done:
                        raise channel.error
                self._refuse_missing_gradients()
                time.sleep(_LOOK_SECONDS)
        except Exception as error:
            for channel in self._channels.values():
                channel.close(reason=f"server {self._number} failed: {error}")
            raise
        finally:
            for channel in self._channels.values():
                channel.release()
            self._listener.close()

    def _accept(self) -> None:
        """Takes in all connections of all workers."""
        deadline = time.monotonic() + self._timeout
        sockets: dict[int, dict[int, socket.socket]] = {rank: {} for rank in range(self._workers)}
        while any(len(by_class) <= CONTROL for by_class in sockets.values()):
            missing = [rank for rank, by_class in sockets.items() if len(by_class) <= CONTROL]
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise PeerError(
                    f"worker {missing[0]} did not come within {self._timeout:g} s; see the log of its pod"
                )
            self._listener.settimeout(remaining)
            with contextlib.suppress(TimeoutError):
                connection, (host, *_) = self._listener.accept()
                self._welcome(connection, host, sockets)
        for rank, by_class in sockets.items():
            self._channels[rank] = self._channel(rank, [by_class[number] for number in sorted(by_class)])

    def _welcome(
        self, connection: socket.socket, host: str, sockets: dict[int, dict[int, socket.socket]]
    ) -> None:
        connection.settimeout(5.0)
        try:
            hello = greeting(connection, peer=f"a caller from {host}")
        except (OSError, PeerError):
            connection.close()  # a port scan must not end a job
            return
        rank, priority = hello.get("worker"), hello.get("class")
        facts = {"parameters": digest(self._all), "workers": self._workers}
        for name, value in facts.items():
            if hello.get(name) != value:
                greet(
                    connection,
                    {"refused": f"server {self._number} has {name} {value}, worker {rank} {hello.get(name)}"},
                )
                connection.close()
                raise PeerError(
                    f"worker {rank} at {host} has {name} {hello.get(name)}, this server {value}; use the same "
                    "script, plan "
                    "and number of workers"
                )
        if rank not in sockets or not isinstance(priority, int) or not 0 <= priority <= CONTROL:
            connection.close()
            return
        greet(connection, {"server": self._number})
        connection.settimeout(None)
        sockets[rank][priority] = connection

    def _channel(self, rank: int, sockets: list[socket.socket]) -> Channel:
        gradients = self._gradients[rank]

        def place(number: int) -> memoryview:
            if number not in gradients:
                raise PeerError(f"worker {rank} sent parameter {number}, which another server holds")
            return bytes_of(gradients[number])

        tensors = Tensors(
            place=place,
            complete=lambda number: self._answered(number, rank, has_gradient=True),
            absent=lambda number: self._answered(number, rank, has_gradient=False),
        )
        return Channel(sockets, peer=f"worker {rank}", tensors=tensors)

    def _answered(self, number: int, rank: int, *, has_gradient: bool) -> None:
        """A worker's step has come to a parameter; with the last worker the parameter is updated and sent."""
        with self._lock:
            answers = self._answers[number]
            answers[rank] = has_gradient
            self._since.setdefault(number, time.monotonic())
            if len(answers) < self._workers:
                return
            self._answers[number] = {}
            del self._since[number]
        gradients = [self._gradients[worker][number] for worker in sorted(answers) if answers[worker]]
        if gradients:
            total = gradients[0]
            for gradient in gradients[1:]:
                total.add_(gradient)
            self._values[number].grad = total.div_(self._workers)
            self._scale_rates(number)
            self._optimizers[number].step()
            self.steps[number] += 1
        self._passed[number] += 1
        self._send(self._own[number], changed=bool(gradients))

    def _scale_rates(self, number: int) -> None:
        """Set the learning rates of a parameter's next update."""
        if self._schedule is not None:
            factor = self._schedule(self._passed[number])
            for group, rate in zip(self._optimizers[number].param_groups, self._rates[number], strict=True):
                group["lr"] = rate * factor

    def _refuse_missing_gradients(self) -> None:
        """Raises PeerError for a worker that others have waited for too long, or that has ended before them."""
        now = time.monotonic()
        with self._lock:
            overdue = [
                (since, number, sorted(self._answers[number])) for number, since in self._since.items()
            ]
        for since, number, ranks in sorted(overdue):
            missing = next(rank for rank in range(self._workers) if rank not in ranks)
            name, senders = self._own[number].name, ", ".join(map(str, ranks))
            if self._channels[missing].peer_done:
                raise PeerError(
                    f"worker {missing} has ended, and worker {senders} goes on with the gradient of {name}; give all "
                    "workers as many mini-batches"
                )
            if now - since > self._timeout:
                raise PeerError(
                    f"worker {missing} has not sent the gradient of {name} within {self._timeout:g} s after worker "
                    f"{senders}; see the log of worker {missing}"
                )

    def _send(self, each: SharedParameter, *, changed: bool = True) -> None:
        """Sends a parameter to all workers, or the word that it has not changed."""
        memory = None
        if changed:
            leaving = self._leaving[each.number]
            leaving.copy_(self._values[each.number].data)
            memory = bytes_of(leaving)
        for channel in self._channels.values():
            with contextlib.suppress(PeerError):  # a lost worker is reported by serve
                channel.send(each.number, memory, priority=each.priority, priority_class=each.priority_class)
