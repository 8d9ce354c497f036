"""Real agents in this process, on loopback sockets and folders of a test: sources, manifests, assignments."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import xxhash
from tests.support.waiting import eventually_async

from tdcs.listing.folder import ManifestFolder
from tdcs.listing.transfer import manifest_url
from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS, Assignment, MountState, Part, Peer, SourceAccess
from tdcs.model.block_identity import identity_of
from tdcs.model.file_blocks import WHOLE_BLOCKS, Cut
from tdcs.model.manifest import Manifest
from tdcs.model.manifest_builder import ManifestBuilder
from tdcs.node.agent.agent import Agent
from tdcs.node.agent.agent_settings import AgentSettings
from tdcs.node.agent.block_service import BlockService
from tdcs.node.agent.disk.own_ids import enter_own_ids
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.disk.unclean_start import make_ready
from tdcs.node.agent.mount.peer_book import Patience
from tdcs.node.agent.serving import serving_agent
from tdcs.node.extents import extent_place
from tdcs.node.file_facts import FileFacts
from tdcs.trust.contexts import Contexts

MOUNT = "/datasets/0123456789abcdef"
CAPACITY = 1 << 30
SHORT = Patience(answer=1.0, silent=1.5, stalled=5.0, refused=0.05, away=2.0)
"""For peers of tests: they are on this machine."""


class ListedFile(NamedTuple):
    """A file as a source lists it."""

    path: bytes
    length: int
    tag: bytes


def listed_files(folder: Path) -> list[ListedFile]:
    """What TDCS lists of a folder."""
    return [
        ListedFile(
            os.fsencode(path.relative_to(folder)),
            path.stat().st_size,
            f"mtime-ms:{path.stat().st_mtime_ns // 1_000_000}".encode(),
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of a mount: its manifest, in a folder that everybody sees, and how its source is read."""

    manifest: Manifest
    folder: ManifestFolder
    source: SourceAccess

    def assignment(
        self,
        *,
        version: int = 1,
        slots: bytes = ALL_SLOTS,
        origin: bytes = ALL_SLOTS,
        peers: Iterable[Peer] = (),
        **fields: object,
    ) -> Assignment:
        """Hold these slots."""
        values: dict[str, object] = {
            "mount": self.manifest.path,
            "version": version,
            "manifest": self.manifest.digest,
            "parts": (Part(name="Dataset a/b", slots=slots),),
            "origin": origin,
            "peers": tuple(peers),
            "source": self.source,
            **fields,
        }
        return Assignment(**values)  # type: ignore[arg-type]

    @property
    def bytes(self) -> int:
        """Of all blocks."""
        return int(self.manifest.block_lengths.sum())


def make_version(
    files: Iterable[tuple[bytes, int, bytes]],
    *,
    folder: Path,
    source: SourceAccess,
    mount: str = MOUNT,
    cut: Cut = WHOLE_BLOCKS,
) -> Version:
    """A version of these files in a folder of manifests."""
    builder = ManifestBuilder(path=mount, source=source.uri, cut=cut)
    builder.add_listed(files)
    manifests = ManifestFolder(folder)
    return Version(manifest=manifests.open(manifests.write(builder)), folder=manifests, source=source)


def folder_version(folder: Path, *, store: Path, mount: str = MOUNT, cut: Cut = WHOLE_BLOCKS) -> Version:
    """The version that a folder has now."""
    source = SourceAccess(uri=f"file://{folder}")
    return make_version(listed_files(folder), folder=store, source=source, mount=mount, cut=cut)


def block_of(manifest: Manifest, path: str) -> int:
    """The id of the first block of a file."""
    paths = [manifest.file_path(file) for file in range(len(manifest))]
    return int(manifest.block_ids[manifest.blocks_of(paths.index(path.encode())).start])


