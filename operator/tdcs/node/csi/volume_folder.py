"""An open folder that a volume shows, and why there may be none for now."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tdcs.node.csi import mountinfo

MOUNTED: Final = "see whether the condition Mounted of its Dataset is True: kubectl get datasets -A"
"""What to look at when the data is not in the cache."""


class SourceNotReadyError(Exception):
    """The folder cannot be mounted now, but may be in a while; the text says why and what to look at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """An open folder: `folder` is its descriptor (owned by the holder, see `close`), `shows` is what a
    mount of it shows.
    """

    folder: int
    shows: tuple[str, str]

    def close(self) -> None:
        """Give the descriptor back; mounts of the folder stay."""
        os.close(self.folder)


def shown(*, folder: int) -> tuple[str, str]:
    """Device and root that a mount of the open folder `folder` has in mountinfo."""
    information = Path(f"/proc/self/fdinfo/{folder}").read_text(encoding="ascii")
    identifier = next(int(line.split()[1]) for line in information.splitlines() if line.startswith("mnt_id:"))
    mounts = {mount.id: mount for mount in mountinfo.read()}
    if identifier not in mounts:
        raise SourceNotReadyError("the mount was taken away while its folder was being opened")
    mount = mounts[identifier]
    below = os.path.relpath(os.readlink(f"/proc/self/fd/{folder}"), mount.point)
    return mount.device, os.path.normpath(os.path.join(mount.root, below))
