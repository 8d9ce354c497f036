"""What a pass over a mount found and decided, as values: for the Datasets and Preloads that read it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tdcs.control.context import WorkKey
from tdcs.decide.cache.mount_standing import CacheUser, Standing
from tdcs.decide.cache.node_room import Granted
from tdcs.decide.cache.removal_cost import MountLedger, NodeHolding, last_holders
from tdcs.decide.dataset_conditions import HeldUpBy
from tdcs.decide.place import holdings
from tdcs.decide.place.holdings import Failures, Holdings, WantProgress
from tdcs.decide.place.placement_input import Hosts, ReadOn
from tdcs.decide.place.slot_nodes import WantPlacement
from tdcs.decide.place.wanted_clones import Clone
from tdcs.decide.problem import Problem, of_engine
from tdcs.listing.result import Listed
from tdcs.model.agent_state import CheckState, MountState, Part
from tdcs.model.cache_engine import EngineError


@dataclass(frozen=True, slots=True, kw_only=True)
class MountDecision:
    """A placement, and what it was made from.

    Attributes:
        placements: what each want comes to.
        draining: the nodes that it makes no use of, because their workers leave.
        live: the agents that could be reached.
        granted: what the cache manager gives it.
        standing: how it stands among others.
        uses: who uses each Dataset, by its own want's key.
        clones: the further copies of each Dataset, by its own want's key.
        source_rate: bytes a second that its loads may read from the source; None for no limit.
    """

    mount: str
    placements: tuple[WantPlacement, ...]
    draining: frozenset[str]
    live: frozenset[str]
    granted: Granted
    standing: Standing
    uses: Mapping[str, CacheUser]
    clones: Mapping[str, tuple[Clone, ...]]
    source_rate: int | None

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
        is_mounted: whether it can be read; else it is being mounted, or `problem` says why not.
        problem: why nothing more can be done now.
        trouble: what is wrong with the source or its keys while the mount serves.
        differs: the Dataset with other keys that are used; empty when these are the user's own.
        held_up_by: what its listing waits for, if it has for a while.
        listed: the version; None before it is known.
        checked: when the source was last listed for changes; None before this process did.
        decided: whether the placement of what is wanted now is known.
        decision: the last placement.
        early: the placement of what is loaded before the first listing has ended; None after it.
        settled: whether the cache knows how it is read and protected.
        holdings: what is where.
        placements: of each want, by its key.
        progress: how far each is, with what agents have that are away and may be back with it: only what this lacks is
            loaded, and conditions follow it, so that a restart changes none.
        readable: the same by what can be read now, for tables of what is where.
        failures: files that cannot be had for now.
        away: why the source gives some agent nothing; empty when it answers all of them.
        source_away: whether it answers none of those that want something of it.
        states: what the agents say of it.
        current: the agents that work by this decision.
        busy: whether something is still to be brought, dropped or compared.
        absent: nodes with agents that were away for too long to count as there, and may be back.
        look_at: when time alone changes the decision, on the clock of the passes: an agent that is awaited stops to
            count as there then, or counts as lost.
        read_on: of each Dataset whose copies follow its jobs, the nodes on which it is read, or was a while ago; by
            the key of its own want.
    """

    is_mounted: bool = False
    problem: Problem | None = None
    trouble: Problem | None = None
    differs: str = ""
    held_up_by: HeldUpBy | None = None
    listed: Listed | None = None
    checked: str | None = None
    decided: bool = False
    decision: MountDecision | None = None
    early: MountDecision | None = None
    settled: bool = False
    holdings: Holdings = field(default_factory=Holdings)
    placements: Mapping[str, WantPlacement] = field(default_factory=dict)
    progress: Mapping[str, WantProgress] = field(default_factory=dict)
    readable: Mapping[str, WantProgress] = field(default_factory=dict)
    failures: Failures = field(default_factory=Failures)
    away: str = ""
    source_away: bool = False
    states: Mapping[str, MountState] = field(default_factory=dict)
    current: frozenset[str] = frozenset()
    busy: bool = False
    absent: frozenset[str] = frozenset()
    look_at: float | None = None
    read_on: Mapping[str, ReadOn] = field(default_factory=dict)

    def ledger(self, readers: Collection[WorkKey], *, moving: bool) -> MountLedger[WorkKey] | None:
        """What is where, for the choice of the workers that go; None while that is not known.

        Args:
            readers: the Datasets of the mount.
            moving: whether something is on its way away from nodes that leave.
        """
        decision, listed = self.decision, self.listed
        if decision is None or listed is None:
            return None
        # What a node counts by another version is there all the same, and no part of this one brings it away.
        nodes = {
            node: NodeHolding(
                held_bytes=state.held_bytes,
                complete=state.complete,
                present=state.present,
                version=state.manifest,
            )
            for node, state in self.states.items()
            if state.manifest == listed.digest or state.held_bytes
        }
        follows = all(nodes[node].version == listed.digest for node in decision.draining & nodes.keys())
        loading = (progress for key, progress in self.progress.items() if self.placements[key].want.load)
        return MountLedger(
            path=decision.mount,
            readers=frozenset(readers),
            sizes=listed.totals.sizes,
            nodes=nodes,
            draining=decision.draining,
            live=decision.live,
            busy=any(progress.missing_bytes > 0 for progress in loading),
            moving=moving or not follows,
        )

    def last_holders(self, *, leaving: frozenset[str]) -> frozenset[str]:
        """The nodes with bytes of it that are on no other node but those that leave. Each counts among those that count
        by the same version: what is there is not lost because the source has a newer one that few know yet."""
        listed = self.listed
        if listed is None:
            return frozenset()
        by_version: dict[str, dict[str, MountState]] = {}
        for node, state in self.states.items():
            if state.manifest == listed.digest or state.held_bytes:
                by_version.setdefault(state.manifest, {})[node] = state
        return frozenset[str]().union(
            *(last_holders(held, sizes=listed.totals.sizes, leaving=leaving) for held in by_version.values())
        )

    def checks(self, check: str) -> dict[str, CheckState]:
        """How far a comparison is, by node."""
        return {
            node: state.check
            for node, state in self.states.items()
            if state.check is not None and state.check.id == check
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWork:
    """A decision, and what agents are to do for it.

    Attributes:
        owned: whether agents keep what the decision says, or whatever reads have filled.
        expected: nodes that may hold something and have not said so yet.
        concerned: the agents that have something to do.
        parts: those that the agents' progress is about, by node.
        informed: the nodes whose state says how far the placements are.
        progress: how far each want is, by its key.
    """

    decision: MountDecision
    owned: bool
    expected: frozenset[str]
    concerned: frozenset[str]
    parts: Mapping[str, tuple[Part, ...]]
    informed: frozenset[str]
    progress: Mapping[str, WantProgress]


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


def progress_of(
    states: Mapping[str, MountState],
    placements: Sequence[WantPlacement],
    *,
    manifest: str,
    informed: frozenset[str],
) -> dict[str, WantProgress]:
    """How far each want is, by its key."""
    return {
        placement.want.key: holdings.progress(
            placement=placement, manifest=manifest, states=states, informed=informed
        )
        for placement in placements
    }


def report_of(
    before: MountReport,
    *,
    listed: Listed,
    hosts: Hosts,
    work: AgentWork,
    current: frozenset[str],
    settled: EngineError | bool,
) -> MountReport:
    """What a pass has found that came to a decision."""
    decision, progress, informed = work.decision, work.progress, work.informed
    placements = {placement.want.key: placement for placement in decision.placements}
    failures = holdings.failures({**{node: hosts.held[node] for node in informed}, **hosts.states})
    absent = hosts.held.keys() - hosts.readable.keys()
    readable = progress
    if absent:
        readable = progress_of(hosts.readable, decision.placements, manifest=listed.digest, informed=informed)
    return replace(
        before,
        problem=of_engine(settled, mounted=True) if isinstance(settled, EngineError) else None,
        listed=listed,
        decided=True,
        decision=decision,
        early=None,
        settled=settled is True,
        holdings=holdings.holdings(totals=listed.totals, manifest=listed.digest, states=hosts.readable),
        placements=placements,
        progress=progress,
        readable=readable,
        failures=failures,
        away=holdings.away_text(hosts.states),
        source_away=holdings.source_is_away(hosts.states.values()),
        states=hosts.states,
        current=current,
        busy=any(state.busy for state in hosts.states.values()),
        absent=frozenset(absent),
        look_at=hosts.next_at,
    )
