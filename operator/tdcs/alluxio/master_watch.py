"""Asks a master again and again whether it answers, and how many more files it has room for."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from tdcs.alluxio.master_room import room_of
from tdcs.alluxio.rpc import Rpc, RpcFailureError
from tdcs.model.export_view import ExportView

_log: Final = logging.getLogger(__name__)

WATCH_SECONDS: Final = 10.0


class MasterWatch:
    """What a master said last.

    Args:
        master: closed by the caller.
        has_master: whether there is a master now; else none is asked, and nothing is known.
    """

    def __init__(
        self,
        *,
        master: Rpc,
        has_master: Callable[[], bool],
        seconds: float = WATCH_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._master: Final = master
        self._has_master: Final = has_master
        self._seconds: Final = seconds
        self._clock: Final = clock
        self._view: ExportView | None = None

    def view(self) -> ExportView | None:
        """What is known of the master; None while it was not asked."""
        return self._view

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            try:
                await self.ask()
            except Exception:
                _log.exception("Alluxio's master at %s was not asked for its room", self._master.target)
            await asyncio.sleep(self._seconds)

    async def ask(self) -> None:
        """Ask once."""
        self._view = await self._answer() if self._has_master() else None

    async def _answer(self) -> ExportView:
        view = self._view or ExportView()
        try:
            room = await room_of(self._master)
        except RpcFailureError as failure:
            since = self._clock() if view.silent_since is None else view.silent_since
            return ExportView(silent_since=since, silent_at=self._clock(), failure=failure.code.name)
        return ExportView(paths=room.paths, most=room.most, share=room.share, heap_bytes=room.heap_bytes)
