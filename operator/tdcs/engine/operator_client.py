"""Asks the operator, from processes of a node that have no event loop."""

import http.client
import socket
import ssl
from collections.abc import Callable
from typing import Final

from tdcs.trust.roles import Role

_LARGEST_REFUSAL: Final = 300


class RequestRefusedError(OSError):
    """The operator has answered with an error.

    Attributes:
        status: of HTTP.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text}")
        self.status = status


class OperatorClient:
    """Requests to the operator's port for agents and nodes. Callable from any thread.

    Args:
        address: `host:port`, of a headless service or of one process.
        tls: gives the context with this node's certificate; None: connections are plain.
    """

    def __init__(self, address: str, *, tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        host, _, self._port = address.rpartition(":")
        self._host = host.strip("[]")
        self._tls: Final = tls

    def get(self, path: str, *, seconds: float, largest: int) -> bytes:
        """The answer to a question, as far as `largest` bytes. Of several operators behind the name those that stand by
        may refuse, so each is asked, for so many seconds, until one answers; raises OSError, the last one's."""
        failed = OSError(f"{self._host} has no address")
        for host, port in self._addresses():
            try:
                return self._ask("GET", host, port, path, None, seconds=seconds, largest=largest)
            except OSError as error:
                failed = error
        raise failed

    def post(self, path: str, body: bytes, *, seconds: float) -> None:
        """Send something to the operator that works: of several behind the name, those that stand by refuse.

        Raises:
            RequestRefusedError: No address takes it, and each of them has answered.
            OSError: No address takes it, and the one that would may be among those that gave no answer.
        """
        refused: RequestRefusedError | None = None
        silent: OSError | None = None
        for host, port in self._addresses():
            try:
                self._ask("POST", host, port, path, body, seconds=seconds, largest=1)
            except RequestRefusedError as error:
                refused = error
            except OSError as error:
                silent = error
            else:
                return
        raise silent or refused or OSError(f"{self._host} has no address")

    def _addresses(self) -> list[tuple[str, int]]:
        """Those of the operators behind the name."""
        addresses = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        return [(str(address[0]), int(address[1])) for *_, address in addresses]

    def _ask(
        self,
        method: str,
        host: str,
        port: int,
        path: str,
        body: bytes | None,
        *,
        seconds: float,
        largest: int,
    ) -> bytes:
        connection = (
            http.client.HTTPConnection(host, port, timeout=seconds)
            if self._tls is None
            else _SecureConnection(host, port, seconds=seconds, tls=self._tls())
        )
        try:
            connection.request(method, path, body=body)
            answer = connection.getresponse()
            if not 200 <= answer.status < 300:
                text = answer.read(_LARGEST_REFUSAL).decode("utf-8", "replace").strip()
                raise RequestRefusedError(answer.status, text or answer.reason)
            return answer.read(largest)
        except http.client.HTTPException as error:
            raise OSError(f"{host}:{port} gives no answer of HTTP: {error!r}") from error
        finally:
            connection.close()


class _SecureConnection(http.client.HTTPConnection):
    """The certificate must be the operator's by its role: its addresses come and go, and are in no certificate."""

    def __init__(self, host: str, port: int, *, seconds: float, tls: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=seconds)
        self._tls: Final = tls

    def connect(self) -> None:
        super().connect()
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=Role.OPERATOR.host)
