"""Which blocks, just read from their source, are of files that are others by now than those that were listed.

A worker reads as many bytes as it is told to. Of a file that was replaced by a longer one after the listing it would
keep the beginning, under the old length, and nothing would ever show it.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from tdcs.engine.alluxio.concurrency import bounded
from tdcs.engine.alluxio.master import Master, MountEntry
from tdcs.engine.paths import inside
from tdcs.engine.protocol import Block

_QUESTIONS_AT_ONCE = 16

_LISTED = 8
"""A folder is listed anew when it has at most so many times the files that are asked for: to compare a file of a
listing costs the master less than a tenth of asking the source for it."""

_FEW = 16
"""Files of a folder that are asked for one by one, whatever the folder has."""


async def outdated_blocks(blocks: Sequence[Block], *, master: Master) -> list[int]:
    """Ids of those whose file has changed, or is gone, at its source.

    The master compares each file with its source, and takes in what has changed: its next listing has other blocks
    for it. That is one request to the source a file, or one for a thousand files of a folder of which many are asked
    for.

    Raises:
        RpcFailureError: The master does not answer.
    """
    if not blocks:
        return []
    mounts = await master.mount_table()
    paths = {block.source_path: _path(block.source_path, mounts) for block in blocks}
    now = await _current({path for path in paths.values() if path is not None}, master=master)
    return [
        block.id
        for block in blocks
        if (path := paths[block.source_path]) is not None and block.id not in now[path]
    ]


async def _current(paths: Collection[str], *, master: Master) -> dict[str, frozenset[int]]:
    """The blocks that each file has now; none when it is gone."""
    folders = defaultdict[str, list[str]](list)
    for path in paths:
        folders[posixpath.dirname(path)].append(path)
    now: dict[str, frozenset[int]] = {}
    for folder, files in folders.items():
        if len(files) > _FEW and await master.children(path=folder) <= _LISTED * len(files):
            listed = await master.current_blocks_in(path=folder)
            now |= {path: listed.get(path, frozenset()) for path in files}
    left = [path for path in paths if path not in now]
    asked = await bounded(lambda path: master.current_blocks(path=path), left, limit=_QUESTIONS_AT_ONCE)
    return now | dict(zip(left, asked, strict=True))


def _path(source_path: str, mounts: Mapping[str, MountEntry]) -> str | None:
    """Where the cache has a file of a source; None when its source is not mounted any more."""
    for path, entry in mounts.items():
        for uri in (entry.uri, entry.uri.removeprefix("file://")):
            if inside(inner=source_path, outer=uri):
                return path + source_path[len(uri) :]
    return None
