"""Which blocks shall go to which node, and which copies may go. Pure: the same view gives the same plan."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tdcs.api.dataset import Placement
from tdcs.controllers.dataset.survey import Survey
from tdcs.engine.protocol import Block, WorkerInfo
from tdcs.policy.placement import BlockSize, CacheNode, CopyPlan, Mode, assign_blocks, plan_copy

RESERVE_RATIO = 0.02
"""Share of a worker's capacity that is never planned for: a worker that is exactly full evicts on its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node of the cluster as the placement needs it: its labels, and its GPUs that no training pod holds."""

    name: str
    labels: Mapping[str, str]
    free_gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """What is to be done so that the blocks lie as wanted.

    Attributes:
        copy: the chosen nodes and the mode.
        missing: blocks to load, by node.
        surplus: copies to drop, by node; only of blocks that lie on all their wanted nodes.
        unplaced_bytes: bytes of blocks for which the chosen nodes have no room.
        wanted_bytes: bytes of all wanted copies, those that are there included.
        missing_bytes: bytes to load.
    """

    copy: CopyPlan
    missing: Mapping[str, Sequence[Block]] = field(default_factory=dict)
    surplus: Mapping[str, Sequence[int]] = field(default_factory=dict)
    unplaced_bytes: int = 0
    wanted_bytes: int = 0
    missing_bytes: int = 0

    @property
    def nodes(self) -> tuple[str, ...]:
        """The chosen nodes."""
        return tuple(node.name for node in self.copy.nodes)


def plan_load(
    *,
    dataset: str,
    placement: Placement,
    survey: Survey,
    workers: Iterable[WorkerInfo],
    nodes: Mapping[str, NodeView],
) -> LoadPlan:
    """Compare the blocks that are there with those that are wanted.

    Args:
        dataset: a stable name of the data (the mount path), for breaking ties.
        placement: what the user asked for.
        survey: what is there.
        workers: the cache's workers; lost ones are no candidates.
        nodes: the cluster's nodes by name; a worker on a node that is not there is no candidate.
    """
    copy = plan_copy(
        dataset=dataset,
        dataset_bytes=survey.total_bytes,
        nodes=candidates(placement=placement, survey=survey, workers=workers, nodes=nodes),
        mode=Mode(placement.mode),
        node_count=placement.node_count,
    )
    missing: dict[str, list[Block]] = {}
    surplus: dict[str, list[int]] = {}
    unplaced = wanted = lacking = 0
    sizes = (BlockSize(key=key, length=block.length) for key, block in survey.blocks)
    for assignment, (_, block) in zip(assign_blocks(plan=copy, blocks=sizes), survey.blocks, strict=True):
        if not assignment.nodes:
            unplaced += block.length
            continue
        wanted += block.length * len(assignment.nodes)
        absent = [node for node in assignment.nodes if node not in block.workers]
        lacking += block.length * len(absent)
        for node in absent:
            missing.setdefault(node, []).append(block)
        if not absent:
            for node in block.workers.difference(assignment.nodes):
                surplus.setdefault(node, []).append(block.id)
    return LoadPlan(
        copy=copy,
        missing=missing,
        surplus=surplus,
        unplaced_bytes=unplaced,
        wanted_bytes=wanted,
        missing_bytes=lacking,
    )


def candidates(
    *,
    placement: Placement,
    survey: Survey,
    workers: Iterable[WorkerInfo],
    nodes: Mapping[str, NodeView],
) -> list[CacheNode]:
    """The live workers on nodes that carry the wanted labels, as the placement policy sees them."""
    found = []
    for worker in workers:
        node = nodes.get(worker.name)
        if not worker.live or node is None or not matches(node.labels, placement.node_selector):
            continue
        held = survey.node_bytes.get(worker.name, 0)
        others = max(worker.used_bytes - held, 0)
        reserve = int(worker.capacity_bytes * RESERVE_RATIO)
        found.append(
            CacheNode(
                name=worker.name,
                capacity_bytes=worker.capacity_bytes,
                free_bytes=max(worker.capacity_bytes - others - reserve, 0),
                held_bytes=held,
                free_gpus=node.free_gpus,
            )
        )
    return sorted(found, key=lambda node: node.name)


def matches(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    """Whether all labels of the selector are there with their values."""
    return all(labels.get(key) == value for key, value in selector.items())
