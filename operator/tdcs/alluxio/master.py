"""Alluxio's master as plain values: mounts, listings with block locations, workers, attributes of paths."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tdcs.alluxio.mount_uri import source_uri
from tdcs.alluxio.rpc import BLOCK_MASTER, CONFIGURATION, FILE_SYSTEM, Rpc
from tdcs.listening import at
from tdcs.model.cache_engine import Block, CachedFile, SourceError, WorkerInfo
from tdcs.model.source_paths import canonical_uri

_WRITE_MUST_CACHE = 1

_TURNED = 250
"""Entries of a page that are read in a stretch: whoever has to do with other paths shall not wait for all of it."""

_CONTENT = "s3_etag"
"""Where the master keeps what a source says of a file's content: the ETag, for folders their length and time."""

_CONTENT_TIME = re.compile(r"^\(len:\d+, ?_?modtime:(-?\d+)\)$")
"""The attribute in which Alluxio keeps what a store says of an object's content."""

_ALL_WORKERS = 1

_ALL_FIELDS = tuple(range(1, 13))


ESCAPE: Final = "\uf000"

_HALVES: Final = 0x800

_TO_DECODE: Final = re.compile(f"{ESCAPE}(.)|([\uf03f\uf05c])|([\ue000-\ue3ff][\ue400-\ue7ff])", re.DOTALL)


def for_source(encoded: str) -> str:
    """The name or path at the source of what has this name or path in Alluxio."""
    return _TO_DECODE.sub(_decoded, encoded)


def _decoded(found: re.Match[str]) -> str:
    if found[1]:
        return found[1]
    if found[2]:
        return chr(ord(found[2]) - ord(ESCAPE))
    high, low = (ord(one) - _HALVES for one in found[3])
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


_SHORT, _LONG = 30.0, 900.0
"""Deadlines in seconds: of calls that touch memory only, and of those that list a source or walk a large tree."""

_METADATA_NEVER, _METADATA_ONCE, _METADATA_ALWAYS = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class MountEntry:
    """One row of the mount table.

    Attributes:
        uri: The source, canonical.
        properties: As they were given, credentials blotted out.
    """

    uri: str
    properties: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page of a listing.

    Attributes:
        files: Its files; folders are left out.
        last: The path of its last entry, where the next page begins, or None when this was the last page.
    """

    files: list[CachedFile]
    last: str | None


class Master(Rpc):
    """The master's RPCs. All raise `RpcFailureError`."""

    async def mount_table(self) -> dict[str, MountEntry]:
        response = await self._file_system("GetMountTable", checkUfs=False)
        return {
            path: MountEntry(uri=_known_uri(info.ufsUri), properties=dict(info.properties))
            for path, info in sorted(response.mountPoints.items())
            if path != "/"
        }

    async def mount(self, *, path: str, uri: str, properties: Mapping[str, str], update: bool) -> None:
        """Mount `uri` read-only, or give an existing mount new properties."""
        options = {"readOnly": True, "shared": False, "properties": dict(properties)}
        if update:
            await self._file_system("UpdateMount", alluxioPath=path, options=options)
        else:
            await self._file_system("Mount", deadline=_LONG, alluxioPath=path, ufsPath=uri, options=options)

    async def unmount(self, *, path: str) -> None:
        """Unmount, which also forgets all files below."""
        await self._file_system("Unmount", deadline=_LONG, alluxioPath=path, options={})

    async def create_folder(self, *, path: str) -> None:
        """Make a folder and its parents, in the cache only; one that exists is fine."""
        options = {"recursive": True, "allowExists": True, "writeType": _WRITE_MUST_CACHE}
        await self._file_system("CreateDirectory", path=path, options=options)

    async def learn(self, *, path: str, recursive: bool, refresh: bool) -> None:
        """Let the master load the names and sizes of the files below `path` from their source.

        Args:
            refresh: Also compare what it knows already with the source: finds changed and deleted files.
        """
        options: dict[str, Any] = {
            "recursive": recursive,
            "loadMetadataType": _METADATA_ALWAYS if refresh else _METADATA_ONCE,
            "loadMetadataOnly": True,
        }
        if refresh:
            options["commonOptions"] = {"syncIntervalMs": 0}
        answer = self.stream(
            service=FILE_SYSTEM, method="ListStatus", deadline=_LONG, path=path, options=options
        )
        async for _ in answer:
            pass

    async def page(self, *, path: str, after: str | None, size: int) -> Page:
        """The next `size` entries below `path`, from what the master knows."""
        options: dict[str, Any] = {
            "options": {
                "recursive": True,
                "loadMetadataType": _METADATA_NEVER,
                "disableAreDescendantsLoadedCheck": True,
                # Without it the answer lacks mount ids, and Load needs them.
                "excludeMountInfo": False,
            },
            "batchSize": size,
        }
        if after is not None:
            options["startAfter"] = after
        response = await self._file_system("ListStatusPartial", deadline=_LONG, path=path, options=options)
        entries = response.fileInfos
        files: list[CachedFile] = []
        for number, info in enumerate(entries):
            if number % _TURNED == 0:
                await asyncio.sleep(0)
            if not info.folder:
                files.append(_cached_file(info=info, below=path))
        return Page(
            files=files,
            last=entries[-1].path if response.isTruncated and entries else None,
        )

    async def workers(self) -> list[WorkerInfo]:
        """One entry a name, ordered by name: of several registrations of one name the live one, else the latest."""
        reports = sorted(
            await self._worker_report(), key=lambda info: (info.state == "ACTIVE", info.startTimeMs)
        )
        by_name = {worker_name(info.address): info for info in reports}
        return [_worker_info(name=name, info=info) for name, info in sorted(by_name.items())]

    async def decommission(self, *, worker: str) -> bool:
        """Strike a worker and its copies from the map until its process starts again; False when none of that
        name is known.
        """
        found = [info for info in await self._worker_report() if worker_name(info.address) == worker]
        for info in found:
            if info.state == "ACTIVE":
                await self.unary(
                    service=BLOCK_MASTER,
                    method="DecommissionWorker",
                    deadline=_SHORT,
                    workerHostname=info.address.host,
                    workerWebPort=info.address.webPort,
                    canRegisterAgain=True,
                )
        return bool(found)

    async def pin(self, *, path: str, pinned: bool) -> None:
        options = {"pinned": pinned, "recursive": True}
        await self._file_system("SetAttribute", deadline=_LONG, path=path, options=options)

    async def set_path_properties(self, *, path: str, properties: Mapping[str, str]) -> None:
        await self.unary(
            service=CONFIGURATION,
            method="SetPathConfiguration",
            deadline=_SHORT,
            path=path,
            properties=dict(properties),
            options={},
        )

    async def path_properties(self) -> dict[str, dict[str, str]]:
        response = await self.unary(
            service=CONFIGURATION,
            method="GetConfiguration",
            deadline=_SHORT,
            ignoreClusterConf=True,
        )
        return {
            path: {each.name: each.value for each in found.properties}
            for path, found in response.pathConfigs.items()
        }

    async def remove_path_properties(self, *, path: str) -> None:
        await self.unary(
            service=CONFIGURATION, method="RemovePathConfiguration", deadline=_SHORT, path=path, options={}
        )

    async def _worker_report(self) -> Sequence[Any]:
        response = await self.unary(
            service=BLOCK_MASTER,
            method="GetWorkerReport",
            deadline=_SHORT,
            workerRange=_ALL_WORKERS,
            fieldRanges=_ALL_FIELDS,
        )
        return list(response.workerInfos)

    async def _file_system(self, method: str, *, deadline: float = _SHORT, **fields: Any) -> Any:
        return await self.unary(service=FILE_SYSTEM, method=method, deadline=deadline, **fields)


