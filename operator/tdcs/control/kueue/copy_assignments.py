"""Which copy of a Dataset with several the pods of a Workload read: chosen when its data lets it start."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tdcs.api import names
from tdcs.api.dataset import Dataset
from tdcs.control.context import Stores
from tdcs.control.job.queue.copy_choice import published_copy
from tdcs.decide.cache.dataset_demand import datasets_of
from tdcs.decide.job.data_verdict import KnownDataset
from tdcs.decide.kueue.kueue_workload import CheckedWorkload, copies_read, is_finished
from tdcs.decide.place.data_location import chosen_from
from tdcs.decide.queue.pod_admission import copy_to_read
from tdcs.model.kube_objects import Object

CopyKey = tuple[str, str, str]
"""Namespace and name of a Dataset, and the id of a copy."""


class CopyAssignments:
    """Chooses copies for Workloads of any kind of job.

    Everything it decides from is observed, except the choices that the view does not show yet.
    """

    def __init__(self, *, stores: Stores) -> None:
        self._stores = stores
        self._unpublished: dict[str, Mapping[str, str]] = {}
        self._workloads: Sequence[Object] = ()
        self._readers: Counter[CopyKey] | None = None

    def begin(self, workloads: Iterable[Object]) -> None:
        """A pass begins: choices that its Workloads show are remembered no more, nor those of Workloads that are gone
        or have ended.

        Args:
            workloads: all that there are.
        """
        self._workloads, self._readers = [obj for obj in workloads if not is_finished(obj)], None
        if self._unpublished:
            silent = {obj["metadata"]["uid"] for obj in self._workloads if not copies_read(obj)}
            self._unpublished = {uid: copies for uid, copies in self._unpublished.items() if uid in silent}

    def of(self, workload: CheckedWorkload, *, datasets: Mapping[str, KnownDataset]) -> Mapping[str, str]:
        """The copy of each Dataset with several that pods of a Workload read by their claims, by the Dataset's name.

        Args:
            workload: may start.
            datasets: those of its namespace, by name.
        """
        if workload.uid in self._unpublished:
            return self._unpublished[workload.uid]
        claims = dict.fromkeys(claim for pods in workload.pod_sets if pods.by_claims for claim in pods.claims)
        several = {
            name: dataset for name in claims if (dataset := _with_copies(datasets.get(name))) is not None
        }
        if not several:
            return {}
        if self._readers is None:
            self._readers = self._count_readers()
        namespace, readers = workload.key[0], self._readers
        chosen = {
            name: _choose(namespace, name, dataset, readers=readers) for name, dataset in several.items()
        }
        readers.update((namespace, name, copy) for name, copy in chosen.items())
        self._unpublished[workload.uid] = chosen
        return chosen

    def _count_readers(self) -> Counter[CopyKey]:
        readers: Counter[CopyKey] = Counter()
        for obj in self._workloads:
            metadata = obj["metadata"]
            copies = copies_read(obj) or self._unpublished.get(metadata["uid"], {})
            readers.update((metadata["namespace"], name, copy) for name, copy in copies.items())
        for (namespace, _), job in self._stores.live_jobs().items():
            read = ((name, published_copy(job, name)) for name in datasets_of(job))
            readers.update((namespace, name, copy) for name, copy in read if copy is not None)
        return readers


def pod_set_updates(workload: CheckedWorkload, *, copies: Mapping[str, str]) -> list[dict[str, Any]]:
    """What to have Kueue add to the pods of a Workload, so that they run near the copies that were chosen for them.

    A pod set that says by itself what its pods read gets nothing: Kueue never starts one with a key twice.
    """
    updates = []
    for pods in workload.pod_sets:
        reads = [
            {"dataset": f"{workload.key[0]}/{name}", "copy": copies[name]}
            for name in pods.claims
            if name in copies
        ]
        if reads and pods.by_claims:
            text = json.dumps(reads, separators=(",", ":"))
            updates.append({"name": pods.name, "annotations": {names.ANNOTATION_DATASETS: text}})
    return updates


def _with_copies(entry: KnownDataset | None) -> Dataset | None:
    """A Dataset with several copies to choose from; None for others."""
    if entry is None or entry.dataset is None or len(chosen_from(entry.dataset)) < 2:
        return None
    return entry.dataset


def _choose(namespace: str, name: str, dataset: Dataset, *, readers: Mapping[CopyKey, int]) -> str:
    """A copy of a Dataset with the fewest readers."""
    active = {copy: readers.get((namespace, name, copy), 0) for copy in chosen_from(dataset)}
    limit = dataset.spec.access.max_concurrent_jobs or 0
    return copy_to_read(active=active, limit=limit)
