"""Priority of a mount for cache space: who reads its Datasets, who waits for them, and their eviction settings."""

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
"""Reasons of condition Ready of a partly loaded Dataset that cannot load more for now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetJobs:
    """The jobs of a Dataset.

    Attributes:
        active: jobs that were admitted and have not ended.
        waiting: jobs that wait for their admission.
    """

    active: tuple[Key, ...] = ()
    waiting: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UsersOfDataset:
    """Who uses a Dataset now, and when it was used.

    Attributes:
        jobs: its jobs.
        mounted: whether a pod mounts its claim.
        users: the first pods, by name, that mount it and belong to no TrainingJob.
        last_used: end of the last use, or start of the present one; None when it was never used.
        uses: when jobs started to read it.
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
        dataset: the Dataset.
        created: when it was created.
        use: who uses it.
        next_use: queue position of its first waiting job; None without one.
        requested: creation time of its newest waiting job.
        preloading: whether a Preload of it has not ended.
    """

    dataset: Dataset
    created: str
    use: UsersOfDataset
    next_use: float | None = None
    requested: str | None = None
    preloading: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Priority of a mount for cache space.

    Attributes:
        tier: lower tiers choose first.
        value: within a tier, the largest value chooses first.
        seconds: seconds until the tier changes by time alone; None when it does not.
        unknown: an eviction policy that is not installed; empty when all are.
    """

    tier: GrantTier
    value: float
    seconds: float | None = None
    unknown: str = ""


def standing(
    cache_users: Sequence[CacheUser], *, size: int, policies: Mapping[str, Policy], now: str
) -> Standing:
    """The priority of a mount: the best one of its Datasets."""
    standings = [_standing(cache_user, size=size, policies=policies, now=now) for cache_user in cache_users]
    if not standings:
        return Standing(tier=GrantTier.IDLE, value=0.0)
    tier = min(candidate.tier for candidate in standings)
    return Standing(
        tier=tier,
        value=max(candidate.value for candidate in standings if candidate.tier is tier),
        seconds=min(
            (candidate.seconds for candidate in standings if candidate.seconds is not None), default=None
        ),
        unknown=next((candidate.unknown for candidate in standings if candidate.unknown), ""),
    )


def is_kept_by_twin(
    uses: Mapping[str, CacheUser], *, key: str, policies: Mapping[str, Policy], now: str
) -> bool:
    """Whether one Dataset of a mount is due for eviction and another is not, so that the mount stays.

    Args:
        uses: all Datasets of the mount, by the keys of their own wants.
    """
    over = {
        name: _standing(cache_user, size=1, policies=policies, now=now).tier is GrantTier.DUE
        for name, cache_user in uses.items()
    }
    return over.pop(key, False) and not all(over.values())


def _standing(cache_user: CacheUser, *, size: int, policies: Mapping[str, Policy], now: str) -> Standing:
    spec, use = cache_user.dataset.spec.eviction, cache_user.use
    last = max(_base_times(cache_user), default=0.0)
    readers = len(use.jobs.active) + len(use.jobs.waiting)
    if use.active and spec.policy != PIN:
        # A cached byte is worth more, the more jobs it serves.
        worth = saved_per_byte(size_bytes=float(size), demand=float(readers or 1))
        return Standing(tier=GrantTier.ACTIVE, value=worth)
    policy = lru if spec.policy in (PIN, TIMED) else policies.get(spec.policy)
    never = spec.policy == TIMED and spec.schedule is not None and mistake(spec.schedule) != ""
    if spec.policy == PIN or policy is None or never:
        unknown = spec.policy if policy is None else ""  # a typo in a policy or schedule must not evict data
        return Standing(
            tier=GrantTier.PINNED, value=-seconds_between(EPOCH, cache_user.created), unknown=unknown
        )
    value = policy(
        EvictionCandidate(
            name="",
            held_bytes=float(size),
            last_used=last,
            uses=[seconds_between(EPOCH, time) for time in use.uses],
            next_use=cache_user.next_use,
        )
    )
    if use.jobs.waiting or cache_user.preloading:
        return Standing(tier=GrantTier.WAITING, value=value)
    seconds_left = _time_left(cache_user, last=last, now=now)
    if seconds_left is not None and seconds_left <= 0:
        return Standing(tier=GrantTier.DUE, value=value)
    # Before its time, a timed Dataset ranks directly after those that are needed.
    return Standing(
        tier=GrantTier.IDLE if seconds_left is None else GrantTier.KEPT, value=value, seconds=seconds_left
    )


def _base_times(cache_user: CacheUser) -> Iterator[float]:
    """Times at which a Dataset was created, used, or requested."""
    preload = cache_user.dataset.spec.preload
    for time in (cache_user.created, cache_user.use.last_used, cache_user.requested, preload.start_time):
        if time:
            yield seconds_between(EPOCH, time)


def _time_left(cache_user: CacheUser, *, last: float, now: str) -> float | None:
    """Seconds until a timed Dataset is evicted; None while unknown: its time starts when it is loaded."""
    spec, status = cache_user.dataset.spec, cache_user.dataset.status
    ttl, schedule = spec.eviction.ttl, spec.eviction.schedule
    if spec.eviction.policy != TIMED or (ttl is None and schedule is None):
        return None
    if status is not None and status.grant is not None and status.grant.reason == EXPIRED:
        return 0.0  # until it is used or requested, whatever its load state
    if spec.preload.enabled:
        last = max(last, seconds_between(EPOCH, _loaded_since(status) or now))
    due = last + to_seconds(ttl) if ttl is not None else next_time(schedule or "", after=last)
    return None if due is None else due - seconds_between(EPOCH, now)


def _loaded_since(status: DatasetStatus | None) -> str | None:
    """When everything loadable was loaded; None while more is to come."""
    conditions = {condition.type: condition for condition in (status.conditions if status else ())}
    loaded, ready = conditions.get(names.LOADED), conditions.get(names.READY)
    if loaded is not None and loaded.status == "True" and loaded.reason != RELOADING:
        return loaded.last_transition_time
    # With unreadable files or wrong copies it is never Loaded: it became Ready without them.
    if ready is not None and ready.status == "True" and ready.reason in _LOADED_IN_PART:
        return ready.last_transition_time
    return None
