"""Which fields of a status are written, and which changes of conditions are worth an event."""

import re
from types import NoneType
from typing import Any, get_args

import pytest
from tests.unit.control.builders import NOW

from tdcs.api.base import Model
from tdcs.api.conditions import Condition, Finding, finding, merge
from tdcs.api.dataset import Copy, DatasetStatus, NodeBytes
from tdcs.api.trainingjob_status import ReplicaStatus, TrainingJobStatus
from tdcs.cli.crd_documents import KINDS, DocumentedKind
from tdcs.control.status_publisher import changed
from tdcs.decide.dataset_conditions import blocked


def conditions(
    findings: list[Finding], previous: list[Condition] | None = None, *, generation: int = 1
) -> list[Condition]:
    return merge(previous=previous or [], findings=findings, generation=generation, now=NOW)


def announced(*, before: list[Condition], after: list[Condition]) -> list[tuple[str, str]]:
    return [(condition.type, condition.reason) for condition in changed(before=before, after=after)]


def test_one_cause_is_announced_once() -> None:
    refused = conditions(blocked(reason="SecretNotFound", message="Secret n/keys does not exist"))
    assert len(refused) == 3
    assert announced(before=[], after=refused) == [("Mounted", "SecretNotFound")]


def test_another_cause_is_announced_again_and_the_same_is_not() -> None:
    first = conditions(blocked(reason="SecretNotFound", message="no Secret"))
    second = conditions(blocked(reason="SecretIncomplete", message="no key"), first)
    assert announced(before=first, after=second) == [("Mounted", "SecretIncomplete")]
    assert announced(before=second, after=second) == []


def test_another_spec_that_is_wrong_for_the_same_reason_is_announced_again() -> None:
    first = conditions(blocked(reason="EndpointNotAllowed", message="10.96.0.1 is inside"))
    second = blocked(reason="EndpointNotAllowed", message="10.96.0.2 is inside")
    assert announced(before=first, after=conditions(second, first, generation=2)) == [
        ("Mounted", "EndpointNotAllowed")
    ]
    assert announced(before=first, after=conditions(second, first)) == []
    repeated = blocked(reason="EndpointNotAllowed", message="10.96.0.1 is inside")
    assert announced(before=first, after=conditions(repeated, first, generation=2)) == []
    loading = conditions([finding("Loaded", False, "Loading", "1 of 3")])
    more = conditions([finding("Loaded", False, "Loading", "2 of 3")], loading, generation=2)
    assert announced(before=loading, after=more) == []


def test_conditions_with_messages_of_their_own_are_all_announced() -> None:
    first = conditions([finding("Mounted", False, "Mounting", "x"), finding("Ready", False, "Mounting", "x")])
    second = conditions(
        [finding("Mounted", True, "Mounted", "it can be read"), finding("Ready", True, "Loaded", "1 MB")],
        first,
    )
    assert announced(before=first, after=second) == [("Mounted", "Mounted"), ("Ready", "Loaded")]


def test_a_message_that_another_one_of_the_same_reason_contains_is_not_announced() -> None:
    few = "only 1 node has room"
    findings = [
        finding("Placed", False, "TooFewNodes", few),
        finding("Loaded", True, "TooFewNodes", f"9 MB on 1 node; {few}"),
        finding("Ready", True, "TooFewNodes", f"9 MB on 1 node; {few}"),
    ]
    assert announced(before=[], after=conditions(findings)) == [("Loaded", "TooFewNodes")]
    assert announced(before=[], after=conditions(findings[::-1])) == [("Ready", "TooFewNodes")]


def test_a_warning_is_not_announced_again_by_a_condition_that_follows_from_it_later() -> None:
    few = "it is on 3 nodes, and spec.placement asks for 50"
    first = conditions([finding("Placed", False, "TooFewNodes", few), finding("Ready", False, "Loading")])
    assert announced(before=[], after=first) == [("Placed", "TooFewNodes")]
    ready = conditions([finding("Ready", True, "TooFewNodes", f"9 MB on 3 nodes; {few}")], first)
    assert announced(before=first, after=ready) == []
    # That something holds no more, or has failed for good, is news.
    worse = conditions([finding("Ready", False, "TooFewNodes", few)], ready)
    assert announced(before=ready, after=worse) == [("Ready", "TooFewNodes")]
    failed = conditions([finding("Failed", True, "TooFewNodes", few)], first)
    assert announced(before=first, after=failed) == [("Failed", "TooFewNodes")]
    # So it is once it was over.
    over = conditions([finding("Placed", True, "Placed"), finding("Ready", True, "Loaded")], ready)
    again = conditions([finding("Placed", False, "TooFewNodes", few)], over)
    assert announced(before=over, after=again) == [("Placed", "TooFewNodes")]


def test_of_warnings_with_one_reason_the_longest_message_is_announced() -> None:
    short = finding("Granted", False, "NotAllFits", "1 GB of 9 GB found room")
    full = finding("Placed", False, "NotAllFits", "1 GB of 9 GB is all that the chosen nodes have room for")
    for findings in ([short, full], [full, short]):
        assert announced(before=[], after=conditions(findings)) == [("Placed", "NotAllFits")]


def test_an_unknown_condition_is_not_announced_even_when_it_was_known() -> None:
    loaded = conditions([finding("Loaded", True, "Loaded", "all")])
    unknown = conditions([finding("Loaded", None, "CacheUnavailable", "cannot be known")], loaded)
    assert announced(before=loaded, after=unknown) == []


def status_json(status: Model) -> dict[str, Any]:
    return status.model_dump(by_alias=True, exclude_none=True, mode="json")


def test_a_status_leaves_out_what_is_empty_and_keeps_zeros_that_columns_print() -> None:
    copy = Copy(id="0", nodes=[NodeBytes(name="a", bytes=0)])
    dataset = status_json(DatasetStatus(state="Ready", copies=[copy, Copy(id="1")]))
    assert dataset["copies"] == [{"id": "0", "nodes": [{"name": "a", "bytes": 0}]}, {"id": "1", "nodes": []}]
    assert (dataset["activeJobs"], dataset["totalFiles"], dataset["loadedRatio"]) == (0, 0, 0.0)
    empty = {"failedFiles", "failedFileCount", "uses", "usedBy", "inUse", "kept", "bytesPerSecond"}
    assert not empty & dataset.keys()
    # A zero that is no default says something.
    assert status_json(TrainingJobStatus(locality=0.0, passed=0)) == {
        "replicas": 0,
        "locality": 0.0,
        "passed": 0,
    }


def test_a_job_that_runs_says_how_many_are_ready_and_one_that_has_ended_does_not() -> None:
    starting = status_json(ReplicaStatus(name="Worker", active=1))
    assert starting == {"name": "Worker", "active": 1, "ready": 0}
    ended = status_json(ReplicaStatus(name="Worker", ready=None, succeeded=1))
    assert ended == {"name": "Worker", "succeeded": 1}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_numbers_that_columns_and_autoscalers_read_are_in_the_first_status(kind: DocumentedKind) -> None:
    field = kind.model.model_fields.get("status")
    if field is None:
        assert kind.plural == "datachecks"
        return
    (model,) = (argument for argument in get_args(field.annotation) if argument is not NoneType)
    numbers = {column.path for column in kind.columns if column.type == "integer"} | (
        {kind.scaled_path} if kind.scale else set()
    )
    paths = {path.removeprefix(".status.") for path in numbers if re.fullmatch(r"\.status\.\w+", path)}
    assert paths
    assert paths <= status_json(model()).keys()
