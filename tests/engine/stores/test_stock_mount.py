"""What the experiment compares with: a bucket in Alluxio of the profile Stock, which reads through and keeps nothing at
first."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from pathlib import Path

import msgspec
from tests.engine.conftest import LARGE
from tests.engine.servers import AlluxioCluster, S3Server

from tdcs.alluxio.profile import Profile
from tdcs_local.experiment import objects, stock_mount
from tdcs_local.experiment.stock_mount import Request

FILES = {f"{number:02d}.jpg": bytes([number]) * 40_000 for number in range(20)}


async def test_a_bucket_is_mounted_and_read_by_the_stock_client_and_mounted_again_without_its_cache(
    alluxio: AlluxioCluster, s3: S3Server
) -> None:
    bucket, path = f"b-{uuid.uuid4().hex}", f"/pictures-{uuid.uuid4().hex[:8]}"
    s3.make_bucket(bucket)
    s3.put_files(bucket, FILES)
    keys = {
        "accessKeyId": s3.credentials.access_key_id,
        "secretAccessKey": s3.credentials.secret_access_key,
    }
    request = msgspec.structs.replace(
        objects.stock_mount(keys, identity=None), master=alluxio.target, path=path, uri=f"s3://{bucket}"
    )
    request.properties["alluxio.underfs.s3.endpoint"] = s3.endpoint
    await asyncio.to_thread(mount, request)
    client = await asyncio.to_thread(alluxio.mount_fuse, LARGE, kind=Profile.STOCK)
    folder = client.folder / path.lstrip("/")
    assert await asyncio.to_thread(read, folder) == FILES

    changed = {name: content[::-1] + b"." for name, content in FILES.items()}
    s3.put_files(bucket, changed)
    await asyncio.to_thread(mount, request)

    assert await asyncio.to_thread(read, folder) == changed


def mount(request: Request) -> None:
    """As the experiment has it done in the operator's container."""
    program = Path(stock_mount.__file__).read_text(encoding="utf-8")
    subprocess.run([sys.executable, "-c", program], input=msgspec.json.encode(request), check=True)


def read(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}
