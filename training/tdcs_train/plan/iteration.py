"""One iteration of data-parallel training with a parameter server, as seen by one worker.

The worker receives its parameters, computes forward and backward, and pushes its gradients. One computation and one
transfer run at a time. A layer waits for its own parameters only, so the order in which they arrive decides how much
of the transfers hides behind the computation. Sources: Jiang et al., "Fine-grained scheduling by parameter priority in
distributed CNN" (J. Guangzhou Univ. Nat. Sci. 2022(1)); TicTac (MLSys'19).
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tdcs_train.plan.graph import Graph, pruned


@dataclass(frozen=True)
class Operation:
    """A computation of the worker."""

    name: str
    seconds: float
    needs: tuple[int, ...]
    """Places of the operations before it; all of them are lower than its own."""
    receives: int | None = None
    """The transfer that brings its own parameters."""


@dataclass(frozen=True)
class Transfer:
    """The parameters of one layer on their way to the worker; their gradients take as long on the way back."""

    layer: str
    seconds: float
    pushed_after: int | None = None
    """The operation that computes the gradients; without one nothing is pushed."""


@dataclass(frozen=True)
class Iteration:
    """The operations in a topological order, and the transfers."""

    operations: tuple[Operation, ...]
    transfers: tuple[Transfer, ...]

    @cached_property
    def missing(self) -> tuple[int, ...]:
        """For each operation the transfers that it depends on, directly or not, as bits."""
        masks: list[int] = []
        for operation in self.operations:
            bits = 0 if operation.receives is None else 1 << operation.receives
            for need in operation.needs:
                bits |= masks[need]
            masks.append(bits)
        return tuple(masks)

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """For each operation those that need it."""
        users: list[list[int]] = [[] for _ in self.operations]
        for place, operation in enumerate(self.operations):
            for need in operation.needs:
                users[need].append(place)
        return tuple(tuple(places) for places in users)

    @property
    def compute_seconds(self) -> float:
        """All computations in turn."""
        return math.fsum(operation.seconds for operation in self.operations)

    @property
    def transfer_seconds(self) -> float:
        """All transfers in turn, both ways."""
        return math.fsum(
            transfer.seconds * (1 if transfer.pushed_after is None else 2) for transfer in self.transfers
        )

    def seconds(self, order: Sequence[int]) -> float:
        """The length of the iteration when the parameters are received in this order of transfers.

        Of several computations that could run, the first of the topological order does. Gradients are pushed as they
        are made.
        """
        arrival = [0.0] * len(self.transfers)
        received = 0.0
        for transfer in order:
            received += self.transfers[transfer].seconds
            arrival[transfer] = received
        finished = self._finish_times(arrival)
        pushes = sorted(
            (finished[transfer.pushed_after], transfer.seconds)
            for transfer in self.transfers
            if transfer.pushed_after is not None
        )
        channel = received
        for ready, seconds in pushes:
            channel = max(channel, ready) + seconds
        return max([channel, *finished])

    def _finish_times(self, arrival: Sequence[float]) -> list[float]:
        waits = [len(operation.needs) for operation in self.operations]
        ready_at = [
            0.0 if operation.receives is None else arrival[operation.receives]
            for operation in self.operations
        ]
        finished = [0.0] * len(self.operations)
        later = [(ready_at[place], place) for place, count in enumerate(waits) if not count]
        heapq.heapify(later)
        runnable: list[int] = []
        now = 0.0
        while later or runnable:
            if not runnable:
                now = max(now, later[0][0])
            while later and later[0][0] <= now:
                heapq.heappush(runnable, heapq.heappop(later)[1])
            place = heapq.heappop(runnable)
            now += self.operations[place].seconds
            finished[place] = now
            for user in self.users[place]:
                waits[user] -= 1
                if not waits[user]:
                    heapq.heappush(later, (max(ready_at[user], now), user))
        return finished


def iteration_of(graph: Graph, *, bandwidth: float) -> Iteration:
    """The iteration of a profiled model over a link of `bandwidth` bytes a second."""
    graph = pruned(graph)
    forward = {name: place for place, name in enumerate(graph.order)}
    output = len(forward) - 1
    backward = {name: len(forward) + place for place, name in enumerate(reversed(graph.order))}
    trained = [name for name in graph.order if graph.layers[name].parameter_bytes]
    receives = {name: number for number, name in enumerate(trained)}
    operations = [
        Operation(
            name=f"forward {name}",
            seconds=graph.layers[name].forward_ms / 1000,
            needs=tuple(forward[source] for source in graph.predecessors[name]),
            receives=receives.get(name),
        )
        for name in graph.order
    ]
    operations += [
        Operation(
            name=f"backward {name}",
            seconds=graph.layers[name].backward_ms / 1000,
            needs=tuple(backward[target] for target in graph.successors[name]) or (output,),
        )
        for name in reversed(graph.order)
    ]
    transfers = tuple(
        Transfer(
            layer=name, seconds=graph.layers[name].parameter_bytes / bandwidth, pushed_after=backward[name]
        )
        for name in trained
    )
    return Iteration(tuple(operations), transfers)
