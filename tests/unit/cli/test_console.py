"""Texts of tenants and stores in an administrator's terminal."""

from __future__ import annotations

import io
import re

import click
import pytest
from click.testing import CliRunner
from rich.live import Live
from rich.table import Table

from tdcs.cli.console import Console
from tdcs.cli.explain.listed_objects import ListedObjects
from tdcs.cli.explain.status_command import show
from tdcs.cli.main import LazyGroup

EVIL = "limits[\x1bc\x1b]0;title\x07\x1bP+q\x1b\\\x9b2J\u202e\r]: Invalid value"
"""Resets the terminal, names its window, asks it, clears it, turns the reading round, and overwrites its line."""

RICHS_OWN = re.compile(r"\x1b\[[0-9;?]*[mhlHJKA]")


def output_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def in_memory(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=200)


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.threat("escape-sequences")
def test_escape_sequences_of_a_tenants_object_are_shown_and_not_obeyed(terminal: bool) -> None:
    condition = {"type": "Ready", "status": "False", "reason": "ChildRefused", "message": f"the Job: {EVIL}"}
    job = {
        "kind": "TrainingJob",
        "metadata": {"namespace": "evil", "name": "x"},
        "spec": {"datasets": [{"name": EVIL}]},
        "status": {"state": "Failed", "reason": EVIL, "conditions": [condition]},
    }
    console = in_memory(terminal=terminal)
    show(ListedObjects(jobs=[job]), namespace="evil", console=console, now="2026-01-02T00:00:00Z")
    text = RICHS_OWN.sub("", output_of(console))
    assert all(character.isprintable() for character in text.replace("\n", "")), text
    assert text.count(r"limits[\x1bc\x1b]0;title") == 4  # two cells, and two lines on what is wrong


@pytest.mark.threat("escape-sequences")
def test_what_is_shown_live_is_shown_so_too() -> None:
    console = in_memory(terminal=True)
    table = Table("Name")
    table.add_row(EVIL)
    with Live(console=console, auto_refresh=False) as live:
        live.update(table, refresh=True)
    assert r"\x1bc" in output_of(console)
    assert "\x1bc" not in output_of(console)


@pytest.mark.parametrize("kind", [click.ClickException, click.UsageError])
@pytest.mark.threat("escape-sequences")
def test_the_sentence_with_which_a_command_ends_is_shown_so_too(kind: type[click.ClickException]) -> None:
    group = LazyGroup("tdcs")

    @group.command()
    def refused() -> None:
        raise kind(f"the API server says: {EVIL}\nsee there")

    result = CliRunner().invoke(group, ["refused"], color=True)
    assert result.exit_code == kind.exit_code
    assert r"limits[\x1bc\x1b]0;title\x07" in result.output
    assert result.output.endswith("\nsee there\n")
    assert not re.search(r"[\x1b\x07\x9b]", result.output)
