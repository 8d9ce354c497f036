"""Reads pieces of files from the source of a mount for readers; whether they are kept is for `read_fills` to say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError
from tdcs.node.agent.mount.source_state import SourceState
from tdcs.node.agent.mount.transfer_limits import InFlight
from tdcs.node.wire.frames import SourceWanted

IN_FLIGHT_BYTES: Final = 32 << 20
"""Of all pieces that are read for others at the same time."""


class SourceRelay:
    """Reads by the credentials and within the rate that the operator has assigned. Thread-safe.

    Args:
        source: finds the source of a mount, as this agent knows it.
        stopped: set when the process ends.
        keep: is given each piece once it was sent, or could not be sent, and may keep it.
    """

    def __init__(
        self,
        *,
        source: Callable[[str], SourceState | None],
        stopped: threading.Event,
        keep: Callable[[SourceWanted, memoryview], None] = lambda *_: None,
    ) -> None:
        self._source: Final = source
        self._keep: Final = keep
        self._stopped: Final = stopped
        self._in_flight: Final = InFlight(IN_FLIGHT_BYTES)

    @contextmanager
    def read(
        self, piece: SourceWanted, *, waiting: Callable[[], None] = lambda: None
    ) -> Iterator[memoryview]:
        """The bytes of a piece, ahead of what is loaded: a program waits for them. They count among those that are held
        in memory while the body runs, which sends them: a reader may be slow to take them.

        Args:
            waiting: called about once a second while the rate, or what is read for others, lets it wait.

        Raises:
            SourceFailureError: They cannot be had.
        """
        source = self._source(piece.mount)
        reader = None if source is None else source.demand_reader
        if source is None or reader is None:
            raise SourceFailureError("SourceAway", f"this agent was not given the source of {piece.mount}")
        if source.limit.wait(piece.length, stopped=self._stopped, demand=True, waiting=waiting):
            raise SourceFailureError("SourceAway", "the agent ends")
        with self._in_flight.hold(piece.length, owner=piece.mount, waiting=waiting):
            content = bytearray()
            reader.read(
                Extent(
                    path=piece.path,
                    offset=piece.offset,
                    length=piece.length,
                    size=piece.size,
                    tag=piece.tag,
                ),
                content.extend,
            )
            if len(content) != piece.length:
                raise SourceFailureError(
                    "Changed", f"{len(content)} bytes came, and {piece.length} were asked for"
                )
            source.bytes.add(len(content))
            view = memoryview(content)
            try:
                yield view
            finally:
                # The reader has it by now, or has lost patience and asks again: the source need not send it twice.
                self._keep(piece, view)
