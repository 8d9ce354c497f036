"""What a Dataset's status says: counts, copies, progress. Its conditions are in `verdicts`. Pure."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.dataset import Copy, DatasetState, DatasetStatus, Kept, NodeBytes
from tdcs.controllers.dataset.plan import WantPlan
from tdcs.controllers.dataset.survey import held_nodes, ratio
from tdcs.controllers.dataset.tally import FileFailure
from tdcs.controllers.humanize import counted, human, percent, speed
from tdcs.policy.placement import CopyPlan, node_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What of a dataset is cached at this moment: the last survey and what was loaded since."""

    total_bytes: int = 0
    total_files: int = 0
    cached_bytes: int = 0
    node_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a load is: bytes of all wanted copies, and how many of them lie on their nodes; `node_bytes` are those
    that it has placed since the last listing. `bytes_per_second` come from the source, `copied_per_second` from other
    nodes."""

    placed_bytes: int = 0
    wanted_bytes: int = 0
    nodes: int = 0
    placed_files: int = 0
    wanted_files: int = 0
    bytes_per_second: int = 0
    copied_per_second: int = 0
    node_bytes: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        """Such as ``1.2 MB of 3.0 MB on 2 nodes``."""
        nodes = counted(self.nodes, "node")
        return f"{human(self.placed_bytes)} of {human(self.wanted_bytes)} on {nodes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why a load did not do all that was planned; `files` are the first of those concerned, with reasons."""

    failed_blocks: int
    cause: str
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """Copies that differed from the source twice, by worker; `files` are the first of the `count` ones concerned."""

    copies: Mapping[str, frozenset[int]]
    files: tuple[FileFailure, ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the status carries besides the counts."""

    claim_name: str = ""
    mount_path: str = ""
    checked: str | None = None
    refreshed: str | None = None
    kept: tuple[Kept, ...] = ()


def status_of(
    *,
    held: Holdings,
    state: DatasetState,
    known: Known,
    plan: WantPlan | None = None,
    progress: Progress | None = None,
    brought: Sequence[tuple[WantPlan, Progress]] = (),
) -> DatasetStatus:
    """The status without its conditions.

    Args:
        plan: what the Dataset's own spec came to; None when it wants nothing, or nothing is known yet.
        progress: how far that is.
        brought: what its Preloads came to, and how far each is.
    """
    some, done = bool(held.total_files), progress or Progress()
    return DatasetStatus(
        state=state,
        total_bytes=held.total_bytes,
        total_files=held.total_files,
        cached_bytes=held.cached_bytes,
        physical_bytes=sum(size for _, size in held_nodes(held.node_bytes)),
        cached_ratio=ratio(held.cached_bytes, held.total_bytes) if some else 0.0,
        cached=percent(held.cached_bytes, held.total_bytes) if some else None,
        wanted_bytes=done.wanted_bytes,
        loaded_bytes=done.placed_bytes,
        loaded_ratio=ratio(done.placed_bytes, done.wanted_bytes) if plan is not None else 0.0,
        loaded=percent(done.placed_bytes, done.wanted_bytes) if plan is not None else None,
        bytes_per_second=done.bytes_per_second,
        copied_bytes_per_second=done.copied_per_second,
        rate=speed(read=done.bytes_per_second, copied=done.copied_per_second),
        size=human(held.total_bytes) if some else None,
        copies=copies_of(held=held, plan=plan, placed=done.node_bytes, brought=brought),
        last_source_check_time=known.checked,
        refreshed=known.refreshed,
        kept=list(known.kept),
        claim_name=known.claim_name,
        mount_path=known.mount_path,
    )


def remembered(obj: Mapping[str, Any], *, state: DatasetState) -> DatasetStatus:
    """The status as it is, in another state: what is known stands while nothing new can be learnt."""
    try:
        known = DatasetStatus.model_validate(obj.get("status") or {})
    except ValidationError:
        known = DatasetStatus()  # of a version that this operator cannot read
    still = {"bytes_per_second": 0, "copied_bytes_per_second": 0, "rate": None}
    return known.model_copy(update={"state": state, **still})


def copies_of(
    *,
    held: Holdings,
    plan: WantPlan | None,
    placed: Mapping[str, int] = MappingProxyType({}),
    brought: Sequence[tuple[WantPlan, Progress]] = (),
) -> list[Copy]:
    """The copies of the Dataset's own placement, with what of each lies on its nodes and what is
    still to come, and after them what lies on nodes to which Preloads brought some of it; without a placement, all
    nodes.

    Args:
        held: what lies where, whoever wants it.
        plan: what the Dataset's own spec came to.
        placed: bytes of it that were placed since.
        brought: what the Preloads came to, and how far each is.
    """
    if plan is None:
        nodes = [NodeBytes(name=name, bytes=size) for name, size in held_nodes(held.node_bytes)]
        return [Copy(id="0", nodes=nodes)]
    own = _of_want(plan, placed=placed)
    further = _brought(held=held, own=own, brought=brought)
    return [
        *(Copy(id=str(number), nodes=nodes) for number, nodes in enumerate(own)),
        *([Copy(id=names.PRELOADED_COPY, nodes=further)] if further else ()),
    ]


def _of_want(plan: WantPlan, *, placed: Mapping[str, int]) -> list[list[NodeBytes]]:
    """What of each copy of a want lies on its nodes, and what is to come."""
    return [
        _on_nodes(
            held={
                node.name: plan.bytes_on(copy=number, node=node.name) + placed.get(node.name, 0)
                for node in copy.nodes
            },
            copy=copy,
            coming=plan.want.load and plan.missing_bytes > 0,
        )
        for number, copy in enumerate(plan.copies)
    ]


def _brought(
    *, held: Holdings, own: Sequence[Sequence[NodeBytes]], brought: Sequence[tuple[WantPlan, Progress]]
) -> list[NodeBytes]:
    """All Preloads as one copy, which bounds the status by the number of nodes.

    What several of them, or the placement too, have on a node is added, as they may be parts of the data that go
    together; where they are the same, it is no more than lies there.
    """
    lies: dict[str, int] = {}
    arriving: dict[str, int] = {}
    for plan, progress in brought:
        for nodes in _of_want(plan, placed=progress.node_bytes):
            for node in nodes:
                lies[node.name] = lies.get(node.name, 0) + node.bytes
                arriving[node.name] = max(arriving.get(node.name, 0), node.arriving or 0)
    for node in itertools.chain.from_iterable(own):
        if node.name in lies:
            lies[node.name] += node.bytes
    found = [
        NodeBytes(
            name=name, bytes=min(lies[name], held.node_bytes.get(name, 0)), arriving=arriving[name] or None
        )
        for name in sorted(lies)
    ]
    return _with_data(found)


def _with_data(nodes: Sequence[NodeBytes]) -> list[NodeBytes]:
    return [node for node in nodes if node.bytes or node.arriving]


def _on_nodes(*, held: Mapping[str, int], copy: CopyPlan, coming: bool) -> list[NodeBytes]:
    wanted = node_bytes(copy) if coming else {}
    found = [
        NodeBytes(
            name=name,
            bytes=held.get(name, 0),
            arriving=max(wanted.get(name, 0) - held.get(name, 0), 0) or None,
        )
        for name in sorted(node.name for node in copy.nodes)
    ]
    return _with_data(found)


def own_extent(held: Holdings, plan: WantPlan) -> str:
    """How much of the data lies on the nodes that a want has chosen, such as ``1.2 MB of 3.0 MB on 2 nodes``: what
    other Datasets of the source have elsewhere is theirs."""
    nodes = counted(len(plan.holders), "node")
    return f"{human(plan.cached_bytes)} of {human(held.total_bytes)} on {nodes}"


def extent(held: Holdings) -> str:
    """How much of the data is cached and where, whoever wants it, such as ``1.2 MB of 3.0 MB on 2 nodes``."""
    nodes = counted(len(held_nodes(held.node_bytes)), "node")
    return f"{human(held.cached_bytes)} of {human(held.total_bytes)} on {nodes}"
