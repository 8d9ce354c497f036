"""The node plugin's metrics, in Prometheus' text format."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tdcs.api import names
from tdcs.node.csi.views.view_report import ViewReport

_LABELS = ("cache_cluster", "path", "version")


def registry_of(*, reports: Callable[[], Iterable[ViewReport]]) -> CollectorRegistry:
    """The metrics of a node's views; `reports` is asked for them each time."""
    registry = CollectorRegistry()
    registry.register(_Views(reports))
    return registry


class _Views(Collector):
    def __init__(self, reports: Callable[[], Iterable[ViewReport]]) -> None:
        self._reports = reports

    def describe(self) -> Iterable[Metric]:
        """Nothing: what a registry asks for when this is registered, it would collect otherwise."""
        return []

    def collect(self) -> Iterable[Metric]:
        prefix = f"{names.METRICS_PREFIX}view"
        files = GaugeMetricFamily(
            f"{prefix}_files",
            "Files of a view by form: link is read from the node's disk, fuse through the remote-read client.",
            labels=(*_LABELS, "form"),
        )
        used = GaugeMetricFamily(f"{prefix}_used", "1 while a pod has the view mounted.", labels=_LABELS)
        kept_bytes = GaugeMetricFamily(
            f"{prefix}_kept_bytes",
            "Bytes on the node's disk that only the view still holds: the worker has given the blocks up, and does "
            "not count them any more.",
            labels=_LABELS,
        )
        age = GaugeMetricFamily(
            f"{prefix}_manifest_age_seconds",
            "Seconds since the operator was last seen to publish this version of the dataset.",
            labels=_LABELS,
        )
        repairs = CounterMetricFamily(
            f"{prefix}_repairs",
            "What had to be put right: relinked (a block was loaded again), released (a block was given up), refused "
            "(a block has a wrong length), rebound (the remote-read client's file system was replaced).",
            labels=(*_LABELS, "what"),
        )
        for report in self._reports():
            labels = [report.cluster, report.path, report.version]
            counts, done = report.counts, report.repairs
            for form, number in (
                ("link", counts.linked),
                ("fuse", counts.remote),
                ("empty", counts.empty),
            ):
                files.add_metric([*labels, form], number)
            used.add_metric(labels, int(report.used))
            kept_bytes.add_metric(labels, counts.kept_bytes)
            if report.manifest_age_seconds is not None:
                age.add_metric(labels, report.manifest_age_seconds)
            for repair, number in (
                ("relinked", done.relinked),
                ("released", done.released),
                ("refused", done.refused),
                ("rebound", done.rebound),
            ):
                repairs.add_metric([*labels, repair], number)
        return [files, used, kept_bytes, age, repairs]
