"""Files of Alluxio's own, below no mount: what nodes hold, as Alluxio's clients see it.

The master is told of a file by three calls (`CreateFile`, `GetNewBlockIdForFile`, `CompleteFile`), with its block made
on a worker between the last two. Alluxio needs neither the source nor its keys for them, and reads nothing through:
what no worker has cannot be read. All calls raise `RpcFailureError`.
"""

from __future__ import annotations

import re
import time
from typing import Any, Final, NamedTuple

import grpc

from tdcs.alluxio.rpc import FILE_SYSTEM, Rpc, RpcFailureError

_SHORT: Final = 30.0

_ESCAPE: Final = "\uf000"

_TAG: Final = "tdcs"
_MUST_CACHE: Final = 1
_SET_ON_FILE: Final = 2
_METADATA_NEVER: Final = 0
_BLOCK_BYTES: Final = 1 << 40
"""Any file is one block."""

_TO_ENCODE: Final = re.compile(
    f"([?\\\\])|([\U00010000-\U0010ffff])|([\ud800-\udfff])|[{_ESCAPE}\uf03f\uf05c\ue000-\ue7ff]"
)


def for_alluxio(name: str) -> str:
    """How Alluxio knows what the source calls by this name or path: it can hold neither `?` nor a backslash, and no
    character that takes more than 16 bits. No two names are one there."""
    return _TO_ENCODE.sub(_encoded, name)


def _encoded(match: re.Match[str]) -> str:
    if match[1]:
        return chr(ord(_ESCAPE) + ord(match[1]))
    if match[2]:
        beyond = ord(match[2]) - 0x10000
        return chr(0xE000 + (beyond >> 10)) + chr(0xE400 + (beyond & 0x3FF))
    if match[3]:  # a byte that is no text
        return chr(ord(match[3]) + 0x800)
    return _ESCAPE + match[0]


class ExportedFile(NamedTuple):
    """A file as the master has it.

    Attributes:
        block: id of its block; -1 while it has none.
        length: bytes.
        tag: what `create` was given; empty for a file of others.
        is_whole: whether its block is there and it can be read.
        age_seconds: since it was made, by the clocks of master and caller.
        workers: that have its block.
    """

    block: int
    length: int
    tag: str
    is_whole: bool
    age_seconds: float
    workers: frozenset[str]


class ExportedFiles:
    """The files of one master.

    Args:
        master: closed by the caller.
    """

    def __init__(self, master: Rpc) -> None:
        self._master: Final = master

    async def find(self, path: str) -> ExportedFile | None:
        """The file of a path; None when there is none, or a folder."""
        options = {"loadMetadataType": _METADATA_NEVER, "commonOptions": {"syncIntervalMs": -1}}
        try:
            answer = await self._call("GetStatus", path=path, options=options)
        except RpcFailureError as failure:
            if failure.code is grpc.StatusCode.NOT_FOUND:
                return None
            raise
        info = answer.fileInfo
        if info.folder:
            return None
        places = [place.blockInfo for place in info.fileBlockInfos]
        return ExportedFile(
            block=info.blockIds[0] if len(info.blockIds) == 1 else -1,
            length=info.length,
            tag=_text(info.xattr.get(_TAG, b"")),
            is_whole=info.completed and len(info.blockIds) == 1,
            age_seconds=time.time() - info.creationTimeMs / 1000,
            workers=frozenset(worker_name(at.workerAddress) for place in places for at in place.locations),
        )

    async def create(self, path: str, *, tag: str, instead: bool) -> int:
        """Make a file; the id of its block, which is to be made before `complete`.

        An id is given once: whoever has lost the answer begins again.

        Args:
            instead: in place of another one of its path; else one that is there is an RpcFailureError.
        """
        options = {
            "blockSizeBytes": _BLOCK_BYTES,
            "recursive": True,
            "writeType": _MUST_CACHE,
            "overwrite": instead,
            "xattr": {_TAG: tag.encode()},
            "xattrPropStrat": _SET_ON_FILE,
        }
        await self._call("CreateFile", path=path, options=options)
        return int((await self._call("GetNewBlockIdForFile", path=path, options={})).id)

    async def complete(self, path: str) -> None:
        """Have a file readable whose block a worker has."""
        await self._call("CompleteFile", path=path, options={})

    async def path_of(self, block: int) -> str | None:
        """The path of the file that a block is of; None when the master has none."""
        # Ids of a file's blocks and its own are one container's, of which the file has the last number.
        try:
            answer = await self._call("GetFilePath", fileId=block | _LAST_IN_CONTAINER)
        except RpcFailureError as failure:
            if failure.code is grpc.StatusCode.NOT_FOUND:
                return None
            raise
        return str(answer.path)

    async def _call(self, method: str, **fields: Any) -> Any:
        return await self._master.unary(service=FILE_SYSTEM, method=method, deadline=_SHORT, **fields)


_LAST_IN_CONTAINER: Final = (1 << 24) - 1


def worker_name(address: Any) -> str:
    """The node's name that a worker was given (`alluxio.locality.node`), else its host name."""
    for tier in address.tieredIdentity.tiers:
        if tier.tierName == "node" and tier.value:
            return str(tier.value)
    return str(address.host)


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
