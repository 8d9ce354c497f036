"""Where the pods of a job find room now: near a copy of its data, on each node, and for further workers."""

from collections.abc import Collection, Mapping

from tdcs.api import names
from tdcs.api.trainingjob import READING_ROLES
from tdcs.control.context import Stores
from tdcs.control.job.queue import queue_snapshot
from tdcs.control.job.queue.data_pictures import readers_of
from tdcs.control.job.queue.pod_demand import PodDemands
from tdcs.control.job.queue.queue_entries import Collector
from tdcs.decide.cache.dataset_demand import stage_of
from tdcs.decide.place import data_meeting
from tdcs.decide.place.gang_fit import PodGroup, most_that_fit, place_most, room_for
from tdcs.model.kube_objects import Key, Object


class JobRoom:
    """Looks at the live views, and remembers nothing of its own.

    Args:
        demands: what the pods of each job ask for.
        nodes: what each node has left.
        collector: knows how many pods of each role a job may have now.
    """

    def __init__(
        self,
        *,
        stores: Stores,
        demands: PodDemands,
        nodes: queue_snapshot.NodeRoom,
        collector: Collector,
    ) -> None:
        self._stores = stores
        self._demands = demands
        self._room = nodes
        self._collector = collector

    def near(
        self, obj: Object, *, copies: Mapping[str, tuple[Collection[str], Collection[str]]]
    ) -> dict[str, int]:
        """How many of a job's pods that read data find room near each copy.

        Args:
            obj: the job.
            copies: by copy its nodes, and the uids of admitted jobs that read it: their pods that have no node yet
                will take room there first.
        """
        demand = self._demands.of(obj)
        if demand is None:
            return dict.fromkeys(copies, 0)
        placed = queue_snapshot.placed_pods(self._stores, queue_snapshot.owners(self._stores))
        by_uid = {job["metadata"].get("uid"): job for job in self._stores.live_jobs().values()}
        groups = [
            PodGroup(
                count=readers_of(demand.spec, role),
                request=demand.requests[role],
                nodes=self._room.eligible(role_spec.template["spec"]),
            )
            for role, role_spec in demand.spec.by_role().items()
            if role in READING_ROLES
        ]
        pods_near = {}
        for copy, (nodes, uids) in copies.items():
            free = self._room.free(nodes)
            for uid in uids:
                demand_of_other = self._demands.of(by_uid[uid]) if uid in by_uid else None
                if demand_of_other is not None:
                    replicas = self._collector.replicas(by_uid[uid], demand_of_other)
                    reserved = queue_snapshot.pod_groups(
                        demand_of_other, replicas=replicas, room=self._room, present=placed.get(uid, {})
                    )
                    place_most(groups=reserved, free=free, scarce=names.GPU_RESOURCE)
            pods_near[copy] = sum(most_that_fit(group=group, free=free) for group in groups)
        return pods_near

    def expected_nodes(self, obj: Object, *, scores: Mapping[str, int]) -> dict[str, int]:
        """How many of a job's pods that read data each node will get, by the scores that its extender gives."""
        return data_meeting.expected_nodes(
            groups=self._reading_pods(obj), free=self._room.free(), scores=scores, scarce=names.GPU_RESOURCE
        )

    def awaited_nodes(self, dataset: Key) -> frozenset[str]:
        """The nodes that those pods are expected on which read a Dataset, of the jobs that wait: those with room for
        them now."""
        jobs = [job for job in self._stores.jobs_reading(dataset).values() if stage_of(job) == "Waiting"]
        groups = [
            group
            for job in sorted(jobs, key=lambda job: str(job["metadata"].get("creationTimestamp", "")))
            for group in self._reading_pods(job)
        ]
        return frozenset(
            data_meeting.expected_nodes(
                groups=groups, free=self._room.free(), scores={}, scarce=names.GPU_RESOURCE
            )
            if groups
            else ()
        )

    def _reading_pods(self, obj: Object) -> list[PodGroup]:
        """The pods of a job that read data."""
        demand = self._demands.of(obj)
        if demand is None:
            return []
        replicas = self._collector.replicas(obj, demand)
        return [
            PodGroup(
                count=min(readers_of(demand.spec, role), replicas[role]),
                request=demand.requests[role],
                nodes=self._room.eligible(role_spec.template["spec"]),
            )
            for role, role_spec in demand.spec.by_role().items()
            if role in READING_ROLES
        ]

    def for_workers(self, obj: Object) -> dict[str, int]:
        """How many further workers of a job each node has room for that they may run on."""
        demand = self._demands.of(obj)
        if demand is None:
            return {}
        nodes = self._room.eligible(demand.spec.worker.template["spec"])
        request = demand.requests["Worker"]
        return {node: room_for(request=request, free=free) for node, free in self._room.free(nodes).items()}
