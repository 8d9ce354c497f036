"""The operator: live views, a work queue, one controller a kind; kopf runs it (`kopf_adapter`).

Whatever is observed comes from informers, which notice deletions in a gap. No event is handled where it arrives: it
names the objects that may have to change, and the queue hands those out one by one.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from tdcs.control.cache_registry import Caches, ClusterObjects
from tdcs.control.cachecluster.cachecluster_controller import CacheClusterController
from tdcs.control.context import Context, Settings, WorkKey
from tdcs.control.dataset.access.cluster_networks import ClusterNetworks
from tdcs.control.dataset.cached_data import CachedData
from tdcs.control.dataset.dataset_controller import DatasetController
from tdcs.control.dataset.mount.all_mounts import World
from tdcs.control.job.job_controller import TrainingJobController
from tdcs.control.job.queue.gang_queue import GangQueue
from tdcs.control.job.stalled_reads import DataStalls
from tdcs.control.job_index import indexed
from tdcs.control.kueue.datacheck_controller import KueueChecks
from tdcs.control.node_usage import BOUND_AND_UNENDED, OF_NO_JOB, PodAddresses, Usage, trimmed
from tdcs.control.operator.admitters import Admitters
from tdcs.control.operator.event_handlers import ClaimUse, EventHandlers
from tdcs.control.operator.informers import OWN_KINDS, empty_views, informers_of, stores_of
from tdcs.control.operator.operator_health import STARTING, StaleError
from tdcs.control.operator.startup import patiently, until_synced
from tdcs.control.operator_metrics import OperatorMetrics
from tdcs.control.preload_controller import PreloadController
from tdcs.control.release_certificates import Certificates
from tdcs.engine.holder_service import KnownAgents, Topology
from tdcs.engine.read_reports import ReadWaits
from tdcs.kube.api import KubeApi
from tdcs.kube.apply import Applier
from tdcs.kube.errors import ConflictError, KubeError, UnavailableError
from tdcs.kube.events import EventRecorder, utc_now
from tdcs.kube.informer_set import InformerSet
from tdcs.kube.lease import Lease, LeaseLostError
from tdcs.kube.queue import KeyedQueue
from tdcs.model.kube_objects import Key, Object
from tdcs.model.kube_resources import (
    CACHE_CLUSTERS,
    DATASETS,
    PODS,
    PRELOADS,
    TRAINING_JOBS,
    Resource,
)
from tdcs.model.nearness import Place, level_of_zones, place_of

_log = logging.getLogger(__name__)

PASSES_AT_ONCE: Mapping[Resource, int] = MappingProxyType(
    {CACHE_CLUSTERS: 2, DATASETS: 8, PRELOADS: 4, TRAINING_JOBS: 4}
)
"""How many passes over objects of a kind go on at a time; slow ones of one kind do not hold up the others."""

STALE_SECONDS = 180.0
"""A view that has heard nothing for so long is not to be trusted: the server sends a bookmark a minute."""

QUEUE_LIMIT_SECONDS = 300.0
"""A key that waited so long means that no pass ends any more."""

REST_SECONDS = 0.1
"""Between two passes over one object: a first change is worked on at once, those behind it together."""

SCHEDULE_LIMIT_SECONDS = 120.0
"""Changes that wait so long for a pass over the queue of jobs mean that none succeeds any more."""


class Operator:
    """Everything but kopf: can be run, fed and stopped by a test just as well.

    Args:
        caches: makes what gives the cache of a cache cluster, by what this operator sees; closed by `stop`.
        settings: names and rhythms.
        lease: work begins once this process holds it, and ends when it is lost; without one it begins at once.
        on_lease_lost: called then, once nothing is worked on any more; the process must end or be replaced.
        lease_losses: how often that has happened before, for the metrics.
        earlier_failures: what the processes before this one counted, for the metrics.
        certificates: of the release; None: there are none.
    """

    def __init__(
        self,
        *,
        api: KubeApi,
        caches: Callable[[ClusterObjects], Caches],
        settings: Settings,
        lease: Lease | None = None,
        on_lease_lost: Callable[[], None] = lambda: None,
        lease_losses: int = 0,
        earlier_failures: Mapping[str, int] | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        self._lease = lease
        self._certificates = certificates
        self._on_lease_lost = on_lease_lost
        self._working = False
        self._starting = True
        self._tasks: list[asyncio.Task[None]] = []
        self._workers: list[asyncio.Task[None]] = []
        # What is known of the cluster, and the queue of what is to be looked at.
        self._views = views = empty_views()
        queue: KeyedQueue[WorkKey] = KeyedQueue(lane=lambda key: key.resource, rest=REST_SECONDS)
        claims = ClaimUse(views=views, queue=queue, namespace=settings.namespace)
        usage, pod_addresses = Usage(on_claim=claims.changed), PodAddresses()
        stores = stores_of(
            views=views, namespace=settings.namespace, usage=usage, pod_addresses=pod_addresses
        )
        self.context = Context(
            api=api,
            applier=Applier(api=api),
            recorder=EventRecorder(api=api, component="tdcs-operator", now=utc_now),
            caches=caches(stores),
            stores=stores,
            queue=queue,
            settings=settings,
            certificates=certificates,
        )
        # What brings changes, and the queue of jobs that they wake.
        self.metrics = OperatorMetrics(lease_losses=lease_losses, earlier_failures=earlier_failures)
        self._gangs = GangQueue.by(settings, stores=stores, queue=queue, metrics=self.metrics)
        other_pods: dict[Key, Object] = {}
        self._handlers = EventHandlers(
            views=views,
            queue=queue,
            namespace=settings.namespace,
            gangs=self._gangs,
            usage=usage,
            pod_addresses=pod_addresses,
            other_pods=other_pods,
        )
        self._informers = informers_of(api=api, settings=settings, views=views, handlers=self._handlers)
        # Of all namespaces, whatever is served: with the pods of jobs, what nodes have left, and who mounts a claim.
        self._other_pods = InformerSet(
            api=api,
            resource=PODS,
            labels=OF_NO_JOB,
            fields=BOUND_AND_UNENDED,
            keep=trimmed,
            store=other_pods,
            on_change=self._handlers.on_other_pod,
        )
        self._cluster_networks = ClusterNetworks(api=api, settings=settings, nodes=stores.nodes)
        # What works on an object of each kind.
        self.data_stalls = DataStalls(queue=queue)
        mounts = World(context=self.context, jobs=self._gangs, clock=time.monotonic)
        self._cached_data = CachedData(world=mounts)
        self._observer = mounts.observer
        self._datasets = DatasetController(
            context=self.context, world=mounts, networks=self._cluster_networks
        )
        self._passes = self._passes_by_kind()
        self.metrics.show(
            stores=stores,
            queue=queue,
            schedule_overdue_seconds=self._gangs.overdue_seconds,
            certificates=certificates.ends if certificates is not None else lambda: (),
            source_rates=self._cached_data.source_rates,
        )

    def _passes_by_kind(self) -> Mapping[Resource, Callable[[WorkKey], Awaitable[float | None]]]:
        """What a pass over an object of each kind is; it gives the seconds until the next one."""
        return {
            CACHE_CLUSTERS: CacheClusterController(
                context=self.context, data=self._cached_data, observer=self._observer
            ).reconcile,
            DATASETS: self._datasets.reconcile,
            PRELOADS: PreloadController(context=self.context, data=self._cached_data).reconcile,
            TRAINING_JOBS: TrainingJobController(
                context=self.context,
                gangs=self._gangs,
                admitter=Admitters(context=self.context, gangs=self._gangs),
                stalls=self.data_stalls,
            ).reconcile,
        }

    async def start(self) -> None:
        """Fill the views, then begin to work, or wait for the lease: with full views, so that it begins at once.

        An API server that is away, or that has not learned of this process' rights yet, is waited for.

        Raises:
            KubeError: it refuses a view for `SYNC_SECONDS`: waiting does not help.
        """
        # All of them: a pass without a kind in view would report as missing what has merely not been listed yet.
        informers = [*self._informers.values(), self._other_pods]
        self._tasks = [asyncio.create_task(informer.run()) for informer in informers]
        await until_synced(informers)
        await patiently(self._cluster_networks.read)
        self._tasks.append(asyncio.create_task(self._cluster_networks.follow()))
        self._starting = False
        if self._lease is None:
            self._begin_work()
        else:
            self._tasks.append(asyncio.create_task(self._lead(self._lease)))

    async def stop(self) -> None:
        """Stop working; what is half done is found and finished by the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._gangs.close()
        self.context.queue.close()
        await self._datasets.close()
        if self._lease is not None:
            await self._lease.release()  # after the last write
        await self.context.caches.close()
        await self.context.api.close()

    async def obtain(self, digest: str) -> None:
        """Have a manifest that a node asks for; see `CachedData.obtain`."""
        await self._cached_data.obtain(digest)

    def known_agents(self, cluster: str) -> KnownAgents:
        """The agents of a cache cluster, of which readers learn who holds what; none of an unknown one."""
        return self._observer.known_agents(cluster)

    @property
    def topology(self) -> Topology:
        """Where nodes are, by the labels that the settings name."""
        keys, nodes = self.context.settings.topology_labels, self.context.stores.nodes

        def place(node: str) -> Place:
            return place_of(((nodes.get(("", node)) or {}).get("metadata") or {}).get("labels"), keys)

        return Topology(place=place, zone=level_of_zones(keys))

    def take_waits(self, waits: ReadWaits) -> bool:
        """Take how long reads of pods waited; whether this operator does: one that stands by writes no status."""
        if self._working:
            self.data_stalls.take(waits)
        return self._working

    def health(self) -> Mapping[str, object]:
        """What the health endpoint reports.

        Raises:
            StaleError: a view is stale, the queue does not move, or a part has ended: the process should be restarted.
        """
        for task in self._tasks:
            if task.done() and not task.cancelled() and (defect := task.exception()) is not None:
                raise StaleError(f"a part of the operator was ended by a defect: {defect!r}") from defect
        for resource, informer in (*self._informers.items(), (PODS, self._other_pods)):
            # An API server that is away is no reason for a restart, which would not find it either.
            age = informer.silent_seconds()
            if age > STALE_SECONDS:
                raise StaleError(f"nothing was heard about {resource.plural} for {age:.0f} s")
        oldest = self.context.queue.oldest_age()
        standing_by = self._lease is not None and not self._working
        if oldest > QUEUE_LIMIT_SECONDS and not standing_by:
            raise StaleError(f"the oldest change has waited for {oldest:.0f} s")
        overdue = self._gangs.overdue_seconds()
        if overdue > SCHEDULE_LIMIT_SECONDS:
            raise StaleError(f"the queue of TrainingJobs has stood still for {overdue:.0f} s: see the log")
        queued = len(self.context.queue)
        return {
            STARTING: self._starting,
            "standingBy": standing_by,
            "queued": queued,
            "oldestSeconds": round(oldest, 1),
        }

    def _begin_work(self) -> None:
        self._working = True
        self._gangs.start()
        first_look = asyncio.create_task(self._look_at_certificates())
        self._workers = [
            first_look,
            *(
                asyncio.create_task(self._work(resource, first_look))
                for resource, count in PASSES_AT_ONCE.items()
                for _ in range(count)
            ),
            asyncio.create_task(self._resync()),
        ]
        if self.context.settings.kueue:
            checks = KueueChecks(context=self.context, on_workload=self._handlers.on_workload)
            self._workers.append(asyncio.create_task(checks.run()))
        if self._certificates is not None:
            self._workers.append(asyncio.create_task(self._certificates.keep()))
        self._tasks += self._workers

    async def _look_at_certificates(self) -> None:
        if self._certificates is not None:
            await self._certificates.refresh()

    async def _lead(self, lease: Lease) -> None:
        await lease.acquire()
        self._begin_work()
        try:
            await lease.keep()
        except LeaseLostError as error:
            _log.critical("%s; this process stops all work, so that two never work at a time", error)
            self._working = False
            self._gangs.close()
            for worker in self._workers:
                worker.cancel()
            self._on_lease_lost()

    async def _work(self, resource: Resource, first_look: asyncio.Task[None]) -> None:
        queue = self.context.queue
        # Without a certificate no cache can be asked, which would be said of every Dataset.
        await asyncio.wait([first_look])
        while True:
            key = await queue.get(lane=resource)
            failed = False
            try:
                with self.metrics.timed(kind=key.resource.kind):
                    again = await self._passes[key.resource](key)
                if again is not None:
                    queue.add_after(key, again)
            except (ConflictError, UnavailableError) as error:
                failed = True
                _log.info("%s: %s; it is tried again", key, error)
            except KubeError as error:
                failed = True
                _log.warning("%s: %s; it is tried again", key, error)
            except Exception:
                # A defect met with one object must not stop the work on all others.
                failed = True
                _log.exception("%s: the pass failed by a defect of the operator; it is tried again", key)
            finally:
                queue.done(key, failed=failed)

    async def _resync(self) -> None:
        """Look at every object now and then, whatever was missed; spread, so that it is no burst."""
        period = self.context.settings.resync_seconds
        while True:
            await asyncio.sleep(period)
            for resource in OWN_KINDS:
                view = self._views[resource]
                for namespace, name in indexed(view).live if resource is TRAINING_JOBS else view:
                    key = WorkKey(resource, namespace, name)
                    self.context.queue.add_after(key, random.uniform(0, period / 2))  # noqa: S311
            await self._datasets.sweep()  # where no Dataset is left, no pass of one does it
