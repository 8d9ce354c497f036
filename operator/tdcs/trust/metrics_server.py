"""Servers for metrics (with TLS, for Prometheus' role only) and for health, for processes without an event loop."""

import contextlib
import logging
import select
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app
from prometheus_client.registry import Collector

from tdcs.listening import listen
from tdcs.trust.contexts import caller_from
from tdcs.trust.rights import METRICS_CALLERS

_log: Final = logging.getLogger(__name__)

MOST_CALLERS: Final = 16
"""Maximum number of connections; further ones are closed at once."""

PATIENCE_SECONDS: Final = 10.0
"""For a handshake, and for each part of a request."""

_REFUSAL: Final = b"the metrics are for certificates of the roles monitor and operator\n"


@contextlib.contextmanager
def serve_metrics(
    registry: Collector,
    *,
    port: int | None,
    tls: Callable[[], ssl.SSLContext] | None = None,
    handshake_seconds: float = PATIENCE_SECONDS,
) -> Iterator[int]:
    """Answer GET /metrics in threads of its own; yields the port in use, 0 for none.

    Args:
        registry: what is served. It is asked in one of these threads.
        port: on all addresses; 0: any free one; None: nothing is served.
        tls: gives the context of the time, which demands a certificate. None: whoever asks is answered.
        handshake_seconds: a caller that has not shown its certificate by then is hung up on.

    Raises:
        OSError: another process has the port.
    """
    if port is None:
        yield 0
        return
    with _served("metrics", port, make_wsgi_app(registry), tls, handshake_seconds) as bound_port:
        yield bound_port


@contextlib.contextmanager
def serve_health(is_well: Callable[[], bool], *, port: int, trouble: str) -> Iterator[int]:
    """Answer GET /healthz in threads of its own, with `trouble` while `is_well` says no; yields the port in use.

    Raises:
        OSError: another process has the port.
    """

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        status, text = "404 Not Found", "there is /healthz"
        if environ["PATH_INFO"] == "/healthz":
            status, text = ("200 OK", "ok") if is_well() else ("503 Service Unavailable", trouble)
        start_response(status, [("Content-Type", "text/plain")])
        return [f"{text}\n".encode()]

    with _served("health", port, answer, None, PATIENCE_SECONDS) as bound_port:
        yield bound_port


@contextlib.contextmanager
def _served(
    endpoint: str, port: int, app: Any, tls: Callable[[], ssl.SSLContext] | None, handshake_seconds: float
) -> Iterator[int]:
    try:
        server = _Server(port, app=app, tls=tls, handshake_seconds=handshake_seconds)
    except OSError as error:
        raise OSError(f"no {endpoint} can be served on port {port}: {error.strerror}") from error
    thread = threading.Thread(target=server.serve_forever, name=endpoint, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE_SECONDS

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(
        self,
        port: int,
        *,
        app: Any,
        tls: Callable[[], ssl.SSLContext] | None,
        handshake_seconds: float,
    ) -> None:
        self._tls: Final = tls
        self._handshake_seconds: Final = handshake_seconds
        self._places: Final = threading.BoundedSemaphore(MOST_CALLERS)
        super().__init__(("", port), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listen(port=port, backlog=self.request_queue_size)
        self.server_name, self.server_port = "", int(self.socket.getsockname()[1])
        self.setup_environ()
        self.set_app(app)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a caller if the maximum is not reached."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        with self._tls().wrap_socket(request, server_side=True, do_handshake_on_connect=False) as connection:
            _shake_hands(connection, seconds=self._handshake_seconds)
            if caller_from(connection.getpeercert()).role_at(time.time()) in METRICS_CALLERS:
                super().finish_request(connection, client_address)
            else:
                head = f"HTTP/1.0 403 Forbidden\r\nContent-Length: {len(_REFUSAL)}\r\n\r\n"
                connection.sendall(head.encode() + _REFUSAL)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore callers without a certificate and closed connections."""
        _log.debug("a caller at %s was not answered", client_address, exc_info=True)


def _shake_hands(connection: ssl.SSLSocket, *, seconds: float) -> None:
    """Do the handshake with one deadline for all of its messages. Raises TimeoutError, OSError."""
    connection.setblocking(False)
    end = time.monotonic() + seconds
    while True:
        try:
            connection.do_handshake()
            break
        except ssl.SSLWantReadError:
            waiting = select.POLLIN
        except ssl.SSLWantWriteError:
            waiting = select.POLLOUT
        ready = select.poll()
        ready.register(connection, waiting)
        seconds_left = end - time.monotonic()
        if seconds_left <= 0 or not ready.poll(seconds_left * 1000):
            raise TimeoutError(f"no handshake within {seconds:g} s")
    connection.settimeout(PATIENCE_SECONDS)
