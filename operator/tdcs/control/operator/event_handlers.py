"""Which objects have to be looked at when one changes: a handler for each kind of event, which adds keys to the queue.

Nothing is worked on here. A change that no decision depends on adds no key.
"""

import logging
from collections.abc import Mapping
from typing import Any

from tdcs.api import names
from tdcs.control.context import WorkKey
from tdcs.control.dataset_index import indexed_datasets
from tdcs.control.job.queue.gang_queue import GangQueue
from tdcs.control.job_index import indexed
from tdcs.control.node_usage import PodAddresses, Usage, trimmed
from tdcs.decide.cache.dataset_demand import datasets_of, nodes_alongside, stage_of, waits_for_data
from tdcs.decide.node_departure import departure
from tdcs.decide.queue.copy_places import readable_copies
from tdcs.decide.queue.share_owners import wrong_weight
from tdcs.kube.queue import KeyedQueue
from tdcs.model.kube_objects import Key, Object, pod_has_ended
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, PODS, PRELOADS, TRAINING_JOBS, Resource

_log = logging.getLogger(__name__)


def asked(obj: Object) -> tuple[Any, ...]:
    """What of an object others decide: everything but its status and the server's book-keeping."""
    metadata = obj["metadata"]
    fields = (
        "uid",
        "generation",
        "deletionTimestamp",
        "finalizers",
        "labels",
        "annotations",
        "ownerReferences",
    )
    return tuple(metadata.get(field) for field in fields)


def places(dataset: Object | None) -> object:
    """What of a Dataset says how many jobs may read it."""
    if dataset is None:
        return None
    path, access = (dataset.get("status") or {}).get("mountPath"), (dataset.get("spec") or {}).get("access")
    return path, access, readable_copies(dataset)


def is_mounted(dataset: Object | None) -> bool:
    return bool(((dataset or {}).get("status") or {}).get("mountPath"))


def standing(dataset: Object | None) -> object:
    """What of a Dataset matters to jobs that read it: everything but how far it is loaded."""
    if dataset is None:
        return None
    status = dataset.get("status") or {}
    conditions = [
        (condition.get("type"), condition.get("status"), condition.get("reason"))
        for condition in status.get("conditions") or ()
    ]
    copies = [
        (copy.get("id"), [node.get("name") for node in copy.get("nodes") or ()])
        for copy in status.get("copies") or ()
    ]
    return asked(dataset), conditions, status.get("mountPath"), status.get("claimName"), copies


def loaded_ratio(dataset: Object | None) -> float:
    """How much of a Dataset is where it shall; 0.0 of one that is gone, or that nothing is said of."""
    return float(((dataset or {}).get("status") or {}).get("loadedRatio") or 0.0)


def worker_view(cluster: Object | None) -> Any:
    """What of a CacheCluster its Datasets follow: all of its spec (rules, quotas, scaling), and its workers."""
    if cluster is None:
        return None
    workers = (cluster.get("status") or {}).get("workers") or ()
    return cluster.get("spec"), [(worker.get("node"), worker.get("state")) for worker in workers]


def _labels(obj: Object | None) -> Mapping[str, str] | None:
    """None of an object that is not there."""
    return None if obj is None else obj["metadata"].get("labels") or {}


def _annotations(obj: Object | None) -> Mapping[str, str]:
    return {} if obj is None else obj["metadata"].get("annotations") or {}


def _node_size(node: Object | None) -> object:
    """What of a node says how much room it has."""
    if node is None:
        return None
    return (node.get("status") or {}).get("allocatable"), (node.get("spec") or {}).get("unschedulable")


def _node_view(node: Object | None) -> object:
    """What of a node says which cache clusters and pods may be there."""
    return None if node is None else (_labels(node), (node.get("spec") or {}).get("taints"), departure(node))


