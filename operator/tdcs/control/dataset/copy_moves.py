"""Tells when the nodes of a Dataset's copies change, and why: for jobs that read there it matters."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from tdcs.api.dataset import WorkerLoss
from tdcs.control.context import WorkKey
from tdcs.decide.place.slot_nodes import WantPlacement
from tdcs.decide.place.worker_loss import drain_message, worker_loss
from tdcs.model.humanize import first_of

NODES_CHANGED: Final = "NodesChanged"
"""Reason of the event: a copy is to be on other nodes than before."""

LEFT_WITH_WORKERS: Final = "LeftWithWorkers"
"""Reason of the event: workers leave, and with them cached data for which the others have no room."""

NAMED_NODES: Final = 8
"""So many nodes are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """What has changed for a Dataset since the last look, in sentences; empty where nothing has.

    Attributes:
        nodes: which copies are to be on other nodes.
        lost: what leaves the cache with workers that leave.
        loss: what has left it so since, and found no room again.
    """

    nodes: str = ""
    lost: str = ""
    loss: WorkerLoss | None = None


class CopyMoves:
    """Which nodes each copy had when it was last looked at. An operator that starts begins with what there is then, and
    with what the status says of workers that left."""

    def __init__(self) -> None:
        self._nodes_by_copy: dict[WorkKey, Mapping[str, frozenset[str]]] = {}
        self._wanted_bytes: dict[WorkKey, int] = {}
        self._losses: dict[WorkKey, WorkerLoss | None] = {}

    def seen(
        self,
        key: WorkKey,
        placement: WantPlacement | None,
        *,
        read_on: Collection[str],
        leaving: Collection[str],
        cluster: str,
        reported: WorkerLoss | None = None,
    ) -> Moves:
        """What has changed for a Dataset since the last look.

        Args:
            key: the Dataset.
            placement: what its own spec comes to.
            read_on: the nodes that its copies follow its jobs to.
            leaving: nodes that are left, because their workers leave or are not there.
            cluster: the CacheCluster.
            reported: what its status says of workers that left; only an operator that has just started needs it.
        """
        now = placement.holders if placement is not None else {}
        before = self._nodes_by_copy.get(key, {})
        self._nodes_by_copy[key] = now
        left_nodes = frozenset().union(*before.values()).difference(*now.values()) & frozenset(leaving)
        wanted_bytes = placement.wanted_bytes if placement is not None else 0
        wanted_before = self._wanted_bytes.get(key, 0)
        loss = worker_loss(
            self._losses.get(key, reported),
            left_nodes=left_nodes,
            wanted_before=wanted_before,
            wanted=wanted_bytes,
            unplaced=placement.unplaced_bytes if placement is not None else 0,
        )
        self._wanted_bytes[key], self._losses[key] = wanted_bytes, loss
        lost = ""
        if loss is not None and left_nodes and wanted_bytes < wanted_before:
            lost_bytes = wanted_before - wanted_bytes
            lost = drain_message(
                loss, left_nodes=left_nodes, lost_bytes=lost_bytes, cluster=cluster, room=wanted_bytes
            )
        moved = [
            _sentence(id_, before=before[id_], now=now[id_], read_on=read_on, leaving=leaving)
            for id_ in now
            if before.get(id_) and now[id_] and before[id_] != now[id_]
        ]
        if not moved:
            return Moves(lost=lost, loss=loss)
        free = (
            placement is not None and placement.want.node_count is None and placement.want.mode != "Partition"
        )
        remedy = "; spec.placement.nodeCount keeps the number of nodes" if free else ""
        return Moves(nodes=f"{'; '.join(moved)}{remedy}", lost=lost, loss=loss)

    def drop(self, key: WorkKey) -> None:
        self._nodes_by_copy.pop(key, None)
        self._wanted_bytes.pop(key, None)
        self._losses.pop(key, None)


def _sentence(
    id_: str,
    *,
    before: frozenset[str],
    now: frozenset[str],
    read_on: Collection[str],
    leaving: Collection[str],
) -> str:
    came, went = now - before, before - now
    if came and came <= frozenset(read_on):
        why = "its jobs read it there"
    elif went & frozenset(leaving):
        why = f"the cache leaves {_named(went & frozenset(leaving))}"
    elif came and not went:
        why = "there is room for more of it"
    elif went and not came:
        why = "fewer nodes have room for it, or have its jobs"
    else:
        why = "these nodes have room for it"
    return f"copy {id_} is to be on {_named(now)}, before on {_named(before)}: {why}"


def _named(nodes: Collection[str]) -> str:
    return first_of(sorted(nodes), most=NAMED_NODES)
