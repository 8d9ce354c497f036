"""How a Dataset stands in the cache, in a few words each: its grant, its copies, its jobs, and when it leaves."""

from typing import Final

from tdcs.api import names
from tdcs.api.conditions import EVICTED, EXPIRED, KEPT_BY_TWIN, UNKNOWN_POLICY
from tdcs.api.dataset import Dataset, DatasetStatus
from tdcs.api.sharing import PIN
from tdcs.decide.cache.eviction_order import lru
from tdcs.decide.cache.grants import GrantTier
from tdcs.decide.cache.mount_standing import CacheUser, DatasetJobs, Standing, UsersOfDataset, standing
from tdcs.model.humanize import counted, human

_DAY: Final = 86_400
_HOUR: Final = 3_600
_MINUTE: Final = 60


def granted(status: DatasetStatus) -> str:
    """What it may have in the cache, and the reason why that is no more."""
    if status.grant is None:
        return ""
    size = human(status.grant.bytes)
    return f"{size} ({status.grant.reason})" if status.grant.reason else size


def copies(status: DatasetStatus) -> str:
    """How many copies are on nodes, clones that jobs asked for counted apart."""
    placed_copies = [copy for copy in status.copies if copy.id != names.PRELOADED_COPY]
    clones = [copy for copy in placed_copies if copy.id.startswith(names.CLONE_COPY)]
    coming = sum(any(node.arriving for node in copy.nodes) for copy in clones)
    if not clones:
        return str(len(placed_copies)) if placed_copies else ""
    arriving = f", {coming} to come" if coming else ""
    return f"{len(placed_copies) - len(clones)} + {counted(len(clones), 'clone')}{arriving}"


def is_held(status: DatasetStatus) -> bool:
    """Whether nodes have something of it, or are to have it."""
    return any(node.bytes or node.arriving for copy in status.copies for node in copy.nodes)


def jobs(dataset: Dataset, status: DatasetStatus) -> str:
    """How many jobs read it, how many each copy may serve, and how many wait."""
    limit = dataset.spec.access.max_concurrent_jobs
    if not (limit or status.active_jobs or status.waiting_jobs):
        return ""
    most = f" (at most {limit} a copy)" if limit else ""
    waiting = f", {status.waiting_jobs} wait" if status.waiting_jobs else ""
    return f"{status.active_jobs} read{most}{waiting}"


def leaves(dataset: Dataset, status: DatasetStatus, *, created: str, now: str) -> str:
    """When it leaves the cache, as the operator decides it."""
    if status.grant is None:
        return ""
    if status.state == "Deleting":
        return "when no pod uses it"
    dataset_jobs = DatasetJobs(active=_some(status.active_jobs), waiting=_some(status.waiting_jobs))
    cache_standing = standing_of(dataset, status, jobs=dataset_jobs, created=created, now=now)
    if has_left(status, cache_standing):
        return "it has left"
    if is_kept_by_twin(status, cache_standing):
        return "with another Dataset of its source"
    match cache_standing.tier:
        case GrantTier.PINNED:
            if cache_standing.unknown:
                return f"never (no policy {cache_standing.unknown})"
            return "never (pinned)" if dataset.spec.eviction.policy == PIN else "never (schedule never fires)"
        case GrantTier.ACTIVE:
            return "not while it is read"
        case GrantTier.WAITING:
            return "not while jobs wait"
        case GrantTier.KEPT:
            return f"in {spoken(cache_standing.seconds or 0.0)}"
        case GrantTier.IDLE:
            return f"if others need room ({dataset.spec.eviction.policy})"
        case GrantTier.DUE:
            return "its time is over"


def standing_of(
    dataset: Dataset, status: DatasetStatus, *, jobs: DatasetJobs, created: str, now: str
) -> Standing:
    """How it stands among those that ask for the cache, as the operator decides it."""
    use = UsersOfDataset(jobs=jobs, mounted=status.in_use, last_used=status.last_used_time)
    # Which policies are installed next to the operator is known there only: its condition says that one is missing.
    missing = any(
        condition.type == names.GRANTED and condition.reason == UNKNOWN_POLICY
        for condition in status.conditions
    )
    return standing(
        [CacheUser(dataset=dataset, created=created, use=use)],
        size=status.total_bytes,
        policies={} if missing else {dataset.spec.eviction.policy: lru},
        now=now,
    )


def has_left(status: DatasetStatus, cache_standing: Standing) -> bool:
    """Whether nothing of it is granted any more, and no job asks for it."""
    grant_ended = status.grant is not None and status.grant.reason in (EVICTED, EXPIRED)
    return grant_ended and cache_standing.tier in (GrantTier.KEPT, GrantTier.IDLE, GrantTier.DUE)


def is_kept_by_twin(status: DatasetStatus, cache_standing: Standing) -> bool:
    """Whether its time is over, and another Dataset of its source keeps it in the cache."""
    is_kept = any(
        condition.type == names.GRANTED and condition.reason == KEPT_BY_TWIN
        for condition in status.conditions
    )
    return is_kept and cache_standing.tier is GrantTier.DUE


def spoken(seconds: float) -> str:
    """A length of time in its largest unit, rounded up: 3 h."""
    for unit, length in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE)):
        if seconds > length:
            return f"{-int(-seconds // length)} {unit}"
    return f"{int(seconds)} s"


def _some(count: int) -> tuple[tuple[str, str], ...]:
    return (("", ""),) * count
