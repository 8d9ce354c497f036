"""What the rooms of other kinds ask of the mounts: what of them is where, and what is needed of a cache."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from tdcs.api import names
from tdcs.control.context import WorkKey
from tdcs.control.dataset.mount import mount_readers
from tdcs.control.dataset.mount.all_mounts import World
from tdcs.control.dataset.mount.mount_report import MountReport
from tdcs.decide.cache.removal_cost import MountLedger
from tdcs.listing.transfer import ManifestUnavailableError
from tdcs.model.cache_view import WantedBytes

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LastHolders:
    """The nodes with the last copies of a mount, and what they follow from."""

    report: MountReport
    leaving: frozenset[str]
    nodes: frozenset[str]


class CachedData:
    """Answers from what the passes over mounts have found; asks no cache and no API server itself.

    Args:
        world: the mounts of all cache clusters.
    """

    def __init__(self, *, world: World) -> None:
        self._world = world
        self._stores = world.context.stores
        self._last_holders: dict[str, Mapping[str, _LastHolders]] = {}

    def report_of(self, cluster: str, path: str) -> MountReport | None:
        """What the last pass over a mount found; None: there was none."""
        mount = self._world.find(cluster=cluster, path=path)
        return mount.report if mount is not None else None

    def ledgers(self, cluster: str) -> list[MountLedger[WorkKey]]:
        """What of every mount of a cache cluster is on which workers, as far as it is known."""
        ledgers = []
        for mount in sorted(self._world, key=lambda mount: mount.path):
            report = mount.report
            if mount.cluster != cluster or report is None:
                continue
            users = mount_readers.users_of(stores=self._stores, cluster=cluster, path=mount.path)
            moving = self._world.assigner(cluster).moving(mount.path, last_states=report.states)
            ledger = report.ledger(users, moving=moving)
            if users and ledger is not None:
                ledgers.append(ledger)
        return ledgers

    def needs(self, cluster: str) -> WantedBytes:
        """What the jobs of a cache cluster, and the owners of its data, need in it."""
        grants = self._world.manager.grants(cluster)
        return WantedBytes(
            bytes=sum(grants.needed.values()),
            complete=self._world.is_complete(cluster),
            pinned=grants.pinned,
            has_mounts=bool(grants.mounts),
        )

    def last_holders(
        self, cluster: str, *, leaving: frozenset[str], only_needed: bool
    ) -> tuple[frozenset[str], bool]:
        """The nodes with data that is on no staying one, and whether that is known of every mounted Dataset.

        Args:
            leaving: the nodes whose workers leave.
            only_needed: whether idle data does not count.
        """
        needed = self._world.manager.grants(cluster).needed
        previous = self._last_holders.get(cluster, {})
        holders: dict[str, _LastHolders] = {}
        complete = self._world.is_complete(cluster)
        cache_nodes = self._world.nodes_of(cluster)
        for mount in self._world:
            report = mount.report
            if mount.cluster != cluster or (only_needed and not needed.get(mount.path)):
                continue
            if report is None or report.decision is None:
                # Where agents have something of a version, its first decision tells what is nowhere else. What was
                # loaded before there is one counts nowhere.
                states = (
                    cache_nodes.agents[node].mounts[mount.path]
                    for node in cache_nodes.holders.get(mount.path, ())
                )
                complete = complete and all(state.early_files for state in states)
                continue
            before = previous.get(mount.path)
            holders[mount.path] = (
                before
                if before is not None and before.report is report and before.leaving == leaving
                else _LastHolders(report=report, leaving=leaving, nodes=report.last_holders(leaving=leaving))
            )
        self._last_holders[cluster] = holders
        nodes = frozenset[str]().union(*(holder.nodes for holder in holders.values()))
        return nodes, complete

    def readers_on(self, cluster: str) -> frozenset[str]:
        """The nodes on which pods mount data of a cache cluster."""
        datasets, usage = self._stores.datasets, self._stores.usage
        keys = (key for key, obj in datasets.items() if names.cache_cluster_of(obj) == cluster)
        return frozenset[str]().union(*(usage.nodes_of(key) for key in keys))

    def source_rates(self) -> Mapping[str, float]:
        """The measured rates of stores, in bytes a second."""
        return self._world.bandwidth.measured()

    async def obtain(self, digest: str) -> None:
        """Have a manifest that a node asks for; one that no agent gives either is made again by a listing."""
        try:
            await self._world.context.caches.obtain(digest, version=self._world.published(digest))
        except ManifestUnavailableError as error:
            _log.info("%s", error)
            self._world.wakes.manifest_lost(digest)
