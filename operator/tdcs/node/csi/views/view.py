"""One view: keeps one version's tree in step with the blocks on this node, and shows it to pods."""

import asyncio
import contextlib
import logging
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tdcs.engine.confined_path import open_plain_folder, plain_folder
from tdcs.model.manifest import Manifest
from tdcs.node.csi import bind_mount, mountinfo
from tdcs.node.csi.views.block_store import Store
from tdcs.node.csi.views.overlay import ShownFolder
from tdcs.node.csi.views.subpaths import Subpaths
from tdcs.node.csi.views.view_folders import GONE, DatasetFolder, VersionFolder
from tdcs.node.csi.views.view_plan import Form, Inodes, PlannedBlocks, is_native, plan
from tdcs.node.csi.views.view_report import Counts, Repairs
from tdcs.node.csi.views.view_tree import NoTree, Tree
from tdcs.node.csi.volume import OpenSource, VolumeFolder, shown

_log: Final = logging.getLogger(__name__)


class Operations:
    """Runs operations one after the other, each in a task of its own.

    A caller that is cancelled (kubelet gives up a call after two minutes) leaves the operation running: its threads
    would go on anyway, and no other operation may change the same tree meanwhile. The next call for the same operation
    joins it.
    """

    def __init__(self) -> None:
        self._turn: Final = asyncio.Lock()
        self._tasks: Final[dict[str, asyncio.Task[None]]] = {}

    @property
    def busy(self) -> bool:
        """Whether an operation is running or waiting for its turn."""
        return bool(self._tasks)

    async def run(self, *, name: str, operation: Callable[[], Awaitable[None]]) -> None:
        """Run `operation` when it is its turn, or join the one of this `name` that has not ended; raises what it
        raises.
        """
        task = self._tasks.get(name)
        if task is None:
            task = asyncio.create_task(self._take_turn(operation))
            self._tasks[name] = task
            task.add_done_callback(lambda done: self._end(name, done))
        await asyncio.shield(task)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _take_turn(self, operation: Callable[[], Awaitable[None]]) -> None:
        async with self._turn:
            await operation()

    def _end(self, name: str, task: "asyncio.Task[None]") -> None:
        del self._tasks[name]
        if not task.cancelled():
            task.exception()  # a failure that no caller waits for any more is found again by the next one


_BATCH: Final = 5_000
"""Steps between two chances to stop; a tenth of a second's work."""

_SCAN_SHARE: Final = 10
"""A scan may begin after this many times as long as the last one took: it is at most a tenth of a processor."""

_REFUSED_SECONDS: Final = 30.0
_KEEP_SECONDS: Final = 30.0
_LOG_SECONDS: Final = 10.0
_FAILED_SECONDS: Final = 5.0
_REFRESH_SECONDS: Final = 5.0


@dataclass(slots=True)
class _Scan:
    """The last look at the blocks of this node."""

    blocks: PlannedBlocks
    stamp: int = -1
    not_before: float = 0.0


@dataclass(frozen=True, slots=True)
class _Summary:
    """What the tree consists of, computed once a change: a million entries are not for the event loop at rest."""

    counts: Counts
    native: bool = False
    given_up: int = 0
    """Links that keep a block that has left the node."""


_NOTHING: Final = _Summary(Counts(linked=0, remote=0, empty=0, kept_bytes=0))


