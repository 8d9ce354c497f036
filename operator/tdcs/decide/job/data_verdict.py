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
"""A Workload whose data comes at an unknown speed comes again after so long."""

LONGEST_SECONDS = 3600
"""One whose data takes longer is asked about again all the same: estimates err."""

UNHELD_SECONDS = (10, 60)
"""Bounds of the time after which Kueue takes the quota of a Workload back that cannot be put on hold. Kueue 0.19 keeps
the quota until then, and each time costs an eviction."""

STALLED_SECONDS = 600
"""So long after it was first asked for, data keeps its place among what is loaded ahead, however slowly it comes: it
may wait until others are loaded."""

SLOWEST_SECONDS = 86_400
"""Later it keeps the place only if it comes so fast that all is there in this time."""


class DataState(StrEnum):
    """What the check says: admit the Workload, wait with its quota, or wait without."""

    READY = "Ready"
    PENDING = "Pending"
    RETRY = "Retry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A state, and a sentence that says why; with Retry of a Workload that cannot be held, the seconds until Kueue is
    to try it again."""

    state: DataState
    message: str
    requeue_after_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDataset:
    """A Dataset of a Workload's namespace. `dataset` is None when it cannot be understood."""

    dataset: Dataset | None
    deleting: bool = False


def verdict(
    workload: CheckedWorkload,
    *,
    spec: DataCheckSpec,
    datasets: Mapping[str, KnownDataset],
    now: str,
    refusal: str = "",
) -> Verdict | None:
    """What to say of a Workload; None: nothing, for it waits for quota, or the answer stands.

    Args:
        spec: of the DataCheck.
        datasets: those of its namespace, by name. Claims of other names are other volumes.
        now: the time.
        refusal: why it was just refused to put the Workload on hold; empty: it was not.
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
    found = [_readiness(name, datasets[name], percent=spec.percent, now=now) for name in mounted]
    answer = decide(suspended=False, datasets=found)
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
        for name, each in zip(mounted, found, strict=True)
        if not decide(suspended=False, datasets=[each]).admitted
    ]
    expected = seconds_to_load([datasets[name].dataset for name in missing], percent=spec.percent)
    if most is not None and expected is not None:
        expected = min(expected, most - waited)
    when = "" if expected is None else f", in about {math.ceil(expected)} s"
    if workload.reserved_since is not None:
        left = spec.hold_seconds - seconds_between(workload.reserved_since, now)
        if left > 0 and (expected is None or expected <= left):
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
    """What to say of a Workload while its check's parameters are missing or wrong; None: nothing.

    Kueue gives no quota for such a check. A Workload on hold stays there, and says whose mistake it is.
    """
    if workload.closed or not workload.on_hold:
        return None
    return Verdict(state=DataState.RETRY, message=f"{problem}; until then the Workload stays on hold")


def _ready(workload: CheckedWorkload, message: str, *, refusal: str) -> Verdict:
    """Its data lets it start: with quota it is admitted, on hold it is queued again first."""
    if workload.reserved_since is not None:
        return Verdict(state=DataState.READY, message=message)
    if workload.on_hold or refusal:
        return Verdict(state=DataState.PENDING, message=f"{message}; it is queued again")
    # Kueue has passed it over for its state. It forgets that when the Workload comes back from a hold.
    return Verdict(state=DataState.RETRY, message=f"{message}; it is about to be queued again")


def seconds_to_load(datasets: Sequence[Dataset | None], *, percent: int) -> float | None:
    """Until so much of each of them is there, at the rate at which they are loaded now; None when one is not."""
    longest = 0.0
    for each in datasets:
        status = None if each is None else each.status
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
    asked: Mapping[Key, float],
    now: str,
) -> list[tuple[CheckedWorkload, str]]:
    """What to load of the Datasets of the first Workloads that wait for quota, each once.

    The first `look_ahead` in the queue are loaded for, and as many that wait for their data only (on hold, or until
    Kueue takes their quota back): these must not keep others from theirs. Namespaces are taken in turn: however many
    Workloads one has, and of whatever priority, the first of each other comes before its second. Workloads that wait
    for data that cannot be loaded, or comes too slowly, are not counted.

    Args:
        failed: Datasets that were loaded ahead in vain.
        asked: how many seconds ago it was first asked for that a Dataset is loaded ahead.
    """
    waiting = sorted(
        (each for each in workloads if not each.closed and (each.reserved_since is None or each.retries)),
        key=lambda each: each.order,
    )
    candidates = [
        _candidate(each, spec=spec, datasets=datasets, failed=failed, asked=asked, now=now)
        for each in waiting
    ]
    found: dict[Key, CheckedWorkload] = {}
    left = dict.fromkeys((True, False), spec.look_ahead)
    for each in _in_turn(candidates):
        if left[each.data_only]:
            for key in each.loadable:
                found.setdefault(key, each.workload)
            left[each.data_only] -= each.counted
    return [(workload, name) for (_, name), workload in found.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A Workload for which may be loaded ahead.

    Attributes:
        workload: it waits.
        data_only: for its data, and not for quota.
        loadable: Datasets that it lacks and that are mounted.
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
    asked: Mapping[Key, float],
    now: str,
) -> _Candidate:
    keys = [(workload.key[0], name) for name in workload.claims]
    states = {
        key: _readiness(key[1], datasets[key], percent=spec.percent, now=now)
        for key in keys
        if key in datasets
    }
    lacking = {key: each.mounted for key, each in states.items() if each.lacks}
    return _Candidate(
        workload=workload,
        data_only=workload.on_hold or workload.reserved_since is not None,
        loadable=tuple(key for key, mounted in lacking.items() if mounted),
        counted=all(
            mounted
            and key not in failed
            and not _is_stalled(datasets[key], percent=spec.percent, seconds=asked.get(key, 0.0))
            for key, mounted in lacking.items()
        ),
    )


def _is_stalled(known: KnownDataset, *, percent: int, seconds: float) -> bool:
    """Whether data comes too slowly that was asked for so many seconds ago."""
    if seconds < STALLED_SECONDS:
        return False
    expected = seconds_to_load([known.dataset], percent=percent)
    return expected is None or expected > SLOWEST_SECONDS


def _in_turn(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """The first of each namespace, then the second of each; those that take no place go with the next that does."""
    turns: Counter[tuple[bool, str]] = Counter()
    found = []
    for each in candidates:
        queue = each.data_only, each.workload.key[0]
        found.append((turns[queue], each))
        turns[queue] += each.counted
    return [each for _, each in sorted(found, key=lambda row: row[0])]


def _readiness(name: str, known: KnownDataset, *, percent: int, now: str) -> DatasetReadiness:
    use = DatasetUse(name=name, mount_path="/", readiness=Readiness(percent=percent))
    return readiness(use, known.dataset, present=True, deleting=known.deleting, now=now)
