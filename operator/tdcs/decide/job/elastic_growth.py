"""Nodes for the new workers of an elastic job, and whether their data is still on its way there."""

from collections.abc import Collection, Iterable, Mapping

from tdcs.api.dataset import Dataset
from tdcs.decide.job.observed_job import Observed


def awaits_data(observed: Observed) -> bool:
    """Whether new workers of a job are held back for their data."""
    grows = observed.spec.is_elastic_gang and observed.was_admitted and not observed.spec.run_policy.suspend
    return grows and bool(observed.spec.datasets)


def nodes_with_data(datasets: Iterable[Dataset]) -> set[str]:
    """The nodes that hold data of these Datasets."""
    return {
        node.name
        for dataset in datasets
        for copy in (dataset.status.copies if dataset.status is not None else ())
        for node in copy.nodes
        if node.bytes
    }


def nodes_for(count: int, *, room: Mapping[str, int], holding: Collection[str]) -> tuple[str, ...]:
    """The nodes that `count` pods will use: nodes with their data first, one node filled before the next.

    Args:
        count: number of pods.
        room: how many of the pods fit on each node.
        holding: nodes that hold their data.
    """
    chosen = []
    for node in sorted(room, key=lambda name: (name not in holding, room[name], name)):
        if count <= 0:
            break
        if room[node] > 0:
            chosen.append(node)
            count -= room[node]
    return tuple(chosen)


def lacks(dataset: Dataset, *, nodes: Collection[str], workers: Collection[str] | None, new: bool) -> bool:
    """Whether some of these nodes still wait for data of a Dataset.

    Args:
        dataset: the Dataset with its status.
        nodes: nodes of the new pods.
        workers: nodes with a cache worker; None when every node with readers gets one.
        new: whether these nodes were chosen in this pass.
    """
    if not dataset.spec.preload.enabled or dataset.spec.placement.node_count is not None:
        return False  # it does not follow its jobs
    cached_nodes = {
        node.name: node
        for copy in (dataset.status.copies if dataset.status is not None else ())
        for node in copy.nodes
    }
    for name in nodes:
        cached_node = cached_nodes.get(name)
        if cached_node is not None and cached_node.arriving:
            return True
        if (cached_node is None or not cached_node.bytes) and (workers is None or (new and name in workers)):
            return True
    return False
