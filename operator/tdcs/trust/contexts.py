"""TLS contexts of a process, replaced when its certificate or authorities change."""

import logging
import os
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tdcs.trust.identity import Identify, Identity, TrustFolder
from tdcs.trust.roles import Caller, caller_of

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Made:
    fingerprint: str
    server: ssl.SSLContext
    open_server: ssl.SSLContext
    client: ssl.SSLContext


class Contexts:
    """The TLS contexts of a process, of its present identity. Callable from any thread.

    All demand TLS 1.3 and a certificate of a known authority from the other side.
    """

    def __init__(self, identify: Identify) -> None:
        self._identify: Final = identify
        self._lock: Final = threading.Lock()
        self._refused = ""
        self._latest: _Made | None = None

    def server(self) -> ssl.SSLContext:
        """For a server whose callers must show a certificate; raises OSError."""
        return self._current().server

    def client(self) -> ssl.SSLContext:
        """For a client. It compares the server's names with the host that it is given; raises OSError."""
        return self._current().client

    def following_server(self) -> ssl.SSLContext:
        """For a server of asyncio: each new connection has the identity of its time.

        A caller may show no certificate: the server decides what such a one may do. One that shows a wrong certificate
        is refused.
        """
        return _FollowingContext.of(self, server=True)

    def following_client(self) -> ssl.SSLContext:
        """For clients of asyncio: each new connection has the identity of its time."""
        return _FollowingContext.of(self, server=False)

    def open_server(self) -> ssl.SSLContext:
        """For a server whose callers need not show a certificate; raises OSError."""
        return self._current().open_server

    def _current(self) -> _Made:
        identity = self._identify()
        current = self._latest
        if current is not None and identity.fingerprint in (current.fingerprint, self._refused):
            return current
        with self._lock:
            current = self._latest
            if current is None or current.fingerprint != identity.fingerprint:
                try:
                    self._latest = current = _contexts_of(identity)
                except ssl.SSLError as error:
                    # Such as a certificate and a key that do not match, while files are replaced one by one.
                    if current is None:
                        raise
                    self._refused = identity.fingerprint
                    _log.warning("a new certificate is not used, the one before it is kept: %s", error)
            return current


def client_contexts(folder: Path | None) -> Callable[[], ssl.SSLContext] | None:
    """A source of client contexts, from a folder with a certificate; None without a folder: connections are plain."""
    return Contexts(TrustFolder(folder)).client if folder is not None else None


def server_contexts(folder: Path | None) -> Callable[[], ssl.SSLContext] | None:
    """As `client_contexts`, for servers whose callers must show a certificate."""
    return Contexts(TrustFolder(folder)).server if folder is not None else None


class _FollowingContext(ssl.SSLContext):
    """A context that uses the present one for each connection."""

    _contexts: Contexts
    _server: bool

    @classmethod
    def of(cls, contexts: Contexts, *, server: bool) -> "_FollowingContext":
        context = cls(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context._contexts, context._server = contexts, server
        return context

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """As `ssl.SSLContext.wrap_bio`, which asyncio and uvloop call for each connection; raises OSError."""
        current = self._contexts.open_server() if self._server else self._contexts.client()
        return current.wrap_bio(*args, **kwargs)


def caller_at(connection: ssl.SSLObject) -> Caller:
    """Who is at the other end, once the handshake is done."""
    return caller_from(connection.getpeercert())


def caller_from(certificate: Any) -> Caller:
    """Who showed a verified certificate; a peer without one has no role."""
    until = ssl.cert_time_to_seconds(str(certificate["notAfter"])) if certificate else 0.0
    return caller_of(certificate, until=float(until))


def _contexts_of(identity: Identity) -> _Made:
    return _Made(
        fingerprint=identity.fingerprint,
        server=_context(identity, server=True, verify=ssl.CERT_REQUIRED),
        open_server=_context(identity, server=True, verify=ssl.CERT_OPTIONAL),
        client=_context(identity, server=False, verify=ssl.CERT_REQUIRED),
    )


def _context(identity: Identity, *, server: bool, verify: ssl.VerifyMode) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = verify
    if server:
        context.num_tickets = 0  # a resumed session would keep using an old certificate
    context.load_verify_locations(cadata=identity.authorities.decode("ascii", "replace"))
    _load_chain(context, identity)
    return context


def _load_chain(context: ssl.SSLContext, identity: Identity) -> None:
    # OpenSSL takes them from a file only: this one is in memory, and has no name.
    descriptor = os.memfd_create("tdcs-trust")
    try:
        os.write(descriptor, identity.certificate + b"\n" + identity.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
