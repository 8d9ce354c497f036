"""Messages between the workers that measure a link: lines of JSON over TCP, each in bounded time."""

import json
import socket
from typing import Any

from tdcs_train.peers.errors import PeerError

VERSION = 1
"""Changes with anything that a worker of another version would misread."""
MOST_LINE_BYTES = 1 << 20


class Line:
    """A connection that carries lines of JSON, and bytes after them. `peer` names the other end in errors."""

    def __init__(self, connection: socket.socket, *, peer: str, timeout: float) -> None:
        connection.settimeout(timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket, self.peer, self._timeout = connection, peer, timeout
        self._rest = b""

    def say(self, **fields: Any) -> None:
        """Send a line.

        Raises:
            PeerError: The other end is gone.
        """
        try:
            self.socket.sendall(json.dumps({"version": VERSION, **fields}).encode() + b"\n")
        except OSError as error:
            raise self.gone(error) from error

    def hear(self, *needed: str) -> dict[str, Any]:
        """The next line; it must have the fields that are needed.

        Raises:
            PeerError: Nothing comes in time, the other end is gone, says why it failed, or does not fit.
        """
        while b"\n" not in self._rest:
            try:
                part = self.socket.recv(65536)
            except OSError as error:
                raise self.gone(error) from error
            if not part:
                raise PeerError(f"{self.peer} has closed the connection; see the log of its pod")
            self._rest += part
            if len(self._rest) > MOST_LINE_BYTES:
                raise PeerError(f"{self.peer} does not speak the protocol of tdcs-train link")
        raw, _, self._rest = self._rest.partition(b"\n")
        try:
            message = json.loads(raw)
        except ValueError as error:
            raise PeerError(f"{self.peer} does not speak the protocol of tdcs-train link") from error
        if not isinstance(message, dict) or message.get("version") != VERSION:
            version = message.get("version") if isinstance(message, dict) else None
            raise PeerError(
                f"{self.peer} speaks version {version} of the protocol of tdcs-train link, this worker version "
                f"{VERSION}; use the same tdcs-train at all workers"
            )
        if "error" in message:
            raise PeerError(f"{self.peer} has failed: {message['error']}")
        if missing := [field for field in needed if field not in message]:
            raise PeerError(f"{self.peer} sent no {missing[0]}, which means nothing")
        return message

    def gone(self, error: OSError) -> PeerError:
        """The error for a connection that failed."""
        if isinstance(error, TimeoutError):
            return PeerError(f"{self.peer} has said nothing for {self._timeout:g} s; see the log of its pod")
        return PeerError(f"{self.peer} is gone: {error.strerror or error}; see the log of its pod")

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()
