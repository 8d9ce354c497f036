"""Tells when the nodes of a Dataset's copies change, and why: for jobs that read there it matters."""

from collections.abc import Collection, Mapping
from typing import Final

from tdcs.control.context import WorkKey
from tdcs.decide.place.slot_nodes import WantPlacement
from tdcs.model.humanize import counted

NODES_CHANGED: Final = "NodesChanged"
"""Reason of the event: a copy is to be on other nodes than before."""

NAMED_NODES: Final = 8
"""So many nodes are named."""


class CopyMoves:
    """Which nodes each copy had when it was last looked at. An operator that starts begins with what there is then."""

    def __init__(self) -> None:
        self._nodes_by_copy: dict[WorkKey, Mapping[str, frozenset[str]]] = {}

    def seen(
        self,
        key: WorkKey,
        placement: WantPlacement | None,
        *,
        read_on: Collection[str],
        leaving: Collection[str],
    ) -> str:
        """What has changed for a Dataset since the last look, in a sentence; empty when nothing has.

        Args:
            key: the Dataset.
            placement: what its own spec comes to.
            read_on: the nodes that its copies follow its jobs to.
            leaving: nodes that are left, because their workers leave or are not there.
        """
        now = placement.holders if placement is not None else {}
        before = self._nodes_by_copy.get(key, {})
        self._nodes_by_copy[key] = now
        moved = [
            _sentence(id_, before=before[id_], now=now[id_], read_on=read_on, leaving=leaving)
            for id_ in now
            if before.get(id_) and now[id_] and before[id_] != now[id_]
        ]
        if not moved:
            return ""
        free = (
            placement is not None and placement.want.node_count is None and placement.want.mode != "Partition"
        )
        remedy = "; spec.placement.nodeCount keeps the number of nodes" if free else ""
        return f"{'; '.join(moved)}{remedy}"

    def drop(self, key: WorkKey) -> None:
        self._nodes_by_copy.pop(key, None)


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
    first = ", ".join(sorted(nodes)[:NAMED_NODES])
    more = f" and {counted(len(nodes) - NAMED_NODES, 'other')}" if len(nodes) > NAMED_NODES else ""
    return f"{first}{more}"