class View:
    """A version of a dataset on this node. What changes it runs as one of its `operations`."""

    def __init__(
        self,
        *,
        volume: VolumeFolder,
        folder: VersionFolder,
        manifest: Manifest,
        store: Store,
        merged: bool,
    ) -> None:
        """`merged`: whether pods are given an overlay of a tree of links and placeholders. If not, they are given the
        remote-read client's own tree, and this one has none."""
        self.volume: Final = volume
        self.folder: Final = folder
        self.manifest: Final = manifest
        self.name: Final = f"{volume.cluster}.{manifest.digest}"
        """Of the version at the remote-read client."""
        self.operations: Final = Operations()
        self.repairs: Final = Repairs()
        self.used_at = time.monotonic()
        self.release_at = 0.0
        """When to ask again whether links to blocks that have left the node may be released."""
        self.blind_until = 0.0
        """Until when it is taken for granted that some pod does not see what is mounted in the view now."""
        self._store: Final = store
        self.merged: Final = merged
        self.shown_folder: Final = ShownFolder(
            version=folder.path,
            tree=folder.tree if merged else folder.scratch,
            merged=merged,
            point=folder.shown,
        )
        self._subpaths: Final = Subpaths(version=folder.path, point=folder.shown)
        self._tree = self._new_tree()
        self._prepared = False
        self._scan: Final = _Scan(PlannedBlocks.none(len(manifest)))
        self._summary = _NOTHING
        self._logged_at = 0.0
        self._replaced = False
        self._refresh_at = 0.0

    def _new_tree(self) -> Tree | NoTree:
        if not self.merged:
            return NoTree(self.manifest)
        return Tree(
            folder=self.folder.tree,
            scratch=self.folder.scratch,
            manifest=self.manifest,
            store=self._store,
        )

    def __str__(self) -> str:
        return f"view {self.folder.version} of {self.volume.path} in cache cluster {self.volume.cluster}"

    async def complete(self) -> None:
        """Bring every file into the form that it shall have now. Raises OSError when the disk does not take it."""
        try:
            if not self._prepared:
                if not self.merged:
                    # Of a kernel that had overlays: its links would keep bytes on the disk.
                    await asyncio.to_thread(_remove, self.folder.tree)
                await asyncio.to_thread(self._tree.prepare)
                self._prepared = True
            await self._follow_blocks()
        except OSError:
            # What is on the disk is not known any more: learn it again.
            self._start_over()
            self._scan.not_before = time.monotonic() + _FAILED_SECONDS
            raise

    def _start_over(self) -> None:
        self._prepared, self._tree, self._scan.stamp = False, self._new_tree(), -1
        self._summary = _NOTHING

    @property
    def due(self) -> bool:
        """Whether blocks have come or gone since the last look, and the next one may begin."""
        if time.monotonic() < self._scan.not_before:
            return False
        return not self._prepared or self._scan.stamp == -1 or self._store.stamp() != self._scan.stamp

    @property
    def known(self) -> bool:
        return self._prepared

    @property
    def native(self) -> bool:
        """Whether all of it is read without the remote-read client."""
        return self._prepared and self._summary.native

    @property
    def given_up(self) -> int:
        """How many links keep a block that has left the node, at the last look."""
        return self._summary.given_up

    def counts(self) -> Counts:
        """What the view consisted of after the last change."""
        return self._summary.counts

    async def release(self) -> None:
        """Have files of which the blocks have left the node read through the client, which frees their bytes."""
        released = self.given_up
        await self._apply(release=True)
        self.repairs.released += released
        await self._summarize()
        await self.refresh()
        _log.info("%s: %d blocks have left this node; their bytes are freed", self, released)

    def keep(self) -> None:
        """Leave links to blocks that have left the node for now."""
        if not self.release_at:
            _log.info(
                "%s: %d blocks have left this node; their bytes stay on its disk while pods use the view",
                *(self, self.given_up),
            )
        self.release_at = time.monotonic() + _KEEP_SECONDS

    @property
    def refresh_due(self) -> bool:
        """Whether the kernel may know files of the overlay as they were before the last change."""
        return self._replaced and time.monotonic() >= self._refresh_at

    async def refresh(self) -> None:
        """Have the kernel look again at the overlay's files, if some were replaced. Until then they are read as before,
        through the client."""
        if not self._replaced:
            return
        self._refresh_at = time.monotonic() + _REFRESH_SECONDS
        self._replaced = False
        try:
            await asyncio.to_thread(self.shown_folder.refresh)
        except OSError as error:
            _log.info("%s: the kernel does not look again at its files: %s", self, error)

    async def _follow_blocks(self) -> None:
        begin = time.monotonic()
        stamp = self._store.stamp()
        self._scan.blocks = await asyncio.to_thread(
            self._store.scan, manifest=self.manifest, kinds=self._tree.kinds
        )
        looked_at = time.monotonic()
        steps, refused = await self._apply(release=False)
        if not steps:  # to compare was a part of the look
            looked_at = time.monotonic()
        self._scan.not_before = begin + _SCAN_SHARE * (looked_at - begin)
        self._scan.stamp = stamp
        if refused:  # it may be put right without the folder's time changing: look again in a while
            self._scan.stamp, self._scan.not_before = -1, time.monotonic() + _REFUSED_SECONDS
        before = self.given_up
        await self._summarize()
        if self.given_up != before:
            self.release_at = 0.0
        if steps and (self.native or time.monotonic() - self._logged_at > _LOG_SECONDS):
            self._logged_at = time.monotonic()
            counts = self.counts()
            _log.info(
                "%s: %d files linked, %d elsewhere, %d empty",
                *(self, counts.linked, counts.remote, counts.empty),
            )

    async def _apply(self, *, release: bool) -> tuple[int, int]:
        """Bring the tree into step, some files at a time; how many changed, and how many blocks were refused."""
        tree, refused = self._tree, list[int]()
        steps = await asyncio.to_thread(
            plan,
            kinds=tree.kinds,
            forms=tree.forms,
            linked=tree.linked,
            blocks=self._scan.blocks,
            release=release,
        )
        self._replaced |= not bool(steps.fresh.all())
        links = steps.forms == Form.LINK
        self.repairs.relinked += int((tree.forms[steps.files[links]] == Form.LINK).sum())
        for begin in range(0, len(steps), _BATCH):
            outcome = await asyncio.to_thread(tree.apply, steps.part(begin, begin + _BATCH))
            refused += outcome.wrong_length
        if refused:
            self.repairs.refused += len(refused)
            _log.warning(
                "%s: %d blocks on this node are not as long as their files (block %d, say) and are not linked; those "
                "files are read remotely",
                *(self, len(refused), refused[0]),
            )
        return len(steps), len(refused)

    async def _summarize(self) -> None:
        self._summary = await asyncio.to_thread(
            _summary, forms=self._tree.forms, local=self._scan.blocks.local, lengths=self.manifest.lengths
        )

    def open(self) -> OpenSource:
        """What pods are given, as the source of a volume; the caller closes it."""
        folder = open_plain_folder(os.fsencode(self.folder.shown))
        try:
            return OpenSource(folder=folder, shows=shown(folder=folder))
        except BaseException:
            os.close(folder)
            raise

    def used(self, *, mounts: list[mountinfo.MountLine], pods: str) -> bool:
        """Whether something below the folder `pods` shows it."""
        return self.shown_folder.used(mounts=mounts, pods=pods)

    def client_device(self, *, mounts: list[mountinfo.MountLine]) -> str | None:
        """Device of the client's file system that the view leads to now; None when to none."""
        return self.shown_folder.device(mounts=mounts)

    def outdated_parts(self, *, mounts: list[mountinfo.MountLine], pods: str, device: str) -> bool:
        """Whether a container has a part of it (`subPath`) that leads to another file system than `device`."""
        return self._subpaths.are_outdated(mounts=mounts, pods=pods, device=device)

    def bind(self, *, data: int, device: str, pods: str) -> None:
        """Show the view over the client's open folder `data`, and its parts to the containers below the folder `pods`
        that have some. Blocks while the client does; raises OSError."""
        replaced = self.client_device(mounts=mountinfo.read()) not in (None, device)
        self.shown_folder.show(data=data, device=device)
        if replaced:
            self.repairs.rebound += 1
            _log.info("%s: the client was replaced; its files can be read again", self)
        if parts := self._subpaths.renew(pods=pods, device=device):
            _log.info("%s: so can those of %d subPath mounts", self, parts)

    def unbind(self) -> None:
        self.shown_folder.hide()

    async def remove(self, *, keep_manifest: bool) -> None:
        """Delete the tree, and so the links. No pod may use it any more; raises OSError when something is mounted."""
        self.shown_folder.remove()
        below = self.folder.path + "/"
        if any(mounted.point.startswith(below) for mounted in mountinfo.read()):
            raise OSError(f"something is mounted below {self.folder.path}")
        self._start_over()
        path = self.folder.tree if keep_manifest else self.folder.path
        await asyncio.to_thread(_remove, path)


