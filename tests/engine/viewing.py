"""A node with native views over a real Alluxio, as processes on this machine; for tests and benchmarks.

The node plugin runs beside a master, workers and a FUSE client. A *pod* is a process in a mount namespace of its own,
which gets later mounts as a container with mountPropagation HostToContainer does.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.engine.servers import AlluxioCluster, FuseClient, S3Server
from tests.support.waiting import eventually, eventually_async
from tests.unit.csi.conftest import Node, dies_with_us

from tdcs.engine.alluxio import AlluxioEngine
from tdcs.engine.protocol import Block

HERE, ELSEWHERE = "node-1", "node-2"


def digest(content: bytes) -> str:
    """What two equal contents share."""
    return hashlib.sha256(content).hexdigest()


@dataclass
class Dataset:
    """One in the cache, with the checksums of its source."""

    path: str
    sums: dict[str, str]


@dataclass
class Bench:
    """A node of the cluster with the plugin and its pods."""

    cluster: AlluxioCluster
    engine: AlluxioEngine
    s3: S3Server
    node: Node
    client: FuseClient
    pods: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What the plugin takes for the cache cluster's name: the FUSE client's folder."""
        return self.client.folder.name

    @property
    def tier(self) -> Path:
        """The worker's folder."""
        return self.cluster.folder / "blocks" / HERE

    def start_plugin(self) -> None:
        """Start the plugin."""
        self.node.start_plugin(
            wait=30,
            more=(f"--cache-root={self.node.cache_root}", f"--master={self.cluster.target}"),
        )

    async def mount(self, files: Mapping[str, bytes]) -> Dataset:
        """Put files into a new bucket and mount it."""
        bucket = f"b-{uuid.uuid4().hex}"
        self.s3.make_bucket(bucket)
        self.s3.put_files(bucket, {f"data/{name}": content for name, content in files.items()})
        path = f"/datasets/{uuid.uuid4().hex[:16]}"
        await self.engine.mount(path=path, source=self.s3.source(f"s3://{bucket}/data"))
        return Dataset(path, {name: digest(content) for name, content in files.items()})

    async def blocks(self, dataset: Dataset) -> list[Block]:
        """All blocks of a dataset."""
        pages = self.engine.files(path=dataset.path)
        return [block async for page in pages for file in page for block in file.blocks]

    async def load(self, dataset: Dataset) -> None:
        """Load all of it onto this node."""
        await self.place(await self.blocks(dataset), worker=HERE)

    async def place(self, blocks: list[Block], *, worker: str) -> None:
        """Load blocks onto a worker; the worker of a busy machine gives some up, which may be asked for again."""

        async def placed() -> bool:
            return await self.engine.put(worker=worker, blocks=blocks) == []

        await eventually_async(placed, deadline=180)

    def _start_pod(self) -> subprocess.Popen[bytes]:
        pod = subprocess.Popen(dies_with_us("unshare", "--mount", "--propagation=slave", "sleep", "infinity"))
        self.pods.append(pod)
        own = os.readlink("/proc/self/ns/mnt")
        eventually(lambda: os.readlink(f"/proc/{pod.pid}/ns/mnt") != own, deadline=20)
        return pod

    async def publish(self, dataset: Dataset) -> Path:
        """A new pod's volume, as the pod sees it."""
        return await self.publish_path(dataset.path)

    async def publish_path(self, path: str) -> Path:
        """A new pod's volume of what is mounted there, as the pod sees it."""
        target = self.node.target(f"pod-{uuid.uuid4().hex[:8]}")
        pod = self._start_pod()
        await asyncio.to_thread(self.node.publish, target, path=path, cluster=self.name, timeout=120)
        return Path(f"/proc/{pod.pid}/root{target}")

    def kill_client(self) -> None:
        """SIGKILL to the FUSE client itself: the container's first process is the entrypoint."""
        (java,) = (
            child
            for child in psutil.Process(self.client.process.pid).children(recursive=True)
            if "java" in child.name()
        )
        # One that dies young is kubelet's to start again, and there is no kubelet here.
        eventually(lambda: time.time() - java.create_time() > 11, deadline=30)
        java.kill()


def sums_of(volume: Path) -> dict[str, str]:
    """Checksums of all files below a folder, symbolic links followed."""
    found = {}
    for folder, folders, files in os.walk(volume):
        if ".tdcs" in folders:
            folders.remove(".tdcs")
        for name in files:
            path = Path(folder) / name
            found[str(path.relative_to(volume))] = digest(path.read_bytes())
    return found


def native(volume: Path) -> set[str]:
    """The files that are links to blocks, or empty."""
    return {
        str(path.relative_to(volume))
        for folder, folders, files in os.walk(volume)
        for path in (Path(folder) / name for name in files)
        if ".tdcs" not in Path(folder).parts and not path.is_symlink()
    }


@contextmanager
def machine_as_node() -> Iterator[Node]:
    """This machine as a node: kubelet's folder, shared as on a real one."""
    root = Path(tempfile.mkdtemp(prefix="tdcs-v-")).resolve()
    node = Node(root=root, namespace=os.getpid())
    node.cache_root.mkdir()
    node.kubelet.mkdir()
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
async def viewing(
    *, cluster: AlluxioCluster, s3: S3Server, node: Node, block_size: int
) -> AsyncIterator[Bench]:
    """Start the cluster, a FUSE client on the node HERE, and the plugin; all of it ends with the block.

    Files of more than `block_size` bytes have several blocks.
    """
    blocks = cluster.folder / "blocks" / HERE
    share(blocks)
    engine = AlluxioEngine(master=cluster.target, patience=60, block_size=block_size)
    pods: list[subprocess.Popen[bytes]] = []
    try:
        cluster.start()
        client = await asyncio.to_thread(cluster.mount_fuse, HERE)
        node.fuse_root.symlink_to(cluster.folder)
        (node.cache_root / client.folder.name).symlink_to(blocks)
        bench = Bench(cluster=cluster, engine=engine, s3=s3, node=node, client=client, pods=pods)

        async def registered() -> bool:
            return len([info for info in await engine.workers() if info.live]) == len(cluster.workers)

        await eventually_async(registered, deadline=60)
        bench.start_plugin()
        yield bench
    finally:
        for pod in pods:
            pod.kill()
            pod.wait()
        await engine.close()
        cluster.stop()
        unmount(blocks)


def share(folder: Path) -> None:
    """Make what is mounted below a folder visible to the pods, as kubelet has it."""
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    subprocess.run(["mount", "--make-shared", folder], check=True)


def unmount(folder: Path) -> None:
    """Unmount a folder and all below it, the deepest first; lazily, for a client may be dead."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split(" ")[4] for line in lines]
    for point in reversed([p for p in points if p == str(folder) or p.startswith(f"{folder}/")]):
        subprocess.run(["umount", "--lazy", point], check=False)
