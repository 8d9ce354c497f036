"""What an experiment that fails leaves, and what it says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tdcs_local.errors import LocalError
from tdcs_local.experiment import runner
from tdcs_local.experiment.plan import Plan
from tdcs_local.progress import Reporter

Step = Callable[..., Any]


def failing(what: str) -> Step:
    def step(*_: object, **__: object) -> Any:
        raise LocalError(what=what)

    return step


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps that were taken; each of them succeeds."""
    done: list[str] = []

    def step(name: str, result: object) -> Step:
        def take(*_: object, **__: object) -> object:
            done.append(name)
            return result

        return take

    monkeypatch.setattr(runner, "Kubectl", lambda: None)
    for name, result in (("prepare", {}), ("_run", {"runs": []}), ("tidy", None)):
        monkeypatch.setattr(runner, name, step(name, result))
    return done


def run(tmp_path: Path) -> object:
    return runner.run(Plan(), results=tmp_path / "results.json", reporter=Reporter(quiet=True))


def test_what_was_made_is_taken_away_at_the_end(done: list[str], tmp_path: Path) -> None:
    assert run(tmp_path) == {"runs": []}
    assert done == ["prepare", "_run", "tidy"]


@pytest.mark.parametrize("name", ["prepare", "_run"])
def test_what_was_made_is_taken_away_when_a_step_fails(
    name: str, done: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(runner, name, failing("the cache did not become Ready"))
    with pytest.raises(LocalError, match="did not become Ready"):
        run(tmp_path)
    assert done[-1] == "tidy"


def test_the_reason_of_a_failure_is_named_though_nothing_can_be_taken_away(
    done: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "_run", failing("a job failed"))
    monkeypatch.setattr(runner, "tidy", failing("the store does not answer"))
    with pytest.raises(LocalError, match="a job failed"):
        runner.run(Plan(), results=tmp_path / "results.json", reporter=Reporter())
    assert (
        "not all that the experiment made was deleted: the store does not answer" in capsys.readouterr().err
    )
