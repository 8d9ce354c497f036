"""Gets the manifest of a version onto this node: from the agent's folder, or from the operator.

A version has a copy of its own, which no other process may change: the agent's user, or who has taken a cache's pod
over, may write to the agent's file at any time, also after it was checked.
"""

import asyncio
import contextlib
import errno
import functools
import hashlib
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from tdcs.api import names
from tdcs.engine.confined_path import is_private, open_plain_file, plain_folder
from tdcs.listening import at
from tdcs.listing.folder import ManifestFolder, is_digest, open_manifest_file
from tdcs.listing.result import ManifestTooLongError, ManifestUnavailableError, manifest_url
from tdcs.model.listing_limit import ManifestBound
from tdcs.model.manifest import Manifest
from tdcs.model.manifest_format import DIGEST_LENGTH, BadManifestError
from tdcs.node.csi.views.view_folders import MANIFEST, STAGING, DatasetFolder, VersionFolder, tiers_of
from tdcs.node.csi.volume import VolumeFolder
from tdcs.trust.contexts import Contexts
from tdcs.trust.identity import TrustFolder

if TYPE_CHECKING:
    import aiohttp

    from tdcs.listing.transfer import ManifestFetcher

_log: Final = logging.getLogger(__name__)

LARGEST_COPY: Final = 8 << 30
"""Bytes of the longest manifest that a node takes: as many as the operator's volume has by default for all of them
together, and those of a hundred million files. The operator's own bound (`manifest_bytes`) is not known here."""

_FREE_SHARE: Final = 4
"""A copy takes no more than this part of what is free: kubelet would begin to evict pods."""

_ABANDONED_SECONDS: Final = 60.0
"""A draft that nothing was written to for so long is of a process that was killed."""

_DRAFT: Final = f"{MANIFEST}.new-"
_PIECE: Final = 1 << 20

P = ParamSpec("P")
T = TypeVar("T")


class Manifests:
    """The manifests of this node's views.

    Args:
        cache_root: Folder with the caches' folders.
        address: `host:port` of the operator's service of manifests; None when there is none.
        trust: Folder with the node's certificate, which the operator knows it by; None: it is asked by plain HTTP.
    """

    def __init__(self, *, cache_root: str, address: str | None, trust: Path | None = None) -> None:
        self._cache_root: Final = cache_root
        self._address: Final = address
        self._trust: Final = trust
        self._stagings: Final[dict[Path, ManifestFolder]] = {}
        self._session: aiohttp.ClientSession | None = None
        self._fetchers: Final[dict[Path, ManifestFetcher]] = {}
        self._threads: Final[dict[str, ThreadPoolExecutor]] = {}

    async def of(self, *, volume: VolumeFolder, folder: DatasetFolder, digest: str) -> Manifest:
        """The manifest of this digest.

        Raises ManifestUnavailableError when it is not to be had, OSError when the disk does not take it.
        """
        version = folder.of(digest)
        manifest = await self._in_turn(volume, self._here, version, self._tiers(volume))
        if manifest is not None:
            return manifest
        staging = self._staging(volume)
        if self._address is None:
            raise ManifestUnavailableError(
                f"no agent of this node has manifest {digest}, and no operator is named"
            )
        secure = self._trust is not None
        urls = [
            manifest_url(address=address, digest=digest, secure=secure)
            for address in await _addresses(self._address)
        ]
        most = await self._in_turn(volume, _with_its_copy, staging)
        try:
            await self._fetcher(staging).fetch(digest=digest, urls=urls, most=most)
        except ManifestTooLongError as error:
            raise OSError(errno.EFBIG, str(error), version.manifest) from error
        return await self._in_turn(volume, _move, staging, version)

    async def close(self) -> None:
        """End what is under way, but for copies that have begun."""
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)
        self._threads.clear()
        for fetcher in self._fetchers.values():
            await fetcher.close()
        if self._session is not None:
            await self._session.close()

    async def _in_turn(
        self, volume: VolumeFolder, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Do this in the one thread of a cache: its files may be long, and keep no other cache's waiting."""
        if volume.cluster not in self._threads:
            self._threads[volume.cluster] = ThreadPoolExecutor(max_workers=1, thread_name_prefix="manifests")
        call = functools.partial(work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads[volume.cluster], call)

    def _tiers(self, volume: VolumeFolder) -> list[str]:
        return tiers_of(cache_root=self._cache_root, cluster=volume.cluster, tiers=volume.tiers)

    def _staging(self, volume: VolumeFolder) -> ManifestFolder:
        path = Path(self._tiers(volume)[0], names.VIEWS_FOLDER, STAGING)
        if path not in self._stagings:
            folder = ManifestFolder(path, confined=True)
            folder.clear_partial()  # before this process writes there: transfers do at any time
            self._stagings[path] = folder
        return self._stagings[path]

    def _fetcher(self, staging: ManifestFolder) -> "ManifestFetcher":
        import aiohttp  # 8 MB, on every node: most manifests come from the node's own agent

        from tdcs.engine import http_answers
        from tdcs.listing.transfer import ManifestFetcher

        if self._session is None:
            tls = Contexts(TrustFolder(self._trust)).following_client() if self._trust is not None else True
            connector = aiohttp.TCPConnector(ssl=tls)
            self._session = http_answers.open_session(connector)
        if staging.path not in self._fetchers:
            self._fetchers[staging.path] = ManifestFetcher(folder=staging, session=self._session)
        return self._fetchers[staging.path]

    def _here(self, version: VersionFolder, tiers: Sequence[str]) -> Manifest | None:
        manifest = load(version)
        if manifest is not None:
            return manifest
        for tier in tiers:
            file = os.path.join(tier, names.AGENT_MANIFESTS, version.version)
            try:
                with open(open_plain_file(file), "rb") as original:
                    if _copy(original, version):
                        return load(version)
            except FileNotFoundError:
                continue
            except OSError as error:
                _log.warning("manifest %s of the agent is not taken: %s", file, error.strerror)
        return None


async def _addresses(service: str) -> list[str]:
    """Each address of a headless service, `host:port`: of several operators only the one that works has manifests."""
    host, _, port = service.rpartition(":")
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM
        )
    except OSError:
        return [service]  # the request says why it cannot be reached
    hosts = dict.fromkeys(str(address[0]) for *_, address in addresses)
    return [at(host, int(port)) for host in hosts]


