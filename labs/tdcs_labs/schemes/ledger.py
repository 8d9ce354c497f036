"""What is where under the scheme `tdcs`: the part of each dataset that was granted, and how far it is loaded."""

from dataclasses import dataclass, field

from tdcs.api.dataset import Dataset as DatasetObject
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
        shown: those that its jobs know of.
        away: bytes per second that its jobs ask of other nodes.
        factor: the part of that which the links of its nodes carry.
        rate: bytes per second that are loaded now.
        waiting: jobs in the queue that will read it.
        last_used: when its use last began or ended.
        asked: when the last job of it was submitted.
        scores: of the nodes, as the extender has them; None when they have to be worked out.
        copy: which further copy of the dataset it is; empty for the first.
        clones: its further copies, by their ids.
        idle_since: of a further copy, since when no job needs it; None while one does.
    """

    dataset: Dataset
    cost: float
    obj: DatasetObject
    created: str
    totals: Totals
    nodes: dict[str, float] = field(default_factory=dict)
    demand: float = 0.0
    filled: float = 0.0
    shown: float = 0.0
    away: float = 0.0
    factor: float = 1.0
    rate: float = 0.0
    waiting: int = 0
    last_used: str | None = None
    asked: str | None = None
    scores: dict[str, int] | None = None
    copy: str = ""
    clones: dict[str, "Cached"] = field(default_factory=dict)
    idle_since: str | None = None

    @property
    def reads(self) -> str:
        """What its jobs read, as they call it."""
        return f"{self.dataset.name}#{self.copy}" if self.copy else self.dataset.name

    @property
    def is_there(self) -> bool:
        """Whether all of it is loaded that has a place."""
        return bool(self.nodes) and self.planned - self.filled <= 1.0

    @property
    def planned(self) -> float:
        """Bytes of the dataset that have a place."""
        return sum(self.nodes.values())


def client_rate(*, local: float, native: float, fuse: float) -> float:
    """The rate of a node that reads the share `local` natively and the rest through FUSE, one after another."""
    return 1.0 / (local / native + (1.0 - local) / fuse)
