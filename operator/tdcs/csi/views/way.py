"""The way from a view to what is not on the node: the FUSE client's mount, below a folder that lists as empty.

Programs find their samples by walking folders, and they shall find the dataset's own entries only. So the way begins
with a folder `.tdcs` beside files (`Manifest.way_folder`), and a walk that enters it, as root too, finds nothing:

    .tdcs             an overlay of two empty folders
    .tdcs/way         an entry that was removed below the overlay after something had been mounted on it: the kernel
                      keeps it for as long as the mount is there, and no listing has it
    .tdcs/way/data    where the FUSE client's folder of the dataset is mounted

Where the kernel has no overlays, `.tdcs` is a plain folder that only root can list.
"""

import contextlib
import errno
import logging
import os
from typing import Final

from tdcs.csi import mount, mountinfo
from tdcs.csi.views.manifest import HIDDEN

_log: Final = logging.getLogger(__name__)

ENTRY: Final = "way"
DATA: Final = "data"
TARGET: Final = f"{HIDDEN}/{ENTRY}/{DATA}"
"""The FUSE client's mount as symbolic links name it, from the folder that holds `.tdcs`."""

_LISTED: Final = 0o555
_UNLISTED: Final = 0o111
_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Way:
    """The way of one view.

    Args:
        folder: The folder of the tree that holds `.tdcs`.
        scratch: A folder outside the tree for what the overlay is made of.
    """

    def __init__(self, *, folder: str, scratch: str) -> None:
        self.hidden: Final = os.path.join(folder, HIDDEN)
        self._entry: Final = os.path.join(self.hidden, ENTRY)
        self.fuse: Final = os.path.join(self._entry, DATA)
        self._veil: Final = os.path.join(scratch, "veil")

    def make(self) -> None:
        """Make the mount point of the FUSE client. Asks nothing of what may be mounted there."""
        mounts = mountinfo.read()
        if mountinfo.top(mounts=mounts, point=self._entry) is not None:
            return
        if mountinfo.top(mounts=mounts, point=self.hidden) is not None:
            mount.detach(target=self.hidden)  # left half-made
        _folder(self.hidden, mode=_LISTED)
        try:
            self._draw_veil()
        except OSError as error:
            mount.detach(target=self.hidden)
            _log.warning("%s cannot be an overlay (%s); root sees what is below it", self.hidden, error)
            _folder(self._entry, mode=_LISTED)
            _folder(self.fuse, mode=_LISTED)
            os.chmod(self.hidden, _UNLISTED)

    def _draw_veil(self) -> None:
        shown, empty, pin = (os.path.join(self._veil, name) for name in ("shown", "empty", "pin"))
        removed = os.path.join(shown, ENTRY)
        os.makedirs(self._veil, mode=0o700, exist_ok=True)
        for path in (shown, empty, pin, removed, os.path.join(pin, DATA)):
            _folder(path, mode=_LISTED)
        with contextlib.ExitStack() as opened:
            layers = [_opened(path, opened) for path in (shown, empty)]
            mount.overlay(layers=layers, target=self.hidden)
            mount.attach(source=_opened(pin, opened), target=self._entry)
        os.rmdir(removed)

    def remove(self) -> None:
        """Remove it; the FUSE client may not be mounted there any more."""
        for point in (self._entry, self.hidden):
            mount.detach(target=point)
        for folder in (self.fuse, self._entry, self.hidden):  # the first two only where there is no overlay
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                return  # something is mounted there after all


def _folder(path: str, *, mode: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
        os.chmod(path, mode)


def _opened(path: str, stack: contextlib.ExitStack) -> int:
    folder = os.open(path, _FOLDER)
    stack.callback(os.close, folder)
    return folder
