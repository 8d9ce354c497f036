"""A node with views, an engine with one dataset, and the worker's folder."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from tests.support.twins.engine import MemoryEngine
from tests.unit.node.csi.views.builders import PATH, put_blocks

from tdcs.api import names
from tdcs.listing.lister import LocalLister
from tdcs.model.cache_engine import Source
from tdcs.node.csi.hang_guard import HangGuard
from tdcs.node.csi.views.node_views import NodeViews
from tdcs.node.csi.views.view_settings import ViewSettings
from tdcs.node.csi.volume import Volume
from tdcs.node.csi.volume_folder import Source as Opened

URI = "s3://bucket/data"
VOLUME = Volume(cluster="default", parts=("datasets", "0123456789abcdef"))


class World:
    """A node, an engine with one dataset, and the worker's folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tier = root / "cache" / "default"
        self.files = {"train/1.jpg": 3, "train/2.jpg": 4, "empty": 0}
        self.engine = MemoryEngine(sources={URI: lambda: self.files}, workers={"node-a": 1 << 20})
        self.views = self.restarted()

    def restarted(self, **changes: object) -> NodeViews:
        settings = ViewSettings(
            **{
                "node": "node-a",
                "cache_root": self.root / "cache",
                "fuse_root": self.root / "fuse",
                "kubelet": self.root / "kubelet",
                "answer_seconds": 5.0,
                "fresh_seconds": 0.0,
                "tick_seconds": 0.01,
                "tidy_seconds": 0.01,
                **changes,  # type: ignore[arg-type]
            }
        )
        self.views = NodeViews(
            settings=settings,
            engine=lambda _: self.engine,
            lister=lambda _, folder: LocalLister(engine=self.engine, folder=folder),
            guard=HangGuard(threads_per_key=2),
        )
        return self.views

    async def mount(self) -> None:
        await self.engine.mount(path=PATH, source=Source(uri=URI))

    async def load(self) -> dict[str, int]:
        """Put every block that is missing onto the node; their ids by file."""
        found = {file.path: file.blocks async for page in self.engine.files(path=PATH) for file in page}
        ids = {path: blocks[0].id for path, blocks in found.items() if blocks}
        missing = [path for path in ids if not (self.tier / names.BLOCK_FOLDER / str(ids[path])).exists()]
        put_blocks(
            self.tier,
            {ids[path]: path.removesuffix(".jpg")[-1].encode() * self.files[path] for path in missing},
        )
        return ids

    async def opened(self) -> Path:
        """The tree that a volume is given now."""
        source = await self.views.open(volume=VOLUME)
        assert isinstance(source, Opened)
        path = Path(os.readlink(f"/proc/self/fd/{source.folder}"))
        source.close()
        return path

    def trees(self) -> list[Path]:
        return sorted((self.tier / names.VIEWS_FOLDER).glob("*/*/tree"))


@contextlib.asynccontextmanager
async def watching(views: NodeViews) -> AsyncIterator[None]:
    """Run `watch` beside the test; whatever ends it early fails the test."""
    watch = asyncio.create_task(views.watch())
    try:
        yield
        assert not watch.done(), watch
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
