"""The processes that serve many connections have as many descriptors as the system grants them."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import tdcs.node.agent.agent_command
import tdcs.node.reader.reader_command
from tdcs.node import open_files
from tdcs.node.agent import agent_process
from tdcs.node.reader import supervisor


@pytest.fixture(autouse=True)
def hard() -> Iterator[int]:
    """The hard limit of this process, while its soft limit is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard - 1), hard))
    memory = resource.getrlimit(resource.RLIMIT_DATA)
    yield hard
    resource.setrlimit(resource.RLIMIT_DATA, memory)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_an_agent_starts_with_the_hard_limit(
    hard: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[int] = []

    async def run(settings: agent_process.ProcessSettings) -> None:
        limits.append(limit())

    monkeypatch.setattr(agent_process, "run", run)
    arguments = [
        "run",
        "--tier",
        str(tmp_path),
        "--node",
        "n",
        "--capacity",
        "1Gi",
        "--worker",
        "w:1",
        "--master",
        "m:1",
    ]
    result = CliRunner(catch_exceptions=False).invoke(tdcs.node.agent.agent_command.command, arguments)
    assert result.exit_code == 0, result.output
    assert limits == [hard]


def test_a_reader_starts_with_the_hard_limit(
    hard: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[int] = []
    monkeypatch.setattr(supervisor.Supervisor, "run", lambda _: limits.append(limit()))
    arguments = ["run", "--folder", str(tmp_path), "--node", "n"]
    result = CliRunner(catch_exceptions=False).invoke(tdcs.node.reader.reader_command.command, arguments)
    assert result.exit_code == 0, result.output
    assert limits == [hard]


def test_a_system_that_refuses_leaves_the_limit_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int, limits: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    before = limit()
    monkeypatch.setattr(resource, "setrlimit", refuse)
    open_files.allow_all()
    monkeypatch.undo()
    assert limit() == before
