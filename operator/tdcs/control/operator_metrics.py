"""What the operator reports to Prometheus: its own work, and the state of its objects.

The state is read from the live views at each scrape, so it costs nothing between scrapes and is never out of step with
`kubectl get`.
"""

import datetime
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tdcs.api.names import CLONE_COPY, METRICS_PREFIX
from tdcs.control.context import Store, Stores
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

Ends = Callable[[], Sequence[tuple[str, str, datetime.datetime]]]
"""Every certificate: its Secret, its role, and when it ends."""


class Metrics:
    """The metrics of one operator, in a registry of their own.

    Args:
        lease_losses: how often the Lease was lost before, since the container started.
    """

    def __init__(self, *, lease_losses: int = 0) -> None:
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
        Counter(
            f"{_PREFIX}_lease_losses",
            "How often this operator lost its Lease and began anew, since its container started.",
            registry=self.registry,
        ).inc(lease_losses)

    def show(
        self,
        *,
        stores: Stores,
        queued: Callable[[], float],
        oldest_seconds: Callable[[], float],
        schedule_overdue_seconds: Callable[[], float],
        certificates: Ends = lambda: (),
        source_rates: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """Have the state of the operator's parts read at each scrape; call it once.

        Args:
            queued: how many objects wait for a pass.
            oldest_seconds: how long the first of them has waited.
            schedule_overdue_seconds: how long changes have waited for a pass over the queue of jobs.
            certificates: when each of the release's certificates ends.
            source_rates: the measured rates of stores, in bytes a second.
        """
        for name, text, read in (
            ("queued", "Objects that wait for a pass.", queued),
            ("oldest_seconds", "How long the object that waits longest has waited.", oldest_seconds),
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

    @contextmanager
    def timed(self, *, kind: str) -> Iterator[None]:
        # Before it fails: Prometheus' rate() sees no step from a series that is not there to 1.
        failures = self._failures.labels(kind)
        begin = time.perf_counter()
        try:
            yield
        except Exception:
            failures.inc()
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
            raise
        finally:
            self._schedules.observe(time.perf_counter() - begin)


class _Certificates(Collector):
    """When certificates end."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            f"{METRICS_PREFIX}certificate_expiry_seconds",
            "Seconds until a certificate ends, below 0 when it has; the operator's own has no Secret.",
            labels=_CERTIFICATE,
        )
        now = datetime.datetime.now(datetime.UTC)
        for secret, role, end in list(self._ends()):
            family.add_metric((secret, role), (end - now).total_seconds())
        yield family


class _SourceRates(Collector):
    """The measured rates of stores, as a gauge."""

    def __init__(self, rates: Callable[[], Mapping[str, float]]) -> None:
        self._rates = rates

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            f"{METRICS_PREFIX}source_measured_bytes_per_second",
            "Bytes a second that a store gave to all loads together when it was last measured; none where "
            "spec.source.bandwidth declares it.",
            labels=("store",),
        )
        for store, rate in self._rates().items():
            family.add_metric((store,), rate)
        yield family


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
        ):
            yield _numbers(f"dataset_{name}", text, labels=_DATASET, objects=datasets, field=field)
        for field, name, text in (
            ("activeJobs", "active_jobs", "TrainingJobs that read it."),
            ("waitingJobs", "waiting_jobs", "TrainingJobs that wait, for it or for anything else."),
        ):
            yield _numbers(f"dataset_{name}", text, labels=_DATASET, objects=datasets, field=field)
        granted = GaugeMetricFamily(
            f"{METRICS_PREFIX}dataset_granted_bytes",
            "Bytes of all copies that it may have in the cache.",
            labels=_DATASET,
        )
        for obj in datasets:
            if grant := _status(obj).get("grant"):
                granted.add_metric(_names(obj), float(grant.get("bytes", 0)))
        yield granted
        copies = GaugeMetricFamily(
            f"{METRICS_PREFIX}dataset_copies",
            "Copies by kind: spec (those of spec.placement.copies), clone (further ones for jobs that would wait).",
            labels=(*_DATASET, "kind"),
        )
        for obj in filter(_status, datasets):
            found = [str(copy.get("id", "")) for copy in _status(obj).get("copies") or ()]
            clones = sum(one.startswith(CLONE_COPY) for one in found)
            copies.add_metric((*_names(obj), "spec"), float(len(found) - clones))
            copies.add_metric((*_names(obj), "clone"), float(clones))
        yield copies
        checked = GaugeMetricFamily(
            f"{METRICS_PREFIX}dataset_source_checked_timestamp_seconds",
            "Seconds since 1970 of the last reported list of the source; one without news is reported hourly.",
            labels=_DATASET,
        )
        for obj in datasets:
            if when := _status(obj).get("lastSourceCheckTime"):
                checked.add_metric(_names(obj), datetime.datetime.fromisoformat(when).timestamp())
        yield checked
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
        family = GaugeMetricFamily(
            f"{METRICS_PREFIX}trainingjob_locality",
            "1: no pod of the job could be closer to its data.",
            labels=_JOB,
        )
        for obj in jobs:
            if "locality" in _status(obj):
                family.add_metric(_names(obj), float(_status(obj)["locality"]))
        yield family
        waits = GaugeMetricFamily(
            f"{METRICS_PREFIX}trainingjob_read_wait_seconds",
            "Seconds in which reads of the job waited, summed over its pods, by what for: source, peer, disk.",
            labels=(*_JOB, "origin"),
        )
        observed = GaugeMetricFamily(
            f"{METRICS_PREFIX}trainingjob_read_observed_seconds",
            "Seconds in which the job's pods were observed for that.",
            labels=_JOB,
        )
        for obj in jobs:
            stall = _status(obj).get("dataStall")
            if stall:
                observed.add_metric(_names(obj), float(stall.get("observedSeconds", 0)))
                for origin in ("source", "peer", "disk"):
                    if f"{origin}Seconds" in stall:
                        waits.add_metric((*_names(obj), origin), float(stall[f"{origin}Seconds"]))
        yield waits
        yield observed

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
            family = GaugeMetricFamily(f"{METRICS_PREFIX}cachecluster_{name}", text, labels=_CLUSTER)
            for obj in clusters:
                if field in _status(obj):
                    family.add_metric((obj["metadata"]["name"],), float(_status(obj)[field]))
            yield family
        for field, name, text in (
            ("capacityBytes", "capacity_bytes", "Bytes that a cache worker may hold."),
            ("usedBytes", "used_bytes", "Bytes that a cache worker holds."),
        ):
            family = GaugeMetricFamily(f"{METRICS_PREFIX}worker_{name}", text, labels=_WORKER)
            for cluster, worker in _each_worker(clusters):
                family.add_metric((cluster, worker["node"]), float(worker.get(field, 0)))
            yield family
        ready = GaugeMetricFamily(
            f"{METRICS_PREFIX}worker_ready", "1: the cache worker serves; 0: it does not.", labels=_WORKER
        )
        for cluster, worker in _each_worker(clusters):
            ready.add_metric((cluster, worker["node"]), float(worker.get("state") == "Ready"))
        yield ready


def _numbers(
    name: str, text: str, *, labels: tuple[str, ...], objects: list[Object], field: str
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{METRICS_PREFIX}{name}", text, labels=labels)
    for obj in objects:
        if field in _status(obj):
            family.add_metric(_names(obj), float(_status(obj)[field]))
    return family


def _state(kind: str, labels: tuple[str, ...], objects: list[Object]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        f"{METRICS_PREFIX}{kind}_state",
        "1 for the state that kubectl get shows.",
        labels=(*labels, "state"),
    )
    for obj in objects:
        if state := _status(obj).get("state"):
            family.add_metric((*_names(obj), state), 1.0)
    return family


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
