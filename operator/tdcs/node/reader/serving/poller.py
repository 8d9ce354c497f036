"""Waits until connections, or other descriptors, can be read or written."""

import select
from typing import Final

from tdcs.node.reader.serving.fetch import Question
from tdcs.node.wire.connection import PeerConnection

_ERRORS: Final = select.EPOLLERR | select.EPOLLHUP


class Poller:
    def __init__(self) -> None:
        self._epoll: Final = select.epoll()
        self._connections: Final[dict[int, PeerConnection[Question]]] = {}
        self._masks: Final[dict[int, int]] = {}

    def poll(self, seconds: float) -> list[tuple[int, bool]]:
        """Descriptors that something can be done with, each with whether the kernel reports an error of it; waits at
        most so long for one."""
        return [(fd, bool(events & _ERRORS)) for fd, events in self._epoll.poll(seconds)]

    def connection(self, fd: int) -> PeerConnection[Question] | None:
        """The connection of a descriptor, if it is watched still."""
        return self._connections.get(fd)

    def watch(self, fd: int) -> None:
        self._epoll.register(fd, select.EPOLLIN)

    def unwatch(self, fd: int) -> None:
        self._epoll.unregister(fd)

    def add(self, connection: PeerConnection[Question]) -> None:
        self._connections[connection.fd] = connection
        self._masks[connection.fd] = select.EPOLLIN | select.EPOLLOUT
        self._epoll.register(connection.fd, self._masks[connection.fd])

    def change(self, connection: PeerConnection[Question]) -> None:
        """Watch for room to write only while something is unsent."""
        mask = select.EPOLLIN | (select.EPOLLOUT if connection.unsent else 0)
        if self._masks.get(connection.fd, mask) != mask:
            self._masks[connection.fd] = mask
            self._epoll.modify(connection.fd, mask)

    def remove(self, connection: PeerConnection[Question]) -> None:
        """Watch it no more; unknown ones are fine."""
        if self._connections.pop(connection.fd, None) is not None:
            del self._masks[connection.fd]
            self._epoll.unregister(connection.fd)
