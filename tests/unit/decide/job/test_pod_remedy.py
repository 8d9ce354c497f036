"""What a user can do about a pod that does not start."""

from typing import Any

import pytest
from tests.unit.control.builders import job_spec

from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.decide.job.job_headline import running
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.job.pod_remedy import remedy
from tdcs.model.job_pods import pod_view


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("ErrImagePull", "imagePullSecrets"),
        ("ImagePullBackOff", "name and tag"),
        ("InvalidImageName", "correct the image's name"),
        ("ErrImageNeverPull", "imagePullPolicy"),
        ("CreateContainerConfigError", "Secret or ConfigMap"),
    ],
)
def test_a_fault_of_the_template_says_what_to_check_and_how_to_change_it(reason: str, advice: str) -> None:
    assert advice in remedy(reason)
    assert remedy(reason).endswith("suspend the job first (spec.runPolicy.suspend)")


def test_a_container_that_crashes_points_to_its_log_and_an_unknown_reason_says_nothing() -> None:
    waits = {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}}
    pod: dict[str, Any] = {
        "metadata": {"name": "train-worker-0-x", "annotations": {}},
        "spec": {"nodeName": "a"},
        "status": {"phase": "Running", "containerStatuses": [{"name": "main", **waits}]},
    }
    observed = Observed(
        spec=job_spec(datasets=[]), status=TrainingJobStatus(), namespace="team", pods=[pod_view(pod)]
    )
    assert running(observed).message.endswith(
        "; see kubectl logs -n team train-worker-0-x -c main --previous"
    )
    assert remedy("ContainerCreating") == ""
