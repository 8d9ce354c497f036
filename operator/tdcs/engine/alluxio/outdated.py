"""Which blocks, just read from their source, are of files that are others by now than those that were listed.

A worker reads as many bytes as it is told to. Of a file that was replaced by a longer one after the listing it would
keep the beginning, under the old length, and nothing would ever show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tdcs.engine.alluxio.concurrency import bounded
from tdcs.engine.alluxio.master import Master, MountEntry
from tdcs.engine.paths import inside
from tdcs.engine.protocol import Block

_QUESTIONS_AT_ONCE = 16


async def outdated_blocks(blocks: Sequence[Block], *, master: Master) -> list[int]:
    """Ids of those whose file has changed, or is gone, at its source.

    The master compares each file with its source (one request to the source a file), and takes in what has changed: its
    next listing has other blocks for it.

    Raises:
        RpcFailureError: The master does not answer.
    """
    if not blocks:
        return []
    mounts = await master.mount_table()
    paths = {block.source_path: _path(block.source_path, mounts) for block in blocks}
    known = {source: path for source, path in paths.items() if path is not None}
    asked = await bounded(
        lambda path: master.current_blocks(path=path), known.values(), limit=_QUESTIONS_AT_ONCE
    )
    now = dict(zip(known, asked, strict=True))
    return [block.id for block in blocks if block.id not in now.get(block.source_path, {block.id})]


def _path(source_path: str, mounts: Mapping[str, MountEntry]) -> str | None:
    """Where the cache has a file of a source; None when its source is not mounted any more."""
    for path, entry in mounts.items():
        for uri in (entry.uri, entry.uri.removeprefix("file://")):
            if inside(inner=source_path, outer=uri):
                return path + source_path[len(uri) :]
    return None
