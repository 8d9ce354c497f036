"""The folder tree of a view on the disk: reads which form each file has, and changes it.

Every change is one `rename` (or one creation), so a reader sees the old or the new form and never nothing. All
paths are bytes: names are the source's, whatever they are.
"""

import errno
import os
import stat
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tdcs.csi.views.manifest import Kind, Manifest
from tdcs.csi.views.plan import Form, Step
from tdcs.csi.views.store import Store
from tdcs.csi.views.way import TARGET, Way
from tdcs.engine.alluxio.name_encoding import for_alluxio

FOLDER_MODE: Final = 0o555
FILE_MODE: Final = 0o444


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of some steps: how many have each form now, and the blocks that have a wrong length."""

    linked: int = 0
    symlinked: int = 0
    wrong_length: tuple[int, ...] = ()


class Tree:
    """A view's tree in `folder`, with `scratch` beside it in the same mount for files on their way."""

    def __init__(self, *, folder: str, scratch: str, manifest: Manifest, store: Store) -> None:
        self.folder: Final = os.fsencode(folder)
        self._scratch: Final = os.path.join(os.fsencode(scratch), b"new")
        self._manifest: Final = manifest
        self._store: Final = store
        self._way_folder: Final = manifest.way_folder or b""
        self.way: Final = Way(
            folder=os.fsdecode(os.path.join(self.folder, self._way_folder)).rstrip("/"), scratch=scratch
        )
        self.forms: Final = bytearray(len(manifest))
        self.linked: Final = array("Q", bytes(8 * len(manifest)))

    def prepare(self) -> None:
        """Make the folders that are missing and learn the form of each file that is there."""
        os.makedirs(os.path.dirname(self._scratch), mode=0o700, exist_ok=True)
        _unlink(self._scratch)
        for number, folder in enumerate(self._manifest.folders):
            path = os.path.join(self.folder, folder) if folder else self.folder
            try:
                os.mkdir(path)
            except FileExistsError:
                self._learn(number=number, path=path)
            else:
                os.chmod(path, FOLDER_MODE)

    def _learn(self, *, number: int, path: bytes) -> None:
        below = self._manifest.in_folder(number)
        with os.scandir(path) as entries:
            present = {entry.name: (entry.is_symlink(), entry.inode()) for entry in entries}
        for index in below:
            found = present.get(self._manifest.name(index))
            if found is None:
                continue
            is_symlink, inode = found
            if is_symlink:
                self.forms[index] = Form.SYMLINK
            elif self._manifest.kinds[index] == Kind.EMPTY:
                self.forms[index] = Form.EMPTY
            else:
                self.forms[index] = Form.LINK
                self.linked[index] = inode

    def apply(self, steps: Iterable[Step]) -> Outcome:
        """Take the steps; a link whose block has gone, or is not as long as its file, becomes a symbolic link.

        Raises OSError when the disk does not take it (full, read-only); what was done until then stays.
        """
        steps = list(steps)
        _unlink(self._scratch)  # left by a change that failed half-way
        linked = symlinked = 0
        wrong: list[int] = []
        entries = self._manifest.entries(step.index for step in steps)
        for step, (index, folder, name) in zip(steps, entries, strict=True):
            path = os.path.join(self.folder, folder, name)
            form = step.form
            if form is Form.LINK:
                length = self._link(index=index, path=path, fresh=step.fresh)
                if length != self._manifest.lengths[index]:
                    if length is not None:
                        wrong.append(self._manifest.blocks[index])
                    if self.forms[index] == Form.SYMLINK:
                        continue
                    form = Form.SYMLINK
                else:
                    linked += 1
            if form is Form.SYMLINK:
                depth = folder.count(b"/") + 1 if folder else 0
                there = os.fsencode(for_alluxio(os.fsdecode(os.path.join(folder, name))))
                way = os.path.join(self._way_folder, os.fsencode(TARGET))
                os.symlink(b"../" * depth + os.path.join(way, there), self._scratch)
                os.rename(self._scratch, path)
                symlinked += 1
            elif form is Form.EMPTY:
                os.close(os.open(self._scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE))
                os.chmod(self._scratch, FILE_MODE)
                os.rename(self._scratch, path)
            self.forms[index] = form
        return Outcome(linked=linked, symlinked=symlinked, wrong_length=tuple(wrong))

    def _link(self, *, index: int, path: bytes, fresh: bool) -> int | None:
        """Link the block's file if its length is right; the length found, None when there is no block."""
        block = self._store.block(self._manifest.blocks[index])
        try:
            found = os.stat(block, follow_symlinks=False)
            if not stat.S_ISREG(found.st_mode):
                return None
            if found.st_size != self._manifest.lengths[index]:
                return found.st_size
            if stat.S_IMODE(found.st_mode) != FILE_MODE:
                os.chmod(block, FILE_MODE)  # the worker makes it writable by everyone
            if fresh:
                os.link(block, path, follow_symlinks=False)
            else:
                os.link(block, self._scratch, follow_symlinks=False)
                os.rename(self._scratch, path)
        except OSError as error:
            # Gone meanwhile, or seen through another mount than the tree: to be read through the client.
            if error.errno in (errno.ENOENT, errno.EXDEV):
                return None
            raise
        self.linked[index] = found.st_ino
        return found.st_size


def _unlink(path: bytes) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
