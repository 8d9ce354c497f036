"""The copies that a load has to make, packed like the table they are of. Pure."""

from array import array
from collections.abc import Iterator

from tdcs.engine.table import BlockTable


class LoadWork:
    """Blocks that are wanted on nodes where they are not.

    Attributes:
        table: the listing that it was planned from.
        bytes_by_node: bytes to place, by node.
    """

    def __init__(self, *, table: BlockTable) -> None:
        self.table = table
        self.bytes_by_node: dict[str, int] = {}
        self._blocks = array("I")
        self._targets = array("I")
        self._groups: list[tuple[str, ...]] = []
        self._group_numbers: dict[tuple[str, ...], int] = {}

    def add(self, *, block: int, nodes: tuple[str, ...]) -> None:
        """A block, by its number in the table, and the nodes that lack it."""
        if not nodes:
            return
        number = self._group_numbers.get(nodes)
        if number is None:
            number = self._group_numbers[nodes] = len(self._groups)
            self._groups.append(nodes)
        self._blocks.append(block)
        self._targets.append(number)
        length = self.table.length(block)
        for node in nodes:
            self.bytes_by_node[node] = self.bytes_by_node.get(node, 0) + length

    def __len__(self) -> int:
        """How many blocks lack somewhere."""
        return len(self._blocks)

    def __iter__(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Each block and the nodes that lack it, in the order in which they were added."""
        for block, group in zip(self._blocks, self._targets, strict=True):
            yield block, self._groups[group]

    @property
    def bytes(self) -> int:
        """Bytes to place, over all nodes."""
        return sum(self.bytes_by_node.values())

    @property
    def copies(self) -> int:
        """How many copies of single blocks are to be made."""
        return sum(len(self._groups[group]) for group in self._targets)
