"""A node with native views, as processes on this machine; for tests and benchmarks.

The node plugin and the remote-read client are real; what is not on the node, the client has from processes in the place
of the other node's agent, and in the place of the operator a server says what is mounted. A *pod* is a process in a
mount namespace of its own, which gets later mounts as a container with mountPropagation HostToContainer does.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import msgspec
from tests.engine.servers import S3Server, unmount
from tests.support.dataplane import giver_process
from tests.support.dataplane.agents import put_block, put_part
from tests.support.dataplane.node import Node, dies_with_us
from tests.support.dataplane.readers import listens
from tests.support.programs.http_store import http_store
from tests.support.programs.ports import free_ports
from tests.support.programs.processes import Process
from tests.support.waiting import eventually

from tdcs.api import names
from tdcs.engine.holder_table import MOUNTS_PATH, ClusterMounts, Holder, HolderTable
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.one_listing import list_source
from tdcs.listing.result import access_of
from tdcs.model.agent_state import ALL_SLOTS
from tdcs.model.cache_engine import Source
from tdcs.model.file_blocks import Cut
from tdcs.model.manifest import Manifest
from tdcs.model.manifest_builder import ManifestBuilder
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.csi import bind_mount as mount
from tdcs.node.csi import mountinfo
from tdcs.node.reader import session
from tdcs.node.reader.registration import ReaderFolder, write_atomically
from tdcs.node.store_boot import boot_file, boot_id

BLOCK_SIZE = 1 << 20
CUT = Cut(BLOCK_SIZE, BLOCK_SIZE)
"""Files above it lie in extents of so many bytes, so that small ones do."""
HERE, ELSEWHERE = "node-1", "node-2"
CLUSTER = "default"
"""What the plugin takes for the cache cluster's name."""
OWN_AGENT = Holder(node=HERE, address="127.0.0.1:1", present=ALL_SLOTS)
"""The agent of the reader's own node, which may have some of everything; it is not asked."""


def digest(content: bytes) -> str:
    """What two equal contents share."""
    return hashlib.sha256(content).hexdigest()


@dataclass
class Dataset:
    """One in the cache, with the checksums of its source."""

    path: str
    sums: dict[str, str]


class ViewClient:
    """The remote-read client of a node: its holder and its reader."""

    def __init__(self, node: Node) -> None:
        self.own = ReaderFolder(node.reader_root)
        (port,) = free_ports(1)
        command = (
            sys.executable,
            "-c",
            "from tdcs.node.reader import reader_command; reader_command.command()",
        )
        where = (f"--folder={node.reader_root}", f"--node={HERE}")
        self.holder = Process(
            name="holder",
            argv=[*command, "hold", *where],
            log=node.root / "holder.log",
            ready=lambda: session.is_mounted(point=str(self.own.point)),
        )
        self.reader = Process(
            name="reader",
            argv=[*command, "run", *where, f"--health-port={port}"],
            log=node.root / "reader.log",
            ready=lambda: _is_healthy(port),
        )
        self.start_seconds = 0.0

    def start(self) -> None:
        """Mount and serve; `start_seconds` is how long that took."""
        begin = time.monotonic()
        self.holder.start()
        self.reader.start()
        self.start_seconds = time.monotonic() - begin

    def kill(self) -> None:
        """End both; the file system stays mounted, dead."""
        self.reader.kill()
        self.holder.kill()

    def stop(self) -> None:
        """End both, and unmount."""
        self.kill()
        session.unmount(point=str(self.own.point))


def _is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class OtherAgent:
    """What the other node's agent is to the client, for one mount: it has that node's blocks, and reads the source."""

    def __init__(self, tier: Path, source: Source, *, log: Path) -> None:
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self.process = Process(
            name="agent",
            argv=[
                *(sys.executable, "-m", giver_process.__name__, str(tier), str(port)),
                *(msgspec.json.encode(access_of(source)).decode(), ""),
            ],
            log=log,
            ready=lambda: listens(self.address),
        )
        self.process.start()

    @property
    def table(self) -> HolderTable:
        """Who holds what, as the operator says it."""
        holder = Holder(node=ELSEWHERE, address=self.address, present=ALL_SLOTS, reads_source=True)
        return HolderTable(holders=(OWN_AGENT, holder), revision=1)


