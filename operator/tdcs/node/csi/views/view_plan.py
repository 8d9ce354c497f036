"""What has to change in a view.

A view has each file of a version in one of three forms: as an empty file, as a hard link to what holds all of it, or as
a placeholder of a file that is read through the remote-read client. The plan brings what is there to what shall be
there.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from tdcs.model.manifest import Manifest

Kinds = npt.NDArray[np.uint8]
Inodes = npt.NDArray[np.uint64]


class FileKind(IntEnum):
    """What a file can be in a view."""

    EMPTY = 0
    """It has no bytes, so there is no block."""
    BLOCK = 1
    """One block holds all of it: the block's file can be linked."""
    PARTS = 2
    """Several blocks, or not all are known. Where the store has a file of its own for all of them that can be linked;
    otherwise only the remote-read client can put them together."""
    CLIENT = 3
    """It is read through the remote-read client, whatever is here."""


class Form(IntEnum):
    MISSING = 0
    EMPTY = 1
    REMOTE = 2
    """Its bytes come through the client."""
    LINK = 3
    OTHER = 4
    """Something is there that this version has not put there, such as a symbolic link to another place."""


@dataclass(frozen=True, slots=True, eq=False)
class PlannedBlocks:
    """What of a version's files is on this node.

    Attributes:
        local: Inode of what holds all of each file, 0 where that is not here or some of it is refused.
        wrong: Files with a block that the agent has refused: no view may have a link to any copy of it.
        doubtful: Whether the agent has not looked yet at what a loss of power may have damaged: only links to what is
            in `local` are kept.
    """

    local: Inodes
    wrong: npt.NDArray[np.int64]
    doubtful: bool = False

    @classmethod
    def none(cls, files: int, *, doubtful: bool = False) -> "PlannedBlocks":
        return cls(np.zeros(files, dtype=np.uint64), np.zeros(0, dtype=np.int64), doubtful)


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Give each of `files` the form of `forms` at its place, and whether nothing of its name is there yet (`fresh`)."""

    files: npt.NDArray[np.int64]
    forms: npt.NDArray[np.uint8]
    fresh: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.files)

    def part(self, begin: int, end: int) -> "Steps":
        return Steps(self.files[begin:end], self.forms[begin:end], self.fresh[begin:end])


def kinds_of(manifest: Manifest) -> Kinds:
    counts = np.diff(manifest.block_ends, prepend=np.uint32(0))
    kinds = np.full(len(manifest), FileKind.PARTS, dtype=np.uint8)
    kinds[(counts == 0) & (manifest.lengths == 0)] = FileKind.EMPTY
    kinds[counts == 1] = FileKind.BLOCK
    return kinds


def plan(
    *, kinds: Kinds, forms: npt.NDArray[np.uint8], linked: Inodes, blocks: PlannedBlocks, release: bool
) -> Steps:
    """The steps that are needed, in the order of the files; none when all is as it shall be.

    Args:
        kinds: A `Kind` for each file.
        forms: The `Form` that each file has in the view now.
        linked: Inode of the block that each file links to, where its form is LINK.
        blocks: What of the files is on this node.
        release: Whether a link to a block that has left the node turns back into a way to the client, which frees
            its bytes. Otherwise the link stays and keeps them.
    """
    local = blocks.local
    is_local = local != 0
    is_link = forms == Form.LINK
    keeps = not (release or blocks.doubtful)
    kept_links = is_link.copy() if keeps else np.zeros(len(kinds), dtype=np.bool_)
    kept_links[blocks.wrong] = False
    target_forms = np.full(len(kinds), Form.REMOTE, dtype=np.uint8)
    target_forms[((kinds == FileKind.BLOCK) | (kinds == FileKind.PARTS)) & (is_local | kept_links)] = (
        Form.LINK
    )
    target_forms[kinds == FileKind.EMPTY] = Form.EMPTY
    # A block that was removed and loaded again is another file: the old one would be kept twice.
    replaced = (target_forms == Form.LINK) & is_local & (linked != local)
    files = np.flatnonzero((target_forms != forms) | replaced)
    return Steps(files=files, forms=target_forms[files], fresh=forms[files] == Form.MISSING)


def is_native(*, forms: npt.NDArray[np.uint8]) -> bool:
    return bool(((forms == Form.LINK) | (forms == Form.EMPTY)).all())
