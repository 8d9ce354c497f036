"""A node in miniature: a mount namespace of its own, in which the real plugin process serves real sockets."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support import programs
from tests.support.waiting import eventually

from tdcs.api import names
from tdcs.node.csi import csi_service

READ_MANY = 3
NODE = "node-a"
needs_fuse = pytest.mark.skipif(
    not os.path.exists("/dev/fuse"),
    reason="what the remote-read client does is not tested: there is no /dev/fuse",
)
DIE_WITH_PARENT = Path(programs.__file__).with_name("die_with_parent.py")

# Opens /dev/fuse, mounts it at argv[1] and answers nothing: a remote-read client that hangs. Killed, it has died.
SILENT_FUSE = """
import ctypes, os, signal, sys
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"silent", os.fsencode(sys.argv[1]), b"fuse", ctypes.c_ulong(0), options):
    sys.exit(os.strerror(ctypes.get_errno()))
print("mounted", flush=True)
signal.pause()
"""


@dataclass
class Node:
    """Handles of the miniature node; paths are the same inside and outside of its mount namespace."""

    root: Path
    namespace: int
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    plugin: "subprocess.Popen[str] | None" = None

    @property
    def reader_root(self) -> Path:
        return self.root / "reader"

    @property
    def cache_root(self) -> Path:
        return self.root / "cache"

    @property
    def kubelet(self) -> Path:
        return self.root / "kubelet"

    def target(self, name: str = "pod-1") -> Path:
        path = self.kubelet / "pods" / name / "volumes" / "data" / "mount"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def inside(self, path: Path) -> Path:
        """The path as a process in the node's mount namespace sees it."""
        return Path(f"/proc/{self.namespace}/root{path}")

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["nsenter", f"--target={self.namespace}", "--mount", *command],
            check=check,
            text=True,
            capture_output=True,
        )

    def start(self, *command: str, **options: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            dies_with_us("nsenter", f"--target={self.namespace}", "--mount", *command), text=True, **options
        )
        self.processes.append(process)
        return process

    def share(self, folder: Path) -> None:
        """Make a folder as a plugin's container has it from its node: a mount of its own, which shares its mounts."""
        folder.mkdir()
        self.run("mount", "--bind", str(folder), str(folder))
        self.run("mount", "--make-shared", str(folder))

    @property
    def client_point(self) -> Path:
        """Where the remote-read client is mounted."""
        return self.reader_root / names.READER_MOUNT

    def mount_client(self, files: Mapping[str, str]) -> None:
        """Mount a file system where the remote-read client would, with these files."""
        self.client_point.mkdir(exist_ok=True)
        self.run("mount", "-t", "tmpfs", "client", str(self.client_point))
        for path, content in files.items():
            file = self.inside(self.client_point / path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)

    def silent_client(self) -> subprocess.Popen[str]:
        """Mount one that does not answer, until it is killed."""
        self.client_point.mkdir(exist_ok=True)
        process = self.start(
            sys.executable, "-c", SILENT_FUSE, str(self.client_point), stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "mounted\n"
        return process

    def unmount_client(self) -> None:
        """Take it away, dead or alive; who has it mounted elsewhere keeps it."""
        self.run("umount", "--lazy", str(self.client_point))

    def start_plugin(self, *, wait: float = 0.0, answer: float = 10.0, more: Sequence[str] = ()) -> None:
        """Start the plugin, with more options."""
        log = (self.root / "plugin.log").open("a")
        arguments = [
            f"--node={NODE}",
            f"--reader-root={self.reader_root}",
            f"--cache-root={self.cache_root}",
            f"--kubelet={self.kubelet}",
            f"--wait={wait}",
            f"--answer={answer}",
            *more,
        ]
        self.plugin = self.start(sys.executable, "-m", "tdcs.node.csi", *arguments, stdout=log, stderr=log)
        eventually(lambda: "serves" in self.log(), deadline=60, describe=self.log)

    def kill_plugin(self, number: signal.Signals) -> int:
        assert self.plugin is not None
        self.plugin.send_signal(number)
        code = self.plugin.wait(timeout=60)
        (self.root / "plugin.log").write_text("")
        return code

    def end_plugin(self) -> None:
        """End the plugin, if it runs."""
        if self.plugin is not None and self.plugin.poll() is None:
            self.kill_plugin(signal.SIGTERM)

    def log(self) -> str:
        return (self.root / "plugin.log").read_text()

    @property
    def csi_socket(self) -> Path:
        return self.kubelet / "plugins/csi.tdcs.io/csi.sock"

    @property
    def registration_socket(self) -> Path:
        return self.kubelet / "plugins_registry/csi.tdcs.io-reg.sock"

    def call(
        self, method: str, request: Any, *, answer: str, socket: Path | None = None, timeout: float = 60
    ) -> Any:
        """Call a method as kubelet would, with the name of its answer's message; raises grpc.RpcError."""
        with grpc.insecure_channel(f"unix://{socket or self.csi_socket}") as channel:
            call = channel.unary_unary(
                f"/{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=csi_service.message(name=answer).FromString,
            )
            return call(request, timeout=timeout)

    def publish(
        self,
        target: Path,
        *,
        path: str = "/datasets/0123456789abcdef",
        cluster: str = "default",
        tiers: str = "",
        namespace: str = "team",
        volume: str = "tdcs.team.data",
        mode: int = READ_MANY,
        timeout: float = 60,
    ) -> None:
        request = csi_service.message(name="csi.v1.NodePublishVolumeRequest")(
            volume_id=volume,
            target_path=str(target),
            volume_capability={"mount": {}, "access_mode": {"mode": mode}},
            volume_context={
                "cluster": cluster,
                "path": path,
                "csi.storage.k8s.io/pod.name": "p",
                **({"csi.storage.k8s.io/pod.namespace": namespace} if namespace else {}),
                **({"tiers": tiers} if tiers else {}),
            },
        )
        answer = "csi.v1.NodePublishVolumeResponse"
        self.call("csi.v1.Node/NodePublishVolume", request, answer=answer, timeout=timeout)

    def unpublish(self, target: Path) -> None:
        request = csi_service.message(name="csi.v1.NodeUnpublishVolumeRequest")(
            volume_id="tdcs.team.data", target_path=str(target)
        )
        self.call("csi.v1.Node/NodeUnpublishVolume", request, answer="csi.v1.NodeUnpublishVolumeResponse")

    def mounts(self, point: Path) -> list[str]:
        """The lines of mountinfo for what is mounted at `point`."""
        lines = Path(f"/proc/{self.namespace}/mountinfo").read_text().splitlines()
        return [line for line in lines if line.split(" ")[4] == str(point)]


def dies_with_us(program: str, *arguments: str) -> list[str]:
    """The command, run so that the kernel ends it when the tests are killed."""
    executable = shutil.which(program)
    assert executable is not None
    return [sys.executable, "-I", "-S", str(DIE_WITH_PARENT), str(os.getpid()), executable, *arguments]


def cannot_mount() -> str | None:
    """Why this process cannot make mounts, or None if it can."""
    if not shutil.which("nsenter") or not shutil.which("unshare"):
        return "the programs unshare and nsenter (util-linux) are missing"
    if os.geteuid() != 0:
        return "mounts can only be made by root"
    tried = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True, text=True)
    return tried.stderr.strip() or "a mount namespace cannot be made" if tried.returncode else None


@contextmanager
def miniature_node() -> Iterator[Node]:
    """A node without a cache cluster and without a running plugin; its processes and mounts end with the body."""
    holder = subprocess.Popen(
        dies_with_us("unshare", "--mount", "--propagation=private", "sleep", "infinity")
    )
    # Not pytest's tmp_path: a socket's path may have 107 bytes.
    node = Node(root=Path(tempfile.mkdtemp(prefix="tdcs-csi-")).resolve(), namespace=holder.pid)
    try:
        own_namespace = os.readlink("/proc/self/ns/mnt")
        eventually(lambda: os.readlink(f"/proc/{holder.pid}/ns/mnt") != own_namespace, deadline=60)
        # As on a real node, folders that plugins and clients mount into are shared with those who watch them.
        for folder in (node.reader_root, node.kubelet, node.cache_root):
            node.share(folder)
        yield node
    finally:
        for process in reversed(node.processes):
            process.kill()
            process.wait()
        holder.kill()
        holder.wait()
        shutil.rmtree(node.root)
