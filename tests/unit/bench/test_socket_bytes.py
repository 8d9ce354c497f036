"""What the benchmarks count of a process's connections is what went over them."""

import socket

from bench.cache.socket_bytes import SocketBytes
from tests.support.waiting import eventually

SENT = 300_000


def test_bytes_both_ways_are_counted_from_the_beginning_of_the_count() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
        with one, other:
            one.sendall(b"x" * 1000)
            assert len(other.recv(1000, socket.MSG_WAITALL)) == 1000
            counted = SocketBytes()
            for _ in range(SENT // 1000):
                one.sendall(b"x" * 1000)
                other.recv(1000, socket.MSG_WAITALL)

            def all_acknowledged() -> bool:
                counted.look()
                return counted.total == 2 * SENT  # sent by one end, and received by the other

            eventually(all_acknowledged, deadline=10, describe=lambda: str(counted.total))
        counted.look()
        assert counted.total == 2 * SENT, "what was counted of connections that have ended stays"