def _summary(*, forms: npt.NDArray[np.uint8], local: Inodes, lengths: npt.NDArray[np.int64]) -> _Summary:
    counts = np.bincount(forms, minlength=len(Form))
    given_up = (forms == Form.LINK) & (local == 0)
    return _Summary(
        Counts(
            linked=int(counts[Form.LINK]),
            remote=int(counts[Form.REMOTE]),
            empty=int(counts[Form.EMPTY]),
            kept_bytes=int(lengths[given_up].sum()),
        ),
        native=is_native(forms=forms),
        given_up=int(given_up.sum()),
    )


def clear(folder: VersionFolder) -> None:
    """Delete a version's tree and all that is mounted in it. No pod may use it any more; raises OSError.

    It gets another name first: whoever shows the version again meanwhile makes a new folder.
    """
    below = folder.path + "/"
    for mounted in sorted(mountinfo.read(), key=lambda mount: len(mount.point), reverse=True):
        if mounted.point.startswith(below):
            bind_mount.detach(target=mounted.point)
    above, version = os.path.split(folder.path)
    gone_name = f"{GONE}{version}"
    _remove(os.path.join(above, gone_name))  # of a process that ended before it was done
    with contextlib.suppress(FileNotFoundError), plain_folder(above) as dataset:
        os.rename(version, gone_name, src_dir_fd=dataset, dst_dir_fd=dataset)
    _remove(os.path.join(above, gone_name))


def clear_gone(folder: DatasetFolder) -> None:
    """Delete what an earlier process was deleting when it ended; raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder.path):
            if name.startswith(GONE):
                _remove(os.path.join(folder.path, name))


def _remove(path: str) -> None:
    above, name = os.path.split(path)
    with contextlib.suppress(FileNotFoundError), plain_folder(above) as folder:
        shutil.rmtree(name, dir_fd=folder)
