"""What is where under the scheme `tdcs`: the part of each dataset that was granted, and how far it is loaded."""

from dataclasses import dataclass, field

from tdcs.api.dataset import Dataset as DatasetObject
from tdcs.decide.place.placement_input import ReadOn
from tdcs.model.manifest_format import Totals
from tdcs_labs.workload import Dataset


@dataclass(slots=True, eq=False)
class Cached:
    """What the cache holds of a dataset.

    Attributes:
        dataset: in the store.
        cost: parts of the store that one byte takes.
        obj: the Dataset that its owner applied.
        created: when that was.
        totals: its bytes by slot.
        nodes: bytes that were granted on each node.
        demand: bytes per second that its jobs read when data never lacks.
        filled: bytes that are loaded.
        visible: those that its jobs know of.
        away: bytes per second that its jobs ask of other nodes.
        factor: the part of that which the links of its nodes carry.
        rate: bytes per second that are loaded now.
        waiting: jobs in the queue that will read it.
        last_used: when its use last began or ended.
        last_submitted: when the last job of it was submitted.
        scores: of the nodes, as the extender has them; None when they have to be worked out.
        near: of the nodes that are near it, when none with data has room.
        copy: which further copy of the dataset it is; empty for the first.
        clones: its further copies, by their ids.
        idle_since: of a further copy, since when no job needs it; None while one does.
        replicated: whether each of its nodes shall have all of it.
        on_node: of a replicated copy, the bytes that are on each node; what one has the others get over their links.
        growing: by job, its nodes, onto which the copy grows, or on which it stays for it.
        read_on: those, and the nodes of earlier jobs for a while.
        shown_near: the bytes on all nodes that jobs know of.
    """

    dataset: Dataset
    cost: float
    obj: DatasetObject
    created: str
    totals: Totals
    nodes: dict[str, float] = field(default_factory=dict)
    demand: float = 0.0
    filled: float = 0.0
    visible: float = 0.0
    away: float = 0.0
    factor: float = 1.0
    rate: float = 0.0
    waiting: int = 0
    last_used: str | None = None
    last_submitted: str | None = None
    scores: dict[str, int] | None = None
    near: dict[str, int] = field(default_factory=dict)
    copy: str = ""
    clones: dict[str, "Cached"] = field(default_factory=dict)
    idle_since: str | None = None
    replicated: bool = False
    on_node: dict[str, float] = field(default_factory=dict)
    growing: dict[int, tuple[str, ...]] = field(default_factory=dict)
    read_on: ReadOn = field(default_factory=ReadOn)
    shown_near: float = 0.0

    @property
    def reads(self) -> str:
        """What its jobs read, as they call it."""
        return f"{self.dataset.name}#{self.copy}" if self.copy else self.dataset.name

    @property
    def is_there(self) -> bool:
        """Whether all of it is loaded that has a place."""
        return bool(self.nodes) and self.planned - self.filled <= 1.0 and self.behind <= 1.0

    @property
    def planned(self) -> float:
        """Bytes of the dataset that have a place."""
        if self.replicated:
            return max(self.nodes.values(), default=0.0)
        return sum(self.nodes.values())

    @property
    def behind(self) -> float:
        """The most bytes that a node of a replicated copy lacks of what is in the cache."""
        if not self.replicated:
            return 0.0
        return max(
            (min(size, self.filled) - self.on_node[node] for node, size in self.nodes.items()), default=0.0
        )

    @property
    def held(self) -> tuple[dict[str, float], float]:
        """Bytes on each node, and the bytes that they are a part of."""
        if self.replicated:
            return self.on_node, max(self.filled, 1.0)
        return self.nodes, self.planned

    def place(self, nodes: dict[str, float], *, replicated: bool) -> None:
        """Move to these nodes. What is on others stays in the cache until the new ones have it."""
        before = self.on_node if self.replicated else self._part()
        self.nodes, self.replicated = nodes, replicated
        self.on_node = (
            {node: min(before.get(node, 0.0), size) for node, size in nodes.items()} if replicated else {}
        )

    def follow(self, *, most: float) -> float:
        """Nodes of a replicated copy get up to so many bytes of what is in the cache; gives what all of them got."""
        before = sum(self.on_node.values())
        for node, size in self.nodes.items() if self.replicated else ():
            self.on_node[node] = min(self.on_node[node] + most, size, max(self.filled, self.on_node[node]))
        return sum(self.on_node.values()) - before

    def _part(self) -> dict[str, float]:
        loaded = self.filled / self.planned if self.planned else 0.0
        return {node: size * loaded for node, size in self.nodes.items()}


def client_rate(*, local: float, native: float, fuse: float) -> float:
    """The rate of a node that reads the share `local` natively and the rest through FUSE, one after another."""
    return 1.0 / (local / native + (1.0 - local) / fuse)
