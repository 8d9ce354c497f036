"""Another machine, with a connection to it for every class."""

import socket
import time

from tdcs_train.actors.network.classes import CONTROL, prepare
from tdcs_train.actors.network.connection import Connection


class Peer:
    """The connections to one machine; control is the last."""

    def __init__(self, machine: int, name: str, sockets: list[socket.socket]) -> None:
        self.machine = machine
        self.name = name
        for priority, each in enumerate(sockets):
            prepare(each, priority)
        self.connections = [Connection(each, peer=name) for each in sockets]
        self.heard = time.monotonic()
        self.ended = False
        self.lost: tuple[float, OSError] | None = None
        """When one of its connections was closed, while it had not ended."""

    @property
    def control(self) -> Connection:
        """The connection of messages."""
        return self.connections[CONTROL]

    @property
    def payload_sent(self) -> int:
        """Bytes of registers that have left for it."""
        return sum(each.payload_sent for each in self.connections)

    def sending(self) -> Connection | None:
        """The most urgent connection with something to send: while it has, those below wait."""
        for each in reversed(self.connections):
            if each.wants_to_send:
                return each
        return None
