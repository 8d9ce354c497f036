"""What a pass over a mount found and decided, as values: for the Datasets and Preloads that read it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tdcs.controllers.cachemanager.room import Granted
from tdcs.controllers.mounts.problem import Problem
from tdcs.engine.agents import CheckState, MountState
from tdcs.listing.result import Listed
from tdcs.planning.clones import Clone
from tdcs.planning.grants import Tier
from tdcs.planning.holdings import Failures, Holdings, WantProgress
from tdcs.planning.placement import WantPlacement
from tdcs.planning.standing import Claimant, Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class MountDecision:
    """A placement, and what it was made from.

    Attributes:
        mount: its path.
        placements: what each want comes to.
        node_bytes: bytes that each node shall have of the mount.
        draining: the nodes that it makes no use of, because their workers leave.
        live: the agents that could be reached.
        granted: what the cache manager gives it.
        standing: how it stands among others.
        claims: who uses each Dataset, by its own want's key.
        clones: the further copies of each Dataset, by its own want's key.
        source_rate: bytes a second that its loads may read from the source; None for no limit.
    """

    mount: str
    placements: tuple[WantPlacement, ...]
    node_bytes: Mapping[str, int]
    draining: frozenset[str]
    live: frozenset[str]
    granted: Granted
    standing: Standing = field(default_factory=lambda: Standing(tier=Tier.IDLE, value=0.0))
    claims: Mapping[str, Claimant] = field(default_factory=dict)
    clones: Mapping[str, tuple[Clone, ...]] = field(default_factory=dict)
    source_rate: int | None = None

    @property
    def rests(self) -> bool:
        """Whether no time that passes changes it, and no other mount is in its way."""
        idle = any(clone.idle_since for clones in self.clones.values() for clone in clones)
        crowded = self.granted.crowded & self.granted.grant.node_bytes.keys()
        return self.standing.seconds is None and not idle and not self.granted.waits and not crowded


@dataclass(frozen=True, slots=True, kw_only=True)
class MountReport:
    """How it stands with a mount.

    Attributes:
        there: whether it can be read; else it is being mounted, or `problem` says why not.
        problem: why nothing more can be done now.
        trouble: what is wrong with the source or its keys while the mount serves.
        differs: the Dataset with other keys that are used; empty when these are the user's own.
        listed: the version; None before it is known.
        checked: when the source was last listed for changes; None before this process did.
        decided: whether the placement of what is wanted now is known.
        decision: the last placement.
        settled: whether the cache knows how it is read and protected.
        holdings: what lies where.
        placements, progress: of each want, by its key.
        failures: files that cannot be had for now.
        away: why the source gives no agent anything; empty when it does.
        states: what the agents say of it.
        current: the agents that work by this decision.
        busy: whether something is still to be brought, dropped or compared.
        look_at: when time alone changes the decision, on the clock of the passes: an agent that is awaited counts as
            lost then.
        read_on: nodes on which it is read, or was a while ago, and when last, on the clock of the passes; None while
            its data does not follow its jobs.
    """

    there: bool = False
    problem: Problem | None = None
    trouble: Problem | None = None
    differs: str = ""
    listed: Listed | None = None
    checked: str | None = None
    decided: bool = False
    decision: MountDecision | None = None
    settled: bool = False
    holdings: Holdings = field(default_factory=Holdings)
    placements: Mapping[str, WantPlacement] = field(default_factory=dict)
    progress: Mapping[str, WantProgress] = field(default_factory=dict)
    failures: Failures = field(default_factory=Failures)
    away: str = ""
    states: Mapping[str, MountState] = field(default_factory=dict)
    current: frozenset[str] = frozenset()
    busy: bool = False
    look_at: float | None = None
    read_on: Mapping[str, float] | None = None

    def checks(self, check: str) -> dict[str, CheckState]:
        """How far a comparison is, by node."""
        return {
            node: state.check
            for node, state in self.states.items()
            if state.check is not None and state.check.id == check
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LastPass:
    """What is remembered of a pass over a mount.

    Attributes:
        report: what it found.
        snapshot: what it looked at, when all was as it shall be; None when there was something to do.
        times: how often the mount had been made by then.
    """

    report: MountReport
    snapshot: object
    times: int
