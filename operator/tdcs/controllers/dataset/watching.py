"""When a mount is listed and planned anew. The listing itself goes on in the background, beside the loads."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from tdcs.api import names
from tdcs.controllers.context import Context
from tdcs.controllers.dataset import ledger, sharing
from tdcs.controllers.dataset.adopting import adopt
from tdcs.controllers.dataset.background import Background
from tdcs.controllers.dataset.checks import LISTING_SHARE, Check
from tdcs.controllers.dataset.data import MountedData
from tdcs.controllers.dataset.looking import Question, look
from tdcs.controllers.dataset.plan import NodeView, Want
from tdcs.controllers.dataset.planner import matches
from tdcs.controllers.dataset.sharing import Reader
from tdcs.controllers.dataset.source import as_not_yet
from tdcs.controllers.nodes import node_views
from tdcs.engine.protocol import Engine, EngineError, SourceError, WorkerInfo

BESIDE_SHARE = 4.0
"""While something else is still being loaded, what has ended is looked at for at most one part in so many of the
time."""


async def watch(
    *,
    context: Context,
    engine: Engine,
    data: MountedData,
    datas: Iterable[MountedData],
    users: Sequence[Reader],
    check: Check,
    clock: Callable[[], float],
    on_done: Callable[[], None],
) -> list[Want]:
    """Take in the listing that has ended, and begin another when that is due or what a plan depends on has changed.

    Args:
        context: the controller's world.
        engine: the cache.
        data: the mount.
        datas: all mounts of the cache.
        users: the Datasets that read it.
        check: whether the source itself is to be listed.
        clock: seconds that only grow.
        on_done: called when the listing has ended.

    Returns:
        What the data is wanted for now.

    Raises:
        EngineError: the last listing failed, and nothing is known of the mount; or it failed for another cause than
            its source.
    """
    stores = context.stores
    workers = await engine.workers()
    found = sharing.all_wants(stores=stores, users=users, now=context.now())
    await data.heed(found)
    await _take(context, data, engine, clock=clock, on_done=on_done)
    views = node_views(nodes=stores.nodes, usage=stores.usage)
    leaving = ledger.leaving_nodes(cache_clusters=stores.cache_clusters, cluster=data.cluster)
    refused = data.refused()
    basis = (
        tuple(replace(want, bandwidth=None) for want in found),
        leaving,
        data.preloaded,
        refused,
        eligibility(wants=found, workers=workers, nodes=views),
    )
    now = clock()
    refresh = check.due and now >= data.refresh_at
    held_before = sharing.held_before(stores=stores, users=users, data=data)
    away = absent(held_before=held_before, workers=workers, nodes=views, leaving=leaving)
    patience = context.settings.return_seconds
    if data.listing is not None or now < data.look_at or _comes_back(data, away, now=now, patience=patience):
        return found
    short = _is_short(data, datas, workers, now=now, patience=2 * context.settings.progress_seconds)
    if not (refresh or short or _is_due(data, basis, now=now, least=context.settings.survey_seconds)):
        return found
    question = Question(
        wants=found,
        workers=workers,
        nodes=views,
        held_before=held_before,
        leaving=leaving,
        owned=bool(data.preloaded),
        refused=refused,
        refresh=refresh,
        asked={user.key: asked_of(user) for user in users},
        basis=basis,
    )
    data.refreshing = refresh
    data.listing = Background(
        look(engine=engine, path=data.path, question=question, runs=lambda: data.runs, clock=clock),
        name="listing",
        on_done=on_done,
    )
    return found


def eligibility(
    *, wants: Iterable[Want], workers: Iterable[WorkerInfo], nodes: Mapping[str, NodeView]
) -> tuple[object, ...]:
    """What of the workers and their nodes a plan depends on: of the labels, whether they match a selector that somebody
    has."""
    selectors = [want.node_selector for want in wants]
    return tuple(
        (
            worker.name,
            worker.live,
            worker.capacity_bytes,
            tuple(matches(nodes[worker.name].labels, selector) for selector in selectors)
            if worker.name in nodes
            else None,
        )
        for worker in workers
    )


def absent(
    *,
    held_before: Mapping[str, Sequence[frozenset[str]]],
    workers: Iterable[WorkerInfo],
    nodes: Mapping[str, NodeView],
    leaving: Collection[str],
) -> frozenset[str]:
    """Nodes on which some of the data lay, that are still there and shall stay, but whose worker is away."""
    lay = frozenset[str]().union(*(nodes_of for copies in held_before.values() for nodes_of in copies))
    live = {worker.name for worker in workers if worker.live}
    return frozenset(name for name in lay - live if name in nodes and name not in leaving)


def lacking(*, datas: Iterable[MountedData], workers: Iterable[WorkerInfo]) -> set[str]:
    """Live workers that hold less than the listings of all mounts together say: something went behind our back."""
    told: dict[str, int] = {}
    for data in datas:
        for node, size in data.held().node_bytes.items():
            told[node] = told.get(node, 0) + size
    return {worker.name for worker in workers if worker.live and told.get(worker.name, 0) > worker.used_bytes}


def asked_of(user: Reader) -> str | None:
    """The value with which the user asks for a look at the source."""
    value = (user.obj["metadata"].get("annotations") or {}).get(names.ANNOTATION_REFRESH)
    return None if value is None else str(value)


async def _take(
    context: Context,
    data: MountedData,
    engine: Engine,
    *,
    clock: Callable[[], float],
    on_done: Callable[[], None],
) -> None:
    done = data.listing
    if done is None or done.running:
        return
    data.listing = None
    try:
        seen = done.result()
    except EngineError as error:
        later = clock() + context.settings.survey_seconds
        if not isinstance(error, SourceError):
            raise
        data.source_trouble = as_not_yet(error, mounted=True)
        if data.refreshing:
            data.refresh_at = later  # what the cache remembers of the source may be listed meanwhile
        else:
            data.look_at = later
        if data.survey is None and not data.refreshing:
            raise
        return
    await adopt(data, seen, engine=engine, on_done=on_done, clock=clock)
    if seen.question.refresh:
        data.checked, data.source_trouble = context.now(), None


def _is_due(data: MountedData, basis: object, *, now: float, least: float) -> bool:
    if data.survey is None or data.surveyed_for != basis:
        return True
    age = now - data.surveyed_at
    retry = data.surveyed_at < data.retry_at <= now
    ended = any(not run.running for run in data.runs.values())
    if retry or ended:
        return not data.loading or age >= BESIDE_SHARE * data.survey_took
    # Listing a million files takes a minute or two: it must stay a small part of the master's work.
    return not data.loading and age >= max(least, LISTING_SHARE * data.survey_took)


def _comes_back(data: MountedData, away: Collection[str], *, now: float, patience: float) -> bool:
    """Whether to leave everything as it is for a while, because a worker with data may be back in a moment."""
    if not away:
        data.away_since = None
        return False
    if data.away_since is None:
        data.away_since = now
    return now - data.away_since < patience


def _is_short(
    data: MountedData,
    datas: Iterable[MountedData],
    workers: Iterable[WorkerInfo],
    *,
    now: float,
    patience: float,
) -> bool:
    """Whether a worker that holds some of this mount has held too little for a while: what it reports of itself comes
    with its heartbeat, a little later than what was placed."""
    mine = {node for node, size in data.held().node_bytes.items() if size}
    if not mine & lacking(datas=datas, workers=workers):
        data.short_since = None
        return False
    if data.short_since is None:
        data.short_since = now
    return now - data.short_since >= patience and now - data.surveyed_at >= BESIDE_SHARE * data.survey_took
