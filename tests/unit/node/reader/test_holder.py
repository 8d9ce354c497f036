"""A holder that is ended: it takes the session away if no reader keeps it, and in time."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.waiting import eventually

from tdcs.node.reader import child_process, session, session_holder, supervisor
from tdcs.node.reader.counters import Counters
from tdcs.node.reader.registration import ReaderFolder, ReadersPresent
from tdcs.node.reader.session_holder import Session, SessionHolder
from tdcs.node.reader.settings import ReaderSettings
from tdcs.node.reader.supervisor import Supervisor

REPOSITORY = Path(__file__).parents[4]


@pytest.fixture
def folder(tmp_path: Path) -> ReaderFolder:
    folder = ReaderFolder(tmp_path)
    folder.prepare()
    return folder


@pytest.fixture
def unmounted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where the holder's session was taken away; it waits for readers for a moment only."""
    points: list[str] = []
    monkeypatch.setattr(session, "unmount", lambda *, point: points.append(point))
    monkeypatch.setattr(session_holder, "LEAVE_SECONDS", 0.2)
    monkeypatch.setattr(session_holder, "JOIN_SECONDS", 0.1)
    return points


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session as a holder gives it."""
    fds = os.pipe()
    yield Session(*fds)
    for fd in fds:
        os.close(fd)


def reader_of(folder: ReaderFolder) -> Supervisor:
    """A reader with no monitor."""

    def nothing(_: ReaderSettings, __: Counters) -> None: ...

    settings = ReaderSettings(
        folder=folder.root,
        node="n",
        buffer_bytes=1,
        operator="",
        health_port=0,
        metrics_port=0,
        patience_seconds=1,
    )
    return Supervisor(settings, monitor=nothing)


def ended(
    folder: ReaderFolder, held: Session, *, gives: bool = False, kept: Callable[[], bool] | None = None
) -> None:
    """End a holder that has a session."""
    keepers = ReadersPresent(folder.keepers)
    holder = SessionHolder(point=folder.point, path=folder.socket, is_kept=kept or keepers.any)
    holder._session = held
    if gives:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        holder._give(theirs)
        ours.close()
    holder._leave()


def test_a_session_that_no_reader_has_is_taken_away(
    folder: ReaderFolder, unmounted: list[str], given: Session
) -> None:
    ended(folder, given)
    assert unmounted == [str(folder.point)]


def test_a_session_stays_with_a_reader_that_has_got_it_and_serves_nothing_yet(
    folder: ReaderFolder, unmounted: list[str], given: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StartsError(Exception):
        """The first of its processes would start now."""

    def start(_: object) -> int:
        ended(folder, given)
        raise StartsError

    monkeypatch.setattr(session_holder, "ask", lambda *, path: given)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(supervisor, "_wake_on_signals", lambda: given.fd)
    monkeypatch.setattr(child_process, "start", start)
    with pytest.raises(StartsError):
        reader_of(folder).run()
    assert unmounted == []


@pytest.mark.failure_mode("reader-starts-without-holder")
def test_a_reader_waits_for_a_holder_that_does_not_answer_in_time(
    folder: ReaderFolder, given: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StartsError(Exception):
        """The first of its processes would start now."""

    attempts = 0

    def ask(*, path: Path) -> Session:
        nonlocal attempts
        attempts += 1
        if attempts < 4:
            raise session_holder.HolderError(f"the holder at {path} does not give its session: timed out")
        return given

    def start(_: object) -> int:
        raise StartsError

    monkeypatch.setattr(session_holder, "ask", ask)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(supervisor, "_wake_on_signals", lambda: given.fd)
    monkeypatch.setattr(child_process, "start", start)
    with pytest.raises(StartsError):
        reader_of(folder).run()
    assert attempts == 4


def test_a_reader_that_waits_for_its_holder_ends_in_order_when_it_is_told_to(folder: ReaderFolder) -> None:
    waits, waiting = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if not pid:
        code = 99
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
                silent.bind(str(folder.socket))
                silent.listen()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as for the first process of a container
                os.write(waiting, b".")
                reader_of(folder).run()
                code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            os._exit(code)
    os.read(waits, 1)
    for fd in (waits, waiting):
        os.close(fd)

    def ended() -> bool:
        os.kill(pid, signal.SIGTERM)
        ended_pid, status = os.waitpid(pid, os.WNOHANG)
        return ended_pid == pid and os.waitstatus_to_exitcode(status) == 0

    eventually(ended, deadline=20)


def test_a_reader_that_was_given_the_session_a_moment_ago_has_time_to_say_so(
    folder: ReaderFolder, unmounted: list[str], given: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_holder, "JOIN_SECONDS", 60)
    looks = iter([False])
    ended(folder, given, gives=True, kept=lambda: next(looks, True))
    assert unmounted == []


def test_one_that_was_given_the_session_and_never_said_so_keeps_nothing(
    folder: ReaderFolder, unmounted: list[str], given: Session
) -> None:
    ended(folder, given, gives=True)
    assert unmounted == [str(folder.point)]


def test_a_holder_ends_within_its_pods_grace_whatever_it_waits_for() -> None:
    chart = REPOSITORY / "charts/tdcs/templates/reader-holder.yaml"
    grace = re.search(r"terminationGracePeriodSeconds: (\d+)", chart.read_text())
    assert grace is not None
    longest = session.INIT_SECONDS + session_holder.CALLER_SECONDS + session_holder.LEAVE_SECONDS
    assert longest < int(grace[1]) - 2


def test_a_caller_that_says_nothing_does_not_keep_a_holder_from_its_end(
    folder: ReaderFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_holder, "CALLER_SECONDS", 60)
    monkeypatch.setattr(session, "unmount", lambda *, point: None)
    monkeypatch.setattr(session, "mount", lambda *, point: os.open(os.devnull, os.O_RDWR))
    pid = os.fork()
    if not pid:
        try:
            SessionHolder(point=folder.point, path=folder.socket, is_kept=lambda: False).run()
        finally:
            os._exit(0)
    for fd in session_holder.ask(path=folder.socket, patience=20):  # it runs
        os.close(fd)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.connect(str(folder.socket))
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid, deadline=20)
