"""Sockets on which workers wait for each other, in clusters with IPv4, with IPv6, and with both."""

import socket
from typing import Final

_MAPPED: Final = "::ffff:"
"""Before the address of IPv4 of a caller at a socket of both families."""


def listen(port: int = 0, *, backlog: int | None = None) -> socket.socket:
    """A socket that listens at a port of all addresses; of both families where the machine has IPv6.

    Raises:
        OSError: the port is taken.
    """
    if socket.has_dualstack_ipv6() and _has_ipv6():
        return socket.create_server(
            ("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog
        )
    return socket.create_server(("", port), backlog=backlog)


def listen_at(address: tuple[str, int], *, backlog: int | None = None) -> socket.socket:
    """The same at the first address of a host.

    Raises:
        OSError: the host has no address of this machine, or the port is taken.
    """
    family, _, _, _, sockaddr = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
    return socket.create_server(sockaddr[:2], family=family, backlog=backlog)


def caller(host: str) -> str:
    """The address of a caller, without the form that those of IPv4 have at sockets of both families."""
    return host.removeprefix(_MAPPED) if "." in host else host


def _has_ipv6() -> bool:
    """Whether IPv6 is switched on: where it is off sockets of the family have no address to bind."""
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as trial:
        try:
            trial.bind(("::", 0))
        except OSError:
            return False
    return True
