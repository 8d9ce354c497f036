"""A source that hangs for a while costs time, and no content."""

from __future__ import annotations

import asyncio
import hashlib
import random
import uuid

from tests.engine.conftest import LARGE
from tests.engine.contract import Mounts
from tests.engine.servers import S3Server

from tdcs.engine.alluxio import AlluxioEngine
from tdcs.engine.protocol import Block

HANGS_SECONDS = 33
"""Longer than the half minute after which Alluxio gives up a block that it loads, unless it is told otherwise."""


async def test_blocks_loaded_while_the_source_hangs_have_its_content(
    engine: AlluxioEngine, s3: S3Server, mounts: Mounts
) -> None:
    files = {f"{number:03d}": random.randbytes(20_000) for number in range(80)}
    bucket = f"b-{uuid.uuid4().hex}"
    s3.make_bucket(bucket)
    s3.put_files(bucket, {f"data/{name}": content for name, content in files.items()})
    path = await mounts.add(s3.source(f"s3://{bucket}/data"))
    listing = [file async for page in engine.files(path=path) for file in page]
    blocks = {file.path: file.blocks[0] for file in listing}
    first, second = list(blocks.values())[:40], list(blocks.values())[40:]

    s3.process.pause()
    try:
        early = asyncio.create_task(engine.put(worker=LARGE, blocks=first))
        await asyncio.wait({early}, timeout=HANGS_SECONDS)
        late = asyncio.create_task(engine.put(worker=LARGE, blocks=second))
        # It has its buffers when the worker reads, and that it does when connections are waiting; nothing shows it.
        await asyncio.wait({late}, timeout=3)
    finally:
        s3.process.resume()
    assert await asyncio.wait_for(early, timeout=120) == []
    assert await asyncio.wait_for(late, timeout=120) == []

    async def same(name: str, block: Block) -> bool:
        return await engine.digest(block=block, worker=LARGE) == hashlib.sha256(files[name]).hexdigest()

    assert [name for name, block in blocks.items() if not await same(name, block)] == []
