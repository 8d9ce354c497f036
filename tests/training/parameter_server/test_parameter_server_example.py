"""The example train_parameter_server_torch.py: two workers and a server, by the order of a plan."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.training.processes import CHECKOUT, Job, free_port

EXAMPLES = CHECKOUT / "deploy" / "examples"
# The last process is a server: it has no rank, as a pod of the role PS.
SCRIPT = f"""
import os, runpy, sys
if os.environ["RANK"] == "2":
    del os.environ["RANK"]
os.environ["WORLD_SIZE"] = os.environ.get("WORKERS", "2")
sys.path.insert(0, {str(EXAMPLES)!r})
runpy.run_path({str(EXAMPLES / "train_parameter_server_torch.py")!r}, run_name="__main__")
"""


@pytest.fixture
def bright_and_dark(tmp_path: Path) -> Path:
    """64 images of two classes that a network tells apart at once."""
    for number in range(64):
        name = ("bright", "dark")[number % 2]
        (tmp_path / "data" / name).mkdir(parents=True, exist_ok=True)
        shade = 200 + number % 40 if name == "bright" else number % 40
        Image.new("L", (28, 28), shade).save(tmp_path / "data" / name / f"{number:02}.jpg")
    return tmp_path / "data"


def order(tmp_path: Path, *layers: str) -> Path:
    """A plan in which these layers come first to last."""
    path = tmp_path / "order.json"
    transfers = [{"node": layer, "priority": len(layers) - place} for place, layer in enumerate(layers)]
    path.write_text(json.dumps({"transfers": transfers}))
    return path


def job(tmp_path: Path, data: Path, *arguments: str, **variables: str) -> Job:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = ["--data", str(data), "--batch", "8", "--epochs", "6", "--learning-rate", "0.02", *arguments]
    hosts = {"TDCS_PS_HOSTS": f"127.0.0.1:{free_port()}", "JOB_COMPLETION_INDEX": "0"}
    return Job(script, 3, tmp_path, words, environment=hosts | variables)


def test_two_workers_and_a_server_train_and_all_of_them_end(tmp_path: Path, bright_and_dark: Path) -> None:
    plan = order(tmp_path, "node2", "node5", "node9", "node11")
    with job(tmp_path, bright_and_dark, "--classes=2", "--workers=2", f"--order={plan}") as running:
        assert running.end(within=90) == [0] * 3, [worker.errors for worker in running.workers]
        workers = [worker.results() for worker in running.workers[:2]]
        (server,) = running.workers[2].results()
    assert (server["done"], server["server"]) == (True, 0)
    assert [end["order_kept"] for end in (server, *(lines[-1] for lines in workers))] == [1.0] * 3
    for lines in workers:
        assert float(str(lines[-1]["last_loss"])) < 0.6 * float(str(lines[-1]["first_loss"]))
        last: Any = lines[-1]["sent_last"]
        (sent,) = last
        assert sorted(sent) == sorted(
            f"{layer}.{kind}" for layer in (0, 3, 7, 9) for kind in ("weight", "bias")
        )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--workers=2"], "give --classes: servers see no file"),
        (["--classes=2", "--workers=2", "--order=/absent.json"], "/absent.json cannot be read as a plan"),
    ],
)
def test_what_cannot_be_used_ends_all_with_code_2_and_a_sentence(
    tmp_path: Path, bright_and_dark: Path, arguments: list[str], reason: str
) -> None:
    with job(tmp_path, bright_and_dark, *arguments) as running:
        assert running.end(within=60) == [2] * 3
        for worker in running.workers:
            assert reason in worker.errors
            assert "Traceback" not in worker.errors


def test_variables_that_cannot_be_end_a_worker_and_a_server_with_a_sentence(
    tmp_path: Path, bright_and_dark: Path
) -> None:
    wrong = {"WORKERS": "two", "JOB_COMPLETION_INDEX": "1"}
    with job(tmp_path, bright_and_dark, "--classes=2", "--workers=2", **wrong) as running:
        assert running.end(within=60) == [2] * 3
        errors = [worker.errors for worker in running.workers]
    assert not any("Traceback" in text for text in errors)
    for text in errors[:2]:
        assert "the variable WORLD_SIZE is 'two'; it must be a whole number of at least 1" in text
    assert "the variable JOB_COMPLETION_INDEX is '1'; it must be a whole number from 0 to 0" in errors[2]
