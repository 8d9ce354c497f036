"""Links and reducers inside one process: each worker is a thread. For trying out plans, and for tests."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from tdcs_train.errors import InputError
from tdcs_train.pipeline.order import Direction, Place
from tdcs_train.pipeline.values import Packet


@dataclass
class Exchange:
    """Where the workers of a process leave packets for each other. A worker that waits longer than `timeout` fails."""

    timeout: float = 30.0
    _packets: dict[tuple[int, Direction, int], Packet] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def put(self, stage: int, direction: Direction, packet: Packet) -> None:
        """Leaves a packet for whichever replica of the stage works on the mini-batch."""
        with self._changed:
            self._packets[stage, direction, packet.batch] = packet
            self._changed.notify_all()

    def take(self, stage: int, direction: Direction, batch: int) -> Packet:
        """Takes a packet out when it is there."""
        key = (stage, direction, batch)
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._packets, self.timeout):
                raise InputError(
                    f"stage {stage} waited {self.timeout:g} s for the {direction} of mini-batch {batch}"
                )
            return self._packets.pop(key)


@dataclass(frozen=True)
class LocalLink:
    """The link of one worker."""

    exchange: Exchange
    place: Place

    def arriving(self, batch: int) -> Packet:
        return self.exchange.take(self.place.stage, "forward", batch)

    def pass_on(self, packet: Packet) -> None:
        self.exchange.put(self.place.stage + 1, "forward", packet)

    def returning(self, batch: int) -> Packet:
        return self.exchange.take(self.place.stage, "backward", batch)

    def pass_back(self, packet: Packet) -> None:
        self.exchange.put(self.place.stage - 1, "backward", packet)


@dataclass
class LocalReducer:
    """Sums over the replicas of a stage, each a thread."""

    replicas: int
    timeout: float = 30.0
    _given: list[Sequence[torch.Tensor]] = field(default_factory=list)
    _barrier: threading.Barrier = field(init=False)

    def __post_init__(self) -> None:
        self._barrier = threading.Barrier(self.replicas, timeout=self.timeout)
        self._lock = threading.Lock()

    def sum(self, tensors: Sequence[torch.Tensor]) -> None:
        with self._lock:
            self._given.append(tensors)
        self._barrier.wait()
        totals = [torch.stack(parts).sum(0) for parts in zip(*self._given, strict=True)]
        self._barrier.wait()
        for tensor, total in zip(tensors, totals, strict=True):
            tensor.copy_(total)
        if self._barrier.wait() == 0:
            self._given.clear()
        self._barrier.wait()
