"""In which order tiers run, and which at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import tiers
from tests.tiers import QUICK, TierResult, Wishes

Tiers = dict[str, Callable[[Wishes], TierResult]]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tiers:
    """Tiers that pass; the quick ones pass when all of them run."""
    met = threading.Barrier(len(QUICK), timeout=30)

    def read(_: Wishes) -> TierResult:
        met.wait()
        return TierResult(passed=1)

    found: Tiers = {**dict.fromkeys(QUICK, read), "processes": lambda _: TierResult(passed=1)}
    monkeypatch.setenv(tiers.RIGHTS, "")
    monkeypatch.setattr(tiers, "LOGS", tmp_path)
    monkeypatch.setattr(tiers, "TIERS", found)
    return found


def test_the_quick_tiers_run_at_once_and_first(made: Tiers, capsys: pytest.CaptureFixture[str]) -> None:
    assert tiers.main(["processes", *QUICK]) == 0
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines() if " ok " in line]
    assert rows == [*QUICK, "processes"]


@pytest.mark.parametrize(
    ("chosen", "groups"),
    [
        (["processes"], [["processes"]]),
        (["training", "e2e", "processes"], [["processes", "training"], ["e2e"]]),
        (["unit", "compile", "controlplane", "lint"], [["unit", "lint"], ["compile", "controlplane"]]),
        (["compile", "compile"], [["compile"]]),
    ],
)
def test_a_tier_that_waits_runs_with_one_that_computes(chosen: list[str], groups: list[list[str]]) -> None:
    assert tiers.at_once(chosen) == groups


def test_one_of_them_that_fails_hides_no_other_and_nothing_else_runs(
    made: Tiers, capsys: pytest.CaptureFixture[str]
) -> None:
    passes = made["lint"]
    made["lint"] = lambda wishes: TierResult(ok=not passes(wishes).ok, failed=1)
    assert tiers.main([*QUICK, "processes"]) == 1
    said = capsys.readouterr().out
    assert [line.split()[1] for line in said.splitlines() if line.startswith(QUICK)] == [
        "FAILED",
        "ok",
        "ok",
        "ok",
    ]
    assert "processes     not run, because an earlier tier failed" in said


@pytest.mark.parametrize("whole", [False, True])
def test_what_a_check_prints_is_shown(capfd: pytest.CaptureFixture[str], whole: bool) -> None:
    outcome = tiers.checks(("sh", "-c", "echo out; echo wrong >&2; exit 3"), whole=whole)
    assert (outcome.ok, outcome.failed) == (False, 1)
    assert {"out", "wrong"} <= {*"".join(capfd.readouterr()).splitlines()}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("test_root.test_it", "test_root.py::test_it"),
        ("model.test_zoo.test_a_model[GPT 1.5]", "model/test_zoo.py::test_a_model[GPT 1.5]"),
    ],
)
def test_a_test_of_a_report_is_run_again_by_its_file(name: str, expected: str) -> None:
    assert tiers.node_id(name) == expected