def load(version: VersionFolder) -> Manifest | None:
    """A version's manifest from the disk; None when it is not there or damaged, and then it is removed."""
    path = version.manifest
    try:
        return _opened(version, copy=True)
    except FileNotFoundError:
        return None
    except OSError as error:
        _log.warning("manifest %s is not read: %s", path, error.strerror)
        return None
    except BadManifestError as error:
        _log.warning("manifest %s is %s; it is removed, and a new one is fetched", path, error)
        with contextlib.suppress(OSError), plain_folder(version.path) as folder:
            os.unlink(os.path.basename(path), dir_fd=folder)
        return None


def _opened(version: VersionFolder, *, copy: bool) -> Manifest:
    """Raises OSError, or BadManifestError. What others may write to may be right, and becomes a copy if asked for."""
    with open(open_plain_file(version.manifest), "rb") as file:
        if is_private(file.fileno()):
            if not is_digest(version.version) or _digest(file) != version.version:
                raise BadManifestError("not what its name says")
            return open_manifest_file(os.dup(file.fileno()), digest=version.version)
        if not copy or not _copy(file, version):
            raise BadManifestError("not what its name says, and others may write to it")
    return _opened(version, copy=False)


def _move(staging: ManifestFolder, version: VersionFolder) -> Manifest:
    try:
        with open(open_plain_file(str(staging.file(version.version))), "rb") as original:
            manifest = load(version) if _copy(original, version) else None
    finally:
        # Also where the disk does not take the copy, which then needs the room.
        staging.remove(version.version)
    if manifest is None:
        raise BadManifestError(f"manifest {version.version} was damaged on this node's disk")
    return manifest


def _copy(original: BufferedReader, version: VersionFolder) -> bool:
    """Have a copy of an open file in the version's folder, if it is the version's manifest. Raises OSError."""
    draft, digest = f"{_DRAFT}{secrets.token_hex(8)}", hashlib.sha256()
    remaining = os.fstat(original.fileno()).st_size
    with plain_folder(version.path, make=True) as folder:
        most = _bound(folder, parts=_FREE_SHARE)
        if remaining > most.bytes:
            text = f"it has {remaining} bytes, of which a node takes {most.bytes}: {most.why}"
            raise OSError(errno.EFBIG, text, version.manifest)
        descriptor = os.open(
            draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder
        )
        try:
            with open(descriptor, "wb") as copy:
                while piece := original.read(min(remaining, _PIECE)):
                    digest.update(piece)  # of what is copied, whatever the file becomes meanwhile
                    copy.write(piece)
                    remaining -= len(piece)  # no further than it was long: it may grow without end
            if digest.hexdigest()[:DIGEST_LENGTH] != version.version:
                return False
            os.rename(draft, MANIFEST, src_dir_fd=folder, dst_dir_fd=folder)
            return True
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)


def largest_copy(*, free: int, parts: int = _FREE_SHARE) -> int:
    """Bytes of the longest manifest that takes no more than one of so many parts of the free bytes of a disk."""
    return min(LARGEST_COPY, free // parts)


def _bound(folder: int, *, parts: int) -> ManifestBound:
    space = os.fstatvfs(folder)
    why = f"{LARGEST_COPY} at the most, and no more than 1/{parts} of what is free on the disk"
    return ManifestBound(largest_copy(free=space.f_bavail * space.f_frsize, parts=parts), why)


def _with_its_copy(staging: ManifestFolder) -> ManifestBound:
    """The longest manifest that leaves room for its copy when it has come. Raises OSError."""
    with plain_folder(str(staging.path), make=True) as folder:
        return _bound(folder, parts=_FREE_SHARE + 1)


def clear_drafts(version: VersionFolder) -> None:
    """Remove what killed processes left of copies. Raises OSError."""
    with plain_folder(version.path) as folder:
        for name in os.listdir(f"/proc/self/fd/{folder}"):
            if not name.startswith(_DRAFT):
                continue
            with contextlib.suppress(FileNotFoundError):  # its copy is finished
                written = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
                if time.time() - written > _ABANDONED_SECONDS:
                    os.unlink(name, dir_fd=folder)


def _digest(file: BufferedReader) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()[:DIGEST_LENGTH]
