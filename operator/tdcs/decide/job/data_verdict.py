"""Whether a Workload's data lets it start: the states of the AdmissionCheck tdcs.io/data."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tdcs.api.datacheck import DataCheckSpec
from tdcs.api.dataset import Dataset
from tdcs.api.durations import seconds_between
from tdcs.api.trainingjob import DatasetUse, Readiness
from tdcs.decide.job.job_phase import readiness
from tdcs.decide.kueue.kueue_workload import CheckedWorkload
from tdcs.decide.queue.pod_admission import DatasetReadiness, decide
from tdcs.model.kube_objects import Key

UNKNOWN_SECONDS = 60
"""Seconds after which Kueue retries a Workload whose data arrives at an unknown speed."""

LONGEST_SECONDS = 3600
"""Upper bound of the retry delay: estimates err, so a Workload with a longer one is checked again after this time."""

UNHELD_SECONDS = (10, 60)
"""Bounds, in seconds, of the retry delay of a Workload that cannot be put on hold. Kueue 0.19 keeps its quota for the
whole delay, and each retry costs an eviction."""

STALLED_SECONDS = 600
"""Data keeps its place in the look-ahead for this time after the first request, however slowly it arrives: other loads
may have to finish first."""

SLOWEST_SECONDS = 86_400
"""After `STALLED_SECONDS`, data keeps its place only if the rest is expected within this time."""


class DataState(StrEnum):
    """The state of the AdmissionCheck: admit the Workload, wait and keep its quota, or wait without quota."""

    READY = "Ready"
    PENDING = "Pending"
    RETRY = "Retry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A state and its message. `requeue_after_seconds` is set for Retry of a Workload that cannot be put on hold."""

    state: DataState
    message: str
    requeue_after_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDataset:
    """A Dataset in a Workload's namespace. `dataset` is None when the object is invalid, `generation` its spec's."""

    dataset: Dataset | None
    deleting: bool = False
    generation: int = 0


def verdict(
    workload: CheckedWorkload,
    *,
    spec: DataCheckSpec,
    datasets: Mapping[str, KnownDataset],
    now: str,
    refusal: str = "",
) -> Verdict | None:
    """The check state of a Workload; None when it waits for quota, or when the present state stays.

    Args:
        spec: the DataCheck's spec.
        datasets: the Datasets of the namespace, by name. A claim with any other name is another volume.
        now: the present time.
        refusal: why the API server just refused to put the Workload on hold; empty when it did not.
    """
    if workload.closed:
        return None
    if workload.reserved_since is None:
        if not workload.on_hold and not workload.retries:
            return None
    elif workload.state == DataState.READY:
        return None
    mounted = [name for name in workload.claims if name in datasets]
    if not mounted:
        return _ready(workload, "its pods mount no Dataset", refusal=refusal)
    data_states = [_readiness(name, datasets[name], percent=spec.percent, now=now) for name in mounted]
    answer = decide(suspended=False, datasets=data_states)
    if answer.admitted:
        return _ready(workload, answer.message, refusal=refusal)
    waited = seconds_between(workload.created, now)
    most = spec.max_wait_seconds
    if most is not None and waited >= most:
        text = f"it has waited for {spec.max_wait} (maxWait), and starts with what is there: {answer.message}"
        return _ready(workload, text, refusal=refusal)
    if workload.reserved_since is None and refusal:
        return None  # it holds no quota, on hold or passed over
    if workload.reserved_since is not None and workload.retries:
        return None  # Kueue takes the quota back, or is about to
    missing = [
        name
        for name, state in zip(mounted, data_states, strict=True)
        if not decide(suspended=False, datasets=[state]).admitted
    ]
    expected = seconds_to_load([datasets[name].dataset for name in missing], percent=spec.percent)
    if most is not None and expected is not None:
        expected = min(expected, most - waited)
    when = "" if expected is None else f", in about {math.ceil(expected)} s"
    if workload.reserved_since is not None:
        hold_left = spec.hold_seconds - seconds_between(workload.reserved_since, now)
        if hold_left > 0 and (expected is None or expected <= hold_left):
            text = f"{answer.message}{when}; it is Pending for at most {spec.hold_quota} (holdQuota)"
            return Verdict(state=DataState.PENDING, message=text)
    if refusal:
        least, most_seconds = UNHELD_SECONDS
        again = min(max(math.ceil(spec.hold_seconds), least), most_seconds)
        if expected is not None:
            again = min(again, max(math.ceil(expected), 1))
        text = f"{answer.message}{when}; Kueue takes its quota back in {again} s, as a hold is refused: {refusal}"
        return Verdict(state=DataState.RETRY, message=text, requeue_after_seconds=again)
    if workload.may_hold:
        text = f"{answer.message}; it holds no quota, and is queued again once its data is there{when}"
        return Verdict(state=DataState.RETRY, message=text)
    again = UNKNOWN_SECONDS if expected is None else min(max(math.ceil(expected), 1), LONGEST_SECONDS)
    text = f"{answer.message}; Kueue is to try it again in {again} s"
    return Verdict(state=DataState.RETRY, message=text, requeue_after_seconds=again)


def verdict_without_spec(workload: CheckedWorkload, *, problem: str) -> Verdict | None:
    """The check state of a Workload whose check has missing or invalid parameters; None: no change.

    Kueue gives no quota for such a check. A Workload on hold stays on hold, with the problem as its message.
    """
    if workload.closed or not workload.on_hold:
        return None
    return Verdict(state=DataState.RETRY, message=f"{problem}; until then the Workload stays on hold")


