"""The text of programs that `tdcs-train plan --program` writes."""

import ast
from pathlib import Path

import pytest
from tests.unit.training.test_commands import run

from tdcs_train.runtimes.program import RUNTIMES


def words(profile: Path, program: Path, runtime: str, *others: object) -> list[object]:
    return ["plan", "--profile", profile, "--bandwidth", "1Gbit", "--program", runtime, program, *others]


@pytest.fixture
def measured(chain: Path, tmp_path: Path) -> Path:
    """The profile of the fixture with the input that it was measured with."""
    lines = [
        line.replace(" -- Input0 -- ", " -- Input0 x float32[32,4] -- ")
        for line in chain.read_text().splitlines()
    ]
    path = tmp_path / "measured.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_program_is_python_with_the_plan_and_the_samples_of_the_profile(
    runtime: str, measured: Path, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    result = run(
        *words(measured, program, runtime, "--workers", 2, "--straight", "--model", "train.py:model")
    )
    assert result.exit_code == 0, result.output
    text = program.read_text()
    ast.parse(text)
    assert "torchrun --nproc-per-node 2" in text
    assert 'MODEL, OPTIMIZER = "train.py:model", "optimizer"' in text
    assert f"SAMPLES, MICRO_BATCHES, STEPS = {'32, 1' if runtime == 'tdcs' else '128, 4'}, 100" in text


@pytest.mark.parametrize("runtime", ["torch", "deepspeed"])
def test_stages_of_different_width_are_refused_where_a_runtime_wants_as_many_in_each(
    runtime: str, measured: Path, tmp_path: Path
) -> None:
    result = run(
        *words(measured, tmp_path / "program.py", runtime, "--workers", 3, "--model", "train.py:model")
    )
    assert result.exit_code == 2
    assert "the plan 2-1 has stages with different numbers of workers" in result.output
    assert "plan with --straight, or write a program for tdcs" in result.output
    assert not (tmp_path / "program.py").exists()


def test_a_program_needs_a_model_and_a_profile_that_says_its_inputs(chain: Path, tmp_path: Path) -> None:
    result = run(*words(chain, tmp_path / "program.py", "tdcs", "--workers", 3))
    assert (result.exit_code, "--program needs --model FILE.py:MODEL" in result.output) == (2, True)
