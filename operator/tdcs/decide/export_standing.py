"""Does Alluxio know of all that is cached: the condition Exported of a CacheCluster."""

import math
from typing import Final

from tdcs.api import names
from tdcs.api.conditions import EXPORTING, MASTER_AWAY, MASTER_FULL, Finding, finding
from tdcs.model.export_view import ExportView

_AGAIN: Final = 0.95
"""A master that was full has room again below this part of what its heap has room for: agents fill it up meanwhile."""

_GIB: Final = 1 << 30

_GOES_ON: Final = "Loading, reading, jobs, scaling and drains go on without it"


def exported(
    view: ExportView | None, *, known: str, patience: float, files: int, master: str
) -> Finding | None:
    """The condition; None where nothing new can be said.

    Args:
        view: what the master said last; None while it was not asked.
        known: the condition's reason in the status; empty for none.
        patience: seconds for which a master may be silent, as in a restart.
        files: of all Datasets of the CacheCluster.
        master: the name of its pod.
    """
    if view is None:
        return None
    if view.silent_since is not None:
        if view.silent_seconds < patience:
            return None
        text = (
            f"Alluxio's master does not answer ({view.failure}): Alluxio's own clients read nothing, and nothing "
            f"further is exported to them. {_GOES_ON}, and once it is back everything is exported by itself. See pod "
            f"{master}"
        )
        return finding(names.EXPORTED, False, MASTER_AWAY, text)
    if not view.share or (known == MASTER_FULL and view.paths > view.most * _AGAIN):
        text = (
            f"Alluxio's own clients see part of the {files} files of this cache's Datasets: the heap of Alluxio's "
            f"master has room for {view.most} files and folders. {_GOES_ON}. To export all of them, set "
            f"spec.master.jvmOptions to [-Xmx{_heap_gib(view, files)}g]"
        )
        return finding(names.EXPORTED, False, MASTER_FULL, text)
    text = "Alluxio's master answers, and is told of each file that is whole on a node"
    return finding(names.EXPORTED, True, EXPORTING, text)


def _heap_gib(view: ExportView, files: int) -> int:
    """A heap that has room for so many files, and half as many again for their folders and what comes, and is larger
    than today's."""
    needed = view.heap_bytes * files * 1.5 / max(view.most, 1)
    return max(math.ceil(needed / _GIB), view.heap_bytes // _GIB + 1)
