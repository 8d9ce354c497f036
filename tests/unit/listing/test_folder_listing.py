"""A shared folder as agents list it: no node is believed alone, and a part of an answer is none."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from tdcs.listing.folder import ManifestFolder
from tdcs.listing.folder_listing import FolderAgents
from tdcs.listing.lister import ProcessLister
from tdcs.listing.one_listing import list_source
from tdcs.listing.result import Listed
from tdcs.model.agent_state import FolderLimit
from tdcs.model.cache_engine import EngineUnavailableError, LimitExceededError, Source, SourceError
from tdcs.model.listing_limit import ListingLimit
from tdcs.model.manifest import Manifest
from tdcs.node.agent.folder_routes import folder_routes
from tdcs.node.agent.mount.source_pieces import Extent
from tdcs.node.agent.mount.source_state import FolderReader

SOURCE = Source(uri="file:///mnt/pictures")
PATH = "/datasets/1f"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Nodes:
    """Agents of nodes, each of which has its own folder at the place of the source."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.urls: dict[str, str] = {}
        self.expected = 0
        self.lists: list[str] = []
        self._runners: list[web.AppRunner] = []

    async def add(self, name: str, seen: Path, *, cut_after: int | None = None) -> None:
        """A node that sees this folder; it ends its answers after so many bytes."""

        @web.middleware
        async def at_its_place(request: web.Request, handler: Handler) -> web.StreamResponse:
            limit = msgspec.msgpack.decode(await request.read(), type=FolderLimit)
            assert limit.folder == "/mnt/pictures"
            request._read_bytes = msgspec.msgpack.encode(msgspec.structs.replace(limit, folder=str(seen)))
            if request.path == "/v1/list":
                self.lists.append(name)
            if cut_after is not None:
                response = web.StreamResponse()
                await response.prepare(request)
                await response.write(bytes(cut_after))
                assert request.transport is not None
                request.transport.abort()
                return response
            return await handler(request)

        app = web.Application(middlewares=[at_its_place])
        app.add_routes(folder_routes())
        runner = web.AppRunner(app)
        await runner.setup()
        self._runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.urls[name] = f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def list(self, *, limit: ListingLimit | None = None) -> Listed:
        folder = ManifestFolder(self.folder)
        return await list_source(
            source=SOURCE,
            path=PATH,
            folder=folder,
            limit=limit,
            agents=FolderAgents(urls=self.urls, expected=self.expected),
        )

    def manifest(self, listed: Listed) -> Manifest:
        return ManifestFolder(self.folder).open(listed.digest)

    async def close(self) -> None:
        for runner in self._runners:
            await runner.cleanup()


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Nodes]:
    nodes = Nodes(folder)
    try:
        yield nodes
    finally:
        await nodes.close()


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    async with running(tmp_path / "manifests") as listing_nodes:
        yield listing_nodes


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with all of its files: more than a page of them in one folder, a few elsewhere."""
    folder = tmp_path_factory.mktemp("source") / "whole"
    (folder / "train").mkdir(parents=True)
    (folder / "validation" / "deep").mkdir(parents=True)
    for number in range(1100):
        (folder / "train" / f"{number:04}").write_bytes(b"x" * (number % 7))
    (folder / "validation" / "deep" / "a\x01 b\n").write_bytes(b"control")
    os.link(folder / "train" / "0003", folder / "again")
    (folder / "inside").symlink_to("train/0006")
    (folder / "outside").symlink_to("/etc/hostname")
    (folder / "nowhere").symlink_to("missing")
    os.mkfifo(folder / "pipe")
    return folder


def empty(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    return folder


async def test_a_folder_is_listed_with_names_lengths_and_times_by_which_it_is_read(
    nodes: Nodes, whole: Path
) -> None:
    for name in "abc":
        await nodes.add(name, whole)
    listed = await nodes.list()
    manifest, reader = nodes.manifest(listed), FolderReader(str(whole))
    paths = {manifest.file_path(file) for file in range(len(manifest))}
    assert len(paths) == 1103
    assert {b"validation/deep/a\x01 b\n", b"again", b"inside"} <= paths
    left_out = {skip.path for skip in listed.skipped}
    assert (left_out, listed.skipped_count) == ({b"outside", b"nowhere", b"pipe"}, 3)
    for file in random.Random(1).sample(range(len(manifest)), 50):
        content, length = bytearray(), int(manifest.lengths[file])
        extent = Extent(
            path=manifest.file_path(file), offset=0, length=length, size=length, tag=manifest.tag(file)
        )
        reader.read(extent, content.extend)
        assert len(content) == length


async def test_what_filers_keep_in_a_folder_is_no_part_of_it(nodes: Nodes, tmp_path: Path) -> None:
    folder = tmp_path / "seen"
    for name in ("a.jpg", ".snapshot/hourly/a.jpg", "train/@eaDir/b.jpg", "train/b.jpg", "lost+found/c"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    await nodes.add("one", folder)
    manifest = nodes.manifest(await nodes.list())
    assert [manifest.file_path(file) for file in range(len(manifest))] == [b"a.jpg", b"train/b.jpg"]


@pytest.mark.failure_mode("shared-folder-stale-on-one-node")
@pytest.mark.parametrize("seed", range(3))
async def test_a_node_that_has_not_mounted_it_or_a_part_of_it_is_not_believed(
    nodes: Nodes, whole: Path, tmp_path: Path, seed: int
) -> None:
    part = tmp_path / "part"
    (part / "train").mkdir(parents=True)
    for number in range(1070):  # a mount below it is missing
        (part / "train" / f"{number:04}").write_bytes(b"x" * (number % 7))
    random.seed(seed)
    await nodes.add("empty", empty(tmp_path, "empty"))
    await nodes.add("part", part)
    await nodes.add("whole", whole)
    await nodes.add("whole-too", whole)
    assert (await nodes.list()).totals.files == 1103


@pytest.mark.parametrize("seed", range(2))
async def test_a_node_that_dies_while_it_lists_is_no_listing(
    nodes: Nodes, whole: Path, tmp_path: Path, seed: int
) -> None:
    random.seed(seed)
    await nodes.add("dies", whole, cut_after=2)
    await nodes.add("a", whole)
    await nodes.add("b", whole)
    assert (await nodes.list()).totals.files == 1103


async def test_one_node_of_several_is_not_enough(nodes: Nodes, whole: Path) -> None:
    await nodes.add("a", whole)
    await nodes.add("dies", whole, cut_after=0)
    with pytest.raises(
        EngineUnavailableError, match="another one could not be asked: the agent of node dies"
    ):
        await nodes.list()


async def test_one_node_is_not_enough_while_others_are_not_known_yet(nodes: Nodes, tmp_path: Path) -> None:
    await nodes.add("a", empty(tmp_path, "empty"))
    nodes.expected = 2
    with pytest.raises(EngineUnavailableError, match="of 2 agents of the cache 1 can be reached"):
        await nodes.list()
    nodes.expected = 1
    assert (await nodes.list()).totals.files == 0


async def test_the_only_node_is_believed_and_so_are_two_that_see_nothing(
    nodes: Nodes, whole: Path, tmp_path: Path
) -> None:
    await nodes.add("a", whole)
    assert (await nodes.list()).totals.files == 1103
    nodes.urls.clear()
    await nodes.add("b", empty(tmp_path, "empty"))
    await nodes.add("c", empty(tmp_path, "empty-too"))
    assert (await nodes.list()).totals.files == 0


async def test_a_folder_has_no_more_than_its_limit(nodes: Nodes, whole: Path) -> None:
    for name in "ab":
        await nodes.add(name, whole)
    with pytest.raises(LimitExceededError, match="it has more than 700 files"):
        await nodes.list(limit=ListingLimit(files=700))
    assert (await nodes.list(limit=ListingLimit(files=1200))).totals.files == 1103


async def test_why_a_folder_cannot_be_listed_is_said(nodes: Nodes, whole: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(whole)
    for name in "ab":
        await nodes.add(name, link)
    with pytest.raises(SourceError, match="without symbolic links on the way"):
        await nodes.list()


async def test_a_process_of_its_own_lists_a_folder_of_a_cache_without_a_master(
    nodes: Nodes, whole: Path
) -> None:
    for name in "ab":
        await nodes.add(name, whole)
    lister = ProcessLister(
        folder=ManifestFolder(nodes.folder),
        source_of=lambda _path: SOURCE,
        nodes=lambda: nodes.urls,
        expected=lambda: 2,
    )
    assert (await lister.list(path=PATH)).totals.files == 1103
    del nodes.urls["a"]
    with pytest.raises(EngineUnavailableError, match="of 2 agents"):
        await lister.list(path=PATH)
