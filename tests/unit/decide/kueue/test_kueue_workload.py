"""A Workload of Kueue as its check on data sees it."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.decide.job.test_data_verdict import CHECK, at, checked, workload

from tdcs.decide.kueue.kueue_workload import checked_workload, copies_read, is_finished


def test_a_workload_without_the_check_is_none_of_ours() -> None:
    assert checked_workload(workload(), check="other", ours={"other"}) is None
    assert checked_workload({"metadata": {}}, check=CHECK, ours={CHECK}) is None


def test_claims_of_all_pod_sets_count_once_in_their_order() -> None:
    obj = workload("w", "b", "a", "b")
    obj["spec"]["podSets"].append(obj["spec"]["podSets"][0] | {"name": "more"})
    assert checked(obj).pod_sets[0].claims == ("b", "a")
    assert checked(obj).claims == ("b", "a")
    assert checked(workload()).claims == ()


def test_volumes_of_other_kinds_are_no_claims() -> None:
    obj = workload("w", "a")
    obj["spec"]["podSets"][0]["template"]["spec"]["volumes"].append({"name": "x", "emptyDir": {}})
    assert checked(obj).claims == ("a",)


@pytest.mark.parametrize(
    ("metadata", "by_claims"),
    [
        ({}, True),
        ({"labels": {"tdcs.io/place-by-data": "true"}}, True),
        ({"labels": {"tdcs.io/place-by-data": "false"}}, False),
        ({"annotations": {"tdcs.io/datasets": "[]"}}, False),
    ],
)
def test_claims_say_what_pods_read_unless_their_template_does(
    metadata: dict[str, Any], by_claims: bool
) -> None:
    obj = workload("w", "a")
    obj["spec"]["podSets"][0]["template"]["metadata"] = metadata
    assert checked(obj).pod_sets[0].by_claims is by_claims


@pytest.mark.parametrize(
    ("true", "reserved", "closed"),
    [
        ((), None, False),
        ((), 5, False),
        (("Admitted",), 5, True),
        (("Finished",), None, True),
        (("Evicted",), None, False),
        (("Evicted",), 5, True),
    ],
)
def test_nothing_is_said_about_a_workload_that_started_ended_or_gives_quota_back(
    true: tuple[str, ...], reserved: int | None, closed: bool
) -> None:
    assert checked(workload(true=true, reserved=reserved)).closed is closed


def test_nothing_is_said_about_a_workload_that_is_stopped_or_deleted() -> None:
    assert checked(workload(active=False)).closed
    assert not checked(workload(active=True)).closed
    deleted = workload()
    deleted["metadata"]["deletionTimestamp"] = at(3)
    assert checked(deleted).closed


def test_the_time_of_reserved_quota_is_none_without_quota() -> None:
    assert checked(workload(reserved=7)).reserved_since == at(7)
    assert checked(workload(reserved=None)).reserved_since is None
    assert checked(workload(reserved=None, held=True)).reserved_since is None


def states(obj: dict[str, Any], *more: tuple[str, str]) -> dict[str, Any]:
    obj["status"]["admissionChecks"] += [{"name": name, "state": state} for name, state in more]
    return obj


@pytest.mark.parametrize(
    ("state", "others", "on_hold"),
    [
        pytest.param("Retry", [], True, id="this check holds it"),
        pytest.param("Pending", [], True, id="nobody says who"),
        pytest.param("Pending", [("strict", "Retry")], False, id="another check of ours holds it"),
        pytest.param("Retry", [("strict", "Retry")], True, id="both do"),
        pytest.param("Pending", [("foreign", "Retry")], True, id="a check of others tries again"),
    ],
)
def test_a_workload_is_on_hold_for_the_check_that_holds_it(
    state: str, others: list[tuple[str, str]], on_hold: bool
) -> None:
    held = states(workload(reserved=None, held=True, state=state), *others)
    assert checked(held).on_hold is on_hold
    assert not checked(states(workload(reserved=None, state=state), *others)).on_hold


@pytest.mark.parametrize(("owner", "may_hold"), [("Job", True), ("StatefulSet", False)])
def test_a_workload_of_a_stateful_set_cannot_be_held(owner: str, may_hold: bool) -> None:
    assert checked(workload(owner=owner)).may_hold is may_hold


def test_workloads_are_sorted_by_priority_then_age_then_identity() -> None:
    old, young = checked(workload("old", created=1)), checked(workload("young", created=2))
    urgent = checked(workload("urgent", created=9, priority=5))
    twin = replace(old, uid="uid-z")
    assert sorted([young, twin, urgent, old], key=lambda member: member.order) == [urgent, old, twin, young]


@pytest.mark.parametrize(
    ("conditions", "finished"),
    [
        ([{"type": "Finished", "status": "True"}], True),
        ([{"type": "Finished", "status": "False"}], False),
        ([{"type": "Admitted", "status": "True"}], False),
        ([], False),
        (None, False),
    ],
)
def test_a_workload_has_finished_when_its_condition_is_true(conditions: Any, finished: bool) -> None:
    assert is_finished({"status": {"conditions": conditions}}) is finished


def updates(*texts: str) -> dict[str, Any]:
    return {
        "status": {
            "admissionChecks": [
                {"name": f"check{number}", "podSetUpdates": [{"annotations": {"tdcs.io/datasets": text}}]}
                for number, text in enumerate(texts)
            ]
        }
    }


@pytest.mark.parametrize(
    ("texts", "copies"),
    [
        ((), {}),
        (('[{"dataset": "n/a", "copy": "1"}]',), {"a": "1"}),
        (('[{"dataset": "n/a", "copy": 0}, {"dataset": "n/b", "copy": "2"}]',), {"a": "0", "b": "2"}),
        (('[{"dataset": "n/a", "copy": "1"}]', '[{"dataset": "n/b", "copy": "0"}]'), {"a": "1", "b": "0"}),
        (("not json", '[{"dataset": "n/a", "copy": "1"}]'), {"a": "1"}),
        (('[{"dataset": "n/a"}]',), {}),
        (("3",), {}),
        (('["x"]',), {}),
        (("",), {}),
    ],
)
def test_copies_that_checks_handed_out_are_read_as_far_as_they_can_be(
    texts: tuple[str, ...], copies: dict[str, str]
) -> None:
    assert copies_read(updates(*texts)) == copies


def test_a_workload_without_status_has_no_copies() -> None:
    assert copies_read({}) == {}
    assert copies_read({"status": {"admissionChecks": [{"name": "x"}]}}) == {}
