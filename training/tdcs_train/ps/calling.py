"""How a worker finds a server that may not listen yet."""

import socket
import time

from tdcs_train.peers.errors import PeerError


def call(address: tuple[str, int], *, name: str, deadline: float) -> socket.socket:
    """A connection to a machine that may not listen yet.

    Raises:
        PeerError: It does not answer until the deadline.
    """
    while True:
        remaining = deadline - time.monotonic()
        try:
            return socket.create_connection(address, timeout=max(0.1, min(remaining, 2.0)))
        except OSError as error:
            if remaining <= 0.1:
                raise PeerError(f"{name} does not answer: {error}; see the log of its pod") from error
            time.sleep(0.05)
