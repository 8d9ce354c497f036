"""From where a node has the manifest of a version: its agent, or the operator."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from tests.support.twins.engine import MemoryEngine
from tests.support.twins.local_lister import LocalLister
from tests.unit.node.csi.views.builders import PATH, put_blocks
from tests.unit.node.csi.views.node_world import ShowingClient

from tdcs.api import names
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.transfer import manifest_routes
from tdcs.model.cache_engine import Source
from tdcs.node.csi.hang_guard import HangGuard
from tdcs.node.csi.views.node_views import NodeViews
from tdcs.node.csi.views.view_folders import STAGING, TREE
from tdcs.node.csi.views.view_settings import ViewSettings
from tdcs.node.csi.volume import SourceNotReadyError, VolumeFolder

URI = "s3://bucket/data"
VOLUME = VolumeFolder(cluster="default", parts=("datasets", "0123456789abcdef"))


class World:
    """A node whose blocks are all here, and an operator that has listed the dataset."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tier = root / "cache" / "default"
        self.engine = MemoryEngine(sources={URI: {"a": 1, "d/b": 1}}, workers={"node-a": 1 << 20})
        self.operator = ManifestFolder(root / "operator")
        self.agent = ManifestFolder(self.tier / names.AGENT_MANIFESTS)

    async def published(self) -> str:
        """List and publish, as the operator does; the digest."""
        await self.engine.mount(path=PATH, source=Source(uri=URI))
        listed = await LocalLister(engine=self.engine, folder=self.operator).list(path=PATH)
        await self.engine.set_version(path=PATH, version=listed.digest)
        manifest = self.operator.open(listed.digest)
        put_blocks(self.tier, {int(block): b"x" for block in manifest.block_ids})
        return listed.digest

    async def versions(self) -> Mapping[str, str]:
        """As the operator answers."""
        published = await self.engine.versions()
        return {path: published.get(path, "") for path in await self.engine.mounts()}

    def give_agent(self, digest: str) -> Path:
        self.agent.path.mkdir(parents=True)
        self.agent.file(digest).write_bytes(self.operator.file(digest).read_bytes())
        return self.agent.file(digest)

    async def tree(self, *, address: str | None = None) -> Path:
        """What a pod is shown."""
        settings = ViewSettings(
            node="node-a",
            cache_root=self.root / "cache",
            reader_root=self.root / "reader",
            kubelet=self.root / "kubelet",
            manifest_address=address,
        )
        views = NodeViews(
            settings=settings,
            engine=lambda _: self,
            guard=HangGuard(threads_per_key=2),
        )
        views._client = ShowingClient(settings=settings, guard=HangGuard(threads_per_key=2))  # type: ignore[misc]
        try:
            source = await views.open(volume=VOLUME)
            path = Path(os.readlink(f"/proc/self/fd/{source.folder}"))
            source.close()
            return path.with_name(TREE)
        finally:
            await views._versions.close()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path.resolve())


@pytest.fixture
async def operator(world: World) -> AsyncIterator[str]:
    """The operator's service of manifests; its address."""
    application = web.Application()
    application.add_routes(manifest_routes(world.operator))
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield "{}:{}".format(*runner.addresses[0][:2])
    await runner.cleanup()


async def test_the_manifest_of_the_nodes_own_agent_is_used(world: World) -> None:
    digest = await world.published()
    world.give_agent(digest)

    tree = await world.tree()

    assert tree.parent.name == digest
    assert (tree / "d/b").read_text() == "x"


async def test_a_manifest_stays_with_its_view_when_the_agent_gives_it_up(world: World) -> None:
    digest = await world.published()
    file = world.give_agent(digest)
    tree = await world.tree()
    file.unlink()

    assert await world.tree() == tree


@pytest.mark.failure_mode("manifest-asked-of-standby")
async def test_an_operator_that_only_stands_by_is_passed_over(
    world: World, operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is behind the same name, and has no manifests."""
    port = int(operator.rpartition(":")[2])
    application = web.Application()
    application.add_routes(manifest_routes(ManifestFolder(world.root / "standby")))
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.2", port).start()
    loop = asyncio.get_running_loop()
    find = loop.getaddrinfo

    async def resolve(host: str, port: int, **more: int) -> list[Any]:
        hosts = ["127.0.0.2", "127.0.0.1"] if host == "manifests" else [host]
        return [address_info for address in hosts for address_info in await find(address, port, **more)]

    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    digest = await world.published()

    tree = await world.tree(address=f"manifests:{port}")

    assert tree.parent.name == digest
    await runner.cleanup()


@pytest.mark.parametrize("agent", ["none", "damaged", "a link to another file"])
@pytest.mark.failure_mode("manifest-damaged-on-node")
async def test_what_the_agent_does_not_have_comes_from_the_operator(
    world: World, operator: str, agent: str
) -> None:
    digest = await world.published()
    if agent != "none":
        file = world.give_agent(digest)
        if agent == "damaged":
            file.write_bytes(file.read_bytes()[:-1] + b"!")
        else:
            file.rename(world.root / "elsewhere")
            file.symlink_to(world.root / "elsewhere")

    tree = await world.tree(address=operator)

    assert tree.parent.name == digest
    assert not (tree.parent / "manifest").is_symlink()
    assert os.listdir(world.tier / names.VIEWS_FOLDER / ".manifests") == []


async def test_without_agent_and_operator_the_pod_is_told(world: World) -> None:
    digest = await world.published()
    with pytest.raises(SourceNotReadyError, match=f"cannot be had: .*{digest}"):
        await world.tree(address="127.0.0.1:9")


async def test_a_dataset_that_is_not_listed_yet_is_not_shown(world: World) -> None:
    await world.engine.mount(path=PATH, source=Source(uri=URI))
    with pytest.raises(SourceNotReadyError, match="are not listed yet"):
        await world.tree()


@pytest.mark.parametrize("source", ["agent", "operator"])
async def test_a_full_disk_is_named_and_keeps_nothing(
    world: World, operator: str, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    digest = await world.published()
    if source == "agent":
        world.give_agent(digest)
    rename: Callable[..., None] = os.rename

    def full(source: str, target: str, **more: object) -> None:
        if os.fsdecode(target) == "manifest":
            raise OSError(28, "No space left on device", target)
        rename(source, target, **more)

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(SourceNotReadyError, match="No space left on device"):
        await world.tree(address=operator)
    staging = world.tier / names.VIEWS_FOLDER / STAGING
    assert os.listdir(staging) == []


async def test_what_a_disk_has_no_room_for_is_not_transferred_at_every_try(
    world: World, operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = await world.published()
    length = world.operator.file(digest).stat().st_size
    monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_bavail=3 * length, f_frsize=1))

    def take(*_: object) -> None:
        raise AssertionError("its bytes came")

    monkeypatch.setattr("tdcs.listing.transfer._take", take)
    with pytest.raises(SourceNotReadyError, match="and no more than 1/5 of what is free on the disk"):
        await world.tree(address=operator)


async def test_the_agent_may_read_what_views_keep_alive(world: World) -> None:
    world.give_agent(await world.published())
    tree = await world.tree()

    folder = tree
    while folder != world.tier:
        assert folder.stat().st_mode & 0o005 == 0o005, folder
        folder = folder.parent
