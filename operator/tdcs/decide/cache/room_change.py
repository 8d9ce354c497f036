"""How the room that mounts find in a pass over a cache differs from what they found in the pass before."""

from collections.abc import Collection, Mapping
from types import MappingProxyType


class RoomChange:
    """The difference, on the nodes where there is one, at the mount that the pass has reached.

    Next to all of many mounts find what they found before. So these need not be looked at to know what they come to.

    Args:
        usable: bytes on each node that all mounts together may take now.
        before: the same in the pass before.
        taken: what each mount took on each node in that pass, in the order in which they chose.
    """

    def __init__(
        self,
        *,
        usable: Mapping[str, int],
        before: Mapping[str, int],
        taken: Mapping[str, Mapping[str, int]],
    ) -> None:
        self._taken = taken
        self._order = iter(taken)
        self._passed: set[str] = set()
        self._by_node: dict[str, int] = {}
        self._add(usable, minus=before)

    def reach(self, mount: str) -> bool:
        """Go on to the mount that chooses next; whether what it found in the pass before can be compared: it had chosen
        by then, and after no other mount than those that have gone before it now, or are gone."""
        if mount in self._passed or mount not in self._taken:
            return False
        for earlier in self._order:
            self._passed.add(earlier)
            if earlier == mount:
                return True
            self._add(self._taken[earlier])
        return False

    def concerns(self, nodes: Collection[str]) -> bool:
        """Whether there is more or less room on one of these nodes."""
        return not self._by_node.keys().isdisjoint(nodes)

    def take(self, now: Mapping[str, int], *, before: Mapping[str, int]) -> None:
        """The mount that was reached takes so much on each node, and took so much when it was passed before."""
        self._add(before, minus=now)

    def _add(self, plus: Mapping[str, int], *, minus: Mapping[str, int] = MappingProxyType({})) -> None:
        for sizes, sign in ((plus, 1), (minus, -1)):
            for node, size in sizes.items():
                change = self._by_node.pop(node, 0) + sign * size
                if change:
                    self._by_node[node] = change
