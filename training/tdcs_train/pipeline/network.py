"""Links and reducers over connections between machines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from tdcs_train.peers.connection import Connection
from tdcs_train.peers.errors import PeerError
from tdcs_train.pipeline.order import Place
from tdcs_train.pipeline.values import Packet


@dataclass(frozen=True)
class NetworkLink:
    """A worker's connections to the stages before and behind, by replica of that stage."""

    place: Place
    before: Mapping[int, Connection]
    behind: Mapping[int, Connection]

    def arriving(self, batch: int) -> Packet:
        return _taken(self._before(batch), batch, what="the input")

    def pass_on(self, packet: Packet) -> None:
        _put(self.behind[packet.batch % self.place.replicas[self.place.stage + 1]], packet)

    def returning(self, batch: int) -> Packet:
        behind = self.behind[batch % self.place.replicas[self.place.stage + 1]]
        return _taken(behind, batch, what="the gradient")

    def pass_back(self, packet: Packet) -> None:
        _put(self._before(packet.batch), packet)

    def _before(self, batch: int) -> Connection:
        return self.before[batch % self.place.replicas[self.place.stage - 1]]


def _put(connection: Connection, packet: Packet) -> None:
    connection.put({"batch": packet.batch, "version": packet.version}, packet.values)


def _taken(connection: Connection, batch: int, *, what: str) -> Packet:
    frame = connection.take(awaited=f"{what} of mini-batch {batch}")
    number = frame.header.get("batch")
    if number != batch or not isinstance(frame.value, dict):
        raise PeerError(f"{connection.peer} sent mini-batch {number} where {batch} was awaited")
    return Packet(batch, frame.value, int(frame.header.get("version", 0)))


@dataclass(frozen=True)
class RingReducer:
    """Sums over the replicas of a stage by a ring: each sends 2 (r - 1) / r of the bytes, to one neighbour.

    `following` is the connection to the next replica, `preceding` the one from the replica before.
    """

    replica: int
    replicas: int
    preceding: Connection | None
    following: Connection | None

    def sum(self, tensors: Sequence[torch.Tensor]) -> None:
        if self.replicas == 1 or not tensors:
            return
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
        parts = list(flat.tensor_split(self.replicas))
        for step in range(self.replicas - 1):
            self._exchange(parts, step, add=True)
        for step in range(self.replicas - 1):
            self._exchange(parts, step - 1, add=False)
        begin = 0
        for tensor in tensors:
            tensor.copy_(flat[begin : begin + tensor.numel()].view_as(tensor))
            begin += tensor.numel()

    def _exchange(self, parts: list[torch.Tensor], step: int, *, add: bool) -> None:
        outgoing = (self.replica - step) % self.replicas
        incoming = (self.replica - step - 1) % self.replicas
        assert self.preceding is not None
        assert self.following is not None
        self.following.put({"part": outgoing}, parts[outgoing].clone())
        frame = self.preceding.take(awaited="a part of the gradients")
        if frame.header.get("part") != incoming:
            raise PeerError(
                f"{self.preceding.peer} sent part {frame.header.get('part')}, awaited was {incoming}"
            )
        if add:
            parts[incoming].add_(frame.value)
        else:
            parts[incoming].copy_(frame.value)
