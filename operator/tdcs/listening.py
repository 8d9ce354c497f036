"""Sockets that processes of TDCS listen on, in clusters with IPv4, with IPv6, and with both."""

import socket
from typing import Final

EVERYWHERE: Final = ""
"""The host for every address of the machine, of both families."""

_OF_ALL: Final = frozenset({EVERYWHERE, "0.0.0.0", "::"})  # noqa: S104  who may call is said by NetworkPolicies


def listen(*, host: str = EVERYWHERE, port: int, backlog: int | None = None) -> socket.socket:
    """A socket that listens at a host's port; at every address of both families for a host that stands for all.

    Where the machine has no IPv6, or has it switched off, it listens at all addresses of IPv4.

    Raises:
        OSError: the port is taken, or the address is none of this machine.
    """
    if host not in _OF_ALL:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host.strip("[]"), port), family=family, backlog=backlog)
    if socket.has_dualstack_ipv6() and _has_address():
        return socket.create_server(
            ("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog
        )
    return socket.create_server(("", port), backlog=backlog)


def at(host: str, port: int) -> str:
    """`host:port`, an address of IPv6 in brackets, as URLs have it."""
    plain = host.strip("[]")
    return f"[{plain}]:{port}" if ":" in plain else f"{plain}:{port}"


def _has_address() -> bool:
    """Whether IPv6 is switched on: with `disable_ipv6` there are sockets of the family, and no address to bind."""
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as trial:
        try:
            trial.bind(("::", 0))
        except OSError:
            return False
    return True
