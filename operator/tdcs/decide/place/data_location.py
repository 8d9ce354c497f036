"""Where the datasets of a job are, for its scheduling and its status."""

from collections.abc import Mapping

from tdcs.api import names
from tdcs.api.dataset import Dataset
from tdcs.decide.place.dataset_copies import FIRST_COPY, CopyOnNodes, merged, preferring


def held(datasets: Mapping[str, Dataset]) -> list[CopyOnNodes]:
    """Bytes of each dataset on each node, of any copy: what pods there read from their own node."""
    return [
        merged(list(copies_of(dataset).values()))
        or CopyOnNodes(total_bytes=dataset.status.total_bytes, node_bytes={})
        for dataset in datasets.values()
        if dataset.status is not None
    ]


def wanted_near(datasets: Mapping[str, Dataset], *, chosen: Mapping[str, str]) -> list[CopyOnNodes]:
    """Each dataset as the extender sees it for the pods of a job that reads these copies."""
    nearest = []
    for name, dataset in datasets.items():
        copies = copies_of(dataset)
        copy = copies.pop(chosen.get(name, FIRST_COPY), None)
        near = (
            merged(list(copies.values()))
            if copy is None
            else preferring(copy, other_copies=list(copies.values()))
        )
        if near is not None:
            nearest.append(near)
    return nearest


def chosen_from(dataset: Dataset) -> dict[str, CopyOnNodes]:
    """The copies that jobs are dealt out to, by their ids: not what Preloads brought, nor a clone on its way."""
    return {
        copy_id: copy
        for copy_id, copy in copies_of(dataset).items()
        if not copy.brought and not (copy_id.startswith(names.CLONE_COPY) and copy.arriving)
    }


def copies_of(dataset: Dataset) -> dict[str, CopyOnNodes]:
    """The copies of a dataset by their ids, what Preloads brought among them."""
    status = dataset.status
    if status is None:
        return {}
    return {
        copy.id: CopyOnNodes(
            total_bytes=status.total_bytes,
            node_bytes={node.name: node.bytes for node in copy.nodes},
            arriving={node.name: node.arriving for node in copy.nodes if node.arriving},
            brought=copy.id == names.PRELOADED_COPY,
        )
        for copy in status.copies
    }
