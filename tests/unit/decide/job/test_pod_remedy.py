"""What a user can do about a pod that does not start."""

import pytest

from tdcs.decide.job.pod_remedy import remedy


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
    assert remedy("CrashLoopBackOff") == "see its log: kubectl logs --previous"
    assert remedy("ContainerCreating") == ""