class ClaimUse:
    """Has those looked at whose data pods begin or end to read.

    Args:
        views: the custom resources that are known, by resource and key; only read.
        namespace: where the CacheClusters that count live.
    """

    def __init__(
        self,
        *,
        views: Mapping[Resource, Mapping[Key, Object]],
        queue: KeyedQueue[WorkKey],
        namespace: str,
    ) -> None:
        self._views = views
        self._queue = queue
        self._namespace = namespace

    def changed(self, claim: Key) -> None:
        """Pods begin or end to mount a claim on a node: the Dataset of that name is in use, elsewhere, or idle."""
        dataset = self._views[DATASETS].get(claim)
        if dataset is None:
            return
        self._queue.add(WorkKey(DATASETS, *claim))
        if (owner := names.source_dataset_of(dataset)) in self._views[DATASETS]:
            self._queue.add(WorkKey(DATASETS, *owner))
        cluster = (self._namespace, names.cache_cluster_of(dataset))
        if names.follows_jobs(self._views[CACHE_CLUSTERS].get(cluster)):
            self._queue.add(WorkKey(CACHE_CLUSTERS, *cluster))


class EventHandlers:
    """Handles the events of all that the operator watches.

    Args:
        views: the custom resources that are known, by resource and key; only read.
        namespace: where the CacheClusters that count live.
        gangs: the queue of jobs, which looks again when something changed that it may depend on.
    """

    def __init__(
        self,
        *,
        views: Mapping[Resource, Mapping[Key, Object]],
        queue: KeyedQueue[WorkKey],
        namespace: str,
        gangs: GangQueue,
        usage: Usage,
        pod_addresses: PodAddresses,
        other_pods: Mapping[Key, Object],
    ) -> None:
        self._views = views
        self._queue = queue
        self._namespace = namespace
        self._gangs = gangs
        self._usage = usage
        self._other_pods = other_pods
        self._pod_addresses = pod_addresses

    def on_custom_resource(
        self, resource: Resource, key: Key, before: Object | None, after: Object | None
    ) -> None:
        """A custom resource changed; the view has it already.

        Args:
            resource: its kind.
            key: its own.
            before: as it was known; None: it was not.
            after: as it is; None: it is gone.
        """
        # A status is the operator's own word: looking again because of it could go round forever.
        is_asked_again = before is None or after is None or asked(before) != asked(after)
        if is_asked_again:
            self._add(resource, key)
        if resource is TRAINING_JOBS:
            self._gangs.touch()
            if stage_of(before) != stage_of(after) or nodes_alongside(before) != nodes_alongside(after):
                for name in {*datasets_of(before), *datasets_of(after)}:
                    self._add(DATASETS, (key[0], name))
        if resource is DATASETS and is_asked_again:
            # It may share its source no more, or now.
            self._sharers(key)
        if resource is DATASETS:
            self._dataset_changed(key, before, after)
            if places(before) != places(after):
                self._gangs.touch()
            dataset = after or before
            if dataset is not None and is_mounted(before) != is_mounted(
                after
            ):  # the CacheCluster counts them
                self._add(CACHE_CLUSTERS, (self._namespace, names.cache_cluster_of(dataset)))
        if resource is PRELOADS and is_asked_again:
            # The Dataset's controller carries it out, and stops when it is deleted.
            for name in {names.dataset_of(obj) for obj in (before, after) if obj is not None}:
                self._add(DATASETS, (key[0], name))
        if resource is CACHE_CLUSTERS and worker_view(before) != worker_view(after):
            self._cluster_changed(key)

    def on_node(self, _: Key, before: Object | None, after: Object | None) -> None:
        """A node changed. Heartbeats change nodes all the time; placements depend on these parts only."""
        has_another_view = _node_view(before) != _node_view(after)
        if has_another_view or _node_size(before) != _node_size(after):
            self._gangs.touch(nodes=True)
        if has_another_view:
            for cluster in self._views[CACHE_CLUSTERS]:
                self._add(CACHE_CLUSTERS, cluster)

    def on_job_pod(self, key: Key, before: Object | None, after: Object | None) -> None:
        """A pod of a job changed; the view has it already."""
        self._see_pod(key)
        self.on_job_child(key, before, after)

    def on_other_pod(self, key: Key, *_: object) -> None:
        """A pod with a node changed that no job made, of whatever namespace; the view has it already."""
        if self._see_pod(key):
            self._gangs.touch()

    def _see_pod(self, key: Key) -> bool:
        """Note what a pod takes of its node; whether that has changed. One whose label is changed goes from one view to
        the other, and nothing says which of them hears of it first."""
        pod = self._views[PODS].get(key)
        if pod is None:
            bound = self._other_pods.get(key)
        else:
            bound = None if pod_has_ended(pod) or not pod["spec"].get("nodeName") else trimmed(pod)
        self._pod_addresses.seen(key, bound["addresses"] if bound is not None else ())
        return self._usage.seen(key, bound)

    def on_dataset_claim(self, key: Key, _: Object | None, claim: Object | None) -> None:
        """The claim of a Dataset was deleted, or has lost its volume: it is made again at once."""
        if (claim is None or claim.get("phase") == "Lost") and key in self._views[DATASETS]:
            self._add(DATASETS, key)

    def on_namespace(self, key: Key, before: Object | None, after: Object | None) -> None:
        name = key[1]
        annotations_before, annotations = _annotations(before), _annotations(after)
        if annotations_before.get(names.ANNOTATION_QUEUE_STOP) != annotations.get(
            names.ANNOTATION_QUEUE_STOP
        ):
            self._gangs.touch()
            for job in indexed(self._views[TRAINING_JOBS]).live:
                if job[0] == name:
                    self._add(TRAINING_JOBS, job)
        share = names.ANNOTATION_SHARE_WEIGHT
        if annotations_before.get(share) != annotations.get(share):
            self._gangs.touch()
            if after is not None and (wrong := wrong_weight(after)):
                _log.warning("%s", wrong)
        if _labels(before) == _labels(after):
            return
        self._gangs.touch()  # a label may say whose share its jobs take
        for dataset in indexed_datasets(self._views[DATASETS]).touching(name):
            self._add(DATASETS, dataset)

    def on_priority_class(self, key: Key, before: Object | None, after: Object | None) -> None:
        self._gangs.touch()
        if before is not None and after is not None:
            return
        # CacheClusters wait for one that does not exist.
        for cluster, obj in self._views[CACHE_CLUSTERS].items():
            if (obj.get("spec") or {}).get("priorityClassName") == key[1]:
                self._add(CACHE_CLUSTERS, cluster)

    def on_resource_quota(self, *_: object) -> None:
        """A waiting job may fit into its namespace now, or not any more."""
        self._gangs.touch()

    def on_runtime_class(self, *_: object) -> None:
        """What it adds to each pod may be another amount."""
        self._gangs.touch(overheads=True)

    def on_job_child(self, key: Key, before: Object | None, after: Object | None) -> None:
        self._gangs.touch()
        self._job_of(key, before, after)

    def on_workload(self, key: Key, before: Object | None, after: Object | None) -> None:
        """Of Kueue: that of a TrainingJob has its label."""
        self._job_of(key, before, after)

    def _job_of(self, key: Key, before: Object | None, after: Object | None) -> None:
        """The TrainingJob looks whose name an object has, or had, in its label."""
        for job in {(_labels(obj) or {}).get(names.LABEL_TRAINING_JOB) for obj in (before, after)}:
            if job:
                self._add(TRAINING_JOBS, (key[0], job))

    def on_cluster_child(self, key: Key, before: Object | None, after: Object | None) -> None:
        """A StatefulSet or DaemonSet of a CacheCluster changed: that looks."""
        for cluster in {(_labels(obj) or {}).get(names.LABEL_CACHE_CLUSTER) for obj in (before, after)}:
            if cluster:
                self._add(CACHE_CLUSTERS, (key[0], cluster))

    def _dataset_changed(self, dataset: Key, before: Object | None, after: Object | None) -> None:
        """Those that read a Dataset look. For what was loaded those need not that run or wait for their turn alone; for
        what was lost those that wait for their turn do."""
        only_loads, lost = standing(before) == standing(after), loaded_ratio(after) < loaded_ratio(before)
        for key, job in indexed(self._views[TRAINING_JOBS]).reading(dataset).items():
            if not only_loads or (stage_of(job) == "Waiting" and (lost or waits_for_data(job))):
                self._add(TRAINING_JOBS, key)

    def _sharers(self, owner: Key) -> None:
        """The Datasets that read the source of this one look."""
        for dataset in indexed_datasets(self._views[DATASETS]).sharers(owner):
            self._add(DATASETS, dataset)

    def _cluster_changed(self, cluster: Key) -> None:
        for key, dataset in self._views[DATASETS].items():
            if (self._namespace, names.cache_cluster_of(dataset)) == cluster:
                self._add(DATASETS, key)

    def _add(self, resource: Resource, key: Key) -> None:
        self._queue.add(WorkKey(resource, *key))
