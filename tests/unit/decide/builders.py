"""Builders of what placements and assignments are made from."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdcs.api.names import GPU_RESOURCE
from tdcs.decide.cache.wants import Want
from tdcs.decide.place.agent_assignments import AssignmentInput
from tdcs.decide.place.copy_nodes import CacheNode, Mode
from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.place.slot_nodes import Candidate, PlacedCopy, PlacementInput, WantPlacement, place
from tdcs.decide.place.slot_sources import AgentView
from tdcs.decide.queue.room_table import RoomTable
from tdcs.model import slots
from tdcs.model.agent_state import MountState, Part, PartState
from tdcs.model.manifest_format import Totals
from tdcs.model.nearness import Place

MOUNT = "/datasets/1"
DIGEST = "0" * 32
GIB = 1 << 30

Below = dict[tuple[str, ...], Totals]


def totals_of(sizes: Sequence[int], *, unknown: tuple[str, ...] = (), empty: int = 0) -> Totals:
    """Files of one block, one in each of the first slots; and so many empty ones."""
    slot_bytes, slot_files = np.zeros(slots.SLOTS, dtype="<i8"), np.zeros(slots.SLOTS, dtype="<u4")
    slot_bytes[: len(sizes)] = sizes
    slot_files[: len(sizes)] = 1
    slot_files[0] += empty
    return Totals(
        files=len(sizes) + empty,
        blocks=len(sizes),
        block_bytes=sum(sizes),
        largest_block=max(sizes, default=0),
        slot_bytes=slot_bytes.tobytes(),
        slot_files=slot_files.tobytes(),
        unknown_paths=unknown,
    )


def candidate(name: str, *, capacity: int = GIB, free: int | None = None, held: int = 0) -> Candidate:
    """A node with a label `zone` of its own name."""
    node = CacheNode(
        name=name,
        capacity_bytes=capacity,
        free_bytes=capacity if free is None else free,
        held_bytes=held,
        free_gpus=2,
    )
    return Candidate(node=node, labels={"zone": name})


def placed(
    totals: Totals,
    *wants: Want,
    candidates: Sequence[Candidate] | None = None,
    below: Mapping[tuple[str, ...], Totals] | None = None,
    held_before: Mapping[str, Mapping[str, frozenset[str]]] | None = None,
) -> tuple[WantPlacement, ...]:
    """Where wants come to be."""
    return place(
        PlacementInput(
            mount=MOUNT,
            manifest=DIGEST,
            wants=wants,
            totals={(): totals, **(below or {})},
            candidates=tuple(candidates or map(candidate, "abcd")),
            held_before=held_before or {},
        )
    )


def placement_of(*nodes: str, unplaced: int = 0, eligible: int = 9, **want: object) -> WantPlacement:
    """One partitioned copy of 10 bytes on these nodes."""
    return WantPlacement(
        want=Want(key="x", **want),  # type: ignore[arg-type]
        totals=totals_of([10]),
        chosen=slots.prefix(slots.SLOTS),
        copies=(PlacedCopy(id="0", mode=Mode.PARTITION, nodes=dict.fromkeys(nodes, slots.bitmap([0]))),),
        eligible=eligible,
        subset_bytes=10,
        asked_bytes=10,
        wanted_bytes=10,
        unplaced_bytes=unplaced,
    )


def agent(
    node: str,
    *,
    complete: Sequence[int] = (),
    present: Sequence[int] | None = None,
    parts: Mapping[str, tuple[bytes, int, int]] | None = None,
    draining: bool = False,
    place: Place = (),
    **state: Any,
) -> AgentView:
    """An agent that has these slots; `parts` by name: slots, wanted and held bytes."""
    parts_by_name = parts or {}
    return AgentView(
        node=node,
        address=f"{node}:29991",
        draining=draining,
        place=place,
        room=GIB,
        capacity=GIB,
        state=MountState(
            mount=MOUNT,
            version=1,
            manifest=DIGEST,
            complete=slots.bitmap(complete),
            present=slots.bitmap(complete if present is None else present),
            parts=tuple(
                PartState(name=name, wanted_bytes=size, held_bytes=held)
                for name, (_, size, held) in parts_by_name.items()
            ),
            **state,
        ),
        parts=tuple(Part(name=name, slots=held) for name, (held, _, _) in parts_by_name.items()),
    )


def assignment_input(
    totals: Totals, placements: Sequence[WantPlacement], *agents: AgentView, **changes: Any
) -> AssignmentInput:
    """What the assignments of the mount are made from."""
    return AssignmentInput(
        mount=MOUNT,
        manifest=DIGEST,
        totals=totals,
        placements=tuple(placements),
        agents=agents,
        **changes,
    )


def groups_of(pods: Sequence[int]) -> tuple[PodGroup, ...]:
    """Pods of a gang by the GPUs of each."""
    return tuple(
        PodGroup(count=count, request={GPU_RESOURCE: size})
        for size, count in sorted(Counter(pods).items(), reverse=True)
    )


def fits(pods: Sequence[int], free: Mapping[str, int]) -> bool:
    """Whether a gang fits on nodes with so many free GPUs."""
    table = RoomTable({name: {GPU_RESOURCE: gpus} for name, gpus in free.items()})
    return table.fits(groups_of(pods), scarce=GPU_RESOURCE)
