"""Difference in free room between two passes over a cache."""

from collections.abc import Collection, Mapping
from types import MappingProxyType


class RoomChange:
    """The difference by node, at the mount that the present pass has reached.

    Most mounts find the same room as before, so their grants stay and need not be computed again.

    Args:
        usable: bytes on each node that all mounts together may use now.
        before: the same in the previous pass.
        taken_before: bytes of each mount on each node in the previous pass, in the order of choosing.
    """

    def __init__(
        self,
        *,
        usable: Mapping[str, int],
        before: Mapping[str, int],
        taken_before: Mapping[str, Mapping[str, int]],
    ) -> None:
        self._taken_before = taken_before
        self._order = iter(taken_before)
        self._passed: set[str] = set()
        self._by_node: dict[str, int] = {}
        self._add(usable, minus=before)

    def reach(self, mount: str) -> bool:
        """Go on to the next mount. Returns whether its room can be compared with the previous pass: it took part then,
        and every mount that chose before it has also chosen before it now, or is gone."""
        if mount in self._passed or mount not in self._taken_before:
            return False
        for earlier in self._order:
            self._passed.add(earlier)
            if earlier == mount:
                return True
            self._add(self._taken_before[earlier])
        return False

    def concerns(self, nodes: Collection[str]) -> bool:
        """Whether the room on one of these nodes differs."""
        return not self._by_node.keys().isdisjoint(nodes)

    def take(self, now: Mapping[str, int], *, before: Mapping[str, int]) -> None:
        """Record the bytes that the present mount takes on each node, and those of its previous pass."""
        self._add(before, minus=now)

    def _add(self, plus: Mapping[str, int], *, minus: Mapping[str, int] = MappingProxyType({})) -> None:
        for sizes, sign in ((plus, 1), (minus, -1)):
            for node, size in sizes.items():
                change = self._by_node.pop(node, 0) + sign * size
                if change:
                    self._by_node[node] = change
