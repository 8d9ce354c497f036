"""What `tdcs-train plan --job` puts into a job is what its workers read."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tdcs_train.cli.main import main
from tdcs_train.job import PLAN_VARIABLE
from tdcs_train.model.errors import PlanError
from tdcs_train.pipeline.plan_file import plan_of
from tdcs_train.pipeline.plan_variable import plan_from


def test_the_workers_read_the_plan_that_was_written(chain: Path) -> None:
    words = ["plan", "--profile", str(chain), "--workers", "3", "--bandwidth", "1Gbit", "--json"]
    document = CliRunner().invoke(main, words).output
    plan = plan_from({PLAN_VARIABLE: document}, workers=3)
    assert plan is not None
    assert plan.replicas == (2, 1)
    assert [list(stage) for stage in plan.stages] == [
        stage["nodes"] for stage in json.loads(document)["stages"]
    ]
    with pytest.raises(PlanError, match=r"is a plan for 3 workers \(2-1\), the job has 4 \(WORLD_SIZE\)"):
        plan_from({PLAN_VARIABLE: document}, workers=4)


def test_without_the_variable_there_is_no_plan_and_nonsense_is_named() -> None:
    assert plan_from({}, workers=2) is None
    with pytest.raises(PlanError, match="the variable TDCS_TRAIN_PLAN cannot be read as a plan"):
        plan_from({PLAN_VARIABLE: "{"}, workers=2)


def test_what_is_ahead_travels_with_the_plan_and_makes_it_another_one(chain: Path) -> None:
    words = ["plan", "--profile", str(chain), "--workers", "3", "--bandwidth", "1Gbit", "--json"]
    plain, ahead = (
        plan_from({PLAN_VARIABLE: CliRunner().invoke(main, [*words, f"--ahead={count}"]).output}, workers=3)
        for count in (0, 2)
    )
    assert plain is not None
    assert ahead is not None
    assert (plain.ahead, ahead.ahead) == (0, 2)
    assert plain.digest != ahead.digest
    older = {
        "stages": [
            {"nodes": list(nodes), "replicas": count}
            for nodes, count in zip(plain.stages, plain.replicas, strict=True)
        ]
    }
    assert plan_of(older, source="plan.json") == plain, "a plan of before"
    assert plan_of({**older, "ahead": 64}, source="plan.json").ahead == 64
    for wrong in (-1, 65, 1_000_000_000, "1", True, 1.5):
        with pytest.raises(
            PlanError, match=r"plan.json, ahead is .*; it must be a whole number from 0 to 64"
        ):
            plan_of({**older, "ahead": wrong}, source="plan.json")
