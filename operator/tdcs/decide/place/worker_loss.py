"""What of a Dataset left the cache with workers, summed over several drains and kept in its status."""

from collections.abc import Collection, Sequence

from tdcs.api.dataset import LOST_NODES_NAMED, WorkerLoss
from tdcs.model.humanize import first_of, human


def worker_loss(
    previous: WorkerLoss | None,
    *,
    left_nodes: Collection[str],
    wanted_before: int,
    wanted: int,
    unplaced: int,
) -> WorkerLoss | None:
    """What is missing since workers left; None where all of it found room again, or nothing was lost.

    Args:
        previous: what was missing at the last look.
        left_nodes: nodes that held some of it at the last look and have left the cache since.
        wanted_before: bytes of all copies that were to be on nodes at the last look.
        wanted: the same now.
        unplaced: bytes of all copies for which there is no room now.
    """
    if not unplaced:
        return None
    if left_nodes and wanted < wanted_before:
        loss = previous or WorkerLoss(wanted_bytes=wanted_before)
        nodes = sorted({*loss.nodes, *left_nodes})
        return WorkerLoss(
            bytes=loss.bytes + wanted_before - wanted,
            wanted_bytes=wanted_before + loss.bytes,
            workers=loss.workers + len(set(left_nodes).difference(loss.nodes)),
            nodes=nodes[:LOST_NODES_NAMED],
        )
    if previous is None:
        return None
    missing = min(previous.bytes, previous.wanted_bytes - wanted)
    return previous.model_copy(update={"bytes": missing}) if missing > 0 else None


def drain_message(
    loss: WorkerLoss, *, left_nodes: Collection[str], lost_bytes: int, cluster: str, room: int
) -> str:
    """What left with the workers of `left_nodes`, and how much is missing since the first workers left."""
    before = loss.bytes > lost_bytes
    total = f"; with what left before, {human(loss.bytes)} of it is missing" if before else ""
    with_ = _workers(sorted(left_nodes), count=len(left_nodes))
    return (
        f"{human(lost_bytes)} of it left the cache with the {with_}, which CacheCluster {cluster} takes out: the "
        f"workers that stay have room for {human(room)}{total}"
    )


def standing_message(loss: WorkerLoss | None, *, cluster: str, room: int) -> str:
    """What is missing since workers left; empty where nothing is."""
    if loss is None:
        return ""
    return (
        f"{human(loss.bytes)} of it left the cache with the {_workers(loss.nodes, count=loss.workers)}, which "
        f"CacheCluster {cluster} takes out: the workers that stay have room for {human(room)}"
    )


def _workers(nodes: Sequence[str], *, count: int) -> str:
    return f"{'worker' if count == 1 else 'workers'} of {first_of(nodes, most=LOST_NODES_NAMED, count=count)}"
