"""Listings and worker folders for tests of views."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.dataplane.agents import ListedFile

from tdcs.api import names
from tdcs.model.file_blocks import Cut
from tdcs.model.file_ids import FileIds
from tdcs.model.manifest import Manifest
from tdcs.model.manifest_builder import ManifestBuilder, own_block_id
from tdcs.node.agent.disk.refused_blocks import RefusedBlocks
from tdcs.node.agent.disk.shutdown_mark import ShutdownMark
from tdcs.node.csi.views.block_store import Store
from tdcs.node.csi.views.overlay import placeholder_number, unsupported
from tdcs.node.csi.views.view_plan import plan
from tdcs.node.csi.views.view_tree import Outcome, Tree
from tdcs.node.store_boot import is_ready


def _overlays_unsupported() -> str:
    try:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            return unsupported(folder)
    except OSError as error:
        return str(error)


needs_overlays = pytest.mark.skipif(
    bool(_overlays_unsupported()),
    reason="views cannot be overlays here: see tdcs.node.csi.views.overlay.unsupported",
)
PATH, SOURCE = "/datasets/0123456789abcdef", "s3://b"


def listed(path: str, length: int = 0, *, tag: str = "") -> ListedFile:
    """A file as its source lists it. One of eight bytes or more has several blocks, of four bytes each."""
    return ListedFile(path.encode(), length, tag.encode())


def id_of(file: ListedFile) -> int:
    """The id of a file's first block."""
    return own_block_id(FileIds(mount=PATH, source=SOURCE).of(**file._asdict()), 0)


def manifest_of(*files: ListedFile) -> Manifest:
    """The manifest of a dataset with these files."""
    return builder_of(*files).manifest()


def builder_of(*files: ListedFile) -> ManifestBuilder:
    """What makes it."""
    builder = ManifestBuilder(path=PATH, source=SOURCE, cut=Cut(whole=7, block=4))
    builder.add_listed(files)
    return builder


def put_blocks(tier: Path, blocks: Mapping[int, bytes], *, folder: str = names.AGENT_SPOOL) -> None:
    """Blocks as a worker has them: readable and writable by everyone."""
    place = tier / folder
    place.mkdir(parents=True, exist_ok=True)
    if not is_ready(str(tier)):
        ShutdownMark(tier / names.AGENT_FOLDER).begin()
    for identifier, content in blocks.items():
        # As the worker does it: written elsewhere, then moved in.
        file = tier / f".{identifier}"
        file.write_bytes(content)
        file.chmod(0o777)
        file.rename(place / str(identifier))


def is_link(path: Path) -> bool:
    """Whether a file of a view is the block on the node's disk."""
    return path.stat(follow_symlinks=False).st_nlink == 2


def is_placeholder(path: Path) -> bool:
    """Whether a file of a view's tree stands for one that is not on the node."""
    return placeholder_number(os.fsencode(path)) is not None


def drop_block(tier: Path, identifier: int) -> None:
    """What RemoveBlock or an eviction does on the disk."""
    (tier / names.AGENT_SPOOL / str(identifier)).unlink()


def refuse_block(tier: Path, identifier: int, *, mount: str = PATH) -> None:
    """What the agent does when it has found a block wrong; its file may stay for a while."""
    RefusedBlocks(tier).add(mount, (identifier,))


def admit_block(tier: Path, identifier: int, *, mount: str = PATH) -> None:
    """What it does when the block may be read again."""
    RefusedBlocks(tier).discard(mount, (identifier,))


class ViewDisk:
    """A tier with one view in it."""

    def __init__(self, tier: Path, manifest: Manifest) -> None:
        self.tier = tier
        self.manifest = manifest
        self.store = Store(tiers=[str(tier)], mount=PATH)
        self.root = tier / "tree"
        self.tree = self.reopened()

    def reopened(self) -> Tree:
        """The tree as a new process finds it."""
        self.tree = Tree(
            folder=str(self.root),
            scratch=str(self.tier / "scratch"),
            manifest=self.manifest,
            store=self.store,
        )
        self.tree.prepare()
        return self.tree

    def follow(self, *, release: bool = False) -> Outcome:
        """One round."""
        return self.tree.apply(
            plan(
                kinds=self.tree.kinds,
                forms=self.tree.forms,
                linked=self.tree.linked,
                blocks=self.store.scan(manifest=self.manifest, kinds=self.tree.kinds),
                release=release,
            )
        )
