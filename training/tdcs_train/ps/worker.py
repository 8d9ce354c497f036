"""A worker of parameter servers: operators wait for their own parameters only, gradients leave as they come.

Before an operator uses a parameter it is awaited (`tdcs_train.ps.use`); when the gradient of a parameter is complete it
is sent. Both directions go by priority, and an iteration begins while gradients of the one before are still travelling.
What arrives is kept aside until the next forward uses it: a backward that still runs sees the values of its forward.
"""

import socket
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import nn

from tdcs_train.model.errors import ModelError
from tdcs_train.peers.errors import PeerError
from tdcs_train.ps.calling import call
from tdcs_train.ps.channel import Channel, Tensors, greet, greeting
from tdcs_train.ps.classes import CONTROL
from tdcs_train.ps.parameters import SharedParameter, bytes_of, digest, shared_parameters, staging
from tdcs_train.ps.transmissions import OrderKept, order_kept, together
from tdcs_train.ps.use import UseOfParameters, refuse_compiled

_NOT_CLIPPED = (
    "the gradients have left for the parameter servers, which update each parameter as soon as its gradients are "
    "there: nobody has them all. Clip single gradients in the optimizer of the servers, or train with "
    "tdcs_train.pipeline, which has clip_norm"
)


class ServedModel:
    """A model of which parameter servers hold the parameters; a context manager.

    Inside, `model(inputs)` and `loss.backward()` are an iteration: no optimizer, no zero_grad. A parameter that a
    backward does not reach counts as one without a gradient. `wait` returns when all parameters are new, as before
    evaluating or saving. Raises PeerError that names the server, and ModelError for a model or a backward that an
    iteration cannot be made of.
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
        refuse_compiled(model)
        self._timeout = timeout
        self._shared = shared_parameters(model, servers=len(hosts), priorities=priorities)
        by_name = dict(model.named_parameters())
        self._values = [by_name[parameter.name] for parameter in self._shared]
        self._numbers = {id(value): number for number, value in enumerate(self._values)}
        self._arrived = [0] * len(self._shared)
        self._taken = [0] * len(self._shared)
        self._sent = [0] * len(self._shared)
        self._used = [-1] * len(self._shared)
        """How many gradients had been sent when an operator last waited for a parameter."""
        self._unchanged_at = [value._version for value in self._values]
        """PyTorch's count of changes in place, which what arrives is none of."""
        self._pushed: set[int] = set()
        """Parameters whose gradients have left in this iteration."""
        self._gradients = [staging(value) for value in self._values]
        self._arriving = [staging(value) for value in self._values]
        hello = {"worker": worker, "workers": workers, "parameters": digest(self._shared)}
        self._channels = [
            self._open(number, address, hello, time.monotonic() + timeout)
            for number, address in enumerate(hosts)
        ]
        self._use = UseOfParameters(self._values, self._await, not_clipped=_NOT_CLIPPED)
        self._thread: int | None = None
        """The thread in which operators are watched."""
        self._hooks = [self._watch(module) for module in model.modules()]
        self._hooks += [
            value.register_post_accumulate_grad_hook(lambda parameter: self._push(parameter))
            for value in self._values
        ]

    @property
    def sent_order(self) -> list[list[str]]:
        """The parameters in the order in which their gradients began to leave, by server."""
        return [
            [self._shared[transmission.number].name for transmission in channel.transmissions]
            for channel in self._channels
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
        self._use.__enter__()
        self._thread = threading.get_ident()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._use.__exit__(kind, error, trace)
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
            if refusal := answer.get("refused"):
                raise PeerError(f"{name} refused this worker: {refusal}")
            if answer.get("server") != number:
                raise PeerError(f"{name} is server {answer.get('server')}; give the servers in their order")
            connection.settimeout(None)
            sockets.append(connection)
        return Channel(sockets, peer=name, tensors=self._tensors())

    def _tensors(self) -> Tensors:
        return Tensors(place=self._place, complete=self._complete, absent=self._unchanged)

    def _place(self, number: int) -> memoryview:
        if number >= len(self._values):
            raise PeerError(f"a server sent parameter {number}, which the model lacks")
        return bytes_of(self._arriving[number])

    def _complete(self, number: int) -> None:
        self._arrived[number] += 1

    def _unchanged(self, number: int) -> None:
        """No worker had a gradient: the value that is here already counts as the one that arrived."""
        self._taken[number] += 1
        self._arrived[number] += 1

    def _watch(self, module: nn.Module) -> Any:
        """Awaits all of a module where its operators are not watched: in other threads."""
        numbers = [self._numbers[id(p)] for p in module.parameters() if id(p) in self._numbers]

        def before(*_: Any) -> None:
            if threading.get_ident() != self._thread:
                for number in numbers:
                    self._await(number)

        return module.register_forward_pre_hook(before)

    def _await(self, number: int) -> None:
        """A parameter has arrived once more than its gradient was sent: at the start, and after each update."""
        if torch._C._current_graph_task_id() != -1:
            return  # a backward, perhaps one that computes a part of its forward again, works with the values it had
        if self._pushed:
            self._end_iteration()
        if self._arrived[number] <= self._sent[number]:
            begin = time.monotonic()
            self._channels[self._shared[number].server].wait_for(
                lambda: self._arrived[number] > self._sent[number],
                timeout=self._timeout,
                awaited=self._shared[number].name,
            )
            self.waited += time.monotonic() - begin
        self._used[number] = self._sent[number]
        self._refuse_changed(number)
        if self._taken[number] < self._arrived[number]:
            self._taken[number] = self._arrived[number]
            with torch._C.DisableTorchFunction():
                self._values[number].data.copy_(self._arriving[number])

    def _push(self, parameter: nn.Parameter) -> None:
        number = self._numbers[id(parameter)]
        if number in self._pushed:
            raise ModelError(
                f"{self._shared[number].name} got a second gradient from one forward; add the losses up and call "
                "backward once, for each backward is a step"
            )
        self._refuse_changed(number)
        if self._used[number] != self._sent[number]:
            raise ModelError(
                f"the forward used {self._shared[number].name} where it could not be waited for, with values that may "
                "be old: outside of PyTorch's operators, or in a thread of its own without calling the module. Call "
                "extensions through torch.autograd.Function or torch.library, and modules as modules"
            )
        gradient = parameter.grad
        assert gradient is not None
        self._gradients[number].copy_(gradient.to_dense() if gradient.layout != torch.strided else gradient)
        parameter.grad = None
        self._pushed.add(number)
        self._leave(number, bytes_of(self._gradients[number]))

    def _refuse_changed(self, number: int) -> None:
        """Raises ModelError for a parameter that something else than its server has changed."""
        if self._values[number]._version != self._unchanged_at[number]:
            raise ModelError(
                f"{self._shared[number].name} was changed in place here, as by max_norm of an Embedding or by "
                "load_state_dict: its server does not see that, and the change would be lost. Change it at the server, "
                "or before training begins"
            )

    def _end_iteration(self) -> None:
        """The next forward has begun: what the backward has not reached gets no gradient any more."""
        for number in range(len(self._shared)):
            if number not in self._pushed:
                self._leave(number, None)
        self._pushed.clear()

    def _leave(self, number: int, memory: memoryview | None) -> None:
        parameter: SharedParameter = self._shared[number]
        self._sent[number] += 1
        self._channels[parameter.server].send(
            number, memory, priority=parameter.priority, priority_class=parameter.priority_class
        )
