"""What is where under the scheme `tdcs`: copies, their places, and how far they are filled."""

from dataclasses import dataclass, field

from tdcs.simulate.workload import Dataset


@dataclass(slots=True, eq=False)
class Copy:
    """Bytes of one copy that are reserved on each node; a clone can be read from `ready_at` on."""

    nodes: dict[str, float] = field(default_factory=dict)
    ready_at: float = 0.0

    @property
    def reserved(self) -> float:
        """Bytes reserved over all nodes."""
        return sum(self.nodes.values())


@dataclass(slots=True, eq=False)
class Cached:
    """What the cache holds and plans of a dataset."""

    dataset: Dataset
    cost: float
    copies: dict[str, Copy] = field(default_factory=lambda: {"0": Copy()})
    demand: float = 0.0
    filled: float = 0.0
    shown: float = 0.0
    away: float = 0.0
    factor: float = 1.0
    rate: float = 0.0
    last_used: float = 0.0
    waiting: int = 0
    worth: float = 0.0
    scores: dict[str, int] | None = None

    @property
    def planned(self) -> float:
        """Bytes of the dataset that have a place."""
        return self.copies["0"].reserved


def client_rate(*, local: float, native: float, fuse: float) -> float:
    """The rate of a node that reads the share `local` natively and the rest through FUSE, one after another."""
    return 1.0 / (local / native + (1.0 - local) / fuse)
