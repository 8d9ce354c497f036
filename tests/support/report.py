"""Numbers that a test run prints at its end: how long a start took, how many pods a second.

They are shown, also when everything passes, and never asserted: a time on a shared
machine says nothing about right or wrong. A conftest imports ``measured`` and the
two hooks from here to have them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

_MEASURED = pytest.StashKey[list[str]]()

Measured = Callable[[str], None]


def record(config: pytest.Config, text: str) -> None:
    """Have ``text`` printed, as a line of its own, after the run's results."""
    sent = getattr(config, "workeroutput", None)  # of a process of pytest-xdist: it prints nothing itself
    if sent is None:
        config.stash.setdefault(_MEASURED, []).append(text)
    else:
        sent.setdefault("measured", []).append(text)


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Measured:
    """Call it with a line of text: it is printed after the run, and noted in the JUnit report."""

    def note(text: str) -> None:
        record(request.config, text)
        request.node.user_properties.append(("measured", text))

    return note


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a process of pytest-xdist measured."""
    for text in getattr(node, "workeroutput", {}).pop("measured", []):
        record(node.config, text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was measured, once, however many conftests have imported this hook."""
    lines = config.stash.get(_MEASURED, [])
    if lines:
        terminalreporter.write_sep("=", "measured")
        for line in lines:
            terminalreporter.write_line(line)
        lines.clear()
