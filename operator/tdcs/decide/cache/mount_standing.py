"""How a mount stands among those that ask for a cache: who reads its Datasets, who waits for them, what their owners
want.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tdcs.api import names
from tdcs.api.conditions import COPIES_WRONG, EXPIRED, FILES_FAILED, RELOADING
from tdcs.api.dataset import Dataset, DatasetStatus
from tdcs.api.durations import seconds_between, to_seconds
from tdcs.api.sharing import PIN, TIMED
from tdcs.decide.cache.eviction_order import EvictionCandidate, Policy, lru
from tdcs.decide.cache.eviction_times import mistake, next_time
from tdcs.decide.cache.grants import GrantTier
from tdcs.decide.cache.load_order import saved_per_byte

Key = tuple[str, str]
"""Namespace and name."""

EPOCH = "1970-01-01T00:00:00Z"

_LOADED_IN_PART = frozenset({FILES_FAILED, COPIES_WRONG})
"""Reasons of the condition Ready of a Dataset of which nothing more can be loaded for now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetJobs:
    """The jobs of a Dataset.

    Attributes:
        active: those that were admitted and have not ended.
        waiting: those that shall start as soon as they may.
    """

    active: tuple[Key, ...] = ()
    waiting: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UsersOfDataset:
    """Who uses a Dataset now, and when it was used.

    Attributes:
        jobs: its jobs.
        mounted: whether a pod mounts its claim.
        users: the first pods, by name, that mount it and that no TrainingJob made.
        last_used: when one last did; while one does, when that began; None when none ever did.
        uses: when jobs began to read it.
    """

    jobs: DatasetJobs = field(default_factory=DatasetJobs)
    mounted: bool = False
    users: tuple[str, ...] = ()
    last_used: str | None = None
    uses: tuple[str, ...] = ()

    @property
    def active(self) -> bool:
        return self.mounted or bool(self.jobs.active)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUser:
    """A Dataset of a mount, as the cache manager sees it.

    Attributes:
        dataset: as it was read.
        created: when it was created.
        use: who uses it.
        next_use: its first job's place among those that wait; None when none does.
        asked: when the last job that waits for it was created.
        preloading: whether a Preload of it has not ended.
    """

    dataset: Dataset
    created: str
    use: UsersOfDataset
    next_use: float | None = None
    asked: str | None = None
    preloading: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a mount stands among those that ask for the cache.

    Attributes:
        tier: who chooses first.
        value: within a tier the largest chooses first.
        seconds: until time alone changes the tier; None when it does not.
        unknown: the eviction policy that is not installed; empty when all are.
    """

    tier: GrantTier
    value: float
    seconds: float | None = None
    unknown: str = ""


def standing(
    cache_users: Sequence[CacheUser], *, size: int, policies: Mapping[str, Policy], now: str
) -> Standing:
    """How a mount stands: as the best of its Datasets does."""
    each = [_standing(one, size=size, policies=policies, now=now) for one in cache_users]
    if not each:
        return Standing(tier=GrantTier.IDLE, value=0.0)
    tier = min(one.tier for one in each)
    return Standing(
        tier=tier,
        value=max(one.value for one in each if one.tier is tier),
        seconds=min((one.seconds for one in each if one.seconds is not None), default=None),
        unknown=next((one.unknown for one in each if one.unknown), ""),
    )


def is_kept_by_twin(
    uses: Mapping[str, CacheUser], *, key: str, policies: Mapping[str, Policy], now: str
) -> bool:
    """Whether the time of one Dataset of a mount is over, and that of another one is not: the mount stays.

    Args:
        uses: all Datasets of the mount, by the keys of their own wants.
    """
    over = {
        name: _standing(one, size=1, policies=policies, now=now).tier is GrantTier.DUE
        for name, one in uses.items()
    }
    return over.pop(key, False) and not all(over.values())


def _standing(cache_user: CacheUser, *, size: int, policies: Mapping[str, Policy], now: str) -> Standing:
    spec, use = cache_user.dataset.spec.eviction, cache_user.use
    last = max(_base_times(cache_user), default=0.0)
    readers = len(use.jobs.active) + len(use.jobs.waiting)
    if use.active and spec.policy != PIN:
        # The more jobs a cached byte serves, the more worth it is.
        worth = saved_per_byte(size_bytes=float(size), demand=float(readers or 1))
        return Standing(tier=GrantTier.ACTIVE, value=worth)
    policy = lru if spec.policy in (PIN, TIMED) else policies.get(spec.policy)
    never = spec.policy == TIMED and spec.schedule is not None and mistake(spec.schedule) != ""
    if spec.policy == PIN or policy is None or never:
        unknown = spec.policy if policy is None else ""  # nothing is lost for a mistake in a name or a line
        return Standing(
            tier=GrantTier.PINNED, value=-seconds_between(EPOCH, cache_user.created), unknown=unknown
        )
    value = policy(
        EvictionCandidate(
            name="",
            held_bytes=float(size),
            last_used=last,
            uses=[seconds_between(EPOCH, one) for one in use.uses],
            next_use=cache_user.next_use,
        )
    )
    if use.jobs.waiting or cache_user.preloading:
        return Standing(tier=GrantTier.WAITING, value=value)
    left = _time_left(cache_user, last=last, now=now)
    if left is not None and left <= 0:
        return Standing(tier=GrantTier.DUE, value=value)
    # Before its time a timed one is as good as pinned, but yields to what is.
    return Standing(tier=GrantTier.IDLE if left is None else GrantTier.KEPT, value=value, seconds=left)


def _base_times(cache_user: CacheUser) -> Iterator[float]:
    """Times at which a Dataset was used or asked for, or came to be."""
    preload = cache_user.dataset.spec.preload
    for time in (cache_user.created, cache_user.use.last_used, cache_user.asked, preload.start_time):
        if time:
            yield seconds_between(EPOCH, time)


def _time_left(cache_user: CacheUser, *, last: float, now: str) -> float | None:
    """Seconds until a timed Dataset leaves; None while that is open: its time begins when it has been loaded."""
    spec, status = cache_user.dataset.spec, cache_user.dataset.status
    ttl, schedule = spec.eviction.ttl, spec.eviction.schedule
    if spec.eviction.policy != TIMED or (ttl is None and schedule is None):
        return None
    if status is not None and status.grant is not None and status.grant.reason == EXPIRED:
        return 0.0  # until it is used or asked for, whatever its loading looks like by now
    if spec.preload.enabled:
        last = max(last, seconds_between(EPOCH, _loaded_since(status) or now))
    due = last + to_seconds(ttl) if ttl is not None else next_time(schedule or "", after=last)
    return None if due is None else due - seconds_between(EPOCH, now)


def _loaded_since(status: DatasetStatus | None) -> str | None:
    """When all had been loaded that can be; None while more is to come."""
    found = {one.type: one for one in (status.conditions if status else ())}
    loaded, ready = found.get(names.LOADED), found.get(names.READY)
    if loaded is not None and loaded.status == "True" and loaded.reason != RELOADING:
        return loaded.last_transition_time
    # Never Loaded with files that cannot be had, or with wrong copies: it became Ready without them.
    if ready is not None and ready.status == "True" and ready.reason in _LOADED_IN_PART:
        return ready.last_transition_time
    return None
