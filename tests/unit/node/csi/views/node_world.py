"""A node with views, an engine with one dataset, and the worker's folder."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from tests.support.twins.engine import MemoryEngine
from tests.support.twins.local_lister import LocalLister
from tests.unit.node.csi.views.builders import PATH, put_blocks

from tdcs.api import names
from tdcs.engine.confined_path import plain_folder
from tdcs.listing.folder import ManifestFolder
from tdcs.model.cache_engine import Source
from tdcs.model.manifest_format import decoded
from tdcs.node.csi.hang_guard import HangGuard
from tdcs.node.csi.views.node_views import NodeViews
from tdcs.node.csi.views.reader_client import ReaderClient
from tdcs.node.csi.views.view import View
from tdcs.node.csi.views.view_folders import TREE
from tdcs.node.csi.views.view_settings import ViewSettings
from tdcs.node.csi.volume import VolumeFolder

URI = "s3://bucket/data"
VOLUME = VolumeFolder(cluster="default", parts=("datasets", "0123456789abcdef"))


class ShowingClient(ReaderClient):
    """Shows every version, without a mount: what pods are given is the tree."""

    async def bind(self, view: View) -> None:
        with plain_folder(view.folder.shown, make=True):
            pass


class World:
    """A node, an engine with one dataset, and the worker's folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tier = root / "cache" / "default"
        self.files = {"train/1.jpg": 3, "train/2.jpg": 4, "empty": 0}
        self.engine = MemoryEngine(sources={URI: lambda: self.files}, workers={"node-a": 1 << 20})
        self.views = self.restarted()

    def restarted(self, *, client: bool = True, **changes: object) -> NodeViews:
        """A new process; with `client`, one that shows every version stands in for the remote-read client."""
        settings = ViewSettings(
            **{
                "node": "node-a",
                "cache_root": self.root / "cache",
                "reader_root": self.root / "reader",
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
            engine=lambda _: self,
            guard=HangGuard(threads_per_key=2),
        )
        if client:
            self.views._client = ShowingClient(settings=settings, guard=HangGuard(threads_per_key=2))  # type: ignore[misc]
        return self.views

    async def versions(self) -> Mapping[str, str]:
        """As the operator answers."""
        published = await self.engine.versions()
        return {path: published.get(path, "") for path in await self.engine.mounts()}

    async def mount(self) -> None:
        await self.engine.mount(path=PATH, source=Source(uri=URI))
        await self.publish()

    async def publish(self, path: str = PATH) -> None:
        """List the source, as the operator does, and have the manifest in the agent's folder."""
        folder = ManifestFolder(self.tier / names.AGENT_MANIFESTS)
        listed = await LocalLister(engine=self.engine, folder=folder).list(path=path, refresh=True)
        await self.engine.set_version(path=path, version=listed.digest)

    async def load(self) -> dict[str, int]:
        """Put every block that is missing onto the node; their ids by file."""
        digest = (await self.engine.versions())[PATH]
        manifest = ManifestFolder(self.tier / names.AGENT_MANIFESTS).open(digest)
        paths = [decoded(manifest.file_path(manifest.file_of(block))) for block in range(manifest.blocks)]
        ids = dict(zip(paths, manifest.block_ids.tolist(), strict=True))
        missing = [path for path in ids if not (self.tier / names.AGENT_SPOOL / str(ids[path])).exists()]
        put_blocks(
            self.tier,
            {ids[path]: path.removesuffix(".jpg")[-1].encode() * self.files[path] for path in missing},
        )
        return ids

    async def opened(self, volume: VolumeFolder = VOLUME) -> Path:
        """The tree of the version that a volume is given now."""
        source = await self.views.open(volume=volume)
        path = Path(os.readlink(f"/proc/self/fd/{source.folder}"))
        source.close()
        return path.with_name(TREE)

    def trees(self) -> list[Path]:
        return sorted((self.tier / names.VIEWS_FOLDER).glob("*/*/tree"))


@contextlib.asynccontextmanager
async def watching(views: NodeViews) -> AsyncIterator[None]:
    """Run `watch` next to the test; whatever ends it early fails the test."""
    watch = asyncio.create_task(views.watch())
    try:
        yield
        assert not watch.done(), watch
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
