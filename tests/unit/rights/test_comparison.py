"""What is said of rights that the chart grants, next to those that were used."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.controlplane.audit import Call, calls_of, stand_in
from tests.support.rights.comparison import (
    Grant,
    Place,
    Right,
    Target,
    Use,
    account_of,
    comparable,
    findings,
    name_in_any_release,
    use_of,
    used_beyond,
    wider_than_used,
)
from tests.support.rights.granted import NAMESPACE, grants_of
from tests.support.rights.records import VARIABLE, record, recorded

OPERATOR = "system:serviceaccount:tdcs-system:tdcs-operator"
LIST_JOBS = Right("operator", "batch", "jobs", "list")
MAKE_JOBS = Right("operator", "batch", "jobs", "create")
READ_KEYS = Right("operator", "", "secrets", "get")


def call(**more: Any) -> Call:
    """A list of Jobs by the operator; `more` says otherwise."""
    usual = {
        "user": OPERATOR,
        "agent": "tdcs/0.1.0",
        "verb": "list",
        "group": "batch",
        "resource": "jobs",
        "namespace": "team",
        "name": "",
        "code": 200,
    }
    return Call(**{**usual, **more})


def said(
    use: Use, granted: Collection[Right | Grant], *, complete: bool = True, **tables: Mapping[Right, str]
) -> list[str]:
    named = {name: tables.get(name, {}) for name in ("ungranted", "unused", "rare", "wide", "refusals")}
    grants = {one if isinstance(one, Grant) else Grant(one) for one in granted}
    return findings(use=use, grants=grants, complete=complete, **named)


@pytest.mark.parametrize(
    ("user", "account"),
    [
        (OPERATOR, "operator"),
        ("system:serviceaccount:a-test:tdcs-c12ab-scheduler", "scheduler"),
        ("system:serviceaccount:tdcs-system:tdcs-crd-upgrade", "crd-upgrade"),
        (stand_in("operator"), "operator"),
        ("system:serviceaccount:team:default", None),
        ("admin", None),
    ],
)
def test_accounts_are_known_by_their_names_in_any_release(user: str, account: str | None) -> None:
    assert account_of(user) == account


def test_an_apply_that_makes_its_object_uses_two_rights() -> None:
    patch = Right("operator", "batch", "jobs", "patch")
    assert use_of([call(verb="patch", code=200)]).used == {patch}
    assert use_of([call(verb="patch", code=201)]).used == {patch, MAKE_JOBS}


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"agent": "kube-scheduler/v1.34.4"}, id="kube-scheduler, in the extender's account"),
        pytest.param({"agent": "kubectl/v1.34.4"}, id="a stolen token"),
        pytest.param({"user": "system:serviceaccount:team:default"}, id="a user of the command line"),
    ],
)
def test_requests_of_others_are_no_use(more: dict[str, str]) -> None:
    assert use_of([call(**more)]) == Use()


@pytest.mark.parametrize(
    "more",
    [
        {"code": 403},
        {"code": 401},
        {"code": 422, "message": "ValidatingAdmissionPolicy 'tdcs-operator' denied request: no"},
    ],
)
def test_a_refused_request_is_no_use(more: dict[str, Any]) -> None:
    assert use_of([call(**more)]) == Use(refused={LIST_JOBS: more.get("message", "")})


def test_a_namespace_that_is_being_deleted_is_no_question_of_rights() -> None:
    late = 'jobs.batch "x" is forbidden: unable to create new content in namespace team because it is being terminated'
    assert use_of([call(verb="create", code=403, message=late)]).used == {MAKE_JOBS}


@pytest.mark.parametrize("code", [0, 200, 404, 409, 422])
def test_a_request_that_fails_for_another_reason_needed_its_right(code: int) -> None:
    assert use_of([call(code=code)]).used == {LIST_JOBS}


def test_nothing_is_said_where_all_that_is_granted_is_used() -> None:
    assert said(Use(used=frozenset({LIST_JOBS})), {LIST_JOBS}) == []


def test_a_right_without_use_is_named_once_all_tiers_ran() -> None:
    use = Use(used=frozenset({LIST_JOBS}))
    assert said(use, {LIST_JOBS, MAKE_JOBS}, complete=False) == []
    assert said(use, {LIST_JOBS, MAKE_JOBS}) == ["granted and never used: operator: create jobs.batch"]
    assert said(use, {LIST_JOBS, MAKE_JOBS}, unused={MAKE_JOBS: "a reason"}) == []
    rare = {MAKE_JOBS: "a reason", LIST_JOBS: "another"}
    assert said(use, {LIST_JOBS, MAKE_JOBS}, rare=rare) == []


def test_a_reason_that_is_out_of_date_is_named() -> None:
    use = Use(used=frozenset({LIST_JOBS}))
    assert said(use, {LIST_JOBS}, unused={LIST_JOBS: "x"}) == [
        "named as unused, and used: operator: list jobs.batch"
    ]
    assert said(use, {LIST_JOBS}, unused={MAKE_JOBS: "x"}, complete=False) == [
        "named as unused or wide, and not granted any more: operator: create jobs.batch"
    ]


def test_what_a_stand_in_used_beyond_the_chart_is_named() -> None:
    use = Use(used=frozenset({LIST_JOBS, MAKE_JOBS}))
    assert said(use, {LIST_JOBS}, complete=False) == [
        "used without being granted by the chart: operator: create jobs.batch"
    ]
    assert said(use, {LIST_JOBS}, ungranted={MAKE_JOBS: "x"}) == []


def test_a_refused_request_is_named_unless_a_test_wants_it() -> None:
    use = Use(used=frozenset({LIST_JOBS}), refused={READ_KEYS: "no such right"})
    assert said(use, {LIST_JOBS}, complete=False) == [
        "refused, and no test is known to want that: operator: get secrets (no such right)"
    ]
    assert said(use, {LIST_JOBS}, refusals={READ_KEYS: "x"}) == []


def test_rights_for_kueue_count_only_where_it_was() -> None:
    rights = {Right("operator", "kueue.x-k8s.io", "workloads", verb) for verb in ("list", "get")}
    plain, kueue = {Grant(LIST_JOBS)}, {Grant(right) for right in rights}
    without, there = Use(used=frozenset({LIST_JOBS})), Use(used=frozenset(rights))
    assert comparable(plain, kueue=kueue, use=without) == plain
    assert comparable(plain, kueue=kueue, use=there) == plain | kueue


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"namespace": "team"}, Place.OTHER),
        ({"namespace": "tdcs-system"}, Place.OWN),
        ({"namespace": ""}, Place.CLUSTER),
        ({"namespace": "", "user": stand_in("operator")}, Place.CLUSTER),
    ],
)
def test_a_use_has_its_place(more: dict[str, str], place: Place) -> None:
    assert use_of([call(**more)]).targets == {Target(LIST_JOBS, place)}


def test_a_program_in_an_administrators_place_has_no_namespace_of_its_own() -> None:
    assert use_of([call(user=stand_in("operator"))]) == Use(used=frozenset({LIST_JOBS}))


@pytest.mark.parametrize(
    ("name", "account_name", "expected"),
    [
        ("tdcs-operator", "tdcs-operator", "RELEASE-operator"),
        ("a-tdcs-c12ab-operator", "a-tdcs-c12ab-operator", "RELEASE-operator"),
        ("tdcs-place-by-data", "tdcs-scheduler", "RELEASE-place-by-data"),
        ("tdcs-claims", "tdcs-scheduler", "tdcs-claims"),
        ("datasets.tdcs.io", "tdcs-crd-upgrade", "datasets.tdcs.io"),
    ],
)
def test_names_of_objects_are_compared_in_any_release(name: str, account_name: str, expected: str) -> None:
    assert name_in_any_release(name, account_name=account_name) == expected


def test_a_right_that_is_used_beyond_its_namespace_is_named() -> None:
    use = Use(used=frozenset({LIST_JOBS}), targets=frozenset({Target(LIST_JOBS, Place.CLUSTER)}))
    own = Grant(LIST_JOBS, Place.OWN)
    assert said(use, {own}, complete=False) == [
        "used cluster-wide, and granted in single namespaces: operator: list jobs.batch"
    ]
    assert said(use, {own, Grant(LIST_JOBS)}, complete=False) == []
    assert said(use, {own}, complete=False, ungranted={LIST_JOBS: "x"}) == []
    assert used_beyond({own}, targets={Target(LIST_JOBS, Place.OWN)}) == frozenset()


def test_a_right_that_a_role_of_one_namespace_could_give_is_named() -> None:
    use = Use(used=frozenset({LIST_JOBS}), targets=frozenset({Target(LIST_JOBS, Place.OWN)}))
    line = "granted cluster-wide, and used in the release's namespace only: operator: list jobs.batch"
    assert said(use, {LIST_JOBS}) == [line]
    assert said(use, {LIST_JOBS}, complete=False) == []
    assert said(use, {LIST_JOBS}, wide={LIST_JOBS: "a reason"}) == []
    assert said(use, {Grant(LIST_JOBS, Place.OWN)}) == []


@pytest.mark.parametrize("elsewhere", [Place.CLUSTER, Place.OTHER])
def test_a_right_that_is_used_elsewhere_is_as_wide_as_it_must_be(elsewhere: Place) -> None:
    targets = {Target(LIST_JOBS, Place.OWN), Target(LIST_JOBS, elsewhere)}
    assert wider_than_used({Grant(LIST_JOBS)}, targets=targets) == {}


def test_a_right_that_could_be_limited_to_a_name_is_named() -> None:
    def of(*names: str, right: Right = READ_KEYS) -> dict[Right, str]:
        return wider_than_used(
            {Grant(right, Place.OWN)}, targets={Target(right, Place.OWN, name) for name in names}
        )

    assert of("keys") == {READ_KEYS: "granted for all names, and used for keys only"}
    assert of("keys", "more") == {}
    assert of("keys", right=MAKE_JOBS) == {}, "what is created cannot be limited to names"
    assert of() == {}, "nothing is known of its use"


def test_a_name_that_a_right_is_not_used_for_is_named() -> None:
    grant = Grant(READ_KEYS, Place.OWN, frozenset({"keys", "more"}))
    targets = {Target(READ_KEYS, Place.OWN, "keys")}
    assert wider_than_used({grant}, targets=targets) == {
        READ_KEYS: "granted for more, and never used for that"
    }
    assert wider_than_used({grant}, targets={*targets, Target(READ_KEYS, Place.OWN, "more")}) == {}
    assert wider_than_used({grant}, targets=set()) == {}


def test_a_reason_for_a_wide_right_that_is_not_granted_any_more_is_named() -> None:
    use = Use(used=frozenset({LIST_JOBS}), targets=frozenset({Target(LIST_JOBS, Place.OTHER)}))
    assert said(use, {LIST_JOBS}, wide={LIST_JOBS: "only some runs use it elsewhere"}) == []
    assert said(use, {LIST_JOBS}, wide={MAKE_JOBS: "x"}) == [
        "named as unused or wide, and not granted any more: operator: create jobs.batch"
    ]


def test_rights_are_those_of_roles_that_are_bound_to_the_charts_accounts() -> None:
    def role(kind: str, verb: str, **more: Any) -> dict[str, Any]:
        rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": [verb], **more}]
        return {"kind": kind, "metadata": {"name": "tdcs-operator"}, "rules": rules}

    def binding(
        kind: str, *, account: str = "tdcs-operator", name: str = "tdcs-operator", namespace: str = NAMESPACE
    ) -> dict[str, Any]:
        return {
            "kind": f"{kind}Binding",
            "metadata": {"name": "x", "namespace": namespace},
            "roleRef": {"kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account}],
        }

    roles = [role("ClusterRole", "list"), role("Role", "create", resourceNames=["x", "tdcs-operator"])]
    everywhere, names = Grant(LIST_JOBS, Place.CLUSTER), frozenset({"x", "RELEASE-operator"})
    assert grants_of([*roles, binding("ClusterRole")]) == {everywhere}
    assert grants_of([*roles, binding("ClusterRole"), binding("Role")]) == {
        everywhere,
        Grant(MAKE_JOBS, Place.OWN, names),
    }
    assert grants_of([*roles, binding("Role", namespace="team")]) == {Grant(MAKE_JOBS, Place.OTHER, names)}
    assert grants_of([*roles, binding("Role", account="other")]) == set()
    assert grants_of([*roles, binding("ClusterRole", name="system:kube-scheduler")]) == set()


def test_what_a_tier_used_is_the_sum_of_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    for use in (Use(used=frozenset({LIST_JOBS})), Use(used=frozenset({MAKE_JOBS}))):
        record(use, tier="controlplane")
    on_cluster = Use(
        refused={READ_KEYS: "no"},
        targets=frozenset({Target(MAKE_JOBS, Place.OWN, "a"), Target(LIST_JOBS, Place.OTHER)}),
    )
    record(on_cluster, tier="e2e")
    assert recorded(tmp_path) == {
        "controlplane": Use(used=frozenset({LIST_JOBS, MAKE_JOBS})),
        "e2e": on_cluster,
    }


def test_without_a_run_of_tiers_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    record(Use(used=frozenset({LIST_JOBS})), tier="e2e")
    assert not list(tmp_path.iterdir())


def test_requests_are_read_from_whole_lines_of_a_log_from_a_time_on() -> None:
    def line(hour: int, *, verb: str = "list", stage: str = "ResponseComplete") -> bytes:
        event = {
            "stage": stage,
            "stageTimestamp": f"2026-01-31T{hour}:00:00.000001Z",
            "verb": verb,
            "user": {"username": OPERATOR},
            "userAgent": "tdcs/0.1.0",
            "objectRef": {"resource": "jobs", "apiGroup": "batch", "namespace": "team"},
            "responseStatus": {"code": 200},
        }
        return json.dumps(event).encode() + b"\n"

    log = [
        line(10),
        line(12),
        line(12, verb="watch", stage="ResponseStarted"),
        line(12, verb="watch"),
        b'{"st',
    ]
    assert [one.verb for one in calls_of(log)] == ["list", "list", "watch"]
    assert list(calls_of(log, since="2026-01-31T11:00:00Z")) == [call(), call(verb="watch")]
