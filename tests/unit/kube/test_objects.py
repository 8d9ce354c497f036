"""What holds for objects of any kind."""

from typing import Any

import pytest

from tdcs.model.kube_objects import UNENDED_PODS, job_ending, pod_has_ended, with_finalizer, without_finalizer

FINALIZER = "tdcs.io/finalizer"


def held_by(*finalizers: str) -> dict[str, Any]:
    return {"metadata": {"name": "d", "finalizers": list(finalizers)}}


@pytest.mark.parametrize(
    ("phase", "ended"),
    [("Pending", False), ("Running", False), ("Unknown", False), ("Succeeded", True), ("Failed", True)],
)
def test_a_pod_has_ended_when_its_phase_is_final(phase: str, ended: bool) -> None:
    assert pod_has_ended({"status": {"phase": phase}}) is ended
    assert (f"status.phase!={phase}" in UNENDED_PODS.split(",")) is ended


def test_a_pod_without_a_status_has_not_ended() -> None:
    assert not pod_has_ended({})


@pytest.mark.parametrize(
    ("conditions", "ending"),
    [
        ([], None),
        ([{"type": "Complete", "status": "False"}], None),
        ([{"type": "Suspended", "status": "True"}], None),
        ([{"type": "FailureTarget", "status": "True"}, {"type": "Failed", "status": "True"}], "Failed"),
        ([{"type": "Complete", "status": "True"}], "Complete"),
    ],
)
def test_the_conditions_of_a_job_say_how_it_ended(
    conditions: list[dict[str, str]], ending: str | None
) -> None:
    assert job_ending({"status": {"conditions": conditions}}) == ending


def test_a_finalizer_is_added_and_removed_next_to_those_of_others() -> None:
    assert with_finalizer(held_by("other"), finalizer=FINALIZER) == ["other", FINALIZER]
    assert with_finalizer(held_by(FINALIZER), finalizer=FINALIZER) is None
    assert without_finalizer(held_by("other", FINALIZER), finalizer=FINALIZER) == ["other"]
    assert without_finalizer(held_by("other"), finalizer=FINALIZER) is None
    assert with_finalizer({"metadata": {}}, finalizer=FINALIZER) == [FINALIZER]
