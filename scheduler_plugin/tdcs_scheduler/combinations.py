"""The data that pods read together, kept for the pods after them: those of a job read the same."""

from collections.abc import Sequence
from typing import Final

from tdcs.decide.place.node_score import CombinedData, combined
from tdcs.model.dataset_copies import CopyOnNodes

# Nodes and copies of all sets together; each takes about 100 bytes. Sets are what pods are being placed for at a time.
_MOST_ENTRIES: Final = 100_000

_Key = tuple[tuple[int, int | None], ...]


class Combinations:
    """What nodes are worth for the sets of copies that were asked about lately.

    A copy is known again as the same object: the view has another one as soon as anything of it has changed. What is
    kept holds on to its copies, so no other object can come to have their identities.
    """

    def __init__(self) -> None:
        self._kept: Final[dict[_Key, tuple[tuple[CopyOnNodes, ...], CombinedData]]] = {}
        self._entries = 0

    def __len__(self) -> int:
        return len(self._kept)

    def combine(self, copies: Sequence[CopyOnNodes], places: Sequence[int | None]) -> CombinedData:
        """What :func:`tdcs.decide.place.node_score.combined` says of them."""
        key = tuple((id(copy), place) for copy, place in zip(copies, places, strict=True))
        found = self._kept.pop(key, None)
        if found is None:
            found = tuple(copies), combined(copies, places=places)
            self._entries += _size(found)
        self._kept[key] = found  # the last one to be forgotten now
        while self._entries > _MOST_ENTRIES and len(self._kept) > 1:
            self._entries -= _size(self._kept.pop(next(iter(self._kept))))
        return found[1]


def _size(kept: tuple[tuple[CopyOnNodes, ...], CombinedData]) -> int:
    """Its nodes, and the copies in its key; at least one: an empty set takes memory, too."""
    copies, data = kept
    return len(data.nodes) + max(len(copies), 1)
