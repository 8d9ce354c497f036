"""PyTorch's own pipeline schedule can run the stages of a plan, where it does the same."""

from pathlib import Path

from tests.training.processes import CHECKOUT, Job

SCRIPT = CHECKOUT / "tests" / "training" / "pipeline" / "torch_schedule_worker.py"


def test_with_its_defect_mended_it_gives_the_gradients_of_the_whole_batch(tmp_path: Path) -> None:
    with Job(SCRIPT, 2, tmp_path, environment={"MENDED": "yes", "REPLICAS": "[1, 1]"}) as job:
        assert job.end(within=60) == [0, 0], [worker.errors for worker in job.workers]
        for worker in job.workers:
            assert float(str(worker.results()[0]["difference"])) < 1e-6


def test_it_is_refused_where_pytorch_drops_transfers(tmp_path: Path) -> None:
    with Job(SCRIPT, 2, tmp_path, environment={"MENDED": "no", "REPLICAS": "[1, 1]"}) as job:
        assert job.end(within=60) == [2, 2]
        assert "drops pending transfers with gloo (pytorch issue 132644)" in job.workers[0].errors


def test_it_is_refused_for_stages_with_replicas(tmp_path: Path) -> None:
    with Job(SCRIPT, 3, tmp_path, environment={"MENDED": "yes", "REPLICAS": "[2, 1]"}) as job:
        assert job.end(within=60) == [2, 2, 2]
        assert "the plan 2-1 has replicas" in job.workers[0].errors
