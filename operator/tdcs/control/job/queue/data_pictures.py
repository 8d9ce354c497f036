"""Where the datasets of jobs are, by the views: the input for weighing where job and data meet."""

import statistics
from collections.abc import Mapping

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.dataset import Dataset
from tdcs.api.durations import seconds_from_1970
from tdcs.api.trainingjob import READING_ROLES, Role, TrainingJobSpec
from tdcs.api.trainingjob_status import MEETING_NODES
from tdcs.control.context import Stores
from tdcs.control.job.queue import queue_snapshot
from tdcs.control.job.queue.pod_demand import PodDemand
from tdcs.control.job_index import indexed
from tdcs.decide.cache.wants import subset_of
from tdcs.decide.place.data_location import copies_of, wanted_near
from tdcs.decide.place.data_meeting import PEER_RATE, MeetingInput, data_nodes
from tdcs.decide.place.dataset_copies import merged
from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.place.node_score import node_scores
from tdcs.decide.place.slot_nodes import RESERVE_RATIO, matches
from tdcs.decide.queue.data_wait import JobData
from tdcs.model.kube_objects import Key

MEASURED_SECONDS = 10.0
"""Growth that took less says nothing of a rate."""


class DataPictures:
    """What the views say at one moment; what was worked out of them is kept, so that one serves a pass."""

    def __init__(self, *, stores: Stores) -> None:
        self._stores = stores
        self._peer_rate: float | None = None
        self._datasets: dict[Key, Dataset | None] = {}

    def meets(self, dataset: Dataset, *, pods: Mapping[str, int], run_seconds: float | None) -> MeetingInput:
        """How a dataset is placed for pods on these nodes, and whether it may come to them.

        Args:
            pods: how many each node has, or will get.
            run_seconds: how long the job runs, if that is known.
        """
        coming = {
            node: size
            for copy in copies_of(dataset).values()
            for node, size in copy.arriving.items()
            if node not in pods
        }
        held, grows = held_of(dataset), may_grow(dataset) and len(pods) <= MEETING_NODES
        return MeetingInput(
            size=size_of(dataset),
            held={node: held.get(node, 0) + coming.get(node, 0) for node in {*held, *coming}},
            pods=pods,
            room=self._room_of(dataset, pods) if grows else {},
            grows=grows,
            peer_rate=self.peer_rate(),
            run_seconds=run_seconds,
        )

    def of_job(
        self,
        demand: PodDemand,
        *,
        namespace: str,
        replicas: Mapping[Role, int],
        room: queue_snapshot.NodeRoom,
        run_seconds: float | None,
        seconds_left: float | None,
    ) -> JobData | None:
        """The data of a job that waits in the queue; None: it reads none, or no node has any.

        Args:
            demand: what its pods need.
            namespace: the job's.
            replicas: how many pods of each role start.
            room: the nodes.
            run_seconds: how long it runs, if that is known.
            seconds_left: until its wait for a place at the data ends; None: it has not begun.
        """
        dataset_of = {use.name: self._dataset((namespace, use.name)) for use in demand.spec.datasets}
        datasets = {
            name: dataset
            for name, dataset in dataset_of.items()
            if dataset is not None and dataset.status is not None
        }
        at_data = data_nodes(
            [self.meets(dataset, pods={}, run_seconds=None) for dataset in datasets.values()]
        )
        if not at_data:
            return None
        alongside, readers = list[PodGroup](), list[PodGroup]()
        for role, role_spec in demand.roles.items():
            count, pod = replicas.get(role, 0), role_spec.template["spec"]
            nodes = room.eligible(pod, sign=demand.signatures[role])
            reading = min(readers_of(demand.spec, role), count) if role in READING_ROLES else 0
            request = demand.requests[role]
            if reading:
                readers.append(PodGroup(count=reading, request=request, nodes=nodes))
                alongside.append(PodGroup(count=reading, request=request, nodes=nodes & at_data))
            if count > reading:
                alongside.append(PodGroup(count=count - reading, request=request, nodes=nodes))
        return JobData(
            nodes=at_data,
            alongside=tuple(alongside),
            readers=tuple(readers),
            scores=node_scores(wanted_near(datasets, chosen={})),
            meets=lambda pods: {
                name: self.meets(dataset, pods=pods, run_seconds=run_seconds)
                for name, dataset in datasets.items()
            },
            seconds_left=seconds_left,
        )

    def run_seconds(self, *, namespace: str, template: str, deadline: int | None) -> float | None:
        """How long a job runs: as long as others of its template ran, and no longer than its deadline; None: nobody
        knows."""
        ran = indexed(self._stores.training_jobs).ran(namespace, template)
        return min((float(limit) for limit in (deadline, ran) if limit is not None), default=None)

    def peer_rate(self) -> float:
        """Bytes a second that a node got when copies grew for jobs that are there: the middle of what was measured."""
        if self._peer_rate is None:
            rates = []
            for job in self._stores.live_jobs().values():
                for use in (job.get("status") or {}).get("copies") or ():
                    meeting = use.get("meeting") or {}
                    if not meeting.get("metTime") or not meeting.get("bytesPerNode"):
                        continue
                    decided = seconds_from_1970(meeting.get("decidedTime"))
                    met = seconds_from_1970(meeting["metTime"])
                    if decided is not None and met is not None and met - decided >= MEASURED_SECONDS:
                        rates.append(meeting["bytesPerNode"] / (met - decided))
            self._peer_rate = statistics.median(rates) if rates else PEER_RATE
        return self._peer_rate

    def _dataset(self, key: Key) -> Dataset | None:
        if key not in self._datasets:
            obj = self._stores.datasets.get(key)
            try:
                self._datasets[key] = None if obj is None else Dataset.model_validate(obj)
            except ValidationError:
                self._datasets[key] = None  # its own pass says so
        return self._datasets[key]

    def _room_of(self, dataset: Dataset, nodes: Mapping[str, int]) -> dict[str, int]:
        """Bytes that the cache of each node could give to a Dataset: all but what others that are in use have there."""
        cluster = dataset.spec.cache_cluster_ref.name
        mine = dataset.status.mount_path if dataset.status is not None else ""
        room_of: dict[str, int] = {}
        for worker in ((self._stores.cache_cluster(cluster) or {}).get("status") or {}).get("workers") or ():
            if (
                worker["node"] in nodes
                and worker.get("state") == "Ready"
                and self._allows(dataset, worker["node"])
            ):
                room_of[worker["node"]] = int(int(worker.get("capacityBytes") or 0) * (1 - RESERVE_RATIO))
        for other_dataset in self._stores.datasets.values() if room_of else ():
            status, spec = other_dataset.get("status") or {}, other_dataset.get("spec") or {}
            if (
                status.get("mountPath") in ("", None, mine)
                or names.cache_cluster_of(other_dataset) != cluster
            ):
                continue
            pinned = (spec.get("eviction") or {}).get("policy") == "Pin"
            if not (pinned or status.get("inUse") or status.get("activeJobs") or status.get("waitingJobs")):
                continue  # it leaves for what is read
            for copy in status.get("copies") or ():
                for node in copy.get("nodes") or ():
                    if node["name"] in room_of:
                        used_bytes = int(node.get("bytes") or 0) + int(node.get("arriving") or 0)
                        room_of[node["name"]] -= used_bytes
        return room_of

    def _allows(self, dataset: Dataset, node: str) -> bool:
        """Whether the Dataset may be on a node at all."""
        labels = (self._stores.nodes.get(("", node)) or {"metadata": {}})["metadata"].get("labels") or {}
        return matches(labels, dataset.spec.placement.node_selector)


def may_grow(dataset: Dataset) -> bool:
    """Whether its spec leaves it to the operator how many nodes hold a copy."""
    placement, preload = dataset.spec.placement, dataset.spec.preload
    return preload.enabled and placement.mode == "Auto" and placement.node_count is None and not preload.paths


def held_of(dataset: Dataset) -> Mapping[str, int]:
    """Bytes on each node, of any copy."""
    copy = merged(list(copies_of(dataset).values()))
    return copy.node_bytes if copy is not None else {}


def size_of(dataset: Dataset) -> int:
    """Bytes of one copy that its preload wants."""
    total = dataset.status.total_bytes if dataset.status is not None else 0
    return subset_of(dataset.spec.preload).limit(total)


def readers_of(spec: TrainingJobSpec, role: Role) -> int:
    """How many pods of a role read data."""
    return sum(bool(spec.datasets_of(role, index)) for index in range(spec.by_role()[role].replicas))
