"""What a cache cluster said of itself when it was last heard, as a value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tdcs.api import names
from tdcs.api.conditions import CACHE_STARTING
from tdcs.api.durations import seconds_since
from tdcs.model.agent_state import AgentState
from tdcs.model.cache_engine import EngineError, WorkerInfo
from tdcs.model.kube_objects import Object

STARTING_SECONDS = 300.0
"""A cache that has answered nobody so long after it was made needs a person: its images are pulled by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """The last state of an agent that cannot be reached, and since when that is so."""

    state: AgentState
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheView:
    """A cache cluster at one moment.

    Attributes:
        generation: grows with every change of what follows.
        since: when the cache answered this process for the first time; until then, when it was first asked.
        answered: whether the cache has answered, or failed to, at least once.
        failure: why the cache does not answer now; None when it does.
        silent_since: when it was first seen not to, by the clock of `since`; None while it answers.
        outages: how often it came back; what was set there before may be lost.
        mounts: mounted paths and the URI of each one's source, as last heard.
        stores: what tells the store and the files of each mount from others, as last heard; see `Engine.stores`.
        workers: as last heard.
        versions: digest of the manifest by path, as last heard.
        heard: whether mounts, stores, workers and versions were heard at least once.
        agents: states of the agents that can be reached, by node.
        away: those that could be reached before.
    """

    since: float
    generation: int = 0
    answered: bool = False
    failure: EngineError | None = None
    silent_since: float | None = None
    outages: int = 0
    mounts: Mapping[str, str] = field(default_factory=dict)
    stores: Mapping[str, str] = field(default_factory=dict)
    workers: tuple[WorkerInfo, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    heard: bool = False
    agents: Mapping[str, AgentState] = field(default_factory=dict)
    away: Mapping[str, Away] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedBytes:
    """What the jobs of a cache cluster need in it.

    Attributes:
        bytes: each copy that is asked for counted.
        complete: whether every mounted Dataset is among them.
        pinned: bytes of pinned data, by the quota that counts them: of every quota that the last pass knew.
        has_mounts: whether anything is mounted, so that there was a pass.
    """

    bytes: int = 0
    complete: bool = True
    pinned: Mapping[str, int] = field(default_factory=dict)
    has_mounts: bool = False


def is_starting(view: CacheView, cluster: Object | None, *, now: str) -> bool:
    """Whether a cache is new, and has not answered anybody yet.

    Args:
        view: what it said of itself.
        cluster: the CacheCluster; None when there is none.
        now: the time of day.
    """
    created = cluster["metadata"].get("creationTimestamp") if cluster is not None else None
    if cluster is None or not created or view.heard:
        return False
    conditions = (cluster.get("status") or {}).get("conditions") or ()
    before = next(
        (condition.get("reason") for condition in conditions if condition.get("type") == names.READY),
        CACHE_STARTING,
    )
    return before == CACHE_STARTING and seconds_since(str(created), now=now) < STARTING_SECONDS


def is_restarting(view: CacheView, *, clock: float, patience: float) -> bool:
    """Whether the cache does not answer, and not for longer than a restart takes (`patience`, in seconds): agents
    serve what they hold meanwhile, so whatever was ready is ready."""
    since = clock if view.silent_since is None else view.silent_since
    return view.failure is not None and clock - since < patience


def starting_text(failure: object) -> str:
    """Why nothing can be done with a cache that starts."""
    return f"the cache is starting, and does not answer yet: {failure}"
