"""What the operator reports to Prometheus: its own work, and the state of its objects.

The state is read from the live views at each scrape, so it costs nothing between scrapes and is never out of step with
`kubectl get`.
"""

import datetime
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tdcs.api.names import ADMITTED, CLONE_COPY, DATA_READY, METRICS_PREFIX, QUEUED
from tdcs.control.context import Store, Stores, WorkKey
from tdcs.kube.queue import KeyedQueue
from tdcs.model.kube_objects import Object

# Seconds: a pass that only looks takes milliseconds, one that waits for the cache or the API server a few seconds.
_BUCKETS: Final = (0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 30.0)

_PREFIX: Final = f"{METRICS_PREFIX}operator"

_DATASET: Final = ("namespace", "dataset")
_PRELOAD: Final = ("namespace", "preload")
_JOB: Final = ("namespace", "trainingjob")
_CLUSTER: Final = ("cachecluster",)
_WORKER: Final = ("cachecluster", "node")
_CERTIFICATE: Final = ("secret", "role")

_SCHEDULE: Final = "queue"
"""Among kinds, for the passes over the queue of jobs."""

Ends = Callable[[], Sequence[tuple[str, str, datetime.datetime]]]
"""Every certificate: its Secret, its role, and when it ends."""


class OperatorMetrics:
    """The metrics of one operator, in a registry of their own.

    Args:
        lease_losses: how often the Lease was lost before, since the container started.
        earlier_failures: what `failures` of the process before this one, which lost its Lease, gave.
    """

    def __init__(self, *, lease_losses: int = 0, earlier_failures: Mapping[str, int] | None = None) -> None:
        self._counted = dict(earlier_failures or {})
        self.registry: Final = CollectorRegistry()
        self._passes = Histogram(
            f"{_PREFIX}_pass_seconds",
            "Time of one pass over an object, with what it changed, by kind.",
            ["kind"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._failures = Counter(
            f"{_PREFIX}_pass_failures",
            "Passes that failed and are tried again, by kind.",
            ["kind"],
            registry=self.registry,
        )
        self._schedules = Histogram(
            f"{_PREFIX}_schedule_seconds",
            "Time of one pass over the queue of TrainingJobs.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._schedule_failures = Counter(
            f"{_PREFIX}_schedule_failures",
            "Passes over the queue of TrainingJobs that failed by a defect and are tried again.",
            registry=self.registry,
        )
        for kind, count in self._counted.items():
            failures = self._schedule_failures if kind == _SCHEDULE else self._failures.labels(kind)
            failures.inc(count)
        Gauge(
            f"{_PREFIX}_start_timestamp_seconds",
            "Seconds since 1970 at which this process of the operator began.",
            registry=self.registry,
        ).set_to_current_time()
        Counter(
            f"{_PREFIX}_lease_losses",
            "How often this operator lost its Lease and began again, since its container started.",
            registry=self.registry,
        ).inc(lease_losses)

    def show(
        self,
        *,
        stores: Stores,
        queue: KeyedQueue[WorkKey],
        schedule_overdue_seconds: Callable[[], float],
        certificates: Ends = lambda: (),
        source_rates: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """Have the state of the operator's parts read at each scrape; call it once.

        Args:
            queue: of the objects that wait for a pass.
            schedule_overdue_seconds: how long changes have waited for a pass over the queue of jobs.
            certificates: when each of the release's certificates ends.
            source_rates: the measured rates of stores, in bytes a second.
        """
        for name, text, read in (
            ("queued", "Objects that wait for a pass.", queue.__len__),
            ("oldest_seconds", "How long the object that waits longest has waited.", queue.oldest_age),
            (
                "schedule_overdue_seconds",
                "How long changes have waited for a pass over the queue of TrainingJobs that succeeds.",
                schedule_overdue_seconds,
            ),
        ):
            Gauge(f"{_PREFIX}_{name}", text, registry=self.registry).set_function(read)
        self.registry.register(_States(stores))
        self.registry.register(_Certificates(certificates))
        self.registry.register(_SourceRates(source_rates))

    def failures(self) -> dict[str, int]:
        """The failed passes so far, for a process that takes this one's place: by kind, and of the queue."""
        return dict(self._counted)

    @contextmanager
    def timed(self, *, kind: str) -> Iterator[None]:
        # Before it fails: Prometheus' rate() sees no step from a series that is not there to 1.
        failures = self._failures.labels(kind)
        begin = time.perf_counter()
        try:
            yield
        except Exception:
            failures.inc()
            self._counted[kind] = self._counted.get(kind, 0) + 1
            raise
        finally:
            self._passes.labels(kind).observe(time.perf_counter() - begin)

    @contextmanager
    def timed_schedule(self) -> Iterator[None]:
        """Measure one pass over the queue of jobs; one that raises counts as failed, too."""
        begin = time.perf_counter()
        try:
            yield
        except Exception:
            self._schedule_failures.inc()
            self._counted[_SCHEDULE] = self._counted.get(_SCHEDULE, 0) + 1
            raise
        finally:
            self._schedules.observe(time.perf_counter() - begin)


class _Certificates(Collector):
    def __init__(self, ends: Ends) -> None:
        self._ends = ends

    def collect(self) -> Iterator[GaugeMetricFamily]:
        now = datetime.datetime.now(datetime.UTC)
        yield _gauge(
            "certificate_expiry_seconds",
            "Seconds until a certificate ends, below 0 when it has; the operator's own has no Secret.",
            _CERTIFICATE,
            (((secret, role), (end - now).total_seconds()) for secret, role, end in list(self._ends())),
        )


class _SourceRates(Collector):
    """The measured rates of stores, as a gauge."""

    def __init__(self, rates: Callable[[], Mapping[str, float]]) -> None:
        self._rates = rates

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield _gauge(
            "source_measured_bytes_per_second",
            "Bytes a second that a store gave to all loads together when it was last measured; none where "
            "spec.source.bandwidth declares it.",
            ("store",),
            (((store,), rate) for store, rate in self._rates().items()),
        )


class _States(Collector):
    """The statuses of all objects, as gauges."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield from self._datasets(_copy(self._stores.datasets))
        yield from self._preloads(_copy(self._stores.preloads))
        yield from self._jobs(_copy(self._stores.training_jobs))
        yield from self._workers(_copy(self._stores.cache_clusters))

    @staticmethod
    def _datasets(datasets: list[Object]) -> Iterator[GaugeMetricFamily]:
        for field, name, text in (
            ("totalBytes", "total_bytes", "Bytes at the source."),
            ("cachedBytes", "cached_bytes", "Bytes on any cache node, each counted once."),
            ("physicalBytes", "physical_bytes", "Bytes on cache nodes, every copy counted."),
            ("wantedBytes", "wanted_bytes", "Bytes that are wanted on cache nodes, every copy counted."),
            ("loadedBytes", "loaded_bytes", "Of these, bytes on the nodes that shall hold them."),
            (
                "bytesPerSecond",
                "load_bytes_per_second",
                "Bytes a second that its load reads from the source; 0 when there is none.",
            ),
            (
                "sourceBandwidth",
                "source_bandwidth_bytes_per_second",
                "Bytes a second that its loads may read from the source: their share of what is declared or measured.",
            ),
            (
                "copiedBytesPerSecond",
                "copy_bytes_per_second",
                "Bytes a second that nodes copy from each other for it; 0 when they do not.",
            ),
            ("activeJobs", "active_jobs", "TrainingJobs that read it."),
            ("waitingJobs", "waiting_jobs", "TrainingJobs that wait, for it or for anything else."),
        ):
            yield _numbers(f"dataset_{name}", text, labels=_DATASET, objects=datasets, field=field)
        grants = ((obj, _status(obj).get("grant")) for obj in datasets)
        yield _gauge(
            "dataset_granted_bytes",
            "Bytes of all copies that it may have in the cache.",
            _DATASET,
            ((_names(obj), grant.get("bytes", 0)) for obj, grant in grants if grant),
        )
        yield _gauge(
            "dataset_copies",
            "Copies by kind: spec (those of spec.placement.copies), clone (further ones for jobs that would wait).",
            (*_DATASET, "kind"),
            (copy for obj in filter(_status, datasets) for copy in _copies(obj)),
        )
        times = ((obj, _status(obj).get("lastSourceCheckTime")) for obj in datasets)
        yield _gauge(
            "dataset_source_checked_timestamp_seconds",
            "Seconds since 1970 of the last reported list of the source; one without news is reported hourly.",
            _DATASET,
            ((_names(obj), datetime.datetime.fromisoformat(when).timestamp()) for obj, when in times if when),
        )
        yield _state("dataset", _DATASET, datasets)

    @staticmethod
    def _preloads(preloads: list[Object]) -> Iterator[GaugeMetricFamily]:
        for field, name, text in (
            ("bytesTotal", "total_bytes", "Bytes that it shall bring, every copy counted."),
            ("bytesDone", "done_bytes", "Of these, bytes on their nodes."),
            (
                "bytesPerSecond",
                "load_bytes_per_second",
                "Bytes a second that its load reads from the source, or did when it ended.",
            ),
            (
                "copiedBytesPerSecond",
                "copy_bytes_per_second",
                "Bytes a second that nodes copy from each other for it, or did when it ended.",
            ),
        ):
            yield _numbers(f"preload_{name}", text, labels=_PRELOAD, objects=preloads, field=field)
        yield _state("preload", _PRELOAD, preloads)

    @staticmethod
    def _jobs(jobs: list[Object]) -> Iterator[GaugeMetricFamily]:
        yield _state("trainingjob", _JOB, jobs)
        yield _numbers(
            "trainingjob_locality",
            "1: no pod of the job could be closer to its data.",
            labels=_JOB,
            objects=jobs,
            field="locality",
        )
        # From 0 on: Prometheus sees no step from a series that is not there to 1.
        looked_at = [(_names(obj), _status(obj)) for obj in jobs if _status(obj)]
        yield _gauge(
            "trainingjob_restarts",
            "How often all pods of the job were restarted.",
            _JOB,
            ((job, status.get("restarts", 0)) for job, status in looked_at),
        )
        yield _gauge(
            "trainingjob_give_backs",
            "How often the job has given room or workers back since all of its pods ran last.",
            _JOB,
            ((job, (status.get("queue") or {}).get("attempts", 0)) for job, status in looked_at),
        )
        yield _gauge(
            "trainingjob_waiting_since_timestamp_seconds",
            "Seconds since 1970 since when the job waits for its turn, its data being ready; none while it does not.",
            _JOB,
            ((_names(obj), since) for obj in jobs if (since := _waiting_since(obj)) is not None),
        )
        stalls = [(_names(obj), stall) for obj in jobs if (stall := _status(obj).get("dataStall"))]
        yield _gauge(
            "trainingjob_read_wait_seconds",
            "Seconds in which reads of the job waited, summed over its pods, by what for: source, peer, disk.",
            (*_JOB, "origin"),
            (
                ((*job, origin), stall[f"{origin}Seconds"])
                for job, stall in stalls
                for origin in ("source", "peer", "disk")
                if f"{origin}Seconds" in stall
            ),
        )
        yield _gauge(
            "trainingjob_read_observed_seconds",
            "Seconds in which the job's pods were observed for that.",
            _JOB,
            ((job, stall.get("observedSeconds", 0)) for job, stall in stalls),
        )
        for name, field, text in (
            (
                "loop_seconds",
                "loopSeconds",
                "Seconds in which training loops of the job were watched, over processes.",
            ),
            (
                "loop_wait_seconds",
                "loopWaitSeconds",
                "Of those, seconds in which they waited for their next batch.",
            ),
        ):
            values = ((job, stall[field]) for job, stall in stalls if stall.get(field) is not None)
            yield _gauge(f"trainingjob_{name}", text, _JOB, values)

    @staticmethod
    def _workers(clusters: list[Object]) -> Iterator[GaugeMetricFamily]:
        for field, name, text in (
            (
                "wantedBytes",
                "wanted_bytes",
                "Bytes of data that is read, waited for, pinned or before its time, each wanted copy counted.",
            ),
            (
                "capacityBytes",
                "capacity_bytes",
                "Bytes that all workers may hold, those that drain left out.",
            ),
            ("usedBytes", "used_bytes", "Bytes that all workers hold, those that drain left out."),
            ("desiredReplicas", "desired_workers", "Workers that there shall be."),
        ):
            yield _gauge(
                f"cachecluster_{name}",
                text,
                _CLUSTER,
                (
                    ((obj["metadata"]["name"],), _status(obj)[field])
                    for obj in clusters
                    if field in _status(obj)
                ),
            )
        workers = [((cluster, worker["node"]), worker) for cluster, worker in _each_worker(clusters)]
        for field, name, text in (
            ("capacityBytes", "capacity_bytes", "Bytes that a cache worker may hold."),
            ("usedBytes", "used_bytes", "Bytes that a cache worker holds."),
        ):
            yield _gauge(
                f"worker_{name}", text, _WORKER, ((where, worker.get(field, 0)) for where, worker in workers)
            )
        yield _gauge(
            "worker_ready",
            "1: the cache worker serves; 0: it does not.",
            _WORKER,
            ((where, worker.get("state") == "Ready") for where, worker in workers),
        )


def _gauge(
    name: str, text: str, labels: tuple[str, ...], values: Iterable[tuple[tuple[str, ...], float]]
) -> GaugeMetricFamily:
    """A gauge with a value for each of these values of its labels."""
    family = GaugeMetricFamily(f"{METRICS_PREFIX}{name}", text, labels=labels)
    for where, value in values:
        family.add_metric(where, float(value))
    return family


def _numbers(
    name: str, text: str, *, labels: tuple[str, ...], objects: list[Object], field: str
) -> GaugeMetricFamily:
    values = ((_names(obj), _status(obj)[field]) for obj in objects if field in _status(obj))
    return _gauge(name, text, labels, values)


def _state(kind: str, labels: tuple[str, ...], objects: list[Object]) -> GaugeMetricFamily:
    states = ((_names(obj), _status(obj).get("state")) for obj in objects)
    return _gauge(
        f"{kind}_state",
        "1 for the state that kubectl get shows.",
        (*labels, "state"),
        (((*name, state), 1.0) for name, state in states if state),
    )


def _copies(obj: Object) -> Iterator[tuple[tuple[str, ...], float]]:
    copies = [str(copy.get("id", "")) for copy in _status(obj).get("copies") or ()]
    clones = sum(copy.startswith(CLONE_COPY) for copy in copies)
    yield (*_names(obj), "spec"), len(copies) - clones
    yield (*_names(obj), "clone"), clones


def _waiting_since(job: Object) -> float | None:
    """Since when a job waits that does not run: of one that was never admitted since its data was ready, else since it
    queued again."""
    conditions = {condition.get("type"): condition for condition in _status(job).get("conditions") or ()}
    queued, data = conditions.get(QUEUED, {}), conditions.get(DATA_READY, {})
    if queued.get("status") != "True" or conditions.get(ADMITTED, {}).get("status") == "True":
        return None
    begins = data if not _status(job).get("startTime") and data.get("status") == "True" else queued
    return datetime.datetime.fromisoformat(begins["lastTransitionTime"]).timestamp()


def _copy(store: Store) -> list[Object]:
    # The scrape runs in a thread of its own, the views change in the operator's: work on a snapshot.
    return list(store.values())


def _status(obj: Object) -> Object:
    return obj.get("status") or {}


def _names(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _each_worker(clusters: list[Object]) -> Iterator[tuple[str, Object]]:
    for cluster in clusters:
        for worker in _status(cluster).get("workers") or ():
            yield cluster["metadata"]["name"], worker
