"""What has to change in a view. Pure.

A view shows each file of a version in one of three forms: as an empty file, as a hard link to the block that
holds it, or as a symbolic link to the FUSE client's file. The plan brings what is there to what shall be there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from tdcs.csi.views.manifest import Kind


class Form(IntEnum):
    """How a view shows a file."""

    MISSING = 0
    EMPTY = 1
    SYMLINK = 2
    LINK = 3


@dataclass(frozen=True, slots=True)
class Step:
    """Give the file `index` the form `form`; `fresh` when nothing of its name is there yet."""

    index: int
    form: Form
    fresh: bool


def plan(
    *, kinds: Sequence[int], forms: Sequence[int], linked: Sequence[int], local: Sequence[int], release: bool
) -> Iterator[Step]:
    """The steps that are needed, in the order of the files; none when all is as it shall be.

    Args:
        kinds: A `Kind` for each file.
        forms: The `Form` that each file has in the view now.
        linked: Inode of the block that each file links to, where its form is LINK.
        local: Inode of the file's block in the worker's folder, 0 where it is not on this node.
        release: Whether a link to a block that the worker has given up turns back into a symbolic link, which frees
            its bytes. Otherwise the link stays and keeps them.
    """
    for index, kind in enumerate(kinds):
        form = forms[index]
        here = local[index]
        if form == Form.LINK and linked[index] == here and kind == Kind.BLOCK:
            continue
        wanted = _wanted(kind=kind, form=form, here=bool(here), release=release)
        # A block that was removed and loaded again is another file: the old one would be kept twice.
        if wanted != form or (wanted == Form.LINK and here and linked[index] != here):
            yield Step(index=index, form=wanted, fresh=form == Form.MISSING)


def _wanted(*, kind: int, form: int, here: bool, release: bool) -> Form:
    if kind == Kind.EMPTY:
        return Form.EMPTY
    if kind == Kind.BLOCK and (here or (form == Form.LINK and not release)):
        return Form.LINK
    return Form.SYMLINK


def is_native(*, forms: Sequence[int]) -> bool:
    """Whether no file needs the FUSE client."""
    return not any(form in (Form.MISSING, Form.SYMLINK) for form in forms)
