"""What the nodes have left, as a table: whether the pods of a job fit at once, in a few passes over columns.

The rule is that of :func:`tdcs.decide.place.gang_fit.place`: groups with the largest request first, each node filled
before the next, and of those that have room the one with the least of the scarce resource left first. A pass over the
queue asks for thousands of jobs and nodes, whose numbers users choose: a loop over nodes would take minutes.
"""

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tdcs.decide.place.gang_fit import Amounts, PodGroup

_MOST = 1 << 62
"""Amounts beyond it count as so much: a quantity of Kubernetes may be any number, a cell of the table may not."""

_MOST_PODS = 1 << 40
"""So many pods of a group are looked for at most: the sum over all nodes stays in a cell."""

_Rows = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]

Taken = Sequence[tuple[int, int]]
"""Rows of nodes, and how much each takes: how many pods, or how much of a resource."""


class RoomTable:
    """Amounts by node and resource; what is taken is gone for those that ask later.

    Args:
        free: what each node has left.
    """

    def __init__(self, free: Mapping[str, Amounts]) -> None:
        self.names = sorted(free)
        self._row = {name: row for row, name in enumerate(self.names)}
        resources = sorted({resource for amounts in free.values() for resource in amounts})
        self._column = {resource: column for column, resource in enumerate(resources)}
        self._free = np.zeros((len(resources), len(self.names)), dtype=np.int64)
        for resource, column in self._column.items():
            self._free[column] = _cells([free[name].get(resource, 0) for name in self.names])
        self._masks: dict[frozenset[str], _Mask] = {}
        self._totals = {resource: self._sum(resource) for resource in resources}

    def mask(self, nodes: Iterable[str]) -> _Mask:
        """The rows of these nodes."""
        rows = np.zeros(len(self.names), dtype=np.bool_)
        rows[[self._row[name] for name in nodes if name in self._row]] = True
        return rows

    def fits(self, groups: Sequence[PodGroup], *, scarce: str, but: _Mask | None = None) -> bool:
        """Whether all pods fit at once.

        Args:
            groups: the pods.
            scarce: the resource that decides which node is fullest.
            but: rows that are not for them.
        """
        return self.take(groups, scarce=scarce, but=but, keep=True) is not None

    def take(
        self, groups: Sequence[PodGroup], *, scarce: str, but: _Mask | None = None, keep: bool = False
    ) -> list[str] | None:
        """Take the room of all pods; gives the nodes, or None, and takes nothing, when they do not fit at once.

        Args:
            groups: the pods.
            scarce: the resource that decides which node is fullest.
            but: rows that are not for them.
            keep: only look, take nothing.
        """
        if any(self._lacks(group) for group in groups):
            return None
        if len(groups) == 1 and keep:
            (group,) = groups
            return [] if self._count(group, but) >= group.count else None
        before = self._free
        self._free = before.copy() if len(groups) > 1 or keep else before
        taken_rows: list[tuple[PodGroup, Taken]] = []
        for group in sorted(
            groups, key=lambda group: (-group.request.get(scarce, 0), -sum(group.request.values()))
        ):
            rows = self._fill(group, scarce=scarce, but=but, partly=False)
            if rows is None:
                self._free = before
                return None
            taken_rows.append((group, rows))
        if keep:
            self._free = before
            return []
        return self._note(taken_rows)

    def take_most(
        self, groups: Iterable[PodGroup], *, scarce: str, but: _Mask | None = None
    ) -> tuple[int, list[str]]:
        """Take the room of those pods that find some; gives their number, and the nodes."""
        taken_rows = []
        for group in groups:
            rows = self._fill(group, scarce=scarce, but=but, partly=True)
            taken_rows.append((group, rows or ()))
        return sum(count for _, group_rows in taken_rows for _, count in group_rows), self._note(taken_rows)

    def reserve(self, groups: Iterable[PodGroup], *, scarce: str) -> dict[str, Amounts]:
        """Take the room of pods that may already start; gives what was taken, by node. Those that find none as things
        are now keep what they may get: of nodes that are theirs to use, parts of the scarce resource are nobody
        else's."""
        reserved: dict[str, dict[str, int]] = {}
        for group in groups:
            rows = self._fill(group, scarce=scarce, but=None, partly=True) or ()
            self._note([(group, rows)])
            requested = {resource: amount for resource, amount in group.request.items() if amount > 0}
            shares = [
                (row, {resource: count * amount for resource, amount in requested.items()})
                for row, count in rows
            ]
            missing = group.count - sum(count for _, count in rows)
            held = self._hold(group, count=missing, scarce=scarce)
            for row, amounts in (*shares, *((row, {scarce: amount}) for row, amount in held)):
                mine = reserved.setdefault(self.names[row], {})
                for resource, amount in amounts.items():
                    mine[resource] = mine.get(resource, 0) + amount
        return dict(reserved)

    def _hold(self, group: PodGroup, *, count: int, scarce: str) -> Taken:
        """Take as much of the scarce resource as so many pods ask for, of the nodes with most of it; gives how much of
        which row."""
        column, requested = self._column.get(scarce), group.request.get(scarce, 0)
        if count <= 0 or column is None or requested <= 0:
            return ()
        free = np.maximum(self._free[column], 0)
        if group.nodes is not None:
            free = free * self._mask_of(group.nodes)
        rows = np.flatnonzero(free)
        missing = count * requested
        held = []
        for row in rows[np.argsort(-free[rows], kind="stable")].tolist():
            amount = min(int(free[row]), missing)
            self._free[column, row] -= amount
            self._totals[scarce] -= amount
            held.append((row, amount))
            missing -= amount
            if not missing:
                break
        return held

    def with_more(self, parts: Iterable[Mapping[str, Amounts]]) -> "RoomTable":
        """Another table, in which nodes have more left by these amounts; nodes that this one lacks do not count."""
        table = copy.copy(self)
        table._free = self._free.copy()
        for part in parts:
            for node, amounts in part.items():
                for resource, amount in amounts.items() if node in self._row else ():
                    if resource in self._column:
                        row, column = self._row[node], self._column[resource]
                        table._free[column, row] = min(int(table._free[column, row]) + amount, _MOST)
        table._totals = {resource: table._sum(resource) for resource in self._column}
        return table

    def without(self, nodes: Collection[str]) -> "RoomTable":
        """Another table, in which these nodes have nothing left."""
        if not nodes:
            return self
        table = copy.copy(self)
        table._free = self._free.copy()
        table._free[:, self.mask(nodes)] = 0
        table._totals = {resource: table._sum(resource) for resource in self._column}
        return table

    def usable(self, groups: Sequence[PodGroup]) -> _Mask:
        """The rows of the nodes that some of the pods may use."""
        rows = np.zeros(len(self.names), dtype=np.bool_)
        for group in groups:
            rows |= True if group.nodes is None else self._mask_of(group.nodes)
        return rows

    def total(self, resource: str, *, rows: _Mask) -> int:
        """What these rows have left of a resource."""
        column = self._column.get(resource)
        return 0 if column is None else total_of(self._free[column, rows])

    def count(self, group: PodGroup) -> int:
        """How many of equal pods would fit, at most as many as there are."""
        return min(self._count(group, None), group.count)

    def left(self, node: str, resource: str) -> int:
        """What a node has left of a resource."""
        column = self._column.get(resource)
        return 0 if column is None else int(self._free[column, self._row[node]])

    def column(self, resource: str) -> dict[str, int]:
        """What each node has left of a resource."""
        column = self._column.get(resource)
        values = [0] * len(self.names) if column is None else self._free[column].tolist()
        return dict(zip(self.names, values, strict=True))

    def amounts(self) -> dict[str, Amounts]:
        """What each node has left."""
        columns = [(resource, self._free[column].tolist()) for resource, column in self._column.items()]
        return {
            name: {resource: values[row] for resource, values in columns}
            for row, name in enumerate(self.names)
        }

    def _sum(self, resource: str) -> int:
        return total_of(self._free[self._column[resource]])

    def _lacks(self, group: PodGroup) -> bool:
        """Whether all nodes together have too little: most of a full cluster's jobs are told so, without a look."""
        return any(
            requested > 0 and group.count * requested > self._totals.get(resource, 0)
            for resource, requested in group.request.items()
        )

    def _rooms(self, group: PodGroup, but: _Mask | None) -> _Rows | None:
        """How many of a group's pods each row has room for, at most all of them; None: none has any."""
        rooms: _Rows = np.full(len(self.names), min(group.count, _MOST_PODS), dtype=np.int64)
        for resource, requested in group.request.items():
            if requested <= 0:
                continue
            column = self._column.get(resource)
            if column is None or requested > _MOST:
                return None
            if group.count == 1:  # a comparison takes a fifth of a division
                rooms &= self._free[column] >= requested
            else:
                np.minimum(rooms, self._free[column] // requested, out=rooms)
        np.maximum(rooms, 0, out=rooms)
        if group.nodes is not None:
            rooms *= self._mask_of(group.nodes)
        if but is not None:
            rooms[but] = 0
        return rooms

    def _mask_of(self, nodes: frozenset[str]) -> _Mask:
        if nodes not in self._masks:
            self._masks[nodes] = self.mask(nodes)
        return self._masks[nodes]

    def _count(self, group: PodGroup, but: _Mask | None) -> int:
        rooms = self._rooms(group, but)
        return 0 if rooms is None else int(rooms.sum())

    def _fill(self, group: PodGroup, *, scarce: str, but: _Mask | None, partly: bool) -> Taken | None:
        if group.count <= 0:
            return ()
        rooms = self._rooms(group, but)
        if rooms is None or (not partly and int(rooms.sum()) < group.count):
            return None
        rows = np.flatnonzero(rooms)
        column = self._column.get(scarce)
        if column is not None and len(rows) > 1:
            fullest = self._free[column, rows]
            if group.count < len(rows):  # no more nodes are sorted than there are pods
                limit = np.partition(fullest, group.count - 1)[group.count - 1]
                is_fullest = fullest <= limit
                rows, fullest = rows[is_fullest], fullest[is_fullest]
            # Rows are in the order of names, and each has room for a pod at least.
            rows = rows[np.argsort(fullest, kind="stable")][: group.count]
        taken_rows: list[tuple[int, int]] = []
        missing = group.count
        for row in rows.tolist():
            count = min(int(rooms[row]), missing)
            taken_rows.append((row, count))
            missing -= count
            if not missing:
                break
        used = np.array([row for row, _ in taken_rows], dtype=np.int64)
        counts = np.array([count for _, count in taken_rows], dtype=np.int64)
        for resource, requested in group.request.items():
            if requested > 0:
                self._free[self._column[resource], used] -= counts * requested
        return taken_rows

    def _note(self, taken_rows: Iterable[tuple[PodGroup, Taken]]) -> list[str]:
        rows: dict[int, None] = {}
        for group, group_rows in taken_rows:
            pods = 0
            for row, count in group_rows:
                rows[row] = None
                pods += count
            for resource, requested in group.request.items():
                if requested > 0 and pods:
                    self._totals[resource] -= pods * requested
        return [self.names[row] for row in rows]


def total_of(amounts: _Rows) -> int:
    """The sum of those above 0. Where it may not stay in a cell it is that of Python's numbers."""
    positive = amounts[amounts > 0]
    if not len(positive):
        return 0
    return int(positive.sum()) if int(positive.max()) <= _MOST // len(positive) else sum(positive.tolist())


def _cells(amounts: list[int]) -> _Rows:
    """Amounts as cells of the table."""
    try:
        return np.clip(np.array(amounts, dtype=np.int64), -_MOST, _MOST)
    except OverflowError:
        return np.array([max(min(amount, _MOST), -_MOST) for amount in amounts], dtype=np.int64)
