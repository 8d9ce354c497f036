"""One mounted path of a cache, shared by all Datasets of one source, in parts that each look after one matter of it."""

import asyncio
from dataclasses import dataclass, field

from tdcs.control.context import WorkKey
from tdcs.control.dataset.mount.mount_report import LastPass, MountDecision, MountReport
from tdcs.control.dataset.mount.mounting import Mounting
from tdcs.control.dataset.mount.published_version import PublishedVersion
from tdcs.control.dataset.mount.source_versions import MountManifests
from tdcs.model.listing_limit import SourcesSize

Place = tuple[str, str]
"""Cache cluster and engine path."""


@dataclass(eq=False, slots=True, kw_only=True)
class Mount:
    """What is known of one mount between passes. All of it is found again after a restart.

    Attributes:
        mounting: that it is mounted, with the right keys.
        manifests: its versions.
        version: which of them node plugins hear of.
        lock: held by the pass that works on it.
        last: the last pass; only `reconcile` replaces it.
        users: the Datasets of the last pass; only the pass of a Dataset replaces them. What the mount says next is for
            them, whether their statuses, in which its path is written, have been seen or not.
        changes: how often something of it has changed next to its passes; only `World` counts.
        silent_since: since when passes find the cache silent; None while it answers. Only `reconcile` replaces it.
    """

    cluster: str
    path: str
    mounting: Mounting
    manifests: MountManifests
    version: PublishedVersion
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    last: LastPass | None = None
    users: frozenset[WorkKey] = frozenset()
    changes: int = 0
    silent_since: float | None = None

    @property
    def report(self) -> MountReport | None:
        """What the last pass found; None before one, and after it was mounted again: its blocks are others then."""
        last = self.last
        return last.report if last is not None and last.times == self.mounting.times else None

    @property
    def decision(self) -> MountDecision | None:
        return self.report.decision if self.report is not None else None

    @property
    def place(self) -> Place:
        return self.cluster, self.path

    @property
    def size(self) -> SourcesSize:
        """How large its source is: as it was listed, and before that as it was counted to be mounted."""
        return self.manifests.size or self.mounting.counted or SourcesSize()

    def reset(self) -> None:
        """It was mounted again: nothing that was known of its blocks holds any more."""
        self.manifests.reset()
        self.version.reset()

    async def close(self) -> None:
        await self.mounting.close()
        await self.manifests.close()
        await self.version.close()
