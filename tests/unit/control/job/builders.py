"""Jobs that were admitted, and what is decided for jobs."""

from typing import Any

from tests.unit.control.builders import NOW, job_spec

from tdcs.api.trainingjob import TrainingJobSpec
from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.decide.job import job_phase as decisions
from tdcs.decide.job.job_phase import Decision
from tdcs.decide.job.observed_job import Observed

ADMITTED = TrainingJobStatus.model_validate(
    {
        "conditions": [
            {"type": "Admitted", "status": "True", "reason": "DatasetsReady", "lastTransitionTime": NOW}
        ]
    }
)


def decided(observed: Observed, *, now: str = NOW) -> Decision:
    return decisions.decision_of(observed=observed, data=decisions.data(observed, now=now))


def reading(**readiness: Any) -> TrainingJobSpec:
    """A job that waits for its dataset as given."""
    return job_spec(datasets=[{"name": "pictures", "mountPath": "/data", "readiness": readiness}])
