"""`make flaky` finds a test that fails in some runs, and chooses the tests of what changed."""

from pathlib import Path

import pytest
from tests import flaky


def test_a_test_that_fails_in_some_runs_is_named_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "test_chance.py").write_text(
        "import os\n"
        "def test_that_holds(): pass\n"
        "def test_by_chance():\n"
        "    seed = int(os.environ['PYTHONHASHSEED'])\n"
        "    assert seed != 2, 'the seed is two'\n"
    )
    outcome = flaky.run_often([tmp_path], runs=3, processes=2)
    assert outcome.runs == 3
    assert list(outcome.failures.values()) == [1]
    assert "test_by_chance failed in 1 of 3 runs: AssertionError: the seed is two" in outcome.text()


def test_a_run_that_cannot_begin_is_no_success(tmp_path: Path) -> None:
    outcome = flaky.run_often([tmp_path / "missing"], runs=1, processes=1)
    assert outcome.broken or outcome.failures
    assert "no test failed" not in outcome.text()


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        pytest.param("tests/unit/a/test_one.py", ["tests/unit/a/test_one.py"], id="a test file"),
        pytest.param("operator/tdcs/decide/two.py", ["tests/unit/b/test_two.py"], id="a module"),
        pytest.param("operator/tdcs/decide/three.py", [], id="a module without a test file of its name"),
        pytest.param("docs/one.md", [], id="a page"),
        pytest.param("tests/unit/test_two.md", [], id="another kind of file"),
    ],
)
def test_the_tests_of_what_changed(changed: str, chosen: list[str]) -> None:
    there = [flaky.ROOT / "tests/unit/a/test_one.py", flaky.ROOT / "tests/unit/b/test_two.py"]
    assert flaky.tests_of([changed, changed], there) == [flaky.ROOT / path for path in chosen]