@dataclass
class Bench:
    """A node with the plugin and its pods.

    Attributes:
        tiers: the folder with the folder of each node's blocks.
        published: the version of each mount, by its path.
        silent: while it is set `operator`, which says what is mounted, answers nobody.
        tables: gives who holds what of a mount; by default the other node's agent of that mount.
    """

    tiers: Path
    server: S3Server | None
    node: Node
    client: ViewClient
    others: dict[str, OtherAgent] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    published: dict[str, str] = field(default_factory=dict)
    silent: threading.Event = field(default_factory=threading.Event)
    tables: Callable[[str], HolderTable] | None = None
    pods: list[subprocess.Popen[bytes]] = field(default_factory=list)
    targets: list[Path] = field(default_factory=list)
    port: int = 0
    operator: str = ""

    @property
    def s3(self) -> S3Server:
        """The store of `mount`; whoever made this without one mounts sources of its own."""
        assert self.server is not None, "this node was made without an S3 server"
        return self.server

    @property
    def tier(self) -> Path:
        """The folder of this node's blocks."""
        return self.tiers / HERE

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """What is mounted, as the operator says it."""
        while self.silent.is_set():
            time.sleep(0.05)
        is_known_path = request.path == f"{MOUNTS_PATH}{CLUSTER}"
        body = msgspec.msgpack.encode(ClusterMounts(versions=dict(self.published))) if is_known_path else b""
        request.send_response(200 if is_known_path else 404)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def start_plugin(self) -> None:
        """Start the plugin."""
        (self.port,) = free_ports(1)
        self.node.start_plugin(
            wait=30,
            more=(
                f"--cache-root={self.node.cache_root}",
                f"--manifests={self.operator}",
                f"--metrics-port={self.port}",
                "--proc=/proc",
            ),
        )

    def metric(self, name: str) -> float:
        """The sum of a metric of the plugin over all views."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=20) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{"))

    async def mount(self, files: Mapping[str, bytes]) -> Dataset:
        """Put files into a new bucket and mount it."""
        bucket = f"b-{uuid.uuid4().hex}"
        self.s3.make_bucket(bucket)
        self.s3.put_files(bucket, {f"data/{name}": content for name, content in files.items()})
        path = await self.mount_source(self.s3.source(f"s3://{bucket}/data"))
        return Dataset(path, {name: digest(content) for name, content in files.items()})

    async def mount_folder(self, folder: Path, files: Mapping[str, bytes]) -> Dataset:
        """Put files into a folder and mount it."""
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        path = await self.mount_source(Source(uri=f"file://{folder}"))
        return Dataset(path, {name: digest(content) for name, content in files.items()})

    async def mount_source(self, source: Source) -> str:
        """Mount a source, which an agent elsewhere can read; its path."""
        path = f"/datasets/{uuid.uuid4().hex[:16]}"
        self.sources[path] = source
        await self.notice(path)
        log = self.tiers / f"agent-of-{path.rpartition('/')[2]}.log"
        self.others[path] = await asyncio.to_thread(OtherAgent, self.tiers / ELSEWHERE, source, log=log)
        return path

    async def notice(self, path: str) -> str:
        """List a source as the operator does, give the node's agent the manifest, and publish its digest."""
        source, folder = self.sources[path], ManifestFolder(self.tier / names.AGENT_MANIFESTS)
        if source.uri.startswith("file://"):
            root = self._root(source)
            builder = ManifestBuilder(path=path, source=source.uri, cut=CUT)
            builder.add_listed(_found(root, file) for file in root.rglob("*") if file.is_file())
            self.published[path] = folder.write(builder)
        else:
            listed = await list_source(source=source, path=path, folder=folder, cut=CUT)
            self.published[path] = listed.digest
        return self.published[path]

    def manifest(self, dataset: Dataset) -> Manifest:
        """Of the version that is published."""
        folder = ManifestFolder(self.tier / names.AGENT_MANIFESTS)
        return folder.open(self.published[dataset.path])

    def blocks(self, dataset: Dataset) -> list[int]:
        """The numbers of all blocks of a dataset in its manifest."""
        return list(range(self.manifest(dataset).blocks))

    async def load(self, dataset: Dataset) -> None:
        """Load all of it onto this node."""
        await self.place(dataset, self.blocks(dataset), worker=HERE)

    async def place(self, dataset: Dataset, blocks: Sequence[int], *, worker: str) -> None:
        """Put blocks onto a node, as its agent leaves them."""
        await asyncio.to_thread(self._place, dataset, blocks, worker)

    def _place(self, dataset: Dataset, blocks: Sequence[int], worker: str) -> None:
        manifest, disk = self.manifest(dataset), Disk(self.tiers / worker)
        root = self._root(self.sources[dataset.path])
        disk.prepare()
        for block in blocks:
            file = manifest.file_of(block)
            all_of_it = manifest.blocks_of(file)
            begin = int(manifest.block_lengths[all_of_it.start : block].sum())
            content = (root / os.fsdecode(manifest.file_path(file))).read_bytes()
            content = content[begin : begin + int(manifest.block_lengths[block])]
            put = put_block if len(all_of_it) == 1 else put_part
            put(disk, manifest, block, content)

    def _root(self, source: Source) -> Path:
        """The folder that has a source's files."""
        kind, _, place = source.uri.partition("://")
        if kind == "file":
            return Path(place)
        bucket, _, prefix = place.partition("/")
        return self.s3.folder_of(bucket) / prefix

    async def evict(self, dataset: Dataset) -> None:
        """Remove all of it from this node."""
        manifest = self.manifest(dataset)
        for identity in manifest.block_ids.tolist():
            for folder in (names.AGENT_SPOOL, names.AGENT_WHOLE):
                (self.tier / folder / str(identity)).unlink(missing_ok=True)

    def _start_pod(self, *, propagation: str) -> subprocess.Popen[bytes]:
        pod = subprocess.Popen(
            dies_with_us("unshare", "--mount", f"--propagation={propagation}", "sleep", "infinity")
        )
        self.pods.append(pod)
        own_namespace = os.readlink("/proc/self/ns/mnt")
        eventually(lambda: os.readlink(f"/proc/{pod.pid}/ns/mnt") != own_namespace, deadline=60)
        return pod

    async def publish(self, dataset: Dataset) -> Path:
        """A new pod's volume, as the pod sees it."""
        return await self.publish_path(dataset.path)

    async def publish_path(self, path: str, *, tiers: str = "") -> Path:
        """A new pod's volume of what is mounted there, as the pod sees it; `tiers` as a volume names them."""
        target = self.node.target(f"pod-{uuid.uuid4().hex[:8]}")
        self.targets.append(target)
        pod = self._start_pod(propagation="slave")
        await asyncio.to_thread(
            self.node.publish, target, path=path, cluster=CLUSTER, tiers=tiers, timeout=120
        )
        self._say_who_holds(path)
        return Path(f"/proc/{pod.pid}/root{target}")

    def _say_who_holds(self, path: str) -> None:
        """What the operator's answer becomes, for each version of a mount that is registered with the client."""
        table = self.tables(path) if self.tables is not None else self.others[path].table
        registry = self.client.own
        for name in registry.registered.names():
            registration = registry.registered.read(name)
            if registration is not None and registration.path == path:
                write_atomically(registry.holders / name, msgspec.msgpack.encode(table))

    def start_secluded(self, volume: Path) -> Path:
        """Another container of a pod, which sees nothing that is mounted from now on; its view of the volume."""
        pod = self._start_pod(propagation="private")
        return Path(f"/proc/{pod.pid}/root{_target(volume)}")

    def end_pods(self) -> None:
        """End all containers."""
        while self.pods:
            pod = self.pods.pop()
            pod.kill()
            pod.wait()

    def unpublish(self, volume: Path) -> Path:
        """Take a pod's volume away, as kubelet does when the pod ends; where it was mounted."""
        target = _target(volume)
        self.node.unpublish(target)
        return target

    async def clear(self) -> None:
        """Take all volumes away and unmount all datasets: the node is as it was in the beginning."""
        self.end_pods()
        while self.targets:
            await asyncio.to_thread(self.node.unpublish, self.targets.pop())
        self.published.clear()
        self.end_others()

    def end_others(self) -> None:
        """End what has blocks and sources elsewhere."""
        while self.others:
            self.others.popitem()[1].process.kill()

    def replace_client(self) -> None:
        """Kill holder and reader, and start them anew: with another file system."""
        self.client.kill()
        self.client.start()


