"""Which data the pods wait for that have no node yet: so that one pod leaves to others what only they can use."""

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tdcs.api import names
from tdcs.decide.place.node_score import CombinedData, FloatArray
from tdcs_scheduler.protocol import (
    BadAnnotationError,
    DatasetReference,
    claims_of,
    decode_annotation,
    index_of,
    is_opted_out,
    read_by,
    with_claims,
)
from tdcs_scheduler.view import DatasetView

Key = tuple[str, str]

NodeNumbers = NDArray[np.intp]

Share = tuple[NodeNumbers, float]
"""Nodes by their numbers, each once, and how much some pods want each of them."""

Shares = dict[str | None, Share]

_NO_NODES: Final[NodeNumbers] = np.empty(0, np.intp)
_NO_SHARE: Final[Share] = (_NO_NODES, 0.0)

_REFERENCES: Final = "references"
_CLAIMS: Final = "claims"
_INDEX: Final = "index"

# Pods that were asked about and are not known to have a node: more than are ever being placed at a time.
_REMEMBERED: Final = 1000

# Sums of shares that were added and taken away again: less than this is nothing.
_NOTHING: Final = 1e-9


def selector(*, scheduler_name: str) -> str:
    """The field selector of the pods that this scheduler has yet to place."""
    return f"spec.nodeName=,status.phase=Pending,spec.schedulerName={scheduler_name}"


