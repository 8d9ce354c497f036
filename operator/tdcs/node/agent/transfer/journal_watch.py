"""Has blocks registered only while the master says that its journal is the one that their ids belong to."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tdcs.alluxio.rpc import Rpc, RpcFailureError
from tdcs.alluxio.worker_blocks import journal_id
from tdcs.node.agent.backoff import pause
from tdcs.node.agent.transfer.registrar import Registrar

_log: Final = logging.getLogger(__name__)

_SECONDS: Final = 10.0
"""Between two questions to a master that has answered."""
_MOST_PAUSE: Final = 5.0


class JournalWatch:
    """Asks the master for its journal for as long as the agent runs. Nothing but registering waits for the answer.

    With another journal ids begin anew: a block that was registered under an old id would be read as another file. The
    operator starts the pods of such agents anew, whose blocks get other ids then (`enter_epoch`).

    Args:
        journal: that the ids of the blocks on this disk belong to.
    """

    def __init__(self, *, registrar: Registrar, master: Rpc, journal: str) -> None:
        self._registrar: Final = registrar
        self._master: Final = master
        self._journal: Final = journal
        self._reported = ""
        registrar.confirmed = False

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                found = await journal_id(self._master)
            except RpcFailureError as failure:
                failures += 1
                self._registrar.confirmed = False
                self._report(f"does not say its journal ({failure.code.name})")
                await asyncio.sleep(pause(failures, most=_MOST_PAUSE))
                continue
            failures = 0
            self._registrar.confirmed = found == self._journal
            if self._registrar.confirmed:
                self._reported = ""
            else:
                self._report(f"has journal {found!r}, and blocks here are of {self._journal!r}")
            await asyncio.sleep(_SECONDS)

    def _report(self, what: str) -> None:
        if what != self._reported:
            _log.info("the master %s: no block is registered for now", what)
        self._reported = what
