"""A parameter server: adds up the gradients of all workers, updates, and sends each parameter as soon as it is new.

Bulk synchronous: a parameter is updated when the gradients of all workers are there. It leaves at once, the most urgent
first, so the next iteration of a worker begins while gradients of the last one are still on their way.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from tdcs_train.actors.network.classes import CONTROL
from tdcs_train.peers.errors import PeerError
from tdcs_train.ps.channel import Channel, Tensors, greet, greeting
from tdcs_train.ps.parameters import SharedParameter, digest, shared_parameters
from tdcs_train.ps.transmissions import OrderKept, order_kept, together

MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
_LOOK_SECONDS = 0.2


class ParameterServer:
    """Server `number` of `servers`; `listener` is a listening socket. `model` is made equal at all processes."""

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
    ) -> None:
        self._listener, self._workers, self._timeout, self._number = listener, workers, timeout, number
        self._all = shared_parameters(model, servers=servers, priorities=priorities)
        named = dict(model.named_parameters())
        self._own = {each.number: each for each in self._all if each.server == number}
        self._values = {key: named[each.name] for key, each in self._own.items()}
        self._optimizers = {key: optimizer([value]) for key, value in self._values.items()}
        self._gradients = [
            {key: torch.empty_like(value.data) for key, value in self._values.items()} for _ in range(workers)
        ]
        self._given = dict.fromkeys(self._own, 0)
        self._lock = threading.Lock()
        self._channels: dict[int, Channel] = {}
        self.steps = dict.fromkeys(self._own, 0)
        """Updates of each parameter."""

    @property
    def order_kept(self) -> OrderKept:
        """What the trace says of the order in which parameters left for the workers."""
        return together([order_kept(channel.transmissions) for channel in self._channels.values()])

    def serve(self) -> None:
        """Serves until worker 0 has ended; raises PeerError when a worker does not come or is lost before."""
        try:
            self._accept()
            for each in sorted(self._own.values(), key=lambda one: -one.priority):
                self._send(each)
            while not self._channels[0].peer_done:
                for channel in self._channels.values():
                    if channel.error and not channel.peer_done:
                        raise channel.error
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
        while any(len(found) <= CONTROL for found in sockets.values()):
            missing = [rank for rank, found in sockets.items() if len(found) <= CONTROL]
            rest = deadline - time.monotonic()
            if rest <= 0:
                raise PeerError(
                    f"worker {missing[0]} did not come within {self._timeout:g} s; see the log of its pod"
                )
            self._listener.settimeout(rest)
            with contextlib.suppress(TimeoutError):
                connection, (host, *_) = self._listener.accept()
                self._welcome(connection, host, sockets)
        for rank, found in sockets.items():
            self._channels[rank] = self._channel(rank, [found[each] for each in sorted(found)])

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
        own = {"parameters": digest(self._all), "workers": self._workers}
        for name, value in own.items():
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

        return Channel(sockets, peer=f"worker {rank}", tensors=Tensors(place=place, complete=self._complete))

    def _complete(self, number: int) -> None:
        """A worker's gradient is there; with the last one the parameter is updated and sent."""
        with self._lock:
            self._given[number] += 1
            if self._given[number] < self._workers:
                return
            self._given[number] = 0
        total = self._gradients[0][number]
        for other in self._gradients[1:]:
            total.add_(other[number])
        self._values[number].grad = total.div_(self._workers)
        self._optimizers[number].step()
        self.steps[number] += 1
        self._send(self._own[number])

    def _send(self, each: SharedParameter) -> None:
        memory = bytes_of(self._values[each.number].data)
        for channel in self._channels.values():
            with contextlib.suppress(PeerError):  # a lost worker is reported by serve
                channel.send(each.number, memory, priority=each.priority, priority_class=each.priority_class)


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a tensor on the processor."""
    flat: Any = tensor.detach().view(-1).view(torch.uint8).numpy()
    return memoryview(flat)
