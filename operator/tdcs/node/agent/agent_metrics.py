"""The agent's metrics, read from what it knows when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tdcs.api import names
from tdcs.model.agent_state import FailureCode

if TYPE_CHECKING:
    from tdcs.node.agent.agent import Agent


def registry_of(agent: Agent, *, sent_bytes: Callable[[], int] = int) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(AgentCollector(agent, sent_bytes=sent_bytes))
    return registry


class AgentCollector(Collector):
    def __init__(self, agent: Agent, *, sent_bytes: Callable[[], int]) -> None:
        self._agent = agent
        self._sent_bytes = sent_bytes

    def collect(self) -> Iterable[Metric]:
        state = self._agent.state
        mounts = list(state.mounts.values())
        prefix = f"{names.METRICS_PREFIX}agent_"
        yield GaugeMetricFamily(
            f"{prefix}capacity_bytes", "Bytes of blocks that this node may hold.", state.capacity_bytes
        )
        yield GaugeMetricFamily(
            f"{prefix}used_bytes",
            "Bytes of blocks on this disk, those that only native views keep alive included.",
            state.used_bytes,
        )
        yield GaugeMetricFamily(
            f"{prefix}kept_bytes", "Bytes of blocks that only native views keep alive.", state.kept_bytes
        )
        yield GaugeMetricFamily(
            f"{prefix}held_bytes",
            "Bytes of blocks of assigned mounts on this disk.",
            sum(mount.held_bytes for mount in mounts),
        )
        failed = GaugeMetricFamily(
            f"{prefix}failed_files",
            "Files that cannot be had for now, by the reason's code.",
            labels=["code"],
        )
        for code in get_args(FailureCode):
            failed.add_metric(
                [code], sum(mount.failures[code].files for mount in mounts if code in mount.failures)
            )
        yield failed
        yield GaugeMetricFamily(
            f"{prefix}sources_away",
            "Mounts with a source that gives this agent no answer.",
            sum(mount.source_away for mount in mounts),
        )
        windows = [mount.source.window for mount in list(self._agent.mounts.values())]
        yield GaugeMetricFamily(
            f"{prefix}source_window",
            "Requests that sources may be asked at a time: stores that throttle narrow it.",
            sum(window.size for window in windows),
        )
        yield CounterMetricFamily(
            f"{prefix}source_refusals",
            "Requests that got no answer from a source, or one that asks for patience (429, 503).",
            sum(window.refusals for window in windows),
        )
        yield CounterMetricFamily(
            f"{prefix}source_bytes", "Bytes read from sources.", sum(mount.source_bytes for mount in mounts)
        )
        yield CounterMetricFamily(
            f"{prefix}peer_bytes",
            "Bytes received from other agents.",
            sum(mount.peer_bytes for mount in mounts),
        )
        yield CounterMetricFamily(
            f"{prefix}cross_zone_bytes",
            "Bytes of these that came from other zones (label topology.kubernetes.io/zone), which most clouds charge "
            "for.",
            sum(mount.cross_zone_bytes for mount in mounts),
        )
        yield CounterMetricFamily(
            f"{prefix}sent_bytes", "Bytes sent to other agents and readers.", self._sent_bytes()
        )
        yield CounterMetricFamily(
            f"{prefix}removed_blocks", "Blocks that were removed.", self._agent.dropper.dropped
        )