def _found(root: Path, file: Path) -> tuple[bytes, int, bytes]:
    """A file of a folder, as agents list it."""
    status = file.stat()
    tag = f"mtime-ms:{status.st_mtime_ns // 1_000_000}"
    return os.fsencode(file.relative_to(root)), status.st_size, tag.encode()


def _target(volume: Path) -> Path:
    """Where kubelet has a volume that a pod sees."""
    return Path("/" + str(volume).split("/root/", 1)[1])


def sums_of(volume: Path) -> dict[str, str]:
    """Checksums of all files below a folder."""
    sums = {}
    for folder, _, files in os.walk(volume):
        for name in files:
            path = Path(folder) / name
            sums[str(path.relative_to(volume))] = digest(path.read_bytes())
    return sums


def contents(*, small: int, large: bool = False) -> dict[str, bytes]:
    """A dataset: an empty file, small files in folders and, if asked for, a file of several extents."""
    files = {"zero": b""} | {
        f"train/n{number % 7}/{number:05}.jpg": random.randbytes(3000) for number in range(small)
    }
    if large:
        files["parts/large.bin"] = random.randbytes(3 * BLOCK_SIZE + 17)
    return files


@contextmanager
def reading(volume: Path, name: str, expected: str) -> Iterator[list[str]]:
    """Open and read one file again and again; yields what went wrong."""
    wrong: list[str] = []
    stop = threading.Event()

    def loop() -> None:
        while not stop.wait(0.02):
            try:
                if digest((volume / name).read_bytes()) != expected:
                    wrong.append("other bytes")
            except OSError as error:
                wrong.append(str(error))

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield wrong
    finally:
        stop.set()
        thread.join(timeout=30)


