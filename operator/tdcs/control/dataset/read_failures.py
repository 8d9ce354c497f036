"""Files that a node could read from nowhere, as events of their Datasets."""

import time
from collections.abc import Callable
from typing import Final

from tdcs.api import names
from tdcs.control.context import Context
from tdcs.engine.read_reports import ReadFailure

PAUSE_SECONDS: Final = 30.0
"""Between two events about one mount: one file that is gone is seldom alone."""

_LONGEST: Final = 300


class ReadFailures:
    """Takes reports of the nodes' remote-read clients. Without certificates every pod that reaches the operator can
    send one: it makes an event of a Dataset that exists, twice a minute at most, and nothing else.
    """

    def __init__(self, context: Context, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._context: Final = context
        self._clock: Final = clock
        self._reported: dict[tuple[str, str], float] = {}

    async def report(self, failure: ReadFailure) -> None:
        """Make an event of it, if its mount has a Dataset and there was none a moment ago."""
        now, mount = self._clock(), (failure.cluster, failure.mount)
        self._reported = {key: at for key, at in self._reported.items() if now - at < PAUSE_SECONDS}
        datasets = [
            dataset
            for dataset in self._context.stores.datasets.values()
            if names.cache_cluster_of(dataset) == failure.cluster
            and (dataset.get("status") or {}).get("mountPath") == failure.mount
        ]
        if mount in self._reported or not datasets:
            return
        self._reported[mount] = now
        for dataset in datasets:
            await self._context.recorder.record(
                about=dataset, reason="ReadFailed", message=describe(failure), type_="Warning"
            )


def describe(failure: ReadFailure) -> str:
    where = f"file {failure.path[:_LONGEST]!r} cannot be read on node {failure.node[:_LONGEST]}"
    if failure.stale:
        return (
            f"{where}: the source has another version of it (ESTALE). Pods that are made once the change is noticed "
            "read that one: see spec.source.checkInterval"
        )
    return (
        f"{where}, from no agent and not from the source (EIO): {failure.reason[:_LONGEST]}. See the agents "
        "(kubectl get pods -A -l tdcs.io/component=worker), and whether the source is there"
    )
