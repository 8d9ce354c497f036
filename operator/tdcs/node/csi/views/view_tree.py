"""The folder tree of a view on the disk: reads which form each file has, and changes it. Pods see it by an overlay.

Every change is one `rename` (or one creation), so a reader sees the old or the new form and never nothing. All
paths are bytes: names are the source's, whatever they are.
"""

import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from tdcs.engine.confined_path import open_beneath, plain_folder, set_mode
from tdcs.model.file_times import UNKNOWN_TIME, time_of
from tdcs.model.manifest import Manifest
from tdcs.node.csi.views.block_store import Store
from tdcs.node.csi.views.overlay import make_placeholder, placeholder_number
from tdcs.node.csi.views.view_plan import FileKind, Form, Inodes, Kinds, Steps, kinds_of
from tdcs.node.file_facts import is_other_file, is_whole_file

_SECOND: Final = 1_000_000_000

FOLDER_MODE: Final = 0o555
FILE_MODE: Final = 0o444

_NO_NAMES: Final = frozenset({b"", b".", b".."})

_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of some steps: how many have each form now, and the blocks that have a wrong length."""

    linked: int = 0
    remote: int = 0
    wrong_length: tuple[int, ...] = ()


class Tree:
    """A view's tree in `folder`, with `scratch` next to it in the same mount for files on their way.

    One thread at a time may change it. What is not here is a placeholder.

    Attributes:
        kinds: A `Kind` for each file.
        forms: The `Form` that each file has now.
        linked: Inode of the block that each file links to, where its form is LINK.
    """

    def __init__(self, *, folder: str, scratch: str, manifest: Manifest, store: Store) -> None:
        self.folder: Final = os.fsencode(folder)
        self._scratch: Final = os.fsencode(scratch)
        self._manifest: Final = manifest
        self._store: Final = store
        self.kinds: Final[Kinds] = kinds_of(manifest)
        self.forms: Final = np.zeros(len(manifest), dtype=np.uint8)
        self.linked: Final[Inodes] = np.zeros(len(manifest), dtype=np.uint64)

    def prepare(self) -> None:
        """Make the folders that are missing and learn the form of each file that is there."""
        with plain_folder(self._scratch, make=True, mode=0o700) as scratch, _listing(scratch) as listing:
            for entry in os.scandir(listing):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=listing)  # left by a process that was killed
        above, name = os.path.split(self.folder)
        with plain_folder(above, make=True) as parent:
            is_new = self._make(0, b"", parent=parent, name=name)
        with plain_folder(self.folder) as root:
            new = []
            for number, folder in enumerate(self._manifest.folders):
                if folder:
                    above, name = os.path.split(folder)
                    with _beneath(root, above) as parent:
                        if self._make(number, folder, parent=parent, name=name):
                            new += [folder, above]
                elif not is_new:
                    with _listing(root) as listing:
                        self._learn(number=number, listing=listing)
            for folder in {*new, *([b""] if is_new else [])}:
                with _beneath(root, folder) as changed:
                    _set_time(changed, b".", UNKNOWN_TIME)

    def _make(self, number: int, folder: bytes, *, parent: int, name: bytes) -> bool:
        """Make a folder, or learn what is in it, but for the root; whether it was made."""
        try:
            os.mkdir(name, dir_fd=parent)
        except FileExistsError:
            if folder:
                with _beneath(parent, name) as descriptor, _listing(descriptor) as listing:
                    self._learn(number=number, listing=listing)
            return False
        set_mode(parent, name, FOLDER_MODE)
        return True

    def _learn(self, *, number: int, listing: int) -> None:
        with os.scandir(listing) as entries:
            present = {os.fsencode(entry.name): entry for entry in entries}
        if not present:
            return
        files = self._manifest.in_folder(number)
        places = slice(files.start, files.stop)
        forms, linked = self.forms[places].tolist(), self.linked[places].tolist()
        lengths, kinds = self._manifest.lengths[places].tolist(), self.kinds[places].tolist()
        for place, (file, _, name) in enumerate(self._manifest.entries(files)):
            entry = present.get(name)
            if entry is None:
                continue
            forms[place] = form = _form(
                entry=entry, listing=listing, file=file, kind=kinds[place], length=lengths[place]
            )
            linked[place] = entry.inode() if form == Form.LINK else 0
        self.forms[places], self.linked[places] = forms, linked

    def apply(self, steps: Steps) -> Outcome:
        """Take the steps; a file is to be read through the client when its block has gone or has another length.

        Raises OSError when the disk does not take it (full, read-only); what was done until then stays.
        """
        linked = remote = 0
        wrong: list[int] = []
        with self._store.opened() as folders, _Writer(tree=self.folder, scratch=self._scratch) as writer:
            entries = self._manifest.entries(steps.files.tolist())
            lengths = self._manifest.lengths[steps.files].tolist()
            plan = zip(steps.forms.tolist(), steps.fresh.tolist(), lengths, entries, strict=True)
            for form, fresh, wanted_length, (file, folder, name) in plan:
                writer.enter(folder, name)
                time = time_of(self._manifest.tag(file))
                if form == Form.LINK:
                    number, whole = self._manifest.blocks_of(file).start, self.kinds[file] == FileKind.PARTS
                    block = int(self._manifest.block_ids[number])

                    def is_other(
                        place: str, number: int = number, file: int = file, whole: bool = bool(whole)
                    ) -> bool:
                        if whole:
                            return not is_whole_file(place, file=file, manifest=self._manifest)
                        return is_other_file(place, block=number, manifest=self._manifest)

                    status = _link(
                        block,
                        wanted_length,
                        is_other,
                        name,
                        time=time,
                        fresh=fresh,
                        folders=folders.whole if whole else folders.blocks,
                        writer=writer,
                    )
                    if status is not None and status.st_size == wanted_length:
                        self.forms[file], self.linked[file] = Form.LINK, status.st_ino
                        linked += 1
                        continue
                    if status is not None:
                        wrong.append(block)
                    if self.forms[file] == Form.REMOTE:
                        continue
                if form == Form.EMPTY:
                    writer.empty(name, time=time)
                    self.forms[file] = Form.EMPTY
                else:
                    writer.placeholder(name, number=file, length=wanted_length, time=time, fresh=fresh)
                    self.forms[file] = Form.REMOTE
                    remote += 1
        return Outcome(linked=linked, remote=remote, wrong_length=tuple(wrong))


class NoTree:
    """In the place of a tree, where pods are shown the remote-read client's own: every file is read through it."""

    def __init__(self, manifest: Manifest) -> None:
        self.kinds: Final[Kinds] = np.full(len(manifest), FileKind.CLIENT, dtype=np.uint8)
        self.forms: Final = np.full(len(manifest), Form.REMOTE, dtype=np.uint8)
        self.linked: Final[Inodes] = np.zeros(len(manifest), dtype=np.uint64)

    def prepare(self) -> None:
        """Nothing is to be made."""

    def apply(self, steps: Steps) -> Outcome:
        return Outcome()


