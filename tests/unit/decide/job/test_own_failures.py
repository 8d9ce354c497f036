"""Pods whose failure counts."""

from typing import Any

import pytest

from tdcs.decide.job.own_failures import failed_by_themselves
from tdcs.model.job_pods import PodView


def pod(name: str, **more: Any) -> PodView:
    return PodView(name=name, **{"phase": "Failed", **more})


RUNS, FAILED = pod("runs", phase="Running"), pod("failed")
ENDED, DISRUPTED = pod("ended", going=True), pod("disrupted", going=True, disruption="Preempted")


@pytest.mark.parametrize(
    ("pods", "names"),
    [
        pytest.param([], [], id="no pods"),
        pytest.param([RUNS, pod("done", phase="Succeeded", going=True)], [], id="none failed"),
        pytest.param([RUNS, FAILED, ENDED], ["failed"], id="one that its Job ended after another failure"),
        pytest.param([DISRUPTED, ENDED], ["disrupted"], id="one that the cluster ended"),
        pytest.param([DISRUPTED, FAILED], ["disrupted", "failed"], id="both count"),
        pytest.param([RUNS, ENDED], ["ended"], id="one that a user deleted"),
        pytest.param([ENDED, pod("too", going=True)], ["ended", "too"], id="all that a user deleted"),
    ],
)
def test_a_pod_that_is_ended_after_another_failure_does_not_count(
    pods: list[PodView], names: list[str]
) -> None:
    assert [failed_pod.name for failed_pod in failed_by_themselves(pods)] == names
