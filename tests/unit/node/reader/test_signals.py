"""Which threads are being killed, by what the kernel says of their signals."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tdcs.node.reader.serving.signals import is_being_killed

NONE = "0" * 16


def only(number: signal.Signals) -> str:
    return f"{1 << number - 1:016x}"


def status(**sets: str) -> str:
    names = ("SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt")
    return "Name:\tpython\nSigQ:\t1/100\n" + "".join(f"{name}:\t{sets.get(name, NONE)}\n" for name in names)


TERM, CHILD, USER = map(only, (signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1))
CASES = {
    "nothing": (status(), False),
    "SIGKILL of its own": (status(SigPnd=only(signal.SIGKILL)), True),
    "SIGKILL of its process": (status(ShdPnd=only(signal.SIGKILL)), True),
    "SIGTERM that ends it": (status(ShdPnd=TERM), True),
    "SIGTERM that it catches": (status(ShdPnd=TERM, SigCgt=TERM), False),
    "SIGTERM that it ignores": (status(ShdPnd=TERM, SigIgn=TERM), False),
    "SIGTERM that it blocks": (status(SigPnd=TERM, SigBlk=TERM), False),
    "SIGTERM behind one that it catches": (status(SigPnd=USER, ShdPnd=TERM, SigCgt=USER), True),
    "a child's end": (status(ShdPnd=CHILD), False),
}


@pytest.mark.parametrize(("content", "killed"), CASES.values(), ids=CASES)
def test_a_thread_is_being_killed_when_a_signal_waits_that_ends_it(
    tmp_path: Path, content: str, killed: bool
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/status").write_text(content)
    assert is_being_killed(7, proc=str(tmp_path)) is killed


@pytest.mark.parametrize("thread", [0, 8])
def test_a_thread_that_is_not_to_be_seen_does_not_hang(tmp_path: Path, thread: int) -> None:
    assert is_being_killed(thread, proc=str(tmp_path))