def fill(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write files below a folder."""
    for name, content in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder


def content_of(disk: Disk, version: Version) -> dict[str, bytes]:
    """Files of a version that are whole on a disk, by path."""
    contents: dict[str, bytes] = {}
    manifest = version.manifest
    for file in range(len(manifest)):
        pieces = []
        for block in manifest.blocks_of(file):
            opened = disk.open(int(manifest.block_ids[block]))
            if opened is None:
                break
            try:
                pieces.append(os.pread(opened.fd, opened.length, opened.base))
            finally:
                os.close(opened.fd)
        else:
            contents[os.fsdecode(manifest.file_path(file))] = b"".join(pieces)
    return contents


def put_block(
    disk: Disk,
    manifest: Manifest,
    block: int,
    content: bytes,
    *,
    folder: Path | None = None,
    name: int | None = None,
) -> Path:
    """A block as an agent leaves it, by its number in the manifest: a file that says what it is. Its name is the
    block's id, or another one."""
    file = (folder or disk.spool) / str(manifest.block_ids[block] if name is None else name)
    partial = disk.partial / f"{file.name}.put"
    for parent in (file.parent, partial.parent):
        parent.mkdir(parents=True, exist_ok=True)
    partial.write_bytes(content)
    length = int(manifest.block_lengths[block])
    facts = FileFacts(identity_of(manifest, block), length, xxhash.xxh3_64_intdigest(content))
    disk.facts.write(str(partial), facts)
    # Under its own name last: a running agent removes what is there and says nothing of itself.
    partial.rename(file)
    return file


def put_part(disk: Disk, manifest: Manifest, block: int, content: bytes) -> None:
    """A block of a large file as an agent keeps it, by its number in the manifest."""
    identity = int(manifest.block_ids[block])
    with disk.create(identity, place=extent_place(manifest, block)) as partial:
        partial.write(memoryview(content), offset=0)
        disk.keep(
            partial,
            block=identity,
            identity=identity_of(manifest, block),
            length=len(content),
            content_hash=xxhash.xxh3_64_intdigest(content),
        )


class RunningAgent:
    """An agent with its two services."""

    def __init__(self, *, agent: Agent, blocks: BlockService, url: str, address: str) -> None:
        self.agent = agent
        self.blocks = blocks
        self.url = url
        self.address = address

    @property
    def disk(self) -> Disk:
        """Its folders."""
        return self.agent.disk

    def mount(self, path: str = MOUNT) -> MountState:
        """Its last state of a mount."""
        return self.agent.state.mounts.get(path, MountState(mount=path))

    def peer(self, *, slots: bytes = ALL_SLOTS, complete: bytes = NO_SLOTS) -> Peer:
        """As another agent is told of it."""
        return Peer(node=self.agent.settings.node, address=self.address, slots=slots, complete=complete)

    def give(self, *assignments: Assignment, manifests: Version | None = None) -> None:
        """Assign; with `manifests` the manifest is put on the disk first."""
        for assignment in assignments:
            if manifests is not None:
                content = manifests.folder.file(assignment.manifest).read_bytes()
                self.agent.manifests.file(assignment.manifest).write_bytes(content)
        self.agent.assign(assignments)

    async def holds(self, version: Version, *, deadline: float = 30) -> None:
        """Wait until it holds all of a version."""

        def all_there() -> bool:
            state = self.mount(version.manifest.path)
            return state.manifest == version.manifest.digest and state.held_bytes == version.bytes

        await eventually_async(
            all_there, deadline=deadline, describe=lambda: repr(self.agent.state), interval=0.02
        )

    def content(self, version: Version) -> dict[str, bytes]:
        """What it holds, by path."""
        return content_of(self.disk, version)


@asynccontextmanager
async def running_agent(
    tier: Path,
    *,
    node: str = "node-1",
    capacity: int = CAPACITY,
    patience: Patience = SHORT,
    ready_seconds: float = 10,
    tls: Contexts | None = None,
) -> AsyncIterator[RunningAgent]:
    """An agent on a tier's folder, until the body ends; with `tls` it answers callers by their roles."""
    disk = Disk(tier)
    enter_own_ids(disk)
    make_ready(disk)
    settings = AgentSettings(node=node, capacity_bytes=capacity, patience=patience)
    async with serving_agent(
        settings,
        disk=disk,
        tls=tls,
        host="127.0.0.1",
        shutdown_seconds=0.1,
    ) as serving:
        agent = serving.agent
        work = asyncio.create_task(agent.run())
        try:
            await eventually_async(lambda: agent.ready or work.done(), deadline=ready_seconds, interval=0.01)
            scheme = "http" if tls is None else "https"
            yield RunningAgent(
                agent=agent,
                blocks=serving.blocks,
                url=f"{scheme}://127.0.0.1:{serving.control_port}",
                address=f"127.0.0.1:{serving.block_port}",
            )
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work  # one that has ended with an error shows it
            await asyncio.to_thread(disk.close)


def url_of(running: RunningAgent, version: Version) -> str:
    """Where another agent fetches the manifest from this one."""
    return manifest_url(address=running.url.removeprefix("http://"), digest=version.manifest.digest)
