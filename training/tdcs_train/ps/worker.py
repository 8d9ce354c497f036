"""A worker of parameter servers: layers wait for their own parameters only, gradients leave as soon as they are there.

Hooks do it: before a module's forward its own parameters are awaited; when the gradient of a parameter is complete it
is sent. Both directions go by priority, and an iteration begins while gradients of the one before are still travelling.
"""

import socket
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from torch import nn

from tdcs_train.actors.network.classes import CONTROL
from tdcs_train.actors.network.meeting import call
from tdcs_train.peers.errors import PeerError
from tdcs_train.ps.channel import Channel, Tensors, greet, greeting
from tdcs_train.ps.parameters import SharedParameter, digest, shared_parameters
from tdcs_train.ps.server import bytes_of
from tdcs_train.ps.transmissions import OrderKept, order_kept, together


class ServedModel:
    """A model of which parameter servers hold the parameters; a context manager.

    Inside, `model(inputs)` and `loss.backward()` are an iteration: no optimizer, no zero_grad. `wait` returns when all
    parameters are new, as before evaluating or saving. Raises PeerError that names the server.
    """

    def __init__(
        self,
        model: nn.Module,
        hosts: Sequence[tuple[str, int]],
        *,
        worker: int,
        workers: int,
        priorities: Mapping[str, int] | None = None,
        timeout: float = 120.0,
    ) -> None:
        self.model = model
        self.waited = 0.0
        """Seconds in which layers waited for their parameters."""
        self._timeout = timeout
        self._shared = shared_parameters(model, servers=len(hosts), priorities=priorities)
        named = dict(model.named_parameters())
        self._values = [named[each.name] for each in self._shared]
        self._numbers = {id(value): number for number, value in enumerate(self._values)}
        self._arrived = [0] * len(self._shared)
        self._sent = [0] * len(self._shared)
        self._buffers = [value.data.new_empty(value.shape) for value in self._values]
        hello = {"worker": worker, "workers": workers, "parameters": digest(self._shared)}
        self._channels = [
            self._open(number, address, hello, time.monotonic() + timeout)
            for number, address in enumerate(hosts)
        ]
        self._hooks = [self._watch(module) for module in model.modules()]
        self._hooks += [
            value.register_post_accumulate_grad_hook(lambda parameter: self._push(parameter))
            for value in self._values
        ]

    @property
    def sent_order(self) -> list[list[str]]:
        """The parameters in the order in which their gradients began to leave, by server."""
        return [
            [self._shared[each.number].name for each in channel.transmissions] for channel in self._channels
        ]

    @property
    def order_kept(self) -> OrderKept:
        """What the trace says of the order in which gradients left."""
        return together([order_kept(channel.transmissions) for channel in self._channels])

    def wait(self) -> None:
        """Returns when the answers to all gradients are there."""
        for number in range(len(self._shared)):
            self._await(number)

    def __enter__(self) -> "ServedModel":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()
        try:
            if error is None:
                self.wait()
        finally:
            for channel in self._channels:
                channel.close(reason=f"a worker failed: {error}" if error else "")

    def _open(
        self, number: int, address: tuple[str, int], hello: Mapping[str, Any], deadline: float
    ) -> Channel:
        name = f"server {number} at {address[0]}:{address[1]}"
        sockets: list[socket.socket] = []
        for priority in range(CONTROL + 1):
            connection = call(address, name=name, deadline=deadline)
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                greet(connection, {**hello, "class": priority})
                answer = greeting(connection, peer=name)
            except OSError as error:
                raise PeerError(f"{name} ended the connection ({error}); see its log") from error
            if refused := answer.get("refused"):
                raise PeerError(f"{name} refused this worker: {refused}")
            if answer.get("server") != number:
                raise PeerError(f"{name} is server {answer.get('server')}; give the servers in their order")
            connection.settimeout(None)
            sockets.append(connection)
        return Channel(sockets, peer=name, tensors=Tensors(place=self._place, complete=self._complete))

    def _place(self, number: int) -> memoryview:
        if number >= len(self._values):
            raise PeerError(f"a server sent parameter {number}, which the model lacks")
        return bytes_of(self._values[number].data)

    def _complete(self, number: int) -> None:
        self._arrived[number] += 1

    def _watch(self, module: nn.Module) -> Any:
        numbers = [self._numbers[id(p)] for p in module.parameters(recurse=False) if id(p) in self._numbers]

        def before(*_: Any) -> None:
            for number in numbers:
                self._await(number)

        return module.register_forward_pre_hook(before)

    def _await(self, number: int) -> None:
        """A parameter has arrived once more than its gradient was sent: at the start, and after each update."""
        if self._arrived[number] > self._sent[number]:
            return
        begin = time.monotonic()
        self._channels[self._shared[number].server].wait_for(
            lambda: self._arrived[number] > self._sent[number],
            timeout=self._timeout,
            awaited=self._shared[number].name,
        )
        self.waited += time.monotonic() - begin

    def _push(self, parameter: nn.Parameter) -> None:
        number = self._numbers[id(parameter)]
        each: SharedParameter = self._shared[number]
        assert parameter.grad is not None
        self._buffers[number].copy_(parameter.grad)
        parameter.grad = None
        self._sent[number] += 1
        self._channels[each.server].send(
            number,
            bytes_of(self._buffers[number]),
            priority=each.priority,
            priority_class=each.priority_class,
        )
