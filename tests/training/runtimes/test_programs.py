"""The programs that `tdcs-train plan --program` writes run as they are."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.training.processes import CHECKOUT, Job
from tests.training.runtimes.test_runtimes import needs_deepspeed

from tdcs_train.cli.main import main

pytestmark = pytest.mark.timeout(300)
MODEL = f"{CHECKOUT / 'tests' / 'training' / 'running' / 'digits.py'}:model"
INPUT = "node1 -- Input0 input_0 float32[4,6] -- forward_compute_time=0, backward_compute_time=0, "
LAYER = "node{0} -- Layer{0} -- forward_compute_time=5, backward_compute_time=10, "


def profile() -> str:
    """A profile of the model in which every layer takes as long, so that a pipeline is best."""
    layers = [
        LAYER.format(number) + "activation_size=96.0, parameter_size=1000000.0" for number in range(2, 8)
    ]
    edges = [f"\tnode{number} -- node{number + 1}" for number in range(1, 7)]
    return "\n".join([INPUT + "activation_size=96.0, parameter_size=0.0", *layers, *edges, ""])


@pytest.mark.parametrize("runtime", ["torch", "tdcs", pytest.param("deepspeed", marks=needs_deepspeed)])
def test_a_program_of_a_plan_runs_and_prints_its_losses(runtime: str, tmp_path: Path) -> None:
    (tmp_path / "graph.txt").write_text(profile())
    program = tmp_path / "train.py"
    words = [
        "plan",
        "--profile",
        str(tmp_path / "graph.txt"),
        "--workers",
        "2",
        "--bandwidth",
        "1Mbit",
        "--straight",
    ]
    done = CliRunner().invoke(main, [*words, "--program", runtime, str(program), "--model", MODEL])
    assert done.exit_code == 0, done.output
    assert "a pipeline of 2 stages, 1-1 workers, is best here" in done.output
    program.write_text(
        program.read_text().replace("STEPS = 8, 4, 100", "STEPS = 8, 4, 3").replace("1, 100", "1, 3")
    )
    environment = {"DS_ACCELERATOR": "cpu", "USE_LIBUV": "0"}
    ranks = {rank: {"LOCAL_RANK": str(rank)} for rank in range(2)}
    with Job(program, 2, tmp_path, environment=environment, of_rank=ranks) as job:
        assert job.end(within=150) == [0, 0], [worker.errors[-2000:] for worker in job.workers]
        losses = [line["loss"] for worker in job.workers for line in worker.results()]
    assert losses
    assert all(isinstance(loss, float) and 0 < loss < 5 for loss in losses)
