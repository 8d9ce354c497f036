"""How many bytes went over the TCP connections of this process, by the kernel's counters of each of them."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from contextlib import suppress
from typing import Final

_ACKNOWLEDGED_AND_RECEIVED: Final = struct.Struct("=120xQQ")
"""`tcpi_bytes_acked` and `tcpi_bytes_received` in `struct tcp_info` (linux/tcp.h)."""

_LOOK_SECONDS: Final = 0.01


class SocketBytes:
    """Counts while `follow` runs. Of a connection that ends, what came after the last look is not counted: nothing of
    one that lives for less than a hundredth of a second.
    """

    def __init__(self) -> None:
        self._totals: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self.look()
        self._before = dict(self._totals)

    @property
    def total(self) -> int:
        """Bytes both ways since this was made; what was sent counts when the other side has acknowledged it."""
        return sum(count - self._before.get(inode, 0) for inode, count in self._totals.items())

    def look(self) -> None:
        """Take in the counters of all connections."""
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                inode = os.readlink(f"/proc/self/fd/{name}")
                if inode.startswith("socket:"):
                    self._take(inode, int(name))

    def _take(self, inode: str, number: int) -> None:
        with socket.socket(fileno=os.dup(number)) as connection:
            if (
                connection.family in (socket.AF_INET, socket.AF_INET6)
                and connection.type == socket.SOCK_STREAM
            ):
                tcp_info = connection.getsockopt(
                    socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED_AND_RECEIVED.size
                )
                self._totals[inode] = sum(_ACKNOWLEDGED_AND_RECEIVED.unpack(tcp_info))

    async def follow(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_SECONDS)
