"""What every cache cluster says of itself, as a value: asked for in the background, each cluster by itself.

No pass over an object waits for a cache. One that hangs is a view that says so, and concerns its own objects only.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from tdcs.control.cache_registry import Caches
from tdcs.engine.holder_service import KnownAgents
from tdcs.model.agent_state import AgentState
from tdcs.model.cache_engine import EngineError, EngineUnavailableError
from tdcs.model.cache_view import Away, CacheView
from tdcs.model.export_view import ExportView

_log = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
"""A cache that has not answered by then counts as away."""

AWAY_SECONDS = 600.0
"""So long the last state of an agent that is gone is kept: far longer than any decision waits for it to be back."""

AGENTS_SECONDS = 0.25
"""The agents' last states, which are in memory, are looked at so often at least."""

ROOM_RATIO = 0.01
"""A change of a node's room is reported from this part of its capacity on: what a load itself takes changes it less."""


class CacheObserver:
    """Looks at caches, and tells of changes.

    Args:
        caches: gives the engine and the agents of a cluster.
        poll_seconds: how often a cache is asked what is mounted.
        patience: seconds after the first answer in which no agent is looked at before all have answered.
        on_cache: called with a cluster that differs from what its view said, and the mounts that came, went or got
            another version; None when it is the cache itself, workers, or a mount that went, which may concern all.
        on_agents: called with a cluster and the mounts of which some agent says another thing; None for all.
        on_room: called with a cluster when nodes have more or less room for blocks, for another reason than these
            blocks, and with the mounts on those that have less.
    """

    def __init__(
        self,
        *,
        caches: Caches,
        poll_seconds: float,
        patience: float = 0.0,
        on_cache: Callable[[str, set[str] | None], None],
        on_agents: Callable[[str, set[str] | None], None],
        on_room: Callable[[str, set[str]], None] = lambda cluster, paths: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._caches = caches
        self._poll = poll_seconds
        self._patience = patience
        self._on_cache = on_cache
        self._on_agents = on_agents
        self._on_room = on_room
        self.clock = clock
        self._views: dict[str, CacheView] = {}
        self._heard: set[str] = set()
        """Caches that have answered."""
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._look_events: dict[str, asyncio.Event] = {}
        self._next_looks: dict[str, asyncio.Task[None]] = {}
        self._looks: set[asyncio.Task[None]] = set()
        self._looking: dict[str, asyncio.Lock] = {}
        self._rooms: dict[str, dict[str, int]] = {}
        """Bytes on each node that blocks may take, as they were reported last."""

    def view(self, cluster: str) -> CacheView:
        """What is known of a cache cluster; begins to look at one that is asked for the first time."""
        if cluster not in self._views:
            self._views[cluster] = CacheView(since=self.clock())
            self._look_events[cluster] = asyncio.Event()
            self._tasks[cluster] = [
                asyncio.create_task(self._watch_cache(cluster), name=f"observe {cluster}"),
                asyncio.create_task(self._watch_agents(cluster), name=f"agents of {cluster}"),
            ]
        return self._views[cluster]

    def known_agents(self, cluster: str) -> KnownAgents:
        """The agents of a cache cluster as they were last heard; none of one that was not asked for yet."""
        view = self._views.get(cluster)
        if view is None:
            return KnownAgents()
        # Also while it does not answer: what it said last is the best that is known.
        mounts = {path: view.versions.get(path, "") for path in view.mounts} if view.heard else None
        return KnownAgents(states=view.agents, mounts=mounts)

    def exports(self, cluster: str) -> ExportView | None:
        """What Alluxio's master of a cache cluster said last; None where it was not asked."""
        return self._caches.get(cluster=cluster).exports()

    def with_version(self, digest: str) -> str | None:
        """A cache cluster with a mount that has the manifest of this digest as its version."""
        views = self._views.items()
        return next((cluster for cluster, view in views if digest in view.versions.values()), None)

    def ask(self, cluster: str) -> None:
        if cluster in self._look_events:
            self._look_events[cluster].set()

    async def look(self, cluster: str) -> None:
        """Look at a cache now, and wait for the view. Who asks before that begins is served by the same look."""
        self.view(cluster)
        if cluster not in self._next_looks:
            look = asyncio.create_task(self._look_next(cluster), name=f"look {cluster}")
            self._next_looks[cluster] = look
            self._looks.add(look)
            look.add_done_callback(self._looks.discard)
        await asyncio.shield(self._next_looks[cluster])

    async def _look_next(self, cluster: str) -> None:
        async with self._looking.setdefault(cluster, asyncio.Lock()):
            self._next_looks.pop(cluster, None)
            await self._look(cluster)

    def drop(self, cluster: str) -> None:
        """The cluster is gone: it is asked no more; a look that is under way ends unheard."""
        for task in self._tasks.pop(cluster, ()):
            task.cancel()
        self._views.pop(cluster, None)
        self._heard.discard(cluster)
        self._rooms.pop(cluster, None)
        self._look_events.pop(cluster, None)

    async def close(self) -> None:
        tasks = [task for cluster_tasks in self._tasks.values() for task in cluster_tasks] + [*self._looks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    async def _watch_cache(self, cluster: str) -> None:
        event = self._look_events[cluster]
        while True:
            event.clear()
            await self.look(cluster)
            try:
                async with asyncio.timeout(self._poll):
                    await event.wait()
            except TimeoutError:
                continue

    async def _look(self, cluster: str) -> None:
        before = self._views.get(cluster)
        if before is None:
            return
        cache = self._caches.get(cluster=cluster)
        engine = cache.engine
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                mounts, stores = await engine.mounts(), await engine.stores()
                workers = await engine.workers()
                versions = await engine.versions()
        except EngineError as error:
            failure: EngineError = error
        except TimeoutError:
            failure = EngineUnavailableError(
                attempted=f"look at what CacheCluster {cluster} has mounted",
                reason=f"it has not answered within {ANSWER_SECONDS:g} s",
                remedy="See the pods of the cache",
                retryable=True,
            )
        except Exception:
            _log.exception("CacheCluster %s could not be looked at by a defect of the operator", cluster)
            return
        else:
            now = self._views.get(cluster)
            if now is None:
                return
            cache.connect(workers)
            back = now.failure is not None
            view = replace(
                now,
                # No worker is known before the cache answers: how long one is waited for counts from then.
                since=now.since if cluster in self._heard else self.clock(),
                answered=True,
                failure=None,
                silent_since=None,
                outages=now.outages + back,
                mounts=dict(mounts),
                stores=dict(stores),
                workers=tuple(workers),
                versions=dict(versions),
                heard=True,
            )
            self._heard.add(cluster)
            if view != now:
                # An equal one stays: passes see at a glance that nothing has changed.
                self._views[cluster] = replace(view, generation=now.generation + 1)
            if back or not before.answered or _brief(before) != _brief(view):
                self._on_cache(cluster, None)
            else:
                changed = _changed_mounts(before, view)
                if changed is None or changed:
                    self._on_cache(cluster, changed)
            return
        now = self._views.get(cluster)
        if now is not None:
            generation = now.generation + (not now.answered or str(now.failure) != str(failure))
            since = self.clock() if now.silent_since is None else now.silent_since
            self._views[cluster] = replace(
                now, generation=generation, answered=True, failure=failure, silent_since=since
            )
            if str(now.failure) != str(failure):
                self._on_cache(cluster, None)

    async def _watch_agents(self, cluster: str) -> None:
        pause = min(AGENTS_SECONDS, self._poll)
        while True:
            try:
                self._take_agents(cluster)
            except Exception:
                _log.exception("the agents of CacheCluster %s could not be looked at", cluster)
            await asyncio.sleep(pause)

    def _take_agents(self, cluster: str) -> None:
        before, states = self._views[cluster], dict(self._caches.get(cluster=cluster).agents.states())
        now = self.clock()
        still_away = {node: agent for node, agent in before.away.items() if now - agent.since < AWAY_SECONDS}
        if len(still_away) < len(before.away):
            before = replace(before, generation=before.generation + 1, away=still_away)
            self._views[cluster] = before
        agents = before.agents
        if not agents and self.clock() - before.since < self._patience and _is_silent(before, states):
            return  # hundreds of them answer one after the other, and nothing is decided without all
        if agents.keys() == states.keys() and all(_same(agents[node], states[node]) for node in states):
            return
        lost = agents.keys() - states.keys()
        newly_away = {node: Away(state=agents[node], since=self.clock()) for node in lost}
        away = {node: agent for node, agent in {**before.away, **newly_away}.items() if node not in states}
        self._views[cluster] = replace(before, generation=before.generation + 1, agents=states, away=away)
        if agents.keys() != states.keys():
            self._rooms[cluster] = {node: _room(state) for node, state in states.items()}
            self._on_agents(cluster, None)
            return
        self._compare_rooms(cluster, states)
        paths: set[str] = set()
        for node, state in states.items():
            mine = agents[node]
            if not _same(mine, state):
                every = mine.mounts.keys() | state.mounts.keys()
                paths |= {path for path in every if mine.mounts.get(path) != state.mounts.get(path)}
        self._on_agents(cluster, paths)

    def _compare_rooms(self, cluster: str, states: Mapping[str, AgentState]) -> None:
        reported, changed, less = self._rooms.setdefault(cluster, {}), False, set[str]()
        for node, state in states.items():
            room, before = _room(state), reported.setdefault(node, _room(state))
            if abs(room - before) < max(int(state.capacity_bytes * ROOM_RATIO), 1):
                continue
            reported[node], changed = room, True
            if room < before:
                less |= {path for path, mount in state.mounts.items() if mount.held_bytes}
        if changed:
            self._on_room(cluster, less)


def _is_silent(view: CacheView, states: Mapping[str, AgentState]) -> bool:
    return any(worker.live and worker.name not in states for worker in view.workers)


def _room(state: AgentState) -> int:
    """Bytes that the blocks of all versions together may take on a node; loading them does not change it."""
    held = sum(mount.held_bytes for mount in state.mounts.values())
    room = state.capacity_bytes - state.kept_bytes
    return min(room, held + state.disk_free_bytes) if state.disk_free_bytes else room


def _same(before: AgentState, after: AgentState) -> bool:
    return (before.instance, before.revision) == (after.instance, after.revision)


def _brief(view: CacheView) -> object:
    """What of a cache concerns all of its mounts."""
    return [(worker.name, worker.live, worker.capacity_bytes) for worker in view.workers]


def _changed_mounts(before: CacheView, after: CacheView) -> set[str] | None:
    """The mounts that came or got another version; None when one went: others may have waited for that."""
    if before.mounts.keys() - after.mounts.keys():
        return None
    remounted = {path for path, uri in after.mounts.items() if before.mounts.get(path) != uri}
    paths = before.versions.keys() | after.versions.keys()
    return remounted | {path for path in paths if before.versions.get(path) != after.versions.get(path)}
