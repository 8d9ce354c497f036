"""Keeps two processes for one session: one serves it, the other stands by and takes over within milliseconds.

Whose turn it is says `turn`.
The supervisor starts a process again when one has died, and kills one that hangs. It serves nothing itself.
"""

import gc
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tdcs.node.reader import child_process, session_holder
from tdcs.node.reader.counters import Counters
from tdcs.node.reader.registration import ReaderFolder, ReadersPresent
from tdcs.node.reader.request_memory import RequestMemory, started
from tdcs.node.reader.serving.fuse_server import Server
from tdcs.node.reader.serving.local_disks import LocalDisks
from tdcs.node.reader.serving.open_versions import OpenVersions
from tdcs.node.reader.serving.pod_clock import open_pod_clock
from tdcs.node.reader.session_holder import Session
from tdcs.node.reader.settings import ReaderSettings
from tdcs.node.reader.turn import wait_for_turn
from tdcs.trust.contexts import client_contexts

_log: Final = logging.getLogger(__name__)

PROCESSES: Final = 2
HANG_SECONDS: Final = 5.0
"""A process that serves and has not finished a round of its loop for so long is killed."""

_CHECK_SECONDS: Final = 0.1
_HOLDER_SECONDS: Final = 2.0
_STOP_SECONDS: Final = 2.0
_NO_SOCKET: Final = (0, 0)


class Supervisor:
    """The reader's first process.

    Args:
        settings: what it is given.
        monitor: runs in a process of its own: health, metrics, the tables of holders.
    """

    def __init__(
        self, settings: ReaderSettings, *, monitor: Callable[[ReaderSettings, Counters], None]
    ) -> None:
        self._settings: Final = settings
        self._folder: Final = ReaderFolder(settings.folder)
        self._counters: Final = Counters()
        self._monitor_work: Final = monitor
        self._children: set[int] = set()
        self._monitor = 0
        self._stopping = False
        self._starts: Final = child_process.StartRate()
        self._monitor_starts: Final = child_process.StartRate(1)

    def run(self) -> None:
        """Work until SIGTERM comes.

        Raises:
            HolderError: the holder has another session by now: start again.
            SystemExit: SIGTERM came before there was a holder.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: sys.exit(0))  # nothing has begun
        # The folders are there by then: the holder makes them, which is root.
        session = self._wait_for_session()
        # Its processes load what is registered before they serve: a holder that is ended has to know of it by now.
        ReadersPresent(self._folder.keepers).join()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        woken = _wake_on_signals()
        holder_at = time.monotonic() + _HOLDER_SECONDS
        present = _socket_of_holder(self._folder.socket)
        while not self._stopping:
            self._reap()
            while len(self._children) < PROCESSES and not self._starts.left():
                self._starts.note()
                self._children.add(child_process.start(lambda: self._serve(session)))
            if not self._monitor and not self._monitor_starts.left():
                self._monitor_starts.note()
                self._monitor = child_process.start(
                    lambda: self._monitor_work(self._settings, self._counters)
                )
            self._kill_hung()
            if time.monotonic() >= holder_at:
                holder_at = time.monotonic() + _HOLDER_SECONDS
                present = self._follow_holder(session, present)
            if select.select([woken], [], [], _CHECK_SECONDS)[0]:
                os.read(woken, 4096)
        self._end()

    def _wait_for_session(self) -> Session:
        """The holder's, however long that takes: it is in another pod, and a reader that ended would be kept away."""
        while True:
            try:
                return session_holder.ask(path=self._folder.socket)
            except session_holder.HolderError as error:
                _log.warning("%s; this reader waits for it", error)

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _follow_holder(self, session: Session, present: tuple[int, int]) -> tuple[int, int]:
        """Give a new holder the session, which it may have lost with its process."""
        identity = _socket_of_holder(self._folder.socket)
        if identity in (_NO_SOCKET, present):
            return present
        try:
            accepted = session_holder.offer(session, path=self._folder.socket)
        except OSError as error:
            _log.info("a new holder does not answer yet: %s", error)
            return present
        if accepted:
            return identity
        self._end()
        raise session_holder.HolderError("the holder has a new session: the file system was mounted again")

    def _serve(self, session: Session) -> None:
        disks = LocalDisks()
        versions = OpenVersions(folder=self._folder, node=self._settings.node, disks=disks)
        versions.open_all()  # a process that stands by has them ready
        gc.freeze()  # what is there now stays: a collection need not look at it
        ReadersPresent(self._folder.readers).join()
        lock = os.open(self._folder.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        memory = RequestMemory(session.memory)
        wait_for_turn(lock, memory)
        Server(
            session=session,
            versions=versions,
            counters=self._counters,
            buffer_bytes=self._settings.buffer_bytes,
            patience_seconds=self._settings.patience_seconds,
            tls=client_contexts(self._settings.trust),
            pods=open_pod_clock(self._folder.pod_waits),
            memory=memory,
            disks=disks,
            lock=lock,
        ).run()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                break
            self._children.discard(pid)
            if pid == self._monitor:
                self._monitor = 0
            if not self._stopping:
                _log.warning("process %d of the reader ended (%s); another one starts", pid, status)
        for pid in [pid for pid in self._children if not started(pid)]:
            # A thread of it waits in the kernel, for a disk that hangs: until then its end cannot be seen.
            self._children.discard(pid)
            _log.error(
                "process %d of the reader has ended, but for what waits for a disk; another one starts", pid
            )

    def _kill_hung(self) -> None:
        serving = self._counters.serving
        if serving in self._children and self._counters.since_beat() > HANG_SECONDS:
            _log.error("process %d hangs and is killed", serving)
            with suppress(ProcessLookupError):
                os.kill(serving, signal.SIGKILL)

    def _end(self) -> None:
        self._stopping = True
        for pid in (*self._children, self._monitor):
            if pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + _STOP_SECONDS
        while (self._children or self._monitor) and time.monotonic() < until:
            self._reap()
            time.sleep(0.01)


def _wake_on_signals() -> int:
    """A descriptor that can be read after each signal, so that a process that died is followed at once."""
    woken, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return woken


def _socket_of_holder(path: Path) -> tuple[int, int]:
    """Identity of the holder's socket: a new one may have the inode of the one before, but is younger."""
    try:
        status = path.stat()
    except OSError:
        return _NO_SOCKET
    return status.st_ino, status.st_ctime_ns