def _known_uri(uri: str) -> str:
    """The canonical form of a mounted URI; as it is when it has none: others may mount what no Dataset may name."""
    source = source_uri(uri)
    try:
        return canonical_uri(source)
    except SourceError:
        return source


def worker_name(address: Any) -> str:
    """The node's name that a worker was given (`alluxio.locality.node`), else its host name."""
    for tier in address.tieredIdentity.tiers:
        if tier.tierName == "node" and tier.value:
            return str(tier.value)
    return str(address.host)


def _worker_info(*, name: str, info: Any) -> WorkerInfo:
    address, live = info.address, info.state == "ACTIVE"
    return WorkerInfo(
        name=name,
        address=at(address.containerHost or address.host, address.rpcPort),
        capacity_bytes=info.capacityBytes if live else 0,
        used_bytes=info.usedBytes if live else 0,
        live=live,
    )


def _cached_file(*, info: Any, below: str) -> CachedFile:
    blocks = tuple(
        Block(
            id=place.blockInfo.blockId,
            length=place.blockInfo.length,
            offset=place.offset,
            source_path=info.ufsPath,
            mount_id=info.mountId,
            workers=frozenset(worker_name(at.workerAddress) for at in place.blockInfo.locations),
        )
        for place in info.fileBlockInfos
    )
    return CachedFile(
        path=for_source(info.path.removeprefix(below).lstrip("/")),
        length=info.length,
        blocks=tuple(sorted((block for block in blocks if block.length), key=lambda block: block.offset)),
        tag=_tag(info),
    )


def _tag(info: Any) -> str:
    """The ETag of an S3 object as its header has it (Alluxio strips the quotes), else the time of the last change.

    Some servers give no ETag for objects that were not written through them. The master begins both its times of such
    a file with the source's, and later moves the one when the file is pinned and the other when it is read: a time
    after the making of the file's entry is not the source's. Without any time the tag is empty.
    """
    content = info.xattr.get(_CONTENT, b"")
    content = content.decode("utf-8", "replace") if isinstance(content, bytes) else str(content)
    if listed := _CONTENT_TIME.search(content):
        return f"mtime-ms:{listed[1]}"
    if content and info.ufsPath.startswith("s3"):
        return f'"{content}"'
    for time in (info.lastModificationTimeMs, info.lastAccessTimeMs):
        if time <= info.creationTimeMs:
            return f"mtime-ms:{time}"
    return ""
