"""What a Dataset's status says: counts, copies, progress. Its conditions are in `verdicts`. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from tdcs.api.dataset import Copy, DatasetState, DatasetStatus, Kept, NodeBytes
from tdcs.controllers.dataset.plan import WantPlan
from tdcs.controllers.dataset.survey import held_nodes, ratio
from tdcs.controllers.sizes import counted, human, percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What of a dataset is cached at this moment: the last survey and what was loaded since."""

    total_bytes: int = 0
    total_files: int = 0
    cached_bytes: int = 0
    node_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a load is: bytes of all wanted copies, and how many of them lie on their nodes."""

    placed_bytes: int = 0
    wanted_bytes: int = 0
    nodes: int = 0
    placed_files: int = 0
    wanted_files: int = 0
    bytes_per_second: int = 0

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
) -> DatasetStatus:
    """The status without its conditions.

    Args:
        plan: what the Dataset's own spec came to; None when it wants nothing, or nothing is known yet.
        progress: how far that is.
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
        rate=f"{human(done.bytes_per_second)}/s" if done.bytes_per_second else None,
        size=human(held.total_bytes) if some else None,
        copies=copies_of(held=held, plan=plan),
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
    return known.model_copy(update={"state": state, "bytes_per_second": 0, "rate": None})


def copies_of(*, held: Holdings, plan: WantPlan | None) -> list[Copy]:
    """The copies of the Dataset's own placement, with what lies on their nodes; without one, all nodes."""
    if plan is None:
        nodes = [NodeBytes(name=name, bytes=size) for name, size in held_nodes(held.node_bytes)]
        return [Copy(id="0", nodes=nodes)]
    return [
        Copy(
            id=str(number),
            nodes=[
                NodeBytes(name=name, bytes=held.node_bytes[name])
                for name in sorted(node.name for node in copy.nodes)
                if held.node_bytes.get(name, 0) > 0
            ],
        )
        for number, copy in enumerate(plan.copies)
    ]


def extent(held: Holdings) -> str:
    """How much of the data is cached and where, such as ``1.2 MB of 3.0 MB on 2 nodes``."""
    nodes = counted(len(held_nodes(held.node_bytes)), "node")
    return f"{human(held.cached_bytes)} of {human(held.total_bytes)} on {nodes}"
