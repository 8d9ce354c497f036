"""Where the views of a node lie, and how long things are kept."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class ViewSettings:
    """Where views lie, and how long things are kept."""

    node: str
    """Name of the Kubernetes node."""

    cache_root: Path
    """Folder with one tier's folder for each cache cluster."""

    fuse_root: Path
    """Folder with one FUSE mount point for each cache cluster."""

    kubelet: Path
    """kubelet's folder: what is mounted below it, pods use."""

    proc: Path | None = None
    """The host's /proc, in which the pods' processes are; None when the plugin has only its own."""

    manifest_address: str | None = None
    """`host:port` where the operator serves manifests; without it they come from the agent, or from a listing."""

    trust: Path | None = None
    """Folder with the node's certificate, which the operator knows it by; None: it is asked by plain HTTP."""

    reader_root: Path | None = None
    """The remote-read client's folder; None: what is not on the node is read through Alluxio's FUSE client."""

    overlays: bool = True
    """With the reader: pods are given overlays of plain files, where kernel and disk can show them."""

    answer_seconds: float = 10.0
    """How long the FUSE client, or the master, may take to answer a small question."""

    fresh_seconds: float = 5.0
    """The master is not asked for the files of a dataset again within this time."""

    watch_seconds: float = 2.0
    """Pause between two questions to the masters whether datasets have changed."""

    tick_seconds: float = 0.5
    """Pause between two looks at mounts and blocks."""

    keep_unused_seconds: float = 600.0
    """How long a view that no pod uses is kept for the next one."""

    keep_old_seconds: float = 30.0
    """The same for a version that is not the current one any more."""

    keep_gateway_seconds: float = 30.0
    """How long the gateway to the FUSE client stays in a view that does not need it any more: a reader may be on it."""

    keep_overlay_seconds: float = 10.0
    """How long the overlay of a view that no pod uses stays mounted: until then its folder cannot be removed."""

    blind_seconds: float = 600.0
    """Pause between two trials whether every pod of a view sees what is mounted in it: `.tdcs` shows briefly."""

    tidy_seconds: float = 30.0
    """Pause between two looks for what can be removed."""