def _ready(workload: CheckedWorkload, message: str, *, refusal: str) -> Verdict:
    """The data is ready: a Workload with quota is admitted, one on hold is queued again first."""
    if workload.reserved_since is not None:
        return Verdict(state=DataState.READY, message=message)
    if workload.on_hold or refusal:
        return Verdict(state=DataState.PENDING, message=f"{message}; it is queued again")
    # Kueue skipped it because of its state, and considers it again when it comes back from a hold.
    return Verdict(state=DataState.RETRY, message=f"{message}; it is about to be queued again")


def seconds_to_load(datasets: Sequence[Dataset | None], *, percent: int) -> float | None:
    """Seconds until `percent` of each Dataset is loaded, at the present rates; None when one of them is not loading."""
    longest = 0.0
    for dataset in datasets:
        status = None if dataset is None else dataset.status
        rate = 0 if status is None else status.bytes_per_second + status.copied_bytes_per_second
        if status is None or rate <= 0:
            return None
        longest = max(longest, (status.wanted_bytes * percent / 100 - status.loaded_bytes) / rate)
    return longest


def to_load_ahead(
    workloads: Sequence[CheckedWorkload],
    *,
    spec: DataCheckSpec,
    datasets: Mapping[Key, KnownDataset],
    failed: Collection[Key],
    request_ages: Mapping[Key, float],
    now: str,
) -> list[tuple[CheckedWorkload, str]]:
    """The Datasets to load ahead, each once, with the first waiting Workload that needs it.

    Datasets are loaded for the first `look_ahead` Workloads that wait for quota. As many again are served that wait for
    data only (on hold, or until Kueue takes their quota back), so that they do not block the first group. Namespaces
    take turns: the first Workload of every namespace comes before the second of any, whatever the priorities. A
    Workload does not count if its data cannot be loaded or arrives too slowly.

    Args:
        failed: Datasets whose loading ahead failed.
        request_ages: seconds since the first request to load a Dataset ahead.
    """
    waiting = sorted(
        (
            workload
            for workload in workloads
            if not workload.closed and (workload.reserved_since is None or workload.retries)
        ),
        key=lambda workload: workload.order,
    )
    candidates = [
        _candidate(workload, spec=spec, datasets=datasets, failed=failed, request_ages=request_ages, now=now)
        for workload in waiting
    ]
    loads: dict[Key, CheckedWorkload] = {}
    places_left = dict.fromkeys((True, False), spec.look_ahead)
    for candidate in _in_turn(candidates):
        if places_left[candidate.data_only]:
            for key in candidate.loadable:
                loads.setdefault(key, candidate.workload)
            places_left[candidate.data_only] -= candidate.counted
    return [(workload, name) for (_, name), workload in loads.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A waiting Workload whose data may be loaded ahead.

    Attributes:
        workload: the Workload.
        data_only: whether it waits for data only, not for quota.
        loadable: mounted Datasets whose data it lacks.
        counted: whether it takes one of the `look_ahead` places.
    """

    workload: CheckedWorkload
    data_only: bool
    loadable: tuple[Key, ...]
    counted: bool


def _candidate(
    workload: CheckedWorkload,
    *,
    spec: DataCheckSpec,
    datasets: Mapping[Key, KnownDataset],
    failed: Collection[Key],
    request_ages: Mapping[Key, float],
    now: str,
) -> _Candidate:
    keys = [(workload.key[0], name) for name in workload.claims]
    states = {
        key: _readiness(key[1], datasets[key], percent=spec.percent, now=now)
        for key in keys
        if key in datasets
    }
    missing = {key: state.mounted for key, state in states.items() if state.lacks}
    return _Candidate(
        workload=workload,
        data_only=workload.on_hold or workload.reserved_since is not None,
        loadable=tuple(key for key, mounted in missing.items() if mounted),
        counted=all(
            mounted
            and key not in failed
            and not _is_stalled(datasets[key], percent=spec.percent, seconds=request_ages.get(key, 0.0))
            for key, mounted in missing.items()
        ),
    )


def _is_stalled(known_dataset: KnownDataset, *, percent: int, seconds: float) -> bool:
    """Whether data that was requested `seconds` ago arrives too slowly."""
    if seconds < STALLED_SECONDS:
        return False
    expected = seconds_to_load([known_dataset.dataset], percent=percent)
    return expected is None or expected > SLOWEST_SECONDS


def _in_turn(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """The first candidate of each namespace, then the second of each. One that is not counted keeps the turn of the
    next one that is."""
    turns: Counter[tuple[bool, str]] = Counter()
    by_turn = []
    for candidate in candidates:
        queue = candidate.data_only, candidate.workload.key[0]
        by_turn.append((turns[queue], candidate))
        turns[queue] += candidate.counted
    return [candidate for _, candidate in sorted(by_turn, key=lambda row: row[0])]


def _readiness(name: str, known_dataset: KnownDataset, *, percent: int, now: str) -> DatasetReadiness:
    use = DatasetUse(name=name, mount_path="/", readiness=Readiness(percent=percent))
    return readiness(
        use,
        known_dataset.dataset,
        present=True,
        deleting=known_dataset.deleting,
        generation=known_dataset.generation,
        now=now,
    )
