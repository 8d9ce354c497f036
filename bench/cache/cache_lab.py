"""What benchmarks of the cache run on: real Alluxio processes, and a real S3 server behind a link of a set rate.

The store has a network namespace of its own, and its link is shaped there by the same commands that shape the
store's pod on the local cluster; so rates and counters mean the same. Needs root. Everything is gone when the block
ends.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import boto3
from botocore.config import Config
from deploy.images.store.tdcs_store import shaping
from tests.engine.servers import AlluxioCluster, listens, make_home, random_network
from tests.support.certificates import TestAuthority
from tests.support.programs.processes import Process

from tdcs.model.cache_engine import Credentials, Source
from tdcs_local import programs

PORT = 7070
COUNTERS_PORT = 7071
KEYS = Credentials(access_key_id="bench-account", secret_access_key="bench-secret-51c0a7")  # noqa: S106


@dataclass(frozen=True, kw_only=True)
class Sent:
    """Bytes of objects, and requests that asked for them."""

    payload_bytes: int
    requests: int


class Store:
    """An S3 server in a network namespace; buckets are folders.

    Args:
        folder: for its buckets.
        number: sets apart the namespaces and addresses of several stores.
    """

    def __init__(self, *, folder: Path, number: int) -> None:
        self.root = folder / "buckets"
        self.root.mkdir(parents=True)
        self._namespace = f"tdcs-bench-{number}"
        self._device = f"tdb{number}"
        self._host_address, self._store_address = f"198.18.{number}.1", f"198.18.{number}.2"
        self._process = Process(
            name="store",
            argv=[
                *("ip", "netns", "exec", self._namespace),
                *(str(programs.ensure("versitygw") / "store-gateway"), "--root", str(self.root)),
                *("--listen", f":{PORT}", "--counters-listen", f":{COUNTERS_PORT}"),
            ],
            log=folder / "store.log",
            env={
                **os.environ,
                "STORE_ACCESS_KEY_ID": KEYS.access_key_id,
                "STORE_SECRET_ACCESS_KEY": KEYS.secret_access_key,
            },
            ready=lambda: listens(self._store_address, PORT),
            start_deadline=30,
        )

        self._client = boto3.client(
            "s3",
            endpoint_url=f"http://{self._store_address}:{PORT}",
            aws_access_key_id=KEYS.access_key_id,
            aws_secret_access_key=KEYS.secret_access_key,
            region_name="us-east-1",
            config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
        )

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    def start(self) -> None:
        """Make the namespace and its link, unlimited, and start the server."""
        self._ip("netns", "add", self._namespace)
        self._ip(
            "link",
            "add",
            self._device,
            "type",
            "veth",
            "peer",
            "name",
            shaping.DEVICE,
            "netns",
            self._namespace,
        )
        self._ip("addr", "add", f"{self._host_address}/30", "dev", self._device)
        self._ip("link", "set", self._device, "up")
        self._inside("ip", "addr", "add", f"{self._store_address}/30", "dev", shaping.DEVICE)
        for device in ("lo", shaping.DEVICE):
            self._inside("ip", "link", "set", device, "up")
        for command in shaping.setup(port=PORT):
            self._inside(*command)
        self._process.start()

    def stop(self) -> None:
        """Remove all of it."""
        self._process.kill()
        subprocess.run(["ip", "netns", "del", self._namespace], check=False)

    def set_rate(self, bits: int | None) -> None:
        """The link's rate both ways, in bits a second; None for unlimited."""
        for command in shaping.change(shaping.Link(egress=bits, ingress=bits)):
            self._inside(*command)

    def wire_bytes(self) -> int:
        """Bytes that left the store so far, headers of all layers included."""
        qdiscs = {
            device: json.loads(self._inside("tc", "-s", "-j", "qdisc", "show", "dev", device))
            for device in (shaping.DEVICE, shaping.INGRESS_DEVICE)
        }
        return int(shaping.wire_bytes(qdiscs).egress)

    def sent(self) -> Sent:
        """What the server has sent so far, over all buckets."""
        with urllib.request.urlopen(
            f"http://{self._store_address}:{COUNTERS_PORT}/counters", timeout=10
        ) as answer:
            buckets = json.load(answer).values()
        return Sent(
            payload_bytes=sum(bucket["sentBytes"] for bucket in buckets),
            requests=sum(bucket["gets"] for bucket in buckets),
        )

    @property
    def options(self) -> Mapping[str, str]:
        """How a source in this store is addressed."""
        return {
            "endpoint": f"http://{self._store_address}:{PORT}",
            "region": "us-east-1",
            "pathStyle": "true",
        }

    def fill(self, bucket: str, *, files: int, size: int, seed: int = 1) -> Source:
        """A bucket of random files in folders of 1,000; its source."""
        content = random.Random(seed)  # noqa: S311
        for number in range(files):
            target = self.root / bucket / "data" / f"{number // 1000:03d}" / f"{number:06d}.bin"
            if number % 1000 == 0:
                target.parent.mkdir(parents=True)
            with target.open("wb") as out:
                for begin in range(0, size, 1 << 24):
                    out.write(content.randbytes(min(1 << 24, size - begin)))
            _give_etag(target)
        return Source(
            uri=f"s3://{bucket}/data",
            options=self.options,
            credentials=KEYS,
        )

    def take(self, bucket: str, folder: Path) -> None:
        """Make a bucket of a folder, which is a link to it afterwards."""
        folder.rename(self.root / bucket)
        folder.symlink_to(self.root / bucket)
        for file in filter(Path.is_file, (self.root / bucket).rglob("*")):
            _give_etag(file)

    def signed(self, source: Source, name: str) -> str:
        """A URL that reads one object of a source."""
        bucket, _, prefix = source.uri.removeprefix("s3://").partition("/")
        return str(
            self._client.generate_presigned_url(
                "get_object", Params={"Bucket": bucket, "Key": f"{prefix}/{name}"}, ExpiresIn=3600
            )
        )

    def _inside(self, *command: str) -> str:
        return _run("ip", "netns", "exec", self._namespace, *command)

    def _ip(self, *command: str) -> None:
        _run("ip", *command)