def waiting_pod(pod: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a pod without a node.

    A pod that the scheduler found no room for, or that has a scheduling gate, waits for something else than its turn:
    no node is kept free for it, as it might wait without end. One that is being deleted waits for nothing.
    """
    metadata = pod["metadata"]
    conditions = (pod.get("status") or {}).get("conditions") or ()
    waits = not metadata.get("deletionTimestamp") and not any(
        condition.get("type") == "PodScheduled" and condition.get("status") == "False"
        for condition in conditions
    )
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    waits = waits and not is_opted_out(labels.get(names.LABEL_PLACE_BY_DATA))
    text = annotations.get(names.ANNOTATION_DATASETS) if waits else None
    volumes = (pod.get("spec") or {}).get("volumes") or () if waits else ()
    mounted = [(volume.get("persistentVolumeClaim") or {}).get("claimName", "") for volume in volumes]
    key = names.ANNOTATION_COMPLETION_INDEX
    return {
        "metadata": {key: metadata.get(key, "") for key in ("namespace", "name", "resourceVersion")},
        _REFERENCES: text,
        _CLAIMS: claims_of(mounted, namespace=metadata.get("namespace", "")),
        _INDEX: index_of(annotations.get(key) or labels.get(key)),
    }


class Demand:
    """How much the waiting pods want each node. Updates and reads happen in one thread.

    A pod wants each of its datasets once, shared out evenly over the nodes that hold it. Nodes have numbers here: what
    is wanted of hundreds of them is one step of numpy, and hundreds of looks into a table otherwise.

    `age_seconds`: since when nothing was heard of pods. Once that is more than `stale_after_seconds`, those that are
    known to wait may long have a node: nothing is left to them, until there is news.
    """

    def __init__(
        self,
        *,
        view: DatasetView,
        age_seconds: Callable[[], float] = lambda: 0.0,
        stale_after_seconds: float = math.inf,
    ) -> None:
        self._view: Final = view
        self._age_seconds: Final = age_seconds
        self._stale_after_seconds: Final = stale_after_seconds
        self._scored_pods: Final[dict[Key, None]] = {}
        self._pods: Final[dict[Key, list[tuple[str, str | None]]]] = {}
        self._waiting: Final[dict[str, Counter[str | None]]] = {}
        self._holders: Final[dict[str, dict[str | None, NodeNumbers]]] = {}
        self._shares: Final[dict[str, Shares]] = {}
        self._numbers: Final[dict[str, int]] = {}
        self._numbers_of: Final[WeakKeyDictionary[CombinedData, NodeNumbers]] = WeakKeyDictionary()
        self._demand_of: FloatArray = np.zeros(0)
        self._changed: Final[set[str]] = set()

    def __len__(self) -> int:
        """How many pods count: those that read a Dataset which there is."""
        if self._is_stale():
            return 0
        return sum(any(dataset in self._view for dataset, _ in read) for read in self._pods.values())

    def on_pod(self, key: Key, pod: Mapping[str, Any] | None) -> None:
        """Take the new state of a pod, as :func:`waiting_pod` keeps it; None: it has a node, or is gone."""
        for dataset, copy in self._pods.pop(key, ()):
            self._count(dataset, copy, -1)
        if pod is None or not (pod[_REFERENCES] or pod[_CLAIMS]):
            self._scored_pods.pop(key, None)
            return
        if key in self._scored_pods:
            return  # late news of a pod that the scheduler is placing
        named: list[DatasetReference] = []
        # Of an annotation that cannot be read its owner gets an event when the pod is scored.
        with contextlib.suppress(BadAnnotationError):
            named = decode_annotation(text=pod[_REFERENCES]) if pod[_REFERENCES] else []
        # A claim may be of a Dataset that is only heard of later.
        references = with_claims(named, claims=pod[_CLAIMS], datasets=pod[_CLAIMS])
        read = read_by(references, index=pod.get(_INDEX))
        self._pods[key] = [(reference.dataset, reference.copy) for reference in read]
        for dataset, copy in self._pods[key]:
            self._count(dataset, copy, 1)

    def on_scored(self, key: Key) -> None:
        """The scheduler asks about this pod: it is the pod's turn, and nothing is left to it any more.

        If it finds no node after all, it waits for something else than its turn, see `waiting_pod`.
        """
        self.on_pod(key, None)
        while len(self._scored_pods) >= _REMEMBERED:
            del self._scored_pods[next(iter(self._scored_pods))]
        self._scored_pods[key] = None

    def on_dataset(self, key: Key) -> None:
        """The view has something new of the Dataset with this (namespace, name)."""
        name = "/".join(key)
        if self._holders.pop(name, None) is not None:
            self._changed.add(name)

    def awaited(self, *, nodes: Iterable[str], apart_from: Set[str]) -> dict[str, float]:
        """Those of the nodes that waiting pods want, and how much, apart from pods of these datasets."""
        if not self._others_wait(apart_from):
            return {}
        amounts, numbers = self._demand_apart_from(apart_from).tolist(), self._numbers
        return {
            node: amounts[number]
            for node in nodes
            if (number := numbers.get(node)) is not None and amounts[number] > _NOTHING
        }

    def awaited_at(self, data: CombinedData, *, apart_from: Set[str]) -> FloatArray | None:
        """How much waiting pods want each node of this data, apart from pods of these datasets; None: none of them."""
        if not self._others_wait(apart_from):
            return None
        numbers = self._numbers_of.get(data)
        if numbers is None:
            numbers = self._numbers_of[data] = self._numbered(data.nodes)
        demand = self._demand_apart_from(apart_from)[numbers]
        demand[demand <= _NOTHING] = 0.0
        return demand if demand.any() else None

    def _others_wait(self, apart_from: Set[str]) -> bool:
        """Whether pods wait for other datasets; what is wanted of the nodes is up to date then."""
        if self._waiting.keys() <= apart_from or self._is_stale():
            return False
        self._settle()
        return True

    def _demand_apart_from(self, datasets: Set[str]) -> FloatArray:
        """How much is wanted of each node, by its number, for other datasets than these."""
        demand = self._demand_of.copy()
        for dataset in datasets:
            for nodes, share in self._shares.get(dataset, {}).values():
                demand[nodes] -= share
        return demand

    def _numbered(self, nodes: Iterable[str]) -> NodeNumbers:
        """The numbers of these nodes, which they keep until no pod waits for data any more."""
        numbers = self._numbers
        node_numbers = np.fromiter((numbers.setdefault(node, len(numbers)) for node in nodes), np.intp)
        new_numbers = len(numbers) - len(self._demand_of)
        if new_numbers > 0:
            self._demand_of = np.concatenate([self._demand_of, np.zeros(new_numbers + len(numbers))])
        return node_numbers

    def _is_stale(self) -> bool:
        return self._age_seconds() > self._stale_after_seconds

    def _count(self, dataset: str, copy: str | None, change: int) -> None:
        waiting = self._waiting.setdefault(dataset, Counter())
        waiting[copy] += change
        if not waiting[copy]:
            del waiting[copy]
        if not waiting:
            del self._waiting[dataset]
        self._changed.add(dataset)

    def _settle(self) -> None:
        """Recompute the shares of changed datasets: once for many changes, at the cost of their nodes only."""
        for dataset in self._changed:
            before = self._shares.pop(dataset, {})
            after = self._shared_out(dataset)
            if after:
                self._shares[dataset] = after
            for copy in before.keys() | after.keys():
                self._replace(before.get(copy, _NO_SHARE), after.get(copy, _NO_SHARE))
        self._changed.clear()
        if not self._shares:  # else deleted nodes would stay in memory
            self._demand_of = np.zeros(0)
            self._numbers.clear()
            self._numbers_of.clear()
            for holders in self._holders.values():
                holders.clear()

    def _shared_out(self, dataset: str) -> Shares:
        """What the pods that wait for a dataset want of each node, by the copy that they name."""
        if dataset not in self._waiting:
            self._holders.pop(dataset, None)
            return {}
        holders = self._holders.setdefault(dataset, {})
        shares = {}
        for copy, pods in self._waiting[dataset].items():
            if copy not in holders:
                nodes_with_copy = self._view.find(dataset=dataset, copy=copy)
                holders[copy] = self._numbered(() if nodes_with_copy is None else nodes_with_copy.ranked)
            if holders[copy].size:
                shares[copy] = holders[copy], pods / holders[copy].size
        return shares

    def _replace(self, before: Share, after: Share) -> None:
        (old_nodes, old), (nodes, new) = before, after
        if old_nodes is nodes:  # the usual case: one pod more or less
            old_nodes, new = _NO_NODES, new - old
        self._demand_of[old_nodes] -= old
        self._demand_of[nodes] += new
