"""What a namespace's ResourceQuotas leave to its jobs."""

from typing import Any

import pytest

from tdcs.decide.queue.namespace_quota import Allowances, QuotaCharge, charges_of, counts, quota_amounts
from tdcs.model.kube_objects import Object

GPU = "nvidia.com/gpu"


GPUS = f"requests.{GPU}"


POD: Object = {
    "containers": [
        {"resources": {"limits": {GPU: "2", "memory": "4Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}}
    ]
}


def quota(hard: dict[str, str], *, used: dict[str, str] | None = None, **spec: Any) -> Object:
    return {
        "metadata": {"name": "team", "namespace": "n"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used or {}},
    }


def test_a_pod_takes_of_a_quota_by_every_name_that_it_may_have() -> None:
    assert quota_amounts(POD) == {
        "pods": 1,
        "count/pods": 1,
        "cpu": 500,
        "requests.cpu": 500,
        "memory": 2**30,
        "requests.memory": 2**30,
        "limits.memory": 4 * 2**30,
        GPUS: 2,
        f"limits.{GPU}": 2,
    }


CLASS = {"scopeName": "PriorityClass", "values": ["high"]}


SCOPES: dict[str, tuple[Object, str, bool]] = {
    "none": ({}, "", True),
    "jobs without a deadline": ({"scopes": ["NotTerminating"]}, "", True),
    "pods with a deadline": ({"scopes": ["Terminating"]}, "", False),
    "pods that ask for nothing": ({"scopes": ["BestEffort"]}, "", False),
    "pods that ask for something": ({"scopes": ["NotBestEffort"]}, "", True),
    "of the class": ({"scopeSelector": {"matchExpressions": [{**CLASS, "operator": "In"}]}}, "high", True),
    "of another class": (
        {"scopeSelector": {"matchExpressions": [{**CLASS, "operator": "In"}]}},
        "low",
        False,
    ),
    "not of the class": (
        {"scopeSelector": {"matchExpressions": [{**CLASS, "operator": "NotIn"}]}},
        "low",
        True,
    ),
    "of no class": (
        {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]}},
        "",
        True,
    ),
    "affinity across namespaces": ({"scopes": ["CrossNamespacePodAffinity"]}, "", False),
}


@pytest.mark.parametrize("name", SCOPES)
def test_a_quota_counts_the_pods_that_its_scopes_select(name: str) -> None:
    scope, priority_class, counted = SCOPES[name]
    assert counts(quota({"pods": "1"}, **scope), POD, priority_class=priority_class) is counted


def test_a_quota_without_room_is_named_with_what_it_leaves() -> None:
    allowances = Allowances({("n", "team"): quota({GPUS: "8", "limits.memory": "20Gi"}, used={GPUS: "5"})})
    charges = charges_of(
        quotas=[("team", quota({GPUS: "8", "limits.memory": "20Gi"}))],
        pods=[(2, POD, quota_amounts(POD))],
        priority_class="",
    )
    message = allowances.short("n", charges)
    assert message == f"ResourceQuota team leaves 3 of 8 {GPUS}, its pods ask for 4"
    assert allowances.ever("n", charges)
    more = charges_of(quotas=[("team", {})], pods=[(5, POD, quota_amounts(POD))], priority_class="")
    assert not allowances.ever("n", more)
    assert allowances.short("other", charges) == ""


def allowances(hard: dict[str, str], used: dict[str, str] | None = None) -> Allowances:
    return Allowances({("n", "team"): quota(hard, used=used)})


def takes(**amounts: int) -> list[QuotaCharge]:
    return [QuotaCharge(quota="team", takes=amounts)]


def test_what_jobs_take_is_left_to_no_other() -> None:
    left = allowances({"pods": "5"})
    left.take("n", takes(pods=3))
    assert left.short("n", takes(pods=2)) == ""
    assert left.short("n", takes(pods=3)) == "ResourceQuota team leaves 2 of 5 pods, its pods ask for 3"
    left.take("n", takes(pods=9))
    assert "leaves 0 of 5 pods" in left.short("n", takes(pods=1))


def test_a_quota_that_does_not_name_a_resource_or_is_gone_limits_nothing() -> None:
    left = allowances({"pods": "1"})
    assert left.short("n", takes(cpu=9999)) == ""
    assert left.ever("n", takes(cpu=9999))
    gone = [QuotaCharge(quota="gone", takes={"pods": 9})]
    left.take("n", gone)
    assert left.short("n", gone) == ""
    assert left.most("n", gone, count=7) == 7


def test_what_others_use_now_does_not_count_for_ever() -> None:
    left = allowances({"pods": "5"}, {"pods": "5"})
    assert left.short("n", takes(pods=5))
    assert left.ever("n", takes(pods=5))
    assert not left.ever("n", takes(pods=6))


@pytest.mark.parametrize(
    ("each", "count"), [({"pods": 1}, 3), ({"pods": 2}, 1), ({"pods": 4}, 0), ({"pods": 0}, 9), ({}, 9)]
)
def test_as_many_pods_fit_as_the_scarcest_resource_allows(each: dict[str, int], count: int) -> None:
    assert allowances({"pods": "5"}, {"pods": "2"}).most("n", takes(**each), count=9) == count


def test_more_is_used_than_allowed_after_a_quota_was_made_smaller() -> None:
    smaller = allowances({"pods": "2"}, {"pods": "5"})
    assert smaller.most("n", takes(pods=1), count=9) == 0
    assert "leaves 0 of 2 pods" in smaller.short("n", takes(pods=1))


def test_a_quota_that_was_not_counted_yet_has_what_its_spec_says() -> None:
    fresh = Allowances({("n", "team"): {"spec": {"hard": {"requests.cpu": "1500m"}}}})
    short = fresh.short("n", [QuotaCharge(quota="team", takes={"requests.cpu": 2000})])
    assert short == "ResourceQuota team leaves 1.5 of 1.5 requests.cpu, its pods ask for 2"


def test_memory_is_shown_in_gibibytes() -> None:
    charge = [QuotaCharge(quota="team", takes={"limits.memory": 3 << 30})]
    assert (
        allowances({"limits.memory": "2Gi"})
        .short("n", charge)
        .endswith("leaves 2.0 Gi of 2.0 Gi limits.memory, its pods ask for 3.0 Gi")
    )


def test_only_roles_with_pods_that_a_quota_counts_are_charged() -> None:
    terminating = quota({"pods": "9"}, scopes=["Terminating"])
    amounts = quota_amounts(POD)
    assert charges_of(quotas=[("t", terminating)], pods=[(2, POD, amounts)], priority_class="") == ()
    assert charges_of(quotas=[("team", {})], pods=[(0, POD, amounts)], priority_class="") == ()
    (charge,) = charges_of(
        quotas=[("team", {})], pods=[(2, POD, amounts), (1, POD, amounts)], priority_class=""
    )
    assert (charge.quota, charge.takes["pods"], charge.takes["cpu"]) == ("team", 3, 1500)
