"""A real Alluxio and a real S3 server as processes on loopback addresses of their own.

Alluxio's processes run through the image's own entrypoint and with the product's own settings, so what these tests see
is what a cluster runs. All addresses lie in one random ``127.x.y.0/24``, hence default ports everywhere and no clash
with another run.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import boto3
from botocore.config import Config
from tests.support.certificates import TestAuthority
from tests.support.programs.ports import free_ports
from tests.support.programs.processes import Process

from tdcs.alluxio import profile
from tdcs.alluxio.profile import AlluxioRole, Profile, ProfileTier
from tdcs.api import names
from tdcs.control.cachecluster import stock_client
from tdcs.model.cache_engine import Credentials, Source
from tdcs.trust import roles as trust_roles
from tdcs_local import programs

MOUNT_OPTIONS = {
    # Pages are kept between opens as long as size and time stay the same. By default each lookup of a small file would
    # reach the JVM, and threads would come and go with every burst of reads.
    Profile.TUNED: f"{stock_client.MOUNT_OPTIONS},auto_cache,entry_timeout=600,attr_timeout=600,max_idle_threads=64",
    Profile.STOCK: stock_client.MOUNT_OPTIONS,
}

CHECKOUT = Path(__file__).resolve().parents[2]
IMAGE = CHECKOUT / "deploy" / "images" / "alluxio"
MIB = 1 << 20

# Small: many processes share the machine with the other tiers.
_HEAP = {AlluxioRole.MASTER: 160 * MIB, AlluxioRole.WORKER: 128 * MIB, AlluxioRole.FUSE: 128 * MIB}


def random_network() -> str:
    """The first three numbers of a loopback network where nobody listens on Alluxio's port."""
    for _ in range(50):
        network = f"127.{random.randint(10, 250)}.{random.randint(1, 250)}"
        with socket.socket() as probe, suppress(OSError):
            probe.bind((f"{network}.1", names.MASTER_RPC_PORT))
            return network
    raise OSError("no loopback network is free: something listens on port 19998 of all addresses")


def listens(host: str, port: int) -> bool:
    """Whether something accepts connections there."""
    with suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


MIB = 1 << 20
SMALL_CAPACITY = 8 * MIB


class S3Server:
    """versitygw over a folder: buckets are folders, objects are files."""

    def __init__(
        self,
        *,
        program: Path,
        folder: Path,
        address: str,
        options: Sequence[str] = (),
        root: Path | None = None,
    ) -> None:
        # One that no other store has, on whatever address: that one would be taken for this.
        (port,) = free_ports(1)
        self.endpoint = f"http://{address}:{port}"
        self.credentials = Credentials(access_key_id="test-account", secret_access_key="test-secret-7f3a9c")
        self._root = root or folder / "buckets"
        self._root.mkdir(parents=True, exist_ok=True)
        pair = self.credentials
        self.process = Process(
            name="versitygw",
            argv=[
                *(str(program), "--access", pair.access_key_id, "--secret", pair.secret_access_key),
                *("--port", f"{address}:{port}", *options, "posix", str(self._root)),
            ],
            log=folder / "versitygw.log",
            ready=lambda: listens(address, port),
            start_deadline=90,
        )
        self._client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=pair.access_key_id,
            aws_secret_access_key=pair.secret_access_key,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
        )

    def source(self, uri: str, *, credentials: Credentials | None = None) -> Source:
        """A source on this server, read with its own key pair unless another one is given."""
        return Source(
            uri=uri,
            options={"endpoint": self.endpoint, "region": "us-east-1", "pathStyle": "true"},
            credentials=credentials or self.credentials,
        )

    def make_bucket(self, name: str) -> None:
        """Create an empty bucket."""
        (self._root / name).mkdir()

    def folder_of(self, bucket: str) -> Path:
        """The folder that is the bucket: a file put there is an object."""
        return self._root / bucket

    def put_files(self, bucket: str, files: Mapping[str, bytes]) -> None:
        """Put many objects into a bucket, quickly: straight into the server's folder."""
        for name, content in files.items():
            target = self._root / bucket / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    def put(self, bucket: str, name: str, content: bytes) -> None:
        """Put one object through the API, which gives it a new ETag."""
        self._client.put_object(Bucket=bucket, Key=name, Body=content)

    def delete(self, bucket: str, name: str) -> None:
        """Delete one object through the API."""
        self._client.delete_object(Bucket=bucket, Key=name)