def native(volume: Path) -> set[str]:
    """The files that are links to blocks, or empty."""
    paths = [Path(folder) / name for folder, _, files in os.walk(volume) for name in files]
    statuses = {path: path.stat() for path in paths}
    return {
        str(path.relative_to(volume))
        for path, status in statuses.items()
        if status.st_nlink >= 2 or not status.st_size
    }


@contextmanager
def machine_as_node() -> Iterator[Node]:
    """This machine as a node: kubelet's folder, shared as on a real one."""
    root = Path(tempfile.mkdtemp(prefix="tdcs-v-")).resolve()
    node = Node(root=root, namespace=os.getpid())
    for folder in (node.cache_root, node.kubelet, node.reader_root):
        folder.mkdir()
    share(node.kubelet)
    try:
        yield node
    finally:
        for process in node.processes:
            process.kill()
            process.wait()
        unmount(node.kubelet)
        shutil.rmtree(root)


@asynccontextmanager
async def viewing(*, tiers: Path, s3: S3Server | None, node: Node) -> AsyncIterator[Bench]:
    """Start the remote-read client of the node HERE, and the plugin; all of it ends with the block."""
    with serving(tiers=tiers, node=node) as client:
        async with plugged(tiers=tiers, client=client, s3=s3, node=node) as bench:
            yield bench


@contextmanager
def serving(*, tiers: Path, node: Node) -> Iterator[ViewClient]:
    """Start the remote-read client of the node HERE; it ends with the block."""
    blocks = tiers / HERE
    for folder in (blocks, tiers / ELSEWHERE):
        folder.mkdir(parents=True, exist_ok=True)
    share(blocks)
    client = ViewClient(node)
    client.own.prepare()
    try:
        client.start()
        (node.cache_root / CLUSTER).symlink_to(blocks)
        noted = Path(
            boot_file(str(blocks))
        )  # as the agent does, once it has looked what a loss of power left
        noted.parent.mkdir(parents=True, exist_ok=True)
        noted.write_text(boot_id())
        yield client
    finally:
        client.stop()
        for mounted in mountinfo.read():  # what is shown of views that nobody uses
            if mounted.point.startswith(f"{blocks}/"):
                mount.detach(target=mounted.point)
        unmount(blocks)


@asynccontextmanager
async def plugged(
    *, tiers: Path, client: ViewClient, s3: S3Server | None, node: Node
) -> AsyncIterator[Bench]:
    """Start the plugin beside a client; the plugin and the pods end with the block."""
    bench = Bench(tiers=tiers, server=s3, node=node, client=client)
    with http_store(bench.answer) as bench.operator:
        try:
            bench.start_plugin()
            yield bench
        finally:
            bench.silent.clear()
            bench.end_pods()
            bench.end_others()
            print(node.log(), file=sys.stderr)  # what a benchmark prints is its results
            node.end_plugin()


def share(folder: Path) -> None:
    """Make what is mounted below a folder visible to the pods, as kubelet has it."""
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    subprocess.run(["mount", "--make-shared", folder], check=True)
