"""`tdcs-train run` trains to the same end however it is divided and interrupted, and says by its code how it ended."""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from tests.training.processes import CHECKOUT, Job, free_port

pytestmark = pytest.mark.timeout(400)
FOLDER = CHECKOUT / "tests" / "training" / "running"
NODES = [f"node{number}" for number in range(2, 8)]


def plan_of(folder: Path, replicas: Sequence[int], cuts: Sequence[int]) -> list[str]:
    """The options for a plan of stages that begin at these layers."""
    ends = [0, *cuts, len(NODES)]
    stages = [
        {"nodes": NODES[begin:end], "replicas": count}
        for (begin, end), count in zip(itertools.pairwise(ends), replicas, strict=True)
    ]
    path = folder / f"plan-{'-'.join(map(str, replicas))}.json"
    path.write_text(json.dumps({"stages": stages}))
    return ["--plan", str(path)]


def run(
    folder: Path,
    workers: int,
    *options: str,
    codes: Sequence[int] | None = None,
    environment: Mapping[str, str] | None = None,
    of_rank: Mapping[int, Mapping[str, str]] | None = None,
) -> list[Any]:
    """The lines of worker 0; all end with the codes, 0 by default. Checkpoints and the model are in the folder."""
    folder.mkdir(exist_ok=True)
    common = ["run", f"{FOLDER / 'digits.py'}:model", "--batch", "8", "--epochs", "3", "--timeout", "100"]
    paths = ["--checkpoints", str(folder / "kept"), "--output", str(folder / "model.pt"), "--every", "4"]
    with Job(
        FOLDER / "run_worker.py",
        workers,
        folder,
        [*common, *paths, *options],
        environment=environment or {},
        of_rank=of_rank or {},
    ) as job:
        exit_codes = job.end(within=150)
        expected = list(codes or [0] * workers)
        assert exit_codes == expected, [worker.output + worker.errors[-1500:] for worker in job.workers]
        return [*job.workers[0].results(), {"errors": [worker.errors for worker in job.workers]}]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = torch.load(folder / "model.pt", weights_only=True)
    return state


def test_a_run_goes_on_with_other_workers_and_another_plan_where_it_was_stopped(tmp_path: Path) -> None:
    alone, moved = tmp_path / "alone", tmp_path / "moved"
    whole = run(alone, 1)
    two = plan_of(tmp_path, [1, 1], [3])
    stopped = run(moved, 2, *two, codes=[143, 143], of_rank={0: {"WAY_TO_END": "SIGTERM", "AT": "50"}})
    assert [line["done"] for line in stopped if "done" in line] == [4, 8]
    lines = run(moved, 3, *plan_of(tmp_path, [2, 1], [2]))
    assert lines[0] == {"resumed": 8, "of": 18}
    assert [line["loss"] for line in lines if "loss" in line] == pytest.approx(
        [line["loss"] for line in whole if "loss" in line][2:], abs=1e-5
    )
    (expected,) = (line for line in whole if "evaluation" in line)
    (evaluation,) = (line for line in lines if "evaluation" in line)
    assert evaluation["samples"] == 22
    assert evaluation["evaluation"] == pytest.approx(expected["evaluation"], abs=1e-5)
    assert evaluation["metric"] == pytest.approx(expected["metric"])
    assert weights(moved).keys() == weights(alone).keys()
    for name, value in weights(alone).items():
        torch.testing.assert_close(weights(moved)[name], value, atol=1e-5, rtol=0)


def test_random_numbers_go_on_where_a_run_was_stopped(tmp_path: Path) -> None:
    plan, dropout = plan_of(tmp_path, [1, 1], [2]), {"DROPOUT": "0.5"}
    run(tmp_path / "whole", 2, *plan, environment=dropout)
    stop = {0: {"WAY_TO_END": "SIGTERM", "AT": "80"}}
    run(tmp_path / "parts", 2, *plan, codes=[143, 143], environment=dropout, of_rank=stop)
    run(tmp_path / "parts", 2, *plan, environment=dropout)
    for name, value in weights(tmp_path / "whole").items():
        assert torch.equal(weights(tmp_path / "parts")[name], value)


def test_workers_meet_at_the_store_of_an_agent_such_as_torchruns(tmp_path: Path) -> None:
    # torchrun itself does not start in Debian's PyTorch, which has no libuv: this is the store that its agent holds.
    port = free_port()
    store = torch.distributed.TCPStore(
        "127.0.0.1", port, is_master=True, wait_for_workers=False, use_libuv=False
    )
    variables = {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_PORT": str(port)}
    lines = run(tmp_path, 2, *plan_of(tmp_path, [1, 1], [3]), "--epochs", "1", environment=variables)
    assert any("evaluation" in line for line in lines)
    assert store.check(["tdcs-train/0/worker/1"])


def test_workers_without_a_plan_make_one(tmp_path: Path) -> None:
    lines = run(tmp_path, 2, "--profile-steps", "2", "--link-seconds", "0.2", "--epochs", "1")
    assert "plan" in lines[0]
    assert any("evaluation" in line for line in lines)
    assert set(weights(tmp_path)) == {
        f"{number}.{name}" for number in (0, 3, 5) for name in ("weight", "bias")
    }


@pytest.mark.parametrize(
    ("way", "codes", "sentence"),
    [
        ("no pairs", [2, 2], "items of the dataset must be (input, label)"),
        ("error", [1, 1], "no such row"),
        ("SIGKILL", [-9, 75], ""),
    ],
)
def test_the_exit_code_says_whether_a_restart_helps(
    way: str, codes: list[int], sentence: str, tmp_path: Path
) -> None:
    ends = {0: {"WAY_TO_END": way, "AT": "20"}}
    lines = run(tmp_path, 2, *plan_of(tmp_path, [1, 1], [3]), codes=codes, of_rank=ends)
    assert all(sentence in errors for errors in lines[-1]["errors"])