def _form(*, entry: "os.DirEntry[str]", listing: int, file: int, kind: int, length: int) -> Form:
    """The form of what is there. What is not as a view makes it is replaced, whoever put it there."""
    if not entry.is_file(follow_symlinks=False):
        return Form.OTHER
    status = entry.stat(follow_symlinks=False)
    if status.st_size != length:
        return Form.OTHER
    if (
        status.st_nlink == 1
        and (number := placeholder_number(b"/proc/self/fd/%d/%b" % (listing, os.fsencode(entry.name))))
        is not None
    ):
        return Form.REMOTE if number == file else Form.OTHER
    if kind == FileKind.EMPTY:
        return Form.EMPTY
    return Form.LINK if kind in (FileKind.BLOCK, FileKind.PARTS) else Form.OTHER


def _link(
    block: int,
    length: int,
    is_other: Callable[[str], bool],
    name: bytes,
    *,
    time: int,
    fresh: bool,
    folders: list[int],
    writer: "_Writer",
) -> os.stat_result | None:
    """Link a block's file if it is as long as it shall be, and does not say that it is something else; what was found,
    None when there is no block."""
    block_name = b"%d" % block
    for folder in folders:
        try:
            status = os.stat(block_name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                return None
            if status.st_size == length and is_other(f"/proc/self/fd/{folder}/{block}"):
                continue
            if status.st_size == length:
                if stat.S_IMODE(status.st_mode) != FILE_MODE:
                    set_mode(folder, block_name, FILE_MODE)  # the worker makes it writable by everyone
                if status.st_mtime_ns != time * _SECOND:
                    _set_time(folder, block_name, time)
                writer.link(block_name, folder, name, fresh=fresh)
        except OSError as error:
            if error.errno == errno.ENOENT:
                continue  # in the next folder, or gone meanwhile: to be read through the client
            if error.errno == errno.EXDEV:
                return None  # seen through another mount than the tree
            raise
        return status
    return None


class _Writer:
    """Creates and replaces files in a tree. Each has a scratch name of its own for what it puts in another's place."""

    def __init__(self, *, tree: bytes, scratch: bytes) -> None:
        self._folders: Final = (tree, scratch)
        self._scratch: Final = uuid.uuid4().hex.encode()
        self._stack: Final = contextlib.ExitStack()
        self._entered: bytes | None = None
        self._folder = self._tree = self._drafts = -1

    def __enter__(self) -> "_Writer":
        with contextlib.ExitStack() as opened:
            self._tree, self._drafts = (
                opened.enter_context(plain_folder(folder)) for folder in self._folders
            )
            self._stack.push(opened.pop_all())
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()
        with self._stack, contextlib.suppress(FileNotFoundError):
            os.unlink(self._scratch, dir_fd=self._drafts)

    def enter(self, folder: bytes, name: bytes) -> None:
        """Work in this folder from now on, and for a file of this name next; raises OSError for what is no name.

        A folder's steps are refused by the kernel where they lead out of the tree; the name's are not.
        """
        if b"/" in name or name in _NO_NAMES:
            raise OSError(errno.EINVAL, "the manifest has a file that is called so", os.fsdecode(name))
        if folder != self._entered:
            self._leave()
            self._folder = open_beneath(self._tree, folder or b".", _FOLDER)
            self._entered = folder

    def _leave(self) -> None:
        if self._folder >= 0:
            _set_time(self._folder, b".", UNKNOWN_TIME)
            os.close(self._folder)
        self._folder, self._entered = -1, None

    def link(self, block: bytes, blocks: int, name: bytes, *, fresh: bool) -> None:
        """Have `name` be a link to a block of the folder `blocks`."""
        if fresh:
            os.link(block, name, src_dir_fd=blocks, dst_dir_fd=self._folder, follow_symlinks=False)
            return
        os.link(block, self._scratch, src_dir_fd=blocks, dst_dir_fd=self._drafts, follow_symlinks=False)
        self._put(name)

    def placeholder(self, name: bytes, *, number: int, length: int, time: int, fresh: bool) -> None:
        path, folder = (name, self._folder) if fresh else (self._scratch, self._drafts)
        make_placeholder(path, number=number, length=length, mode=FILE_MODE, time=time, folder=folder)
        if not fresh:
            self._put(name)

    def empty(self, name: bytes, *, time: int) -> None:
        descriptor = os.open(
            self._scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE, dir_fd=self._drafts
        )
        try:
            os.fchmod(descriptor, FILE_MODE)
            os.utime(descriptor, (time, time))
        finally:
            os.close(descriptor)
        self._put(name)

    def _put(self, name: bytes) -> None:
        os.rename(self._scratch, name, src_dir_fd=self._drafts, dst_dir_fd=self._folder)


def _set_time(folder: int, name: bytes, time: int) -> None:
    """Have something in an open folder be changed last then, as a version says on every node."""
    os.utime(name, (time, time), dir_fd=folder, follow_symlinks=False)


def _listing(folder: int) -> contextlib.AbstractContextManager[int]:
    return _closing(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder))


def _beneath(folder: int, path: bytes) -> contextlib.AbstractContextManager[int]:
    """A folder below an open one, behind no link."""
    return _closing(open_beneath(folder, path or b".", _FOLDER))


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
