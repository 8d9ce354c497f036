"""The reader's metrics, read from its counters when they are asked for."""

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tdcs.api import names
from tdcs.node.reader.counters import Count, Counters

_PREFIX: Final = f"{names.METRICS_PREFIX}reader_"
_ORIGINS: Final = {
    "peer": Count.PEER_READS,
    "source": Count.SOURCE_READS,
    "disk": Count.DISK_READS,
    "buffer": Count.BUFFER_READS,
}
_LABELS: Final = ["cluster", "path", "version"]
_EVENTS: Final = {
    "errors": (Count.ERRORS, "Reads that failed because no agent and no source gave the bytes."),
    "stale": (Count.STALE, "Reads that failed because the source has another version of the file by now."),
    "stalls": (Count.STALLS, "Reads that took more than a second."),
    "refused": (
        Count.REFUSED,
        "Blocks, or answers of agents, that were not as the manifest says and were not used.",
    ),
    "overtaken": (
        Count.OVERTAKEN,
        "Questions to an agent that was silent, so that another one was asked as well.",
    ),
    "cross_zone_bytes": (
        Count.ZONE_BYTES,
        "Bytes that came from agents in other zones (label topology.kubernetes.io/zone), which most clouds charge for.",
    ),
    "ahead": (Count.AHEAD, "Pieces that were fetched before they were asked for."),
}


def registry_of(counters: Counters, *, versions: Mapping[int, tuple[str, str, str]]) -> CollectorRegistry:
    """A registry of the reader's metrics.

    Args:
        versions: cluster, path of the mount and digest, by the version's number; may change.
    """
    registry = CollectorRegistry()
    registry.register(ReaderCollector(counters, versions=versions))
    return registry


class ReaderCollector(Collector):
    def __init__(self, counters: Counters, *, versions: Mapping[int, tuple[str, str, str]]) -> None:
        self._counters: Final = counters
        self._versions: Final = versions

    def collect(self) -> Iterable[Metric]:
        get, versions = self._counters.get, dict(self._versions)
        reads = CounterMetricFamily(
            f"{_PREFIX}reads", "Reads answered, by origin.", labels=[*_LABELS, "origin"]
        )
        sent = CounterMetricFamily(
            f"{_PREFIX}read_bytes", "Bytes answered, by origin.", labels=[*_LABELS, "origin"]
        )
        seconds = CounterMetricFamily(
            f"{_PREFIX}read_seconds", "Seconds that reads waited, by origin.", labels=[*_LABELS, "origin"]
        )
        for number, labels in versions.items():
            for origin, first in _ORIGINS.items():
                reads.add_metric([*labels, origin], get(number, first))
                sent.add_metric([*labels, origin], get(number, Count(first + 1)))
                seconds.add_metric([*labels, origin], get(number, Count(first + 2)) / 1e9)
        yield from (reads, sent, seconds)
        for name, (count, text) in _EVENTS.items():
            family = CounterMetricFamily(f"{_PREFIX}{name}", text, labels=_LABELS)
            for number, labels in versions.items():
                family.add_metric(list(labels), get(number, count))
            yield family
        yield GaugeMetricFamily(
            f"{_PREFIX}buffer_bytes", "Bytes that were fetched and not read yet.", self._counters.buffered
        )
