"""What of every mount lies on which workers: for whoever decides over workers, and which of them leave. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tdcs.api import names
from tdcs.controllers.context import Store, WorkKey
from tdcs.controllers.dataset.data import MountedData


@dataclass(frozen=True, slots=True, kw_only=True)
class MountLedger:
    """What of one mount lies where, as it was last listed.

    Attributes:
        path: the engine path.
        readers: the Datasets that read it.
        held_by: bytes by the set of workers that hold them.
        leaving: the workers that it was planned without.
        live: the workers that were alive when it was planned.
        busy: whether something is still to be moved or loaded.
    """

    path: str
    readers: frozenset[WorkKey] = frozenset()
    held_by: Mapping[frozenset[str], int] = field(default_factory=dict)
    leaving: frozenset[str] = frozenset()
    live: frozenset[str] = frozenset()
    busy: bool = False

    def bytes_on(self, node: str) -> int:
        """Bytes that lie on a node, whether elsewhere too or not."""
        return sum(size for holders, size in self.held_by.items() if node in holders)

    def last_copies(self, *, node: str, leaving: frozenset[str]) -> int:
        """Bytes on a node that lie nowhere but on it and on others that leave."""
        gone = leaving | {node}
        return sum(size for holders, size in self.held_by.items() if node in holders and holders <= gone)


def ledgers(*, datas: Mapping[tuple[str, str], MountedData], cluster: str) -> list[MountLedger]:
    """The mounts of a cache cluster that somebody reads and that have been listed."""
    return [
        MountLedger(
            path=data.path,
            readers=frozenset(data.users),
            held_by=dict(data.survey.held_by),
            leaving=data.leaving,
            live=data.live,
            busy=bool(data.runs) or data.plan.missing,  # of what has ended a listing must show what it did
        )
        for (place, _), data in sorted(datas.items())
        if place == cluster and data.survey is not None and data.users
    ]


def expected_paths(*, datasets: Store, cluster: str) -> set[str]:
    """The mounts that a complete ledger of a cache cluster has: those of Datasets that are mounted, or of which
    something was cached when they were last looked at, for a master that is away has unmounted nothing.
    """
    return {
        str(status["mountPath"])
        for dataset in datasets.values()
        if (status := dataset.get("status") or {}).get("mountPath")
        and dataset.get("spec", {}).get("cacheCluster", names.DEFAULT_CACHE_CLUSTER) == cluster
        and not dataset["metadata"].get("deletionTimestamp")
        and (status.get("physicalBytes", 0) > 0 or _is_mounted(status.get("conditions") or ()))
    }


def leaving_nodes(*, cache_clusters: Store, cluster: str) -> frozenset[str]:
    """The nodes whose workers leave a cache cluster, as its status says."""
    status = cache_clusters.get(("", cluster), {}).get("status") or {}
    return frozenset(
        str(worker["node"]) for worker in status.get("workers") or () if worker.get("state") == "Draining"
    )


def _is_mounted(conditions: Iterable[Mapping[str, object]]) -> bool:
    return any(one.get("type") == names.MOUNTED and one.get("status") == "True" for one in conditions)
