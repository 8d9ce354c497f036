"""Whether the queue of a namespace is paused."""

from typing import Any

import pytest

from tdcs.decide.queue.pod_admission import Reason
from tdcs.decide.queue.queue_stop import StopPolicy, stop_policy, stopped


def namespaces(**annotations: Any) -> dict[tuple[str, str], dict[str, Any]]:
    marks = {f"tdcs.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return {("", "team"): {"metadata": {"name": "team", "annotations": marks}}}


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("None", StopPolicy.NONE),
        ("Hold", StopPolicy.HOLD),
        ("HoldAndDrain", StopPolicy.DRAIN),
        ("holdanddrain", StopPolicy.HOLD),
        ("none", StopPolicy.HOLD),
        ("", StopPolicy.HOLD),
    ],
)
def test_an_annotation_that_is_no_policy_holds_jobs_and_drains_none(text: str, policy: StopPolicy) -> None:
    assert stop_policy(namespaces(queue_stop_policy=text), "team") is policy


@pytest.mark.parametrize(
    "objects",
    [{}, namespaces(), {("", "team"): {"metadata": {}}}, {("", "team"): {"metadata": {"annotations": None}}}],
)
def test_a_namespace_without_the_annotation_or_that_is_not_seen_is_not_paused(objects: Any) -> None:
    assert stop_policy(objects, "team") is StopPolicy.NONE


def test_a_paused_namespace_pauses_no_other() -> None:
    assert stop_policy(namespaces(queue_stop_policy="Hold"), "other") is StopPolicy.NONE


def test_the_message_names_the_command_and_whether_the_job_ran() -> None:
    reason, text = stopped("team")
    assert reason is Reason.STOPPED
    assert text.startswith("the queue of namespace team is paused")
    assert "tdcs queue resume --all -n team" in text
    assert stopped("team", drained=True)[1] == f"its pods were ended and it queues again with its age: {text}"
