"""Priority classes on the network.

Each class has a connection of its own with a mark (DSCP) in the header of its packets, so that switches and the other
end of the link can keep the order between different machines; ordering at one end alone cannot. Source: Jiang et al.
(2022), section 4.
"""

import socket

CLASSES = 4
"""Priorities 0 to 3; a higher one overtakes."""
CONTROL = CLASSES
"""The class of messages without payload."""
DSCP = (8, 0, 24, 40, 48)
"""CS1 (below all), default, CS3, CS5, and CS6 for control."""
UNSENT_BYTES = 64 * 1024
"""Bytes that may wait unsent in the kernel: what is there can no longer be overtaken."""


def prepare(connection: socket.socket, priority: int) -> None:
    """Mark a connection's packets, and keep little unsent data in the kernel."""
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    if connection.family == socket.AF_INET6:
        connection.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, DSCP[priority] << 2)
    else:
        connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, DSCP[priority] << 2)
