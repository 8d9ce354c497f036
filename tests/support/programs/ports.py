"""Free TCP ports for servers that cannot choose one themselves and tell it."""

from __future__ import annotations

import os
import random
import socket
from contextlib import suppress
from pathlib import Path

FIRST = 20_000
SHARES = 8
"""Processes of one test run that get ports of their own: between the choice of one and its use are seconds."""
TAKEN = {*range(19_990, 20_010), *range(29_990, 30_010)}
"""What Alluxio's processes listen on, which a test may start later, each on a loopback address of its own: a server
that binds all addresses would clash with them (PropertyKey `alluxio.*.port`)."""
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """``count`` different ports on which nothing listens now, on whatever address.

    They are below the ephemeral range (ip(7)), so that no outgoing connection takes
    one before its server binds it, and are drawn at random, so that two test runs on
    one machine seldom meet; the processes of one run never do.
    """
    share = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % SHARES
    end = int(_EPHEMERAL.read_text().split()[0]) if _EPHEMERAL.exists() else 32_768
    ports = set(range(min(FIRST, end // 2), end)) - TAKEN
    candidates = [port for port in ports if port % SHARES == share]
    random.shuffle(candidates)
    chosen_ports: list[int] = []
    for port in candidates:
        if _is_free(port):
            chosen_ports.append(port)
        if len(chosen_ports) == count:
            return chosen_ports
    raise OSError(f"only {len(chosen_ports)} of the {count} wanted ports below {end} are free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do it: a port whose last connections are still in TIME_WAIT is free. All addresses, because a
        # listener on 127.4.5.6 leaves the port free on 127.0.0.1 and taken for a server that binds 0.0.0.0.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def listens_at(port: int, *, host: str = "127.0.0.1") -> bool:
    """Whether something accepts connections at a port."""
    with suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False
