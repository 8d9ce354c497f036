"""TLS without a socket: encrypted bytes on one side, plain bytes on the other."""

import ssl
from collections.abc import Callable
from typing import Final, cast

from tdcs.trust.contexts import caller_at
from tdcs.trust.roles import Caller

RECORD_BYTES: Final = (16 << 10) + 256
"""Maximum size of a TLS 1.3 record on the wire."""


class SecureStream:
    """One side of a TLS connection. Its owner carries bytes: `feed` what came, send what `outgoing` gives.

    Args:
        host: for a client: the name that the server's certificate must have.
    """

    def __init__(self, context: ssl.SSLContext, *, host: str | None = None) -> None:
        self._incoming: Final = ssl.MemoryBIO()
        self._outgoing: Final = ssl.MemoryBIO()
        self._tls: Final = context.wrap_bio(
            self._incoming, self._outgoing, server_side=host is None, server_hostname=host
        )
        # With a buffer it gives the number of bytes; what describes its types knows only the other way.
        self._read: Final = cast("Callable[[int, memoryview], int]", self._tls.read)
        self.established = False

    @property
    def caller(self) -> Caller:
        """Who is at the other end, once the connection is established."""
        return caller_at(self._tls)

    def handshake(self) -> bool:
        """Go on with the handshake; whether it is done. Raises ssl.SSLError when it fails."""
        if not self.established:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return False
            self.established = True
        return True

    def feed(self, data: memoryview | bytes) -> None:
        self._incoming.write(data)

    def read_into(self, view: memoryview) -> int:
        """Copy received plain bytes into `view`; returns how many. Raises ssl.SSLError."""
        have = 0
        try:
            # OpenSSL raises when no data has arrived.
            while have < len(view) and (self._incoming.pending or self._tls.pending()):
                count = self._read(len(view) - have, view[have:])
                if not count:
                    break
                have += count
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return have

    def write(self, data: memoryview | bytes | bytearray) -> None:
        """Encrypt plain bytes; `outgoing` then holds the result."""
        view, done = memoryview(data), 0
        while done < len(view):
            done += self._tls.write(view[done:])

    def outgoing(self) -> bytes:
        return self._outgoing.read()
