"""An elastic job that gets more workers: its data is on the nodes that these will find before they are made.

Where they go is for the scheduler to say, which goes by the data: so the nodes with room for them are named to the
cache, as if pods read there already (`Usage.expect`), and the workers are made once the data is there. That is bounded:
data is a preference, and the queue has given these workers their room.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tdcs.api import names
from tdcs.api.dataset import Dataset
from tdcs.control.context import Context, Stores
from tdcs.control.job.queue.gang_queue import GangQueue
from tdcs.decide.job import elastic_growth, unplaced_pods
from tdcs.decide.job.elastic_growth import lacks, nodes_for, nodes_with_data
from tdcs.decide.job.observed_job import Observed
from tdcs.model.kube_objects import Key, Object

HOLD_SECONDS = 20.0
"""So long workers wait for their data at most; less than half of what pods have to find their places."""

GRACE_SECONDS = 5.0
"""So long it may take until the cache says that data comes to a node."""

LOOK_SECONDS = 0.5
"""So often it is looked whether it has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait:
    """Workers that wait for their data: how many there shall be, the nodes that they will find, since when."""

    workers: int
    nodes: tuple[str, ...]
    since: float


class GrowthHold:
    """Holds new workers of elastic jobs back until their data has come."""

    def __init__(
        self, *, context: Context, queue: GangQueue, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._context = context
        self._queue = queue
        self._clock = clock
        self._waits: dict[Key, _Wait] = {}

    def workers_now(self, obj: Object, observed: Observed, *, existing: int) -> int:
        """How many workers there may be now: those that were made, until the data of the further ones is there.

        Args:
            observed: what was observed, with the number of workers that the queue has admitted.
            existing: how many its Job makes already.
        """
        key, wanted_workers = (observed.namespace, observed.name), observed.replicas("Worker")
        if not elastic_growth.awaits_data(observed) or (
            wanted_workers <= existing and unplaced_pods.all_placed(observed)
        ):
            self.drop(key)
            return wanted_workers
        wait = self._waits.get(key)
        if wanted_workers <= existing:
            return wanted_workers  # they look for their places: the nodes stay named
        if wait is None or wait.workers != wanted_workers:
            nodes = self._nodes(obj, observed, count=wanted_workers - existing)
            wait = self._waits[key] = _Wait(workers=wanted_workers, nodes=nodes, since=self._clock())
            claims = [(observed.namespace, use.name) for use in observed.spec.datasets]
            self._context.stores.usage.expect(key, claims=claims, nodes=nodes)
        waited = self._clock() - wait.since
        if waited >= min(HOLD_SECONDS, self._queue.requeues.patience / 2):
            return wanted_workers
        lacks_data = any(
            lacks(
                dataset,
                nodes=wait.nodes,
                workers=_cache_nodes(self._context.stores, dataset),
                new=waited < GRACE_SECONDS,
            )
            for dataset in observed.datasets.values()
        )
        return existing if lacks_data else wanted_workers

    def is_held(self, key: Key, *, existing: int) -> bool:
        wait = self._waits.get(key)
        return wait is not None and existing < wait.workers

    def drop(self, key: Key) -> None:
        if self._waits.pop(key, None) is not None:
            self._context.stores.usage.expect(key, claims=(), nodes=())

    def _nodes(self, obj: Object, observed: Observed, *, count: int) -> tuple[str, ...]:
        """The nodes that so many more workers will find: those with their data before others."""
        return nodes_for(
            count,
            room=self._queue.job_room.for_workers(obj),
            holding=nodes_with_data(observed.datasets.values()),
        )


def _cache_nodes(stores: Stores, dataset: Dataset) -> Collection[str] | None:
    cluster = stores.cache_cluster(dataset.spec.cache_cluster_ref.name)
    if names.follows_jobs(cluster):
        return None
    workers = ((cluster or {}).get("status") or {}).get("workers") or ()
    return {str(worker.get("node")) for worker in workers if worker.get("state") == "Ready"}
