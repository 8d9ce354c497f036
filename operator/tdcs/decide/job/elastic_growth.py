"""Where do the new workers of an elastic job go, and is their data on its way there?"""

from collections.abc import Collection, Iterable, Mapping

from tdcs.api.dataset import Dataset
from tdcs.decide.job.observed_job import Observed


def awaits_data(seen: Observed) -> bool:
    """Whether new workers of a job are held back for their data."""
    grows = seen.spec.is_elastic_gang and seen.was_admitted and not seen.spec.run_policy.suspend
    return grows and bool(seen.spec.datasets)


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
    """The nodes that so many pods will find, which go by the data, and fill one node before the next.

    Args:
        count: of the pods.
        room: how many of them each node has room for.
        holding: nodes with their data.
    """
    found = []
    for node in sorted(room, key=lambda one: (one not in holding, room[one], one)):
        if count <= 0:
            break
        if room[node] > 0:
            found.append(node)
            count -= room[node]
    return tuple(found)


def lacks(dataset: Dataset, *, nodes: Collection[str], workers: Collection[str] | None, new: bool) -> bool:
    """Whether data of a Dataset is still to come to some of these nodes.

    Args:
        dataset: with its status.
        nodes: of the pods to come.
        workers: nodes with a cache worker; None when there will be one wherever pods read.
        new: whether these nodes were named only a moment ago.
    """
    if not dataset.spec.preload.enabled or dataset.spec.placement.node_count is not None:
        return False  # it does not follow its jobs
    there = {
        node.name: node
        for copy in (dataset.status.copies if dataset.status is not None else ())
        for node in copy.nodes
    }
    for name in nodes:
        found = there.get(name)
        if found is not None and found.arriving:
            return True
        if (found is None or not found.bytes) and (workers is None or (new and name in workers)):
            return True
    return False
