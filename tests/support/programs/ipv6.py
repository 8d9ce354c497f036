"""Whether this machine has IPv6, for tests that run servers at `::1`."""

import socket
from typing import Final

import pytest

LOOPBACK: Final = "::1"


def has_ipv6() -> bool:
    """Whether a server can listen at `::1`."""
    if not socket.has_ipv6:
        return False
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind((LOOPBACK, 0))
        except OSError:
            return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no address ::1")