def _give_etag(file: Path) -> None:
    """Note the ETag that an object has which was sent to the server: some clients read none without."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "md5").hexdigest()
    os.setxattr(file, "user.etag", f'"{digest}"'.encode())


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A cache cluster and a store."""

    cache: AlluxioCluster
    store: Store


@contextmanager
def lab(
    *,
    workers: int,
    capacity: int,
    overrides: Mapping[str, str] | None = None,
    authority: TestAuthority | None = None,
    master_heap: int | None = None,
) -> Iterator[Lab]:
    """Both of them, started.

    Args:
        workers: named `node-1` and so on.
        capacity: of each, in bytes.
        overrides: Alluxio properties that differ from the product's.
        authority: signs a certificate for every process; without it connections are plain.
        master_heap: bytes; None: as much as a few thousand files need.
    """
    tidy_when_ended()
    folder = Path(tempfile.mkdtemp(prefix="cache-lab-"))
    store = Store(folder=folder / "store", number=random.randint(1, 250))  # noqa: S311
    cache = AlluxioCluster(
        home=make_home(folder / "home", lib=programs.ensure("alluxio") / "lib"),
        folder=folder / "cache",
        network=random_network(),
        workers={f"node-{number}": capacity for number in range(1, workers + 1)},
        overrides=overrides or {},
        authority=authority,
        master_heap=master_heap,
    )
    try:
        store.start()
        cache.start()
        yield Lab(cache=cache, store=store)
    finally:
        cache.stop()
        store.stop()
        shutil.rmtree(folder, ignore_errors=True)


def tidy_when_ended() -> None:
    """Let SIGTERM end this process as an exception does, so that a time limit leaves nothing behind."""
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout
