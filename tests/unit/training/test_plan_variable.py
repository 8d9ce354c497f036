"""What `tdcs-train plan --job` puts into a job is what its workers read."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tdcs_train.cli.main import main
from tdcs_train.job import PLAN_VARIABLE
from tdcs_train.model.errors import PlanError
from tdcs_train.pipeline.plan_variable import plan_from


def test_the_workers_read_the_plan_that_was_written(chain: Path) -> None:
    words = ["plan", "--profile", str(chain), "--workers", "3", "--bandwidth", "1Gbit", "--json"]
    document = CliRunner().invoke(main, words).output
    plan = plan_from({PLAN_VARIABLE: document}, workers=3)
    assert plan is not None
    assert plan.replicas == (2, 1)
    assert [list(stage) for stage in plan.stages] == [
        each["nodes"] for each in json.loads(document)["stages"]
    ]
    with pytest.raises(PlanError, match=r"is a plan for 3 workers \(2-1\), the job has 4 \(WORLD_SIZE\)"):
        plan_from({PLAN_VARIABLE: document}, workers=4)


def test_without_the_variable_there_is_no_plan_and_nonsense_is_named() -> None:
    assert plan_from({}, workers=2) is None
    with pytest.raises(PlanError, match="the variable TDCS_TRAIN_PLAN cannot be read as a plan"):
        plan_from({PLAN_VARIABLE: "{"}, workers=2)
