"""Where the views of a node lie, and how long things are kept."""

from dataclasses import dataclass
from pathlib import Path

from tdcs.api import names


@dataclass(frozen=True, kw_only=True)
class ViewSettings:
    """Where views lie, and how long things are kept."""

    node: str
    """Name of the Kubernetes node."""

    cache_root: Path
    """Folder with one tier's folder for each cache cluster."""

    kubelet: Path
    """kubelet's folder: what is mounted below it, pods use."""

    proc: Path | None = None
    """The host's /proc, in which the pods' processes are; None when the plugin has only its own."""

    manifest_address: str | None = None
    """`host:port` where the operator serves manifests; without it they come from the agent, or from a listing."""

    trust: Path | None = None
    """Folder with the node's certificate, which the operator knows it by; None: it is asked by plain HTTP."""

    reader_root: Path = Path(names.READER_ROOT)
    """The folder of the remote-read client, through which is read what is not on the node."""

    overlays: bool = True
    """Pods are given overlays of what is on the node, where kernel and disk can show them; else the client's tree."""

    answer_seconds: float = 10.0
    """How long the remote-read client, or the master, may take to answer a small question."""

    fresh_seconds: float = 5.0
    """The master is not asked for the files of a dataset again within this time."""

    tick_seconds: float = 0.5
    """Pause between two looks at mounts and blocks."""

    keep_unused_seconds: float = 600.0
    """How long a view that no pod uses is kept for the next one."""

    keep_old_seconds: float = 30.0
    """The same for a version that is not the current one any more."""

    keep_shown_seconds: float = 10.0
    """How long what is shown of a view that no pod uses stays mounted: until then its folder cannot be removed."""

    blind_seconds: float = 600.0
    """Pause between two trials whether every pod of a view sees what is mounted over it."""

    tidy_seconds: float = 30.0
    """Pause between two looks for what can be removed."""