class AlluxioCluster:
    """A master, workers by node name, and FUSE clients on demand.

    Args:
        home: A folder with ``lib``, ``names`` and ``conf``, as the image has it in ``/opt/alluxio``.
        folder: For data, logs and mount points.
        network: As from ``random_network``.
        workers: Node name to capacity in bytes.
        overrides: Alluxio properties that differ from the product's.
        profile_kind: Which settings of reading it has.
        authority: Signs a certificate for every process; None: there are none.
        master_heap: The master's largest heap in bytes, for sources of many files; None: one for a few thousand.
    """

    def __init__(
        self,
        *,
        home: Path,
        folder: Path,
        network: str,
        workers: Mapping[str, int],
        overrides: Mapping[str, str],
        profile_kind: Profile = Profile.TUNED,
        authority: TestAuthority | None = None,
        master_heap: int | None = None,
    ) -> None:
        self.authority = authority
        self._heaps = _HEAP if master_heap is None else {**_HEAP, AlluxioRole.MASTER: master_heap}
        self.folder = folder
        self.master_host = f"{network}.1"
        self.target = f"{self.master_host}:{names.MASTER_RPC_PORT}"
        self.home = home
        self.profile_kind = profile_kind
        self._data = folder / "master"
        self._overrides = dict(overrides)
        self._properties = self.settings(profile_kind)
        self.master = self._process(
            role=AlluxioRole.MASTER,
            name="master",
            options=[
                f"-Dalluxio.master.bind.host={self.master_host}",
                f"-Dalluxio.master.web.bind.host={self.master_host}",
            ],
            address=(self.master_host, names.MASTER_RPC_PORT),
        )
        self.worker_hosts = {node: f"{network}.{number}" for number, node in enumerate(workers, start=11)}
        self.workers = {
            node: self._worker(node=node, address=self.worker_hosts[node], capacity=capacity)
            for node, capacity in workers.items()
        }
        self.clients: list[FuseClient] = []

    @property
    def libraries(self) -> Path:
        """The folder of Alluxio's jars."""
        return self.home / "lib"

    @property
    def client_options(self) -> list[str]:
        """JVM options with which a client of Alluxio finds this cluster."""
        return [
            f"-Dalluxio.master.hostname={self.master_host}",
            f"-Dalluxio.site.conf.dir={self._properties.parent}",
            *(
                option
                for option in profile.java_options(role=AlluxioRole.FUSE)
                if option.startswith("--add-opens")
            ),
        ]

    def settings(self, kind: Profile) -> Path:
        """The properties file of all processes of a cluster of this profile."""
        file = self.folder / f"conf-{kind.lower()}" / "alluxio-site.properties"
        file.parent.mkdir(parents=True, exist_ok=True)
        tier = ProfileTier(medium="SSD", path=str(self.folder / "unset"), capacity_bytes=0)
        settings = profile.site_properties(
            tier=tier,
            data_folder=str(self._data),
            overrides=self._overrides,
            profile=kind,
            trusted=self.authority is not None,
        )
        file.write_text(profile.render_properties(settings))
        return file

    def start(self) -> None:
        """Start all servers at once and wait until their ports are open."""
        self.master.launch()
        self.start_workers()
        self.master.wait_ready()

    def start_workers(self) -> None:
        """Start all workers at once and wait until their ports are open."""
        for process in self.workers.values():
            process.launch()
        for process in self.workers.values():
            process.wait_ready()

    def stop(self) -> None:
        """Stop everything; unmount what is mounted."""
        for client in self.clients:
            client.stop()
        for process in (*self.workers.values(), self.master):
            process.kill()

    def block_files(self, node: str) -> dict[int, Path]:
        """The block files in a worker's folder, by block id."""
        store = self.folder / "blocks" / node / "alluxioworker"
        return (
            {int(file.name): file for file in store.iterdir() if file.name.isdigit()}
            if store.exists()
            else {}
        )

    def mount_fuse(self, node: str, *, kind: Profile | None = None) -> FuseClient:
        """A running FUSE client on a node, with what the product gives this profile; by default the cluster's."""
        number = len(self.clients)
        client = FuseClient(cluster=self, node=node, number=number, kind=kind or self.profile_kind)
        self.clients.append(client)
        client.start()
        return client

    def logs(self) -> dict[str, str]:
        """What each process has logged."""
        return {
            log.name: log.read_text(errors="replace") for log in sorted((self.folder / "logs").glob("*.log"))
        }

    def trust_folder(self, name: str) -> Path:
        """The folder with the certificate of a process."""
        return self.folder / "trust" / name

    def trusted(self, role: AlluxioRole, name: str, *, host: str = "") -> list[str]:
        """JVM options of a process with a certificate, which is made here; none where there are no certificates."""
        if self.authority is None:
            return []
        folder = self.trust_folder(name)
        self.authority.folder(folder, trust_roles.Role(role.value), hosts=(host,) if host else ())
        return [f"-Dtdcs.trust={folder}", "-Dtdcs.trust.seconds=1"]

    def _worker(self, *, node: str, address: str, capacity: int) -> Process:
        blocks = self.folder / "blocks" / node
        blocks.mkdir(parents=True)
        return self._process(
            role=AlluxioRole.WORKER,
            name=node,
            environment={"ALLUXIO_HOSTNAME": address, "NODE_NAME": node},
            options=[
                f"-Dalluxio.worker.bind.host={address}",
                f"-Dalluxio.worker.web.bind.host={address}",
                f"-Dalluxio.worker.tieredstore.level0.dirs.path={blocks}",
                f"-Dalluxio.worker.tieredstore.level0.dirs.quota={capacity}B",
            ],
            address=(address, names.WORKER_RPC_PORT),
        )

    def _process(
        self,
        *,
        role: AlluxioRole,
        name: str,
        options: list[str],
        address: tuple[str, int],
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        return Process(
            name=name,
            argv=[str(IMAGE / "entrypoint.sh"), role],
            log=self.folder / "logs" / f"{name}.log",
            env=self.environment(role=role, options=[*options, *self.trusted(role, name, host=address[0])])
            | dict(environment or {}),
            ready=lambda: listens(*address),
            start_deadline=120,
        )

    def environment(self, *, role: AlluxioRole, options: list[str]) -> dict[str, str]:
        """The environment of a process, as a pod would have it."""
        return {
            **os.environ,
            "ALLUXIO_HOME": str(self.home),
            "ALLUXIO_DATA": str(self._data),
            "ALLUXIO_PROPERTIES_FILE": str(self._properties),
            "ALLUXIO_MASTER_HOSTNAME": self.master_host,
            "ALLUXIO_JAVA_OPTS": " ".join(
                [
                    *profile.java_options(role=role, heap_bytes=self._heaps[role], processors=2),
                    *(["-Dtdcs.stock=true"] if self.profile_kind is Profile.STOCK else []),
                    f"-Djava.io.tmpdir={self.folder}",  # the FUSE client unpacks its native library there
                    *options,
                ]
            ),
        }


class FuseClient:
    """A FUSE client, and a watchman that unmounts it even when the whole test run is killed."""

    def __init__(self, *, cluster: AlluxioCluster, node: str, number: int, kind: Profile) -> None:
        # The master would lend its settings to a client of another profile, which lacks them.
        alone = ["-Dalluxio.user.conf.cluster.default.enabled=false"]
        local_options = [] if kind is cluster.profile_kind else alone
        self.folder = cluster.folder / f"fuse-{node}-{number}"
        self.start_seconds = 0.0
        self._watchman: subprocess.Popen[bytes] | None = None
        self.process = Process(
            name=f"fuse-{node}",
            argv=[str(IMAGE / "entrypoint.sh"), AlluxioRole.FUSE],
            log=cluster.folder / "logs" / f"fuse-{node}-{number}.log",
            env=cluster.environment(
                role=AlluxioRole.FUSE,
                options=[*local_options, *cluster.trusted(AlluxioRole.FUSE, f"fuse-{node}-{number}")],
            )
            | {
                "ALLUXIO_PROPERTIES_FILE": str(cluster.settings(kind)),
                "ALLUXIO_HOSTNAME": f"{node}.local",
                "NODE_NAME": node,
                "FUSE_MOUNT_POINT": str(self.folder),
                "FUSE_OPTIONS": MOUNT_OPTIONS[kind],
            },
            ready=self.mounted,
            start_deadline=120,
        )

    def start(self) -> None:
        """Mount, and wait until the mount answers; `start_seconds` is how long that took."""
        begin = time.monotonic()
        self.process.launch()
        # It reads until this run ends, however it ends, and then clears away: the JVM is a child of the entrypoint,
        # which is killed without a chance to end it.
        script = (
            'cat >/dev/null; kill -KILL "-$1"; '
            'while grep -qsF " $0 fuse" /proc/self/mounts; do umount -l "$0" || exit; done'
        )
        self._watchman = subprocess.Popen(
            ["sh", "-c", script, str(self.folder), str(self.process.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self.process.wait_ready()
        self.start_seconds = time.monotonic() - begin

    def stop(self) -> None:
        """Unmount and end, as a pod is ended."""
        self.process.stop(deadline=30)
        unmount(self.folder)  # one that was killed leaves a dead mount
        if self._watchman is not None:
            self._watchman.kill()
            self._watchman.communicate()
            self._watchman = None

    def mounted(self) -> bool:
        """Whether the mount is there and answers.

        Another process asks: one that waits for an answer through FUSE cannot even be killed.
        """
        if f" {self.folder} fuse" not in Path("/proc/self/mounts").read_text():
            return False
        with suppress(subprocess.TimeoutExpired):
            return subprocess.run(["ls", self.folder], capture_output=True, timeout=30).returncode == 0
        return False


def make_home(folder: Path, *, lib: Path) -> Path:
    """The image's ``/opt/alluxio`` from its parts."""
    home = folder / "alluxio"
    (home / "conf").mkdir(parents=True)
    (home / "lib").symlink_to(lib)
    (home / "names").symlink_to(programs.ensure("alluxio-names") / "names")
    shutil.copy(IMAGE / "log4j.properties", home / "conf")
    return home


def unmount(folder: Path) -> None:
    """Unmount a folder and all below it, the deepest first; lazily, for a client may be dead."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split(" ")[4] for line in lines]
    for point in reversed([p for p in points if p == str(folder) or p.startswith(f"{folder}/")]):
        subprocess.run(["umount", "--lazy", point], check=False)
