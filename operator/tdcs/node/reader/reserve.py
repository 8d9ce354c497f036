"""Serves a node's session while no reader runs: one is killed with all of its processes, or upgraded.

It is a process of the holder. Each process of a reader that can serve has a shared lock of the file `readers`. The
reserve waits until there is none, serves, and ends its turn within a tenth of a second after the next one came: that
one finds in the requests' memory what was not answered.
"""

import fcntl
import gc
import logging
import os
import signal
import time
from pathlib import Path
from typing import Final

from tdcs.node.reader import child_process
from tdcs.node.reader.counters import Counters
from tdcs.node.reader.registration import ReaderFolder, ReadersPresent
from tdcs.node.reader.request_memory import RequestMemory, started
from tdcs.node.reader.serving.fuse_server import Server
from tdcs.node.reader.serving.local_disks import LocalDisks
from tdcs.node.reader.serving.open_versions import OpenVersions
from tdcs.node.reader.serving.pod_clock import open_pod_clock
from tdcs.node.reader.session_holder import Session
from tdcs.node.reader.turn import wait_for_turn
from tdcs.trust.contexts import client_contexts

_log: Final = logging.getLogger(__name__)

BUFFER_BYTES: Final = 16 << 20
_PATIENCE_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 1.0
_HANG_SECONDS: Final = 5
_LOOK_SECONDS: Final = 1.0
_UNSERVED_SECONDS: Final = 2.0
_TURN_SECONDS: Final = 0.05


def serve(
    session: Session, *, folder: Path, node: str, trust: Path | None = None, user: int | None = None
) -> None:
    """Take turns forever, each in a process of its own, which has all that it needs in memory already.

    Args:
        folder: of the reader on the node.
        node: name of the node; empty when it is not known.
        trust: folder with the node's certificate, which agents know it by; None: agents are asked by plain TCP.
        user: as whom it goes on before it hears from anyone; None: as the one that it is.
    """
    if user is not None:
        child_process.give_up_root(user)
    reader_folder = ReaderFolder(folder)
    reader_folder.prepare()
    present, memory = ReadersPresent(reader_folder.readers), RequestMemory(session.memory)
    gc.freeze()
    starts = child_process.StartRate()
    while True:
        _wait_until_none(present, memory)
        time.sleep(starts.left())
        starts.note()
        turn = child_process.start(
            lambda: _take_turn(session, reader_folder=reader_folder, node=node, trust=trust)
        )
        while not os.waitpid(turn, os.WNOHANG)[0] and started(turn):
            time.sleep(_TURN_SECONDS)


def _wait_until_none(present: ReadersPresent, memory: RequestMemory) -> None:
    """Return when no process of a reader can serve: none is there, or those that are wait for a disk, and end."""
    unserved = time.monotonic()
    while not present.wait_until_none(_LOOK_SECONDS):
        if memory.is_served() or memory.is_awaited():
            unserved = time.monotonic()
        elif time.monotonic() - unserved > _UNSERVED_SECONDS:
            return


def _take_turn(session: Session, *, reader_folder: ReaderFolder, node: str, trust: Path | None) -> None:
    """Serve until a reader is there. Raises SessionEndedError."""
    present, disks, memory = (
        ReadersPresent(reader_folder.readers),
        LocalDisks(),
        RequestMemory(session.memory),
    )
    versions = OpenVersions(folder=reader_folder, node=node, disks=disks)
    if not versions.open_all():
        # Of a newer format than this process knows, perhaps: reads wait for a reader, as they would without it.
        time.sleep(_PAUSE_SECONDS)
        return
    lock = os.open(reader_folder.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    wait_for_turn(lock, memory, is_reserve=True)

    def is_over() -> bool:
        signal.alarm(_HANG_SECONDS)  # which ends a process that does not come here again
        return present.any() and memory.is_awaited()

    _log.warning("no reader runs on this node: the holder's reserve serves until the next one is there")
    Server(
        session=session,
        versions=versions,
        counters=Counters(),
        buffer_bytes=BUFFER_BYTES,
        patience_seconds=_PATIENCE_SECONDS,
        tls=client_contexts(trust),
        until=is_over,
        pods=open_pod_clock(reader_folder.pod_waits),
        memory=memory,
        disks=disks,
        lock=lock,
    ).run()
    fcntl.flock(lock, fcntl.LOCK_UN)  # which a thread that waits for a disk would keep
    _log.info("a reader is there again")
