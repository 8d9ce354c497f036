"""A run of tiers ends with the comparison of rights, of what this run recorded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests import tiers
from tests.support.rights.comparison import Right, Use
from tests.support.rights.records import record, recorded
from tests.tiers import TierResult, Wishes

USE = Use(used=frozenset({Right("operator", "batch", "jobs", "list")}))


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The commands of comparisons, none of which is run; one tier records what was used, one does not."""
    commands: list[Sequence[str]] = []

    def checks(*given: Sequence[str]) -> TierResult:
        commands.extend(given)
        return TierResult(ok=False, failed=1)

    def with_api_server(_: Wishes) -> TierResult:
        record(USE, tier="controlplane")
        return TierResult(passed=1)

    monkeypatch.setenv(tiers.RIGHTS, "")
    monkeypatch.setattr(tiers, "LOGS", tmp_path)
    monkeypatch.setattr(tiers, "checks", checks)
    monkeypatch.setattr(
        tiers,
        "TIERS",
        {
            "unit": lambda _: TierResult(passed=1),
            "controlplane": with_api_server,
            "e2e": lambda _: TierResult(ok=False, failed=1),
        },
    )
    return commands


def test_what_is_unexplained_fails_the_run(compared: list[Sequence[str]]) -> None:
    assert tiers.main(["--rights", "unit", "controlplane"]) == 1
    (command,) = compared
    assert list(command[1:4]) == ["-m", "tests.support.rights", "compare"]
    assert recorded(Path(command[4])) == {"controlplane": USE}


def test_a_run_without_an_api_server_compares_nothing(compared: list[Sequence[str]]) -> None:
    assert tiers.main(["--rights", "unit"]) == 0
    assert compared == []


def test_a_run_that_is_not_asked_for_rights_compares_nothing(
    compared: list[Sequence[str]], tmp_path: Path
) -> None:
    assert tiers.main(["controlplane"]) == 0
    assert compared == []
    assert not (tmp_path / "rights").exists()


def test_a_run_that_failed_compares_nothing(compared: list[Sequence[str]]) -> None:
    assert tiers.main(["--rights", "controlplane", "e2e"]) == 1
    assert compared == []


def test_records_of_earlier_runs_do_not_count_and_the_newest_are_kept(
    compared: list[Sequence[str]], tmp_path: Path
) -> None:
    older = [tmp_path / "rights" / f"2026013{number}T120000-1" for number in range(8)]
    for folder in older:
        folder.mkdir(parents=True)
        (folder / "e2e.1.json").write_text("{}")
    tiers.main(["--rights", "controlplane"])
    (command,) = compared
    used = Path(command[4])
    assert used == Path(os.environ[tiers.RIGHTS])
    assert set(recorded(used)) == {"controlplane"}
    assert sorted((tmp_path / "rights").iterdir()) == [*older[-tiers.KEPT_RIGHTS :], used]
