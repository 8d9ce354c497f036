"""Whether the pods that are shown a view see what is mounted inside it.

What is mounted after a container has begun reaches it only if its volumeMount has mountPropagation HostToContainer.
kubelet does not tell the plugin which has; the containers' own lists of mounts do.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tdcs.node.csi import mountinfo


def is_blind(
    *, mounts: Iterable[mountinfo.Mount], view: tuple[str, str], inside: str, shown: tuple[str, str]
) -> bool:
    """Whether somebody is shown a view without what is mounted in it. Pure.

    Args:
        mounts: All that is mounted in a mount namespace.
        view: What a mount of the view shows.
        inside: Path of the mount point, relative to the view.
        shown: What must be shown there.
    """
    found = list(mounts)
    device, root = view
    return any(
        # A part of the view alone (subPath) does not have its gateway.
        mount.root.startswith(f"{root}/") or not _has(found, point=f"{mount.point}/{inside}", shown=shown)
        for mount in found
        if mount.device == device and f"{mount.root}/".startswith(f"{root}/")
    )


def all_see(*, proc: Path, view: tuple[str, str], inside: str, shown: tuple[str, str]) -> bool:
    """Whether everybody on the node who is shown the view also sees what is mounted in it.

    Args:
        proc: The host's /proc: that of the plugin's own processes does not have the pods.
    """
    return not any(
        is_blind(mounts=mounts, view=view, inside=inside, shown=shown) for mounts in namespaces(proc)
    )


def _has(mounts: list[mountinfo.Mount], *, point: str, shown: tuple[str, str]) -> bool:
    top = mountinfo.top(mounts=mounts, point=point)
    return top is not None and top.shows == shown


def namespaces(proc: Path) -> Iterator[list[mountinfo.Mount]]:
    """The mounts of each mount namespace that has a process."""
    seen = set()
    for entry in os.scandir(proc):
        if not entry.name.isdigit():
            continue
        try:
            # One with a root of its own sees a part of its namespace only.
            namespace = os.readlink(f"{entry.path}/ns/mnt"), os.readlink(f"{entry.path}/root")
            if namespace in seen:
                continue
            with open(f"{entry.path}/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
                mounts = mountinfo.parse(lines=lines)
        except OSError:
            continue  # it has ended meanwhile
        seen.add(namespace)
        yield mounts
