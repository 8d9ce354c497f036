"""Where the views of a node are, and how long things are kept."""

from dataclasses import dataclass
from pathlib import Path

import click

from tdcs.api import names
from tdcs.options import certificates, node_name, option


@dataclass(frozen=True, kw_only=True)
class ViewSettings:
    """Where views are, and how long things are kept."""

    node: str = node_name()
    cache_root: Path = option(
        "Folder with one folder of blocks, and of views, for each cache cluster.",
        default=Path(names.CACHE_ROOT),
        env="TDCS_CACHE_ROOT",
    )
    kubelet: Path = option(
        "kubelet's folder.", default=Path("/var/lib/kubelet"), env="TDCS_KUBELET_ROOT", chart="csi.kubeletDir"
    )
    proc: Path | None = option(
        "The host's /proc. With it the bytes of blocks that the cache gives up are freed while pods use them, if "
        "every pod can read them remotely.",
        default=None,
    )
    manifest_address: str | None = option(
        "HOST:PORT where the operator serves manifests, and says what is mounted. Without it what is on the disk "
        "must do.",
        default=None,
        flag="--manifests",
        env="TDCS_MANIFESTS",
    )
    trust: Path | None = certificates()
    reader_root: Path = option(
        "Folder of the node's remote-read client, `tdcs reader`, through which is read what is not on the node.",
        default=Path(names.READER_ROOT),
        env="TDCS_READER",
    )
    overlays: bool = option(
        "Pods read what is on the node from its disk, by overlays (Linux 6.5 or newer). Else they read all files "
        "through the remote-read client.",
        default=True,
    )
    answer_seconds: float = option(
        "Seconds that the remote-read client, or the operator, may take to answer a small question.",
        default=10.0,
        type=click.FloatRange(min=0.1, max=100),
        flag="--answer",
    )

    fresh_seconds: float = 5.0
    """The operator is not asked for the version of a dataset again within this time."""

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
