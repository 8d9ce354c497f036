"""Which nodes hold the slots of a mount, and where to ask them for blocks: what readers get from the operator."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import xxhash

from tdcs.model.agent_state import NO_SLOTS, AgentState, Bitmap, MountState
from tdcs.model.nearness import Place

HOLDERS_PATH = "/v1/holders/"
"""Of the operator's service: `GET /v1/holders/{cluster}?mount=M&revision=R&wait=S` answers with a `HolderTable`."""


MOUNTS_PATH = "/v1/mounts/"
"""Of the operator's service: `GET /v1/mounts/{cluster}` answers a node plugin with a `ClusterMounts`."""

LARGEST_MOUNTS: Final = 4 << 20
"""Bytes of such an answer: of more mounts than a ConfigMap can name."""

LEAST_SECONDS: Final = 1.0
"""Between two tables of a mount."""

_HOLDERS_A_SECOND: Final = 20
"""A table is sent to every node that reads the mount: the larger it is, the more rarely it changes."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that has some of a mount, or can read its source.

    Attributes:
        node: its node.
        address: `host:port` of its block service.
        complete: slots of which it has every block.
        present: slots of which it has at least one block.
        reads_source: whether it works by an assignment of the mount, and so may read what no agent has.
        fills: whether it keeps what it reads from the source for readers.
        place: of its node in the topology.
    """

    node: str
    address: str
    complete: Bitmap = NO_SLOTS
    present: Bitmap = NO_SLOTS
    reads_source: bool = False
    fills: bool = False
    place: Place = ()


class ClusterMounts(msgspec.Struct, frozen=True, kw_only=True):
    """What is mounted in a cache cluster.

    Attributes:
        versions: digest of its manifest by the path of each mount; empty while it was not listed.
    """

    versions: dict[str, str] = {}


class HolderTable(msgspec.Struct, frozen=True, kw_only=True):
    """The holders of one mount.

    Attributes:
        revision: another one for another table.
        here: the place of the node that asked.
        zone: the level of zones in places; negative: they have none.
    """

    holders: tuple[Holder, ...] = ()
    revision: int = 0
    here: Place = ()
    zone: int = -1


def table_seconds(holders: int) -> float:
    """Seconds between two tables of a mount with so many holders."""
    return max(LEAST_SECONDS, holders / _HOLDERS_A_SECOND)


def table_of(
    states: Mapping[str, AgentState],
    *,
    mount: str,
    place: Callable[[str], Place] = lambda _: (),
    zone: int = -1,
) -> HolderTable:
    """The holders of a mount, from the agents' last states: those that have some of it, or know its source."""
    holders = []
    for node, state in sorted(states.items()):
        mount_state = state.mounts.get(mount)
        if (
            mount_state is not None
            and state.address
            and (mount_state.version or mount_state.present != NO_SLOTS)
        ):
            holders.append(_holder(node, state.address, mount_state, place=place(node)))
    table = HolderTable(holders=tuple(holders), zone=zone)
    return msgspec.structs.replace(table, revision=_revision(table))


def _holder(node: str, address: str, mount_state: MountState, *, place: Place) -> Holder:
    return Holder(
        node=node,
        address=address,
        complete=mount_state.complete,
        present=mount_state.present,
        reads_source=mount_state.version > 0,
        fills=mount_state.fills,
        place=place,
    )


def _revision(table: HolderTable) -> int:
    return xxhash.xxh3_64_intdigest(msgspec.msgpack.encode(table)) >> 1
