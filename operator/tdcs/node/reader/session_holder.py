"""Holds the FUSE session while readers come and go: its descriptor, and the memory of the requests in work.

It serves no request itself. Readers get both by SCM_RIGHTS. A holder that starts while the file system is still mounted
waits for a reader that gives the session back; without one it mounts again. One that is ended while a reader keeps the
session leaves it mounted; when readers end, too, as in an uninstallation, it takes it away.
"""

import array
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tdcs.engine import reader_files
from tdcs.node.reader import request_memory, session

_log: Final = logging.getLogger(__name__)

GIVE_BACK_SECONDS: Final = 10.0
"""How long a new holder waits for a reader that has the session."""

LEAVE_SECONDS: Final = 4.0
"""How long a holder that is ended waits for readers that are being ended, too."""

CALLER_SECONDS: Final = 1.0
"""How long one that connects may take to say what it wants."""

JOIN_SECONDS: Final = 1.0
"""A reader that was given the session has said so by then."""

_ASK: Final = b"ask"
_OFFER: Final = b"offer"
_GIVEN: Final = b"given"
_KEPT: Final = b"kept"
_OTHER: Final = b"other"
_RESERVE_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 30.0
_LEAVE_LOOK_SECONDS: Final = 0.05


class Session(NamedTuple):
    """Descriptors of a session and of its requests' memory."""

    fd: int
    memory: int


class HolderError(Exception):
    """The holder cannot be reached, or has another session; the text says what to do."""


class SessionHolder:
    """The holder's process.

    Args:
        point: where the file system is mounted; made when it is not there.
        user: who may connect besides root; None: nobody.
        give_back_seconds: how long it waits for an old session.
        reserve: starts a process that serves the session while no reader does, and gives its number.
        is_kept: whether a reader has the session, serves it or only starts; None: that is not known, and a holder that
            is ended leaves it.
    """

    def __init__(
        self,
        *,
        point: Path,
        path: Path,
        user: int | None = None,
        give_back_seconds: float = GIVE_BACK_SECONDS,
        reserve: Callable[[Session], int] | None = None,
        is_kept: Callable[[], bool] | None = None,
    ) -> None:
        self._point: Final = point
        self._path: Final = path
        self._user: Final = user
        self._patience: Final = give_back_seconds
        self._session: Session | None = None
        self._waiting: list[socket.socket] = []
        self._start_reserve: Final = reserve
        self._is_kept: Final = is_kept
        self._gave_at = -JOIN_SECONDS
        self._stopping = False
        self._reserve = 0
        self._reserve_at = 0.0

    def run(self) -> None:
        """Serve readers until a signal ends the process. Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # A dead session at the point answers nothing, not even to mkdir.
        mounted = session.is_mounted(point=str(self._point))
        if not mounted:
            self._point.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            self._path.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(str(self._path))
        if self._user is not None:
            reader_files.admit(self._path, user=self._user)
        listener.listen(16)
        woken, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._stop)
        until = time.monotonic() + (self._patience if mounted else 0.0)
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        poll.register(woken, select.POLLIN)
        while not self._stopping:
            self._keep_reserve()
            seconds = until - time.monotonic() if self._session is None else _RESERVE_SECONDS
            if self._session is None and seconds <= 0:
                self._mount()
                continue
            if (listener.fileno(), select.POLLIN) in poll.poll(1000 * seconds):
                connection, _ = listener.accept()
                self._serve(connection, woken=woken)
        self._leave()

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _leave(self) -> None:
        """Take the session away if no reader keeps it: it would stay mounted, dead, when this process has ended."""
        if self._session is None or self._is_kept is None:
            return
        until = time.monotonic() + LEAVE_SECONDS
        while self._is_kept() or time.monotonic() < self._gave_at + JOIN_SECONDS:
            if time.monotonic() >= until:
                _log.info("a reader keeps the session at %s", self._point)
                return
            time.sleep(_LEAVE_LOOK_SECONDS)
        session.unmount(point=str(self._point))
        _log.info("no reader has the session at %s: it is unmounted", self._point)

    def _keep_reserve(self) -> None:
        """Start the reserve when there is none: each serves for one turn."""
        if self._reserve:
            if not os.waitpid(self._reserve, os.WNOHANG)[0]:
                return
            self._reserve = 0
        now = time.monotonic()
        if self._start_reserve is not None and self._session is not None and now >= self._reserve_at:
            self._reserve_at = now + _RESERVE_SECONDS
            self._reserve = self._start_reserve(self._session)

    def _mount(self) -> None:
        session.unmount(point=str(self._point))
        self._point.mkdir(parents=True, exist_ok=True)
        fd = session.mount(point=str(self._point))
        self._session = Session(fd, request_memory.make_memory())
        _log.info("a new session is mounted at %s", self._point)
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            self._give(connection)

    def _serve(self, connection: socket.socket, *, woken: int) -> None:
        """Answer one that connected; a signal ends the wait for what it says."""
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        poll.register(woken, select.POLLIN)
        poll.poll(1000 * CALLER_SECONDS)
        connection.setblocking(False)
        try:
            message, fds, _, _ = socket.recv_fds(connection, 64, 2)
        except OSError:
            connection.close()
            return
        if message == _OFFER and len(fds) == 2:
            self._take_back(connection, Session(*fds))
            return
        for fd in fds:
            os.close(fd)
        if message != _ASK:
            connection.close()
        elif self._session is None:
            self._waiting.append(connection)
        else:
            self._give(connection)

    def _take_back(self, connection: socket.socket, offered: Session) -> None:
        answer = _OTHER
        if self._session is None:
            self._session, answer = offered, _KEPT
            _log.info("a reader gave the session at %s back", self._point)
        else:
            os.close(offered.fd)
            os.close(offered.memory)
        with suppress(OSError), connection:
            connection.send(answer)
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            self._give(waiter)

    def _give(self, connection: socket.socket) -> None:
        assert self._session is not None
        with suppress(OSError), connection:
            rights = array.array("i", self._session)
            connection.sendmsg([_GIVEN], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            self._gave_at = time.monotonic()


def ask(*, path: Path, patience: float = _ANSWER_SECONDS) -> Session:
    """The session of the node's holder, waiting for a holder that only starts.

    Raises:
        HolderError: it does not answer in time.
    """
    until = time.monotonic() + patience
    while True:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.settimeout(max(0.1, until - time.monotonic()))
                connection.connect(str(path))
                connection.send(_ASK)
                message, fds, _, _ = socket.recv_fds(connection, 64, 2)
                if message == _GIVEN and len(fds) == 2:
                    return Session(*fds)
        except OSError as error:
            reason = str(error)
        else:
            reason = "it closed the connection"
        if time.monotonic() >= until:
            raise HolderError(
                f"the holder at {path} does not give its session: {reason}; look at the holder's pod"
            )
        time.sleep(0.05)


def offer(session: Session, *, path: Path) -> bool:
    """Give a session to a holder that may have lost it; False when it has another one by now.

    Raises:
        OSError: no holder answers.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        connection.connect(str(path))
        socket.send_fds(connection, [_OFFER], list(session))
        return connection.recv(64) == _KEPT
