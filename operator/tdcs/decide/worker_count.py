"""How many workers a cache has that follows its jobs, where, and in which order they leave.

Growing: a node gets a worker as soon as a pod runs there that reads data of the cache; and there are as many workers
as the minimum says, and as the data that jobs need takes room. Shrinking: a worker that nothing calls for stays for a
while, for the next job may come soon, so that the cache does not swing; then it leaves. What may leave is chosen so
that the worker whose loss costs least goes first. Its loss is the bytes that are nowhere else, weighted by the demand
for their dataset; bytes that have another copy cost nothing. Before it leaves, its last copies move to other nodes as
the grants of the cache manager say (`tdcs.decide.cache.grants`), which are made without it. Of workers that cost the
same the one goes whose zone has its bytes elsewhere, too: others there would have to read them from another zone.

Limits: moving takes time that is not planned.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tdcs.model.nearness import Place


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """A node that may have a cache worker.

    Attributes:
        node: its name.
        has_worker: whether it has one, also one that drains.
        draining: whether that one drains.
        has_readers: whether a pod that reads data of the cache runs there.
        spare_since: since when nothing calls for its worker; None when something did at the last look.
        loss: see :func:`loss`.
        zone_loss: see :func:`zone_loss`.
        zone: its zone; empty where that is not known.
    """

    node: str
    has_worker: bool = False
    draining: bool = False
    has_readers: bool = False
    spare_since: float | None = None
    gpus: int = 0
    loss: float = 0.0
    zone_loss: float = 0.0
    zone: Place = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """What the number of workers depends on next to the nodes.

    Attributes:
        minimum: workers that there are in any case, as far as there are nodes.
        maximum: the most workers; None for no limit.
        idle_seconds: how long a worker stays that nothing calls for.
        needed_bytes: bytes of the data that jobs or its owners need in the cache; None when that is not known yet: then
            no worker leaves that has not begun to.
        worker_bytes: what one worker may hold.
    """

    minimum: int = 1
    maximum: int | None = None
    idle_seconds: float = 600.0
    needed_bytes: int | None = 0
    worker_bytes: int = 0

    @property
    def for_data(self) -> int:
        return math.ceil((self.needed_bytes or 0) / self.worker_bytes) if self.worker_bytes > 0 else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Following:
    """The nodes that shall have a worker.

    Attributes:
        nodes: their names, sorted.
        spare: those of them that nothing calls for, and since when.
        left_out: nodes with readers that get no worker because of the maximum, sorted.
    """

    nodes: tuple[str, ...]
    spare: Mapping[str, float]
    left_out: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """Bytes of a dataset on a node.

    Attributes:
        held_bytes: bytes on the node.
        last_copy_bytes: those of them that are on no other node.
        last_in_zone_bytes: those of them that are on no other node of its zone.
        worth: how much it is wanted, in any unit that all of them share: store bandwidth saved per byte
            (`load_order.saved_per_byte`), or the number of jobs that read it; 0 when nobody does.
    """

    dataset: str
    held_bytes: int
    last_copy_bytes: int
    last_in_zone_bytes: int = 0
    worth: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Worker:
    """A cache worker as scale-in sees it.

    Attributes:
        zone_workers: how many workers its zone has, with itself.
    """

    node: str
    held: tuple[Held, ...] = ()
    runs_jobs: bool = False
    zone_workers: int = 1


def follow_jobs(*, sites: Sequence[Site], bounds: Bounds, now: float) -> Following:
    """The nodes that should have a worker, so that data is cached where it is read.

    Workers next to readers come first, then those that nothing has called for only since a moment, then nodes with
    readers that have no worker yet: at the maximum a worker makes room for another one only when it has been spare for
    long enough. Others are taken as far as the minimum and the data ask for them: those that were taken at the last
    look, so that it stays the same ones, then those whose loss costs most.

    Args:
        sites: the nodes that may have a worker.
        now: seconds on the clock of `spare_since`.
    """
    unknown = bounds.needed_bytes is None
    most = len(sites) if bounds.maximum is None else min(bounds.maximum, len(sites))
    if unknown:
        most = max(most, sum(site.has_worker and not site.draining for site in sites))
    least = min(max(bounds.minimum, bounds.for_data), most)
    alongside = [site for site in sites if site.has_readers and site.has_worker]
    idle = [site for site in sites if site.has_worker and not site.has_readers]
    recent = [site for site in idle if not site.draining and (unknown or _is_recent(site, bounds, now))]
    new = [site for site in sites if site.has_readers and not site.has_worker]
    long_idle = [site for site in idle if site not in recent]
    empty = [site for site in sites if not site.has_worker and not site.has_readers]
    first = [*sorted(alongside, key=_stays), *sorted(recent, key=_stays)]
    first += in_turn(new, taken=first)
    chosen = first[:most]
    chosen += sorted(long_idle, key=_stays)[: max(least - len(chosen), 0)]
    chosen += list(in_turn(empty, taken=chosen))[: max(least - len(chosen), 0)]
    with_readers = sum(site.has_readers for site in chosen)
    without = sorted((site for site in chosen if not site.has_readers), key=_stays)
    spare = {
        site.node: now if site.spare_since is None else site.spare_since
        for site in without[max(least - with_readers, 0) :]
        if site.spare_since is not None or not unknown
    }
    names = {site.node for site in chosen}
    return Following(
        nodes=tuple(sorted(names)),
        spare=spare,
        left_out=tuple(sorted(site.node for site in sites if site.has_readers and site.node not in names)),
    )


def in_turn(sites: Iterable[Site], *, taken: Iterable[Site]) -> Iterator[Site]:
    """Nodes without a worker, in the order in which they get one: those with the most GPUs, since jobs will run next to
    the data, and of equal ones those in the zone with the fewest workers.

    Args:
        taken: the nodes that have a worker.
    """
    workers = Counter(site.zone for site in taken)
    open_sites = sorted(sites, key=lambda site: (-site.gpus, site.node))
    while open_sites:
        site = min(open_sites, key=lambda site: (-site.gpus, workers[site.zone]))
        open_sites.remove(site)
        workers[site.zone] += 1
        yield site


def _is_recent(site: Site, bounds: Bounds, now: float) -> bool:
    return site.spare_since is None or now - site.spare_since < bounds.idle_seconds


def _stays(site: Site) -> tuple[bool, bool, bool, float, float, str]:
    """Sorts to the front who stays of too many: who has a worker that does not drain, was called for at the last look,
    and would be missed most."""
    is_spare = site.spare_since is not None
    return not site.has_worker, site.draining, is_spare, -site.loss, -site.zone_loss, site.node


def loss(worker: Worker) -> float:
    """The cost of losing a worker now: bytes of last copies weighted by demand; unread data has a small weight."""
    return sum(holding.last_copy_bytes * (holding.worth + 1e-12) for holding in worker.held)


def zone_loss(worker: Worker) -> float:
    """The cost of losing a worker for its zone: bytes that others there would read from another one, weighted so."""
    return sum(holding.last_in_zone_bytes * (holding.worth + 1e-12) for holding in worker.held)


def leaves_first(workers: Sequence[Worker]) -> Worker | None:
    """The worker whose loss costs least; one without jobs before one with, and of equal ones one whose zone loses
    least, or has the most workers."""
    return min(
        workers,
        key=lambda worker: (
            worker.runs_jobs,
            loss(worker),
            zone_loss(worker),
            -worker.zone_workers,
            worker.node,
        ),
        default=None,
    )
