"""What the data of a mount is wanted for, and what is to be done about it: the values that planning takes and gives.

A mount may be wanted in several ways at once: by Datasets of the same source with placements of their own, and by
Preloads. Each is a `Want`; the blocks that shall be there are the union. `planner` makes the plan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tdcs.api.dataset import PlacementMode
from tdcs.api.preload import Verify
from tdcs.controllers.dataset.work import LoadWork
from tdcs.policy.placement import CopyPlan
from tdcs.policy.preload import Subset

MOVES = "moves"
"""The key of a load that nobody wants for itself: of last copies on nodes that leave the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node of the cluster as the placement needs it: its labels, and its GPUs that no training pod holds."""

    name: str
    labels: Mapping[str, str]
    free_gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """One way in which the data of a mount is wanted.

    Attributes:
        key: who wants it, such as ``Dataset n/pictures``; a stable name.
        mode: how the bytes of a copy lie on its nodes.
        copies: how many copies, each on nodes of its own.
        node_count: nodes of each copy; None: as `plan_copy` says.
        node_selector: labels that its nodes must carry.
        nodes: the only nodes that may hold it; empty: any.
        subset: which part of the data.
        load: whether what is missing is loaded now; if not, what is there is kept all the same.
        bandwidth: bytes a second that its load may read from the source; None for no limit.
        verify: how much of what was loaded is compared with the source.
    """

    key: str
    mode: PlacementMode = "Auto"
    copies: int = 1
    node_count: int | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    subset: Subset = field(default_factory=Subset)
    load: bool = True
    bandwidth: int | None = None
    verify: Verify = "None"


@dataclass(slots=True, kw_only=True)
class WantPlan:
    """What one want comes to.

    Attributes:
        want: what was asked for.
        copies: the chosen nodes of each copy, and its mode.
        eligible: nodes that could be chosen from.
        work: what is to be loaded for it; pairs that another want's load brings are left to that one.
        subset_bytes: bytes of one copy that there is room for.
        asked_bytes: bytes of one copy that were asked for.
        wanted_bytes: bytes of all copies that shall lie on nodes.
        placed_bytes: those that lie there.
        cached_bytes: bytes that lie on one of their nodes at least, each counted once.
        unplaced_bytes: bytes of all copies for which there is no room.
        wanted_files: files that are meant.
        placed_files: those that lie whole on all of their nodes.
        unknown_paths: paths of the subset under which the source has no file.
        flags: the files that are meant, one byte a file of the listing.
        signature: of all copies of blocks that its load answers for, whether they lie there or not: as long as it is
            the same, a load that was begun for it brings what is wanted, and no other load brings the same.
        copy_bytes: bytes of each copy that lie on its nodes.
    """

    want: Want
    copies: tuple[CopyPlan, ...]
    eligible: int
    work: LoadWork
    subset_bytes: int = 0
    asked_bytes: int = 0
    wanted_bytes: int = 0
    placed_bytes: int = 0
    cached_bytes: int = 0
    unplaced_bytes: int = 0
    wanted_files: int = 0
    placed_files: int = 0
    unknown_paths: tuple[str, ...] = ()
    flags: bytearray = field(default_factory=bytearray, repr=False)
    signature: int = 0
    copy_bytes: list[dict[str, int]] = field(default_factory=list)

    def count(self, *, copy: int, node: str, size: int) -> None:
        """So many bytes of a copy lie on a node where they are wanted."""
        while len(self.copy_bytes) <= copy:
            self.copy_bytes.append({})
        of_copy = self.copy_bytes[copy]
        of_copy[node] = of_copy.get(node, 0) + size

    def bytes_on(self, *, copy: int, node: str) -> int:
        """Bytes of a copy that lay on one of its nodes when it was planned."""
        return self.copy_bytes[copy].get(node, 0) if copy < len(self.copy_bytes) else 0

    @property
    def nodes(self) -> tuple[str, ...]:
        """The chosen nodes, copy by copy."""
        return tuple(node.name for copy in self.copies for node in copy.nodes)

    @property
    def holders(self) -> frozenset[str]:
        """Those of them on which some of it lay when it was planned."""
        return frozenset(node for of_copy in self.copy_bytes for node, size in of_copy.items() if size)

    @property
    def asked_nodes(self) -> int:
        """Nodes that were asked for; at least one for each copy."""
        return (self.want.node_count or 1) * self.want.copies

    @property
    def missing_bytes(self) -> int:
        """Bytes that are not where they shall be, whoever loads them."""
        return self.wanted_bytes - self.placed_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done so that the blocks of a mount lie as all of its users want.

    Attributes:
        wants: what each want comes to, by key.
        surplus: copies to drop once nothing is missing, by node; only of blocks that lie everywhere where they are
            wanted.
        unwanted: copies of blocks that nobody wants anywhere, by node; to be dropped before a load, which needs
            their room.
        moves: last copies on nodes that leave the cache, which no want's load brings elsewhere; None when no node
            leaves.
        moves_signature: of the nodes that leave, and of the files that no other load brings.
    """

    wants: Mapping[str, WantPlan] = field(default_factory=dict)
    surplus: Mapping[str, Sequence[int]] = field(default_factory=dict)
    unwanted: Mapping[str, Sequence[int]] = field(default_factory=dict)
    moves: LoadWork | None = None
    moves_signature: int = 0

    def signature(self, key: str) -> int | None:
        """What the load of a want answers for (`WantPlan.signature`); None when nobody wants it."""
        if key == MOVES:
            return self.moves_signature if self.moves is not None else None
        return self.wants[key].signature if key in self.wants else None

    def paths(self, root: str) -> frozenset[str]:
        """The engine paths that hold all that is wanted: the root itself when some want is not confined to folders."""
        found: set[str] = set()
        for plan in self.wants.values():
            inner = [path.strip("/") for path in plan.want.subset.paths if path not in plan.unknown_paths]
            if not plan.want.subset.paths:
                return frozenset({root})
            found.update(f"{root}/{path}" for path in inner)
        return frozenset(found)

    @property
    def missing(self) -> bool:
        """Whether something is to be loaded now."""
        return any(len(work) for work in self.works().values())

    def works(self) -> Mapping[str, LoadWork]:
        """What is to be loaded, by want; under `MOVES` what leaving nodes give away."""
        found = {key: plan.work for key, plan in self.wants.items()}
        return found if self.moves is None else {**found, MOVES: self.moves}
