"""The plan that a TrainingJob written by `tdcs-train plan --job` gives to its workers in a variable."""

import json
from collections.abc import Mapping

from tdcs_train.job import PLAN_VARIABLE
from tdcs_train.model.errors import PlanError
from tdcs_train.pipeline.plan_file import StagePlan, plan_of


def plan_from(environment: Mapping[str, str], *, workers: int) -> StagePlan | None:
    """The plan in the variable TDCS_TRAIN_PLAN for a job with that many workers; none if it is not set.

    Raises:
        PlanError: It is no plan, or one for another number of workers.
    """
    text = environment.get(PLAN_VARIABLE)
    if text is None:
        return None
    source = f"the variable {PLAN_VARIABLE}"
    try:
        document = json.loads(text)
    except ValueError as error:
        raise PlanError(f"{source} cannot be read as a plan: {error}") from error
    plan = plan_of(document, source=source)
    if plan.workers != workers:
        raise PlanError(
            f"{source} is a plan for {plan.workers} workers ({plan}), the job has {workers} (WORLD_SIZE); write the "
            f"job again with tdcs-train plan --workers {workers} --job"
        )
    return plan
