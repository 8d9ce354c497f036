"""When a Workload of Kueue may start, by its data."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.control.builders import dataset

from tdcs.api.datacheck import DataCheckSpec
from tdcs.decide.job.data_verdict import (
    SLOWEST_SECONDS,
    STALLED_SECONDS,
    DataState,
    KnownDataset,
    Verdict,
    seconds_to_load,
    to_load_ahead,
    verdict,
)
from tdcs.decide.kueue.kueue_workload import CheckedWorkload, checked_workload
from tdcs.model.kube_objects import Object

CHECK = "data"


def at(second: int) -> str:
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"


def workload(
    name: str = "w",
    *claims: str,
    reserved: int | None = 100,
    created: int = 0,
    state: str = "Pending",
    true: tuple[str, ...] = (),
    held: bool = False,
    owner: str = "Job",
    namespace: str = "n",
    **spec: Any,
) -> Object:
    """A Workload that mounts these claims; `reserved`: when it got its quota, None: it has none; `held`: on hold."""
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": at(0)} for kind in true]
    if reserved is not None:
        conditions.append({"type": "QuotaReserved", "status": "True", "lastTransitionTime": at(reserved)})
    if held:
        on_hold = {"status": "False", "reason": "OnHold", "message": "tdcs.io/data: cold"}
        conditions.append({"type": "QuotaReserved", **on_hold, "lastTransitionTime": at(0)})
    check = {"name": CHECK, "state": state, "message": "", "lastTransitionTime": at(reserved or 0)}
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": at(created),
            "resourceVersion": "1",
            "ownerReferences": [{"kind": owner, "name": name}],
        },
        "spec": {
            "podSets": [{"name": "main", "count": 2, "template": {"spec": {"volumes": volumes}}}],
            **spec,
        },
        "status": {"conditions": conditions, "admissionChecks": [check]},
    }


def checked(obj: Object) -> CheckedWorkload:
    workload_now = checked_workload(obj, check=CHECK, ours={CHECK, "strict"})
    assert workload_now is not None
    return workload_now


def known_dataset(
    cached: int = 100, *, rate: int = 0, mounted: bool = True, deleting: bool = False
) -> KnownDataset:
    """A Dataset of which so much of 100 bytes is there."""
    pictures = dataset(total=100, cached=cached, Mounted=mounted)
    assert pictures.status is not None
    status = pictures.status.model_copy(
        update={"wanted_bytes": 100, "loaded_bytes": cached, "bytes_per_second": rate}
    )
    return KnownDataset(dataset=pictures.model_copy(update={"status": status}), deleting=deleting)


def verdict_of(
    obj: Object, datasets: Mapping[str, KnownDataset], *, now: int = 110, refusal: str = "", **spec: Any
) -> Verdict | None:
    return verdict(
        checked(obj),
        spec=DataCheckSpec.model_validate(spec),
        datasets=datasets,
        now=at(now),
        refusal=refusal,
    )


def test_a_workload_starts_when_nothing_of_a_dataset_is_mounted_or_enough_is_there() -> None:
    for obj in (workload(), workload("w", "checkpoints")):
        data_verdict = verdict_of(obj, {"pictures": known_dataset(0)})
        assert data_verdict == Verdict(state=DataState.READY, message="its pods mount no Dataset")
    ready = verdict_of(workload("w", "pictures"), {"pictures": known_dataset(100)})
    assert ready == Verdict(state=DataState.READY, message="1 dataset ready")
    most = verdict_of(workload("w", "pictures"), {"pictures": known_dataset(80)}, percent=80)
    assert most is not None
    assert most.state is DataState.READY


def test_what_arrives_within_hold_quota_is_waited_for() -> None:
    data_verdict = verdict_of(
        workload("w", "pictures"), {"pictures": known_dataset(40, rate=2)}, holdQuota="60s"
    )
    assert data_verdict == Verdict(
        state=DataState.PENDING,
        message="Dataset pictures has 40% of its bytes cached, the job waits for 100%, in about 30 s; it is "
        "Pending for at most 60s (holdQuota)",
    )


def test_what_takes_longer_waits_without_quota_until_its_data_is_there() -> None:
    data_verdict = verdict_of(
        workload("w", "pictures"), {"pictures": known_dataset(40, rate=1)}, holdQuota="30s"
    )
    assert data_verdict == Verdict(
        state=DataState.RETRY,
        message="Dataset pictures has 40% of its bytes cached, the job waits for 100%; it holds no quota, and is "
        "queued again once its data is there, in about 60 s",
    )
    held = workload("w", "pictures", reserved=None, state="Retry", held=True)
    assert verdict_of(held, {"pictures": known_dataset(40, rate=1)}, now=500) == data_verdict
    later = verdict_of(held, {"pictures": known_dataset(100)}, now=500)
    assert later == Verdict(state=DataState.PENDING, message="1 dataset ready; it is queued again")
    for unreadable in ({}, {"other": known_dataset(0)}):
        assert getattr(verdict_of(held, unreadable), "state", None) is DataState.PENDING


def test_kueue_takes_stateful_sets_from_hold_so_they_are_tried_again_after_a_time() -> None:
    obj = workload("w", "pictures", owner="StatefulSet")
    data_verdict = verdict_of(obj, {"pictures": known_dataset(40, rate=1)}, holdQuota="30s")
    assert data_verdict is not None
    assert (data_verdict.state, data_verdict.requeue_after_seconds) == (DataState.RETRY, 60)
    assert data_verdict.message.endswith("Kueue is to try it again in 60 s")


def test_one_that_has_lost_its_hold_gets_it_back_before_it_is_queued_again() -> None:
    """Kueue writes another reason when the LocalQueue is gone; and it has forgotten a Workload only that was held."""
    obj = workload("w", "pictures", reserved=None, state="Retry")
    for cached in (40, 100):
        assert getattr(verdict_of(obj, {"pictures": known_dataset(cached)}), "state", None) is DataState.RETRY
    # Evicted by its user meanwhile, and activated again: its state was reset, it is held still.
    reset = workload("w", "pictures", reserved=None, state="Pending", held=True)
    assert getattr(verdict_of(reset, {"pictures": known_dataset(40)}), "state", None) is DataState.RETRY
    assert getattr(verdict_of(reset, {"pictures": known_dataset(100)}), "state", None) is DataState.PENDING


def test_of_two_checks_the_one_that_has_put_it_on_hold_queues_it_again() -> None:
    obj = workload("w", "pictures", reserved=None, state="Pending", held=True)
    obj["status"]["admissionChecks"].append({"name": "strict", "state": "Retry", "message": ""})
    assert verdict_of(obj, {"pictures": known_dataset(100)}) is None


def test_a_check_of_another_controller_that_retries_keeps_no_workload_on_hold() -> None:
    obj = workload("w", "pictures", reserved=None, state="Pending", held=True)
    obj["status"]["admissionChecks"].append({"name": "machines", "state": "Retry", "message": ""})
    assert getattr(verdict_of(obj, {"pictures": known_dataset(40)}), "state", None) is DataState.RETRY
    assert getattr(verdict_of(obj, {"pictures": known_dataset(100)}), "state", None) is DataState.PENDING


def test_no_workload_is_pending_longer_than_hold_quota_at_whatever_speed() -> None:
    for rate in (0, 1_000_000):
        obj, datasets = workload("w", "pictures"), {"pictures": known_dataset(40, rate=rate)}
        assert (
            getattr(verdict_of(obj, datasets, now=129, holdQuota="30s"), "state", None) is DataState.PENDING
        )
        late = verdict_of(obj, datasets, now=130, holdQuota="30s")
        assert late is not None
        assert late.state is DataState.RETRY
        assert ("in about" in late.message) is (rate > 0)


def test_after_max_wait_it_starts_with_what_is_there() -> None:
    data_verdict = verdict_of(
        workload("w", "pictures"), {"pictures": known_dataset(40)}, now=200, maxWait="200s"
    )
    assert data_verdict is not None
    assert data_verdict.state is DataState.READY
    assert data_verdict.message.startswith(
        "it has waited for 200s (maxWait), and starts with what is there: "
    )
    held = workload("w", "pictures", reserved=None, state="Retry", held=True)
    again = verdict_of(held, {"pictures": known_dataset(40)}, now=200, maxWait="200s")
    assert again is not None
    assert again.state is DataState.PENDING
    soon = verdict_of(
        workload("w", "pictures"),
        {"pictures": known_dataset(40, rate=1)},
        now=110,
        maxWait="130s",
        holdQuota="5s",
    )
    assert soon is not None
    assert soon.message.endswith("in about 20 s")


@pytest.mark.parametrize(
    "dataset",
    [known_dataset(100, deleting=True), known_dataset(100, mounted=False), KnownDataset(dataset=None)],
)
def test_a_dataset_that_cannot_be_read_is_waited_for(dataset: KnownDataset) -> None:
    data_verdict = verdict_of(workload("w", "pictures"), {"pictures": dataset})
    assert data_verdict is not None
    assert data_verdict.state is DataState.PENDING
    assert "Dataset pictures is" in data_verdict.message


@pytest.mark.parametrize(
    "obj",
    [
        workload("w", "pictures", reserved=None),
        workload("w", "pictures", true=("Evicted",)),
        workload("w", "pictures", true=("Finished",)),
        workload("w", "pictures", true=("Admitted",)),
        workload("w", "pictures", active=False),
        workload("w", "pictures", state="Ready"),
        workload("w", "pictures", state="Retry"),
        workload("w", "pictures", state="Rejected", true=("Evicted",)),
    ],
)
def test_nothing_is_said_of_a_workload_without_quota_or_with_an_answer(obj: Object) -> None:
    assert verdict_of(obj, {"pictures": known_dataset(0)}) is None


def test_a_workload_without_our_check_is_none_of_ours() -> None:
    assert checked_workload(workload(), check="another", ours={CHECK}) is None
    bare = {"metadata": {"namespace": "n", "name": "w"}}
    assert checked_workload(bare, check=CHECK, ours={CHECK}) is None


def test_the_slowest_dataset_says_how_long_it_takes() -> None:
    loading = [known_dataset(40, rate=2).dataset, known_dataset(90, rate=1).dataset]
    assert seconds_to_load(loading, percent=100) == 30
    assert seconds_to_load(loading, percent=50) == 5
    assert seconds_to_load([*loading, known_dataset(40).dataset], percent=100) is None
    assert seconds_to_load([None], percent=100) is None


def test_for_the_first_that_wait_for_quota_what_lacks_is_loaded_ahead_once() -> None:
    waiting = [
        workload("late", "pictures", reserved=None, created=9),
        workload("first", "texts", "pictures", "checkpoints", reserved=None, created=5),
        workload("urgent", "pictures", reserved=None, created=8, priority=7),
        workload("last", "sounds", reserved=None, created=20),
        workload("holds", "sounds", created=1),
        workload("ended", "sounds", reserved=None, true=("Finished",)),
    ]
    datasets = {
        ("n", "pictures"): known_dataset(40),
        ("n", "texts"): known_dataset(100),
        ("n", "sounds"): known_dataset(0),
        ("other", "checkpoints"): known_dataset(0),
    }
    assert ahead(waiting, datasets, look_ahead=3) == [("urgent", "pictures")]
    assert ahead(waiting, datasets, look_ahead=4) == [("urgent", "pictures"), ("last", "sounds")]
    assert not ahead(waiting, datasets, look_ahead=0)


def ahead(
    waiting: Sequence[Object],
    datasets: Mapping[tuple[str, str], KnownDataset],
    *,
    failed: Collection[tuple[str, str]] = (),
    request_ages: Mapping[tuple[str, str], float] | None = None,
    look_ahead: int = 1,
) -> list[tuple[str, str]]:
    """For which Workloads which Datasets are loaded ahead."""
    loads = to_load_ahead(
        [checked(queued) for queued in waiting],
        spec=DataCheckSpec(look_ahead=look_ahead),
        datasets=datasets,
        failed=failed,
        request_ages=request_ages or {},
        now=at(110),
    )
    return [(queued.key[1], name) for queued, name in loads]


def test_workloads_on_hold_are_loaded_for_next_to_the_first_in_the_queue() -> None:
    waiting = [
        workload("held", "pictures", reserved=None, state="Retry", held=True, created=1),
        workload("held-later", "texts", reserved=None, state="Retry", held=True, created=2),
        workload("queued", "sounds", reserved=None, created=3),
        workload("queued-later", "films", reserved=None, created=4),
    ]
    datasets = {("n", name): known_dataset(0) for name in ("pictures", "texts", "sounds", "films")}
    assert ahead(waiting, datasets) == [("held", "pictures"), ("queued", "sounds")]


@pytest.mark.parametrize("held", [True, False])
def test_data_that_cannot_be_loaded_keeps_no_other_from_being_loaded_ahead(held: bool) -> None:
    state = "Retry" if held else "Pending"
    waiting = [
        workload(name, name, reserved=None, state=state, held=held, created=second)
        for second, name in enumerate(("failed", "unmounted", "fine", "late"))
    ]
    datasets = {
        ("n", name): known_dataset(0, mounted=name != "unmounted")
        for name in ("failed", "unmounted", "fine", "late")
    }
    loads = ahead(waiting, datasets, failed={("n", "failed")})
    assert loads == [("failed", "failed"), ("fine", "fine")]


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.threat("look-ahead")
def test_data_that_many_workloads_of_a_namespace_lack_is_loaded_in_turn_with_others(
    held: bool,
) -> None:
    state = "Retry" if held else "Pending"
    waiting = [
        workload(
            f"{namespace}-{number}",
            "pictures" if namespace == "few" else f"pictures-{number}",
            reserved=None,
            state=state,
            held=held,
            namespace=namespace,
            priority=priority,
        )
        for namespace, priority in (("many", 9), ("few", 0))
        for number in range(4)
    ]
    datasets = {("many", f"pictures-{number}"): known_dataset(0) for number in range(4)}
    datasets["few", "pictures"] = known_dataset(0)
    load_order = [name for name, _ in ahead(waiting, datasets, look_ahead=3)]
    assert load_order == ["many-0", "few-0", "many-1"]


@pytest.mark.parametrize(
    ("seconds", "rate", "keeps"),
    [
        (STALLED_SECONDS - 1, 0, True),  # it may have to wait until others are loaded
        (STALLED_SECONDS, 0, False),
        (STALLED_SECONDS, 1, False),
        (STALLED_SECONDS, 1000, True),
    ],
)
@pytest.mark.threat("look-ahead")
def test_data_that_comes_too_slowly_keeps_its_place_for_a_time_only(
    seconds: float, rate: int, keeps: bool
) -> None:
    waiting = [
        workload(name, name, reserved=None, state="Retry", held=True, created=second)
        for second, name in enumerate(("slow", "fine", "late"))
    ]
    slow = known_dataset(0, rate=rate).dataset
    assert slow is not None
    assert slow.status is not None
    status = slow.status.model_copy(update={"wanted_bytes": 1000 * SLOWEST_SECONDS})
    slow = slow.model_copy(update={"status": status})
    datasets = {
        ("n", "fine"): known_dataset(0),
        ("n", "late"): known_dataset(0),
        ("n", "slow"): KnownDataset(dataset=slow),
    }
    load_order = [name for name, _ in ahead(waiting, datasets, request_ages={("n", "slow"): seconds})]
    assert load_order == (["slow"] if keeps else ["slow", "fine"])


@given(
    cached=st.integers(0, 99),
    rate=st.integers(0, 50),
    held=st.integers(0, 600),
    hold=st.integers(0, 300),
    percent=st.integers(0, 100),
    most=st.none() | st.integers(0, 900),
)
def test_whatever_is_there_quota_is_held_in_bounds_and_a_held_workload_is_queued_again(
    cached: int, rate: int, held: int, hold: int, percent: int, most: int | None
) -> None:
    spec: dict[str, Any] = {
        "percent": percent,
        "holdQuota": f"{hold}s",
        **({} if most is None else {"maxWait": f"{most}s"}),
    }
    data_verdict = verdict_of(
        workload("w", "pictures"), {"pictures": known_dataset(cached, rate=rate)}, now=100 + held, **spec
    )
    assert data_verdict is not None
    if cached >= percent or (most is not None and 100 + held >= most):
        assert data_verdict.state is DataState.READY
    elif data_verdict.state is DataState.PENDING:
        assert held < hold
        assert data_verdict.requeue_after_seconds is None
    else:
        assert data_verdict.state is DataState.RETRY
    # Without quota it is queued again exactly when its data, or its time, lets it start.
    off = workload("w", "pictures", reserved=None, state="Retry", held=True)
    without = verdict_of(off, {"pictures": known_dataset(cached, rate=rate)}, now=100 + held, **spec)
    assert without is not None
    assert without.state is (DataState.PENDING if data_verdict.state is DataState.READY else DataState.RETRY)
