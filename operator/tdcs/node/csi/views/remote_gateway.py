"""Leads from a view to the files that are not on the node: the FUSE client's mount, below a folder that lists as empty.

Programs find their samples by walking folders, and they shall find the dataset's own entries only. So the gateway is a
folder `.tdcs` beside files (`gateway_folder`), and a walk that enters it, as root too, finds nothing:

    .tdcs             an overlay of two empty folders
    .tdcs/way         an entry that was removed below the overlay after something had been mounted on it: the kernel
                      keeps it for as long as the mount is there, and no listing has it
    .tdcs/way/data    where the FUSE client's folder of the dataset is mounted

Where the kernel has no overlays, `.tdcs` is a plain folder that only root can list.
"""

import contextlib
import errno
import itertools
import logging
import os
from typing import Final

from tdcs.engine.confined_path import plain_folder, set_mode
from tdcs.model.manifest import Manifest
from tdcs.node.csi import bind_mount, mountinfo

_log: Final = logging.getLogger(__name__)

HIDDEN: Final = ".tdcs"
"""The folder of a view that leads to what is not on the node."""
ENTRY: Final = "way"
DATA: Final = "data"
TARGET: Final = f"{HIDDEN}/{ENTRY}/{DATA}"
"""The FUSE client's mount as symbolic links name it, from the folder that holds `.tdcs`."""

_LISTED: Final = 0o555
_UNLISTED: Final = 0o111


def gateway_folder(manifest: Manifest) -> bytes | None:
    """The folder of a version that can hold HIDDEN with the least harm; None when each has an entry of that name.

    One with files and no folders, if there is one: programs take the folders of a folder for classes, and what
    lies between a class's files for files, of which they pick those with a known ending.
    """
    hidden = os.fsencode(HIDDEN)
    parents = {folder.rpartition(b"/")[0] for folder in manifest.folders if folder}
    taken = {
        folder.rpartition(b"/")[0] for folder in manifest.folders if folder.rpartition(b"/")[2] == hidden
    }

    def free(number: int, folder: bytes) -> bool:
        return (
            len(manifest.in_folder(number)) > 0
            and folder not in taken
            and hidden not in folder.split(b"/")
            and manifest.find(folder=number, name=hidden) is None
        )

    numbered = list(enumerate(manifest.folders))
    without_folders = (each for number, each in numbered if each not in parents and free(number, each))
    with_folders = (each for number, each in numbered if each in parents and free(number, each))
    return next(itertools.chain(without_folders, with_folders), None)


class RemoteGateway:
    """The gateway of one view.

    Args:
        folder: The folder of the tree that holds `.tdcs`.
        scratch: A folder outside the tree for what the overlay is made of.
    """

    def __init__(self, *, folder: str, scratch: str) -> None:
        self.hidden: Final = os.path.join(folder, HIDDEN)
        self._entry: Final = os.path.join(self.hidden, ENTRY)
        self.fuse: Final = os.path.join(self._entry, DATA)
        self._layers: Final = os.path.join(scratch, "veil")

    def make(self) -> None:
        """Make the mount point of the FUSE client. Asks nothing of what may be mounted there."""
        mounts = mountinfo.read()
        if mountinfo.top(mounts=mounts, point=self._entry) is not None:
            return
        if mountinfo.top(mounts=mounts, point=self.hidden) is not None:
            bind_mount.detach(target=self.hidden)  # left half-made
        _folder(self.hidden, mode=_LISTED)
        try:
            self._mount_overlay()
        except OSError as error:
            bind_mount.detach(target=self.hidden)
            _log.warning("%s cannot be an overlay (%s); root sees what is below it", self.hidden, error)
            _folder(self._entry, mode=_LISTED)
            _folder(self.fuse, mode=_LISTED)
            os.chmod(self.hidden, _UNLISTED)

    def _mount_overlay(self) -> None:
        shown, empty, pin = (os.path.join(self._layers, name) for name in ("shown", "empty", "pin"))
        removed = os.path.join(shown, ENTRY)
        with plain_folder(self._layers, make=True, mode=0o700):
            pass
        for path in (shown, empty, pin, removed, os.path.join(pin, DATA)):
            _folder(path, mode=_LISTED)
        with contextlib.ExitStack() as opened:
            layers = [_opened(path, opened) for path in (shown, empty)]
            # By descriptor: no link in the place of a folder leads the mount elsewhere.
            bind_mount.overlay(layers=layers, target=f"/proc/self/fd/{_opened(self.hidden, opened)}")
            bind_mount.attach(source=_opened(pin, opened), target=self._entry)
        os.rmdir(removed)

    def remove(self) -> None:
        """Remove it; the FUSE client may not be mounted there any more."""
        for point in (self._entry, self.hidden):
            bind_mount.detach(target=point)
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
    above, name = os.path.split(os.fsencode(path))
    with plain_folder(above) as folder, contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
        set_mode(folder, name, mode)


def _opened(path: str, stack: contextlib.ExitStack) -> int:
    return stack.enter_context(plain_folder(path))
