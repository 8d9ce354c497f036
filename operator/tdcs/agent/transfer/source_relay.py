"""Reads pieces of files from the source of a mount for readers on other nodes, without keeping them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from tdcs.agent.mount.mount import MountWork
from tdcs.agent.peers.frames import SourceWanted
from tdcs.agent.source.limits import InFlight
from tdcs.agent.source.reader import Extent, SourceFailureError

IN_FLIGHT_BYTES: Final = 32 << 20
"""Of all pieces that are read for others at the same time."""


class SourceRelay:
    """Reads by the credentials and within the rate that the operator has assigned. Thread-safe.

    Args:
        mount: finds what this agent knows of a mount.
        stopped: set when the process ends.
    """

    def __init__(self, *, mount: Callable[[str], MountWork | None], stopped: threading.Event) -> None:
        self._mount: Final = mount
        self._stopped: Final = stopped
        self._in_flight: Final = InFlight(IN_FLIGHT_BYTES)

    def read(self, wanted: SourceWanted) -> bytes:
        """The bytes of a piece; raises SourceFailureError when they cannot be had."""
        mount = self._mount(wanted.mount)
        source = None if mount is None else mount.source
        if mount is None or source is None:
            raise SourceFailureError("SourceAway", f"this agent was not given the source of {wanted.mount}")
        if mount.limit.wait(wanted.length, stopped=self._stopped):
            raise SourceFailureError("SourceAway", "the agent ends")
        found = bytearray()
        with self._in_flight.hold(wanted.length):
            source.read(
                Extent(
                    path=wanted.path,
                    offset=wanted.offset,
                    length=wanted.length,
                    size=wanted.size,
                    tag=wanted.tag,
                ),
                found.extend,
            )
        if len(found) != wanted.length:
            raise SourceFailureError(
                "Changed", f"{len(found)} bytes came, and {wanted.length} were asked for"
            )
        mount.source_bytes.add(len(found))
        return bytes(found)
