"""Measures the link from one worker to another."""

import socket
import statistics
import threading
import time
from dataclasses import dataclass

from tdcs_train.link.messages import Line
from tdcs_train.peers.errors import PeerError
from tdcs_train.peers.listening import caller, listen

BLOCK = bytes(256 * 1024)
ECHOES = 40
WARM_UP_SHARE = 0.25
"""The part of a measurement that does not count: TCP finds its rate, and shapers spend the burst that they allow."""


@dataclass(frozen=True, kw_only=True)
class LinkRate:
    """One direction between two workers."""

    source: int
    target: int
    bytes_per_second: float
    latency_seconds: float
    """Half of the median round trip of a byte."""


class Target:
    """The receiving end: answers one measurement after another until it is closed."""

    def __init__(self, *, timeout: float) -> None:
        self._listener = listen(backlog=16)
        self._timeout = timeout
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(self._timeout)

    def _run(self) -> None:
        while True:
            try:
                connection, (host, *_) = self._listener.accept()
            except OSError:
                return
            try:
                self._answer(Line(connection, peer=f"the worker at {caller(host)}", timeout=self._timeout))
            except (PeerError, OSError):
                pass  # the worker that measures sees it, and reports it
            finally:
                connection.close()

    def _answer(self, line: Line) -> None:
        warm_up = float(line.hear("warm_up")["warm_up"])
        line.say(ready=True)
        for _ in range(ECHOES):
            line.socket.sendall(line.socket.recv(1))
        memory = memoryview(bytearray(1 << 20))
        begin = counted_from = time.monotonic()
        counted = 0
        while count := line.socket.recv_into(memory):
            now = time.monotonic()
            if now - begin < warm_up:
                counted_from = now
            else:
                counted += count
        line.say(bytes=counted, seconds=time.monotonic() - counted_from)


def measure(
    address: tuple[str, int], *, source: int, target: int, seconds: float, timeout: float
) -> LinkRate:
    """Measure the link to another worker for about `seconds`.

    Raises:
        PeerError: It does not answer, or stops; it is named.
    """
    peer = f"worker {target} ({address[0]}:{address[1]})"
    try:
        connection = socket.create_connection(address, timeout=timeout)
    except OSError as error:
        raise PeerError(
            f"{peer} does not answer: {error.strerror or error}; see the log of its pod"
        ) from error
    line = Line(connection, peer=peer, timeout=timeout)
    try:
        line.say(warm_up=seconds * WARM_UP_SHARE)
        line.hear("ready")
        trips = []
        for _ in range(ECHOES):
            begin = time.monotonic()
            connection.sendall(b".")
            if not connection.recv(1):
                raise PeerError(f"{peer} has closed the connection; see the log of its pod")
            trips.append(time.monotonic() - begin)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            connection.sendall(BLOCK)
        connection.shutdown(socket.SHUT_WR)
        received = line.hear("bytes", "seconds")
    except OSError as error:
        raise line.gone(error) from error
    finally:
        line.close()
    duration = float(received["seconds"])
    if not received["bytes"] or duration <= 0:
        raise PeerError(f"{peer} received nothing in {seconds:g} s; measure for longer (--seconds)")
    return LinkRate(
        source=source,
        target=target,
        bytes_per_second=float(received["bytes"]) / duration,
        latency_seconds=statistics.median(trips) / 2,
    )
