"""Where the bytes of a mount are, and the progress of each want, from the agents' states."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tdcs.decide.place.copy_nodes import Mode
from tdcs.decide.place.slot_nodes import WantPlacement
from tdcs.model import slots
from tdcs.model.agent_state import FileFailure, MountState
from tdcs.model.manifest_format import Totals

FAILURES_KEPT = 20
"""So many of the files that cannot be had are named."""


_OUTDATED: Final = frozenset({"Changed", "Missing"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What of a dataset is cached at this moment.

    Attributes:
        cached_bytes: bytes that are on some node, each counted once.
        node_bytes: bytes by node, every copy counted.
    """

    total_bytes: int = 0
    total_files: int = 0
    cached_bytes: int = 0
    node_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantProgress:
    """How far a want is.

    Attributes:
        wanted_bytes: bytes of all copies that shall be on nodes, those that cannot be had for now among them.
        placed_bytes: those that are there.
        failed_bytes: those that cannot be had for now.
        ignored_bytes: those of them that the Dataset does not count.
        copies: bytes of each copy by its nodes.
        wanted_files: files that are meant.
        placed_files: those that are on all of their nodes.
        source_rate: bytes a second that come from the source meanwhile.
        peer_rate: the same from other nodes.
    """

    wanted_bytes: int = 0
    placed_bytes: int = 0
    failed_bytes: int = 0
    ignored_bytes: int = 0
    copies: tuple[Mapping[str, int], ...] = ()
    wanted_files: int = 0
    placed_files: int = 0
    source_rate: int = 0
    peer_rate: int = 0

    @property
    def missing_bytes(self) -> int:
        """Bytes that are still to come: neither there, nor known to fail for now."""
        return max(self.wanted_bytes - self.placed_bytes - self.failed_bytes, 0)

    @property
    def counted_bytes(self) -> int:
        """What all of it is for a share such as a job's readiness: what cannot be had lacks, unless it is ignored."""
        return self.wanted_bytes - self.ignored_bytes

    @property
    def holders(self) -> frozenset[str]:
        return frozenset(node for copy in self.copies for node, size in copy.items() if size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Files that cannot be had for now.

    Attributes:
        count: how many.
        outdated: how many of these are others at the source than its last listing said, or are not there, as each
            node counts its own.
        files: the first of them, for people; nothing is decided by them.
    """

    count: int = 0
    outdated: int = 0
    files: tuple[FileFailure, ...] = ()


def holdings(*, totals: Totals, manifest: str, states: Mapping[str, MountState]) -> Holdings:
    current_states = {node: state for node, state in states.items() if state.manifest == manifest}
    sizes = totals.sizes
    covered = np.zeros(slots.SLOTS, dtype=bool)
    for state in current_states.values():
        covered |= slots.mask_of(state.complete)
    cached = int(sizes[covered].sum())
    # Of slots that are nowhere as a whole each counts once, with the node that has most of them.
    for _, node in sorted(((-partial_bytes(state, sizes), node) for node, state in current_states.items())):
        partial = slots.mask_of(current_states[node].present) & ~slots.mask_of(current_states[node].complete)
        whole = int(sizes[partial].sum())
        new = int(sizes[partial & ~covered].sum())
        cached += partial_bytes(current_states[node], sizes) * new // whole if whole else 0
        covered |= partial
    return Holdings(
        total_bytes=totals.block_bytes,
        total_files=totals.files,
        cached_bytes=min(cached, totals.block_bytes),
        node_bytes={node: state.held_bytes for node, state in current_states.items() if state.held_bytes},
    )


def partial_bytes(state: MountState, sizes: slots.Sizes) -> int:
    """Bytes on a node of slots of which it has a part only."""
    return max(state.held_bytes - slots.bytes_in(state.complete, sizes), 0)


def progress(
    *, placement: WantPlacement, manifest: str, states: Mapping[str, MountState], informed: Collection[str]
) -> WantProgress:
    """How far a want is.

    Args:
        manifest: digest of the version.
        states: of the agents that can be reached, by node.
        informed: nodes with a state that is about the files that they shall have by this placement; of others is known
            what is there, but not of which files.
    """
    totals, key = placement.totals, placement.want.key
    copies: list[dict[str, int]] = []
    failed = 0
    files: list[int] = []
    for copy in placement.copies:
        held: dict[str, int] = {}
        done: list[int] = []
        for node, mask in copy.nodes.items():
            wanted_bytes = slots.bytes_in(mask, totals.sizes)
            state = states.get(node)
            if state is None or state.manifest != manifest:
                held[node] = 0
                done.append(0)
                continue
            part = next((part_state for part_state in state.parts if part_state.name == key), None)
            if part is not None and node in informed:
                held[node] = min(part.held_bytes, wanted_bytes)
                failed += min(part.failed_bytes, wanted_bytes - held[node])
                done.append(part.held_files)
                continue
            whole = slots.intersection(mask, state.complete)
            held[node] = slots.bytes_in(whole, totals.sizes)
            if placement.want.paths and part is not None:
                held[node] = max(held[node], min(part.held_bytes, wanted_bytes))
            done.append(int(totals.counts[slots.mask_of(whole)].sum()))
        copies.append(held)
        files.append(min(done, default=0) if copy.mode is Mode.REPLICATE else sum(done))
    placed = sum(sum(copy.values()) for copy in copies)
    incomplete_nodes = {
        node
        for number, copy in enumerate(placement.copies)
        for node, mask in copy.nodes.items()
        if copies[number][node] < slots.bytes_in(mask, totals.sizes)
    }
    mine = [states[node] for node in incomplete_nodes & states.keys()] if placement.want.load else []
    return WantProgress(
        wanted_bytes=placement.wanted_bytes,
        placed_bytes=placed,
        failed_bytes=failed,
        ignored_bytes=failed if placement.want.ignores_failed else 0,
        copies=tuple(copies),
        wanted_files=int(totals.counts[slots.mask_of(placement.chosen)].sum()),
        placed_files=min(files, default=0),
        source_rate=sum(state.source_rate for state in mine),
        peer_rate=sum(state.peer_rate for state in mine),
    )


def cached_of(placement: WantPlacement, progress: WantProgress) -> int:
    """Bytes that are on one node of a want at least, each counted once."""
    return max(
        (
            max(held.values(), default=0) if copy.mode is Mode.REPLICATE else sum(held.values())
            for copy, held in zip(placement.copies, progress.copies, strict=True)
        ),
        default=0,
    )


def failures(states: Mapping[str, MountState]) -> Failures:
    """The files that cannot be had, with the reason of one node for each that is named; those of a wrong content, too.

    Nodes count their own: a file that several of them lack counts once where all of them name it.
    """
    failure_of: dict[str, FileFailure] = {}
    named = count = 0
    for node in sorted(states):
        state = states[node]
        failure_of.update(
            {failure.path: failure for failure in state.failed if failure.path not in failure_of}
        )
        named += len(state.failed)
        count += state.failed_count + state.source_away + state.no_room
    first = tuple(failure_of[path] for path in sorted(failure_of)[:FAILURES_KEPT])
    outdated = sum(
        failures.files
        for state in states.values()
        for code, failures in state.failures.items()
        if code in _OUTDATED
    )
    return Failures(
        count=max(len(failure_of), count - named + len(failure_of)), outdated=outdated, files=first
    )


def source_is_away(states: Collection[MountState]) -> bool:
    """Whether the source answers none of those that want something of it. A node that does not reach it says nothing of
    the source while another one does."""
    working = [state for state in states if state.busy]
    return bool(working) and all(state.source_away for state in working)


def away_text(states: Mapping[str, MountState]) -> str:
    """Why the source gives some nodes nothing, for people; empty when it answers all of them."""
    for node in sorted(states):
        if states[node].source_away:
            # What concerns all files is named before what concerns single ones.
            named = (
                file_failure.reason
                for file_failure in states[node].failed[:1]
                if file_failure.code != "NoRoom"
            )
            return next(named, f"the source does not answer node {node}")
    return ""
