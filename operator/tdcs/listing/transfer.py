"""Manifests over HTTP: what serves them, and what fetches one and compares it with its digest."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import IO, Final

import aiohttp
from aiohttp import web
from aiohttp.client import _RequestContextManager
from yarl import URL

from tdcs.engine import http_answers
from tdcs.listing.folder import ManifestFolder, is_digest
from tdcs.listing.result import (
    MANIFEST_PATH,
    ManifestTooLongError,
    ManifestUnavailableError,
    manifest_url,
)
from tdcs.model.listing_limit import ANY_MANIFEST, ManifestBound
from tdcs.model.manifest_format import DIGEST_LENGTH
from tdcs.trust.roles import Role

__all__ = [
    "MANIFEST_PATH",
    "ManifestFetcher",
    "ManifestUnavailableError",
    "Obtain",
    "manifest_routes",
    "manifest_url",
]

WAIT: Final = "wait"
"""In a request for a manifest: seconds for which it is waited until the manifest is there."""

AWAITED_SECONDS: Final = 8.0
"""So long at most."""

COMING_SECONDS: Final = 120.0
"""For so long in all a transfer asks those again that say that the manifest is still on its way to them."""

_COMING: Final = 503
_AGAIN_SECONDS: Final = 0.2
_LOOK_SECONDS: Final = 0.05
_NEXT_SECONDS: Final = AWAITED_SECONDS + 2.0
"""A server that sends nothing for so long is given up while another one can be asked."""

_BYTES: Final = "application/octet-stream"
_PIECE: Final = 1 << 22
_IDLE_SECONDS: Final = 30.0


Obtain = Callable[[str], Awaitable[None]]
"""Puts a manifest into a folder, when it is to be had elsewhere."""


def manifest_routes(
    folder: ManifestFolder, *, obtain: Obtain | None = None, coming: Callable[[str], bool] | None = None
) -> list[web.RouteDef]:
    """Routes that serve the folder's manifests; 404 for others.

    `GET /v1/manifests/{digest}` gives a manifest, sent by the kernel. Nothing else is said of it: what the digest does
    not prove would have to be believed.

    Args:
        obtain: is asked for a manifest that is not in the folder.
        coming: says whether a manifest is on its way to the folder. With it, `?wait=SECONDS` has one sent as soon as it
            is there; the answer is 503 when it is still on its way then.
    """

    def missing(digest: str) -> web.HTTPNotFound:
        return web.HTTPNotFound(text=f"there is no manifest {digest[:DIGEST_LENGTH]!r} here\n")

    async def get(request: web.Request) -> web.StreamResponse:
        digest = request.match_info["digest"]
        if not is_digest(digest):
            raise missing(digest)
        if not await asyncio.to_thread(folder.has, digest):
            if obtain is not None:
                await obtain(digest)
            wait = _wait_of(request) if coming is not None else 0.0
            if not await _arrived(folder, digest, seconds=wait):
                if wait and coming is not None and coming(digest):
                    raise web.HTTPServiceUnavailable(text="it is on its way here: ask again\n")
                raise missing(digest)
        return web.FileResponse(folder.file(digest), headers={"Content-Type": _BYTES})

    return [web.get(MANIFEST_PATH + "{digest}", get)]


def _wait_of(request: web.Request) -> float:
    try:
        seconds = float(request.query.get(WAIT, "0"))
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"{WAIT} is a number of seconds\n") from error
    return seconds if 0 <= seconds <= AWAITED_SECONDS else AWAITED_SECONDS


async def _arrived(folder: ManifestFolder, digest: str, *, seconds: float) -> bool:
    """Whether a manifest is in a folder, or comes there within so many seconds."""
    until = time.monotonic() + seconds
    while not await asyncio.to_thread(folder.has, digest):
        if time.monotonic() >= until:
            return False
        await asyncio.sleep(_LOOK_SECONDS)
    return True


class ManifestFetcher:
    """Gets manifests from other processes into a folder. Callers for the same digest share one transfer.

    Args:
        session: what asks; stays the caller's.
        idle_seconds: how long a server may send nothing.
    """

    def __init__(
        self, *, folder: ManifestFolder, session: aiohttp.ClientSession, idle_seconds: float = _IDLE_SECONDS
    ) -> None:
        self._folder: Final = folder
        self._session: Final = session
        self._idle_seconds: Final = idle_seconds
        self._running: Final[dict[str, asyncio.Task[None]]] = {}

    async def fetch(
        self,
        *,
        digest: str,
        urls: Sequence[str],
        most: ManifestBound = ANY_MANIFEST,
        seconds: float | None = None,
    ) -> None:
        """Have a manifest in the folder: one that is there is success, else the URLs are tried in turn.

        What arrives is compared with the digest while it is written. A caller that is cancelled leaves the transfer
        running for the others.

        Args:
            digest: of the manifest.
            urls: where it may be had.
            most: a longer one is refused, and if its length is announced, before any of it comes.
            seconds: so long each URL may take; None: as long as bytes come.

        Raises:
            ManifestTooLongError: A URL has it, and no URL gave one that is not too long.
            ManifestUnavailableError: No URL gave it.
        """
        if await asyncio.to_thread(self._folder.has, digest):
            return
        task = self._running.get(digest)
        if task is None:
            task = asyncio.create_task(self._fetch(digest, tuple(urls), most=most, seconds=seconds))
            self._running[digest] = task
            task.add_done_callback(lambda _: self._running.pop(digest, None))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(task)

    def fetches(self, digest: str) -> bool:
        return digest in self._running

    async def close(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _fetch(
        self, digest: str, urls: Sequence[str], *, most: ManifestBound, seconds: float | None
    ) -> None:
        reasons, until = [], time.monotonic() + COMING_SECONDS
        kind: type[ManifestUnavailableError] = ManifestUnavailableError
        for place, url in enumerate(urls, start=1):
            idle = self._idle_seconds if place == len(urls) else min(self._idle_seconds, _NEXT_SECONDS)
            try:
                async with asyncio.timeout(seconds):
                    while True:
                        again = time.monotonic() < until
                        if await self._from(url, digest, idle_seconds=idle, again=again, most=most):
                            return
                        await asyncio.sleep(_AGAIN_SECONDS)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                reasons.append(f"{url}: {error or 'no answer in time'}")
            except ManifestTooLongError as error:
                kind = ManifestTooLongError
                reasons.append(f"{url}: {error}")
        raise kind(
            f"manifest {digest} could not be fetched ({'; '.join(reasons) or 'no place is known that has it'}); it is "
            f"tried again, and the operator makes a new one when the mount is listed"
        )

    def _get(self, text: str, *, idle_seconds: float) -> _RequestContextManager:
        """Ask a URL. One that names a role as its user is of a process that has a certificate of that role."""
        url = URL(text)
        host = Role(url.user).host if url.user else None
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=min(5.0, idle_seconds), sock_read=idle_seconds
        )
        return self._session.get(
            url.with_user(None), timeout=timeout, server_hostname=host, allow_redirects=False
        )

    async def _from(
        self, url: str, digest: str, *, idle_seconds: float, again: bool, most: ManifestBound
    ) -> bool:
        """Take it from there; False when it is still on its way there, and may be asked for `again`."""
        with self._folder.partial() as file:
            async with self._get(url, idle_seconds=idle_seconds) as response:
                if again and response.status == _COMING and WAIT in URL(url).query:
                    return False
                http_answers.refuse_redirection(response)
                response.raise_for_status()
                _refuse_longer(response.content_length or 0, most)
                sha, length = hashlib.sha256(), 0
                async for piece in response.content.iter_chunked(_PIECE):
                    length += len(piece)
                    _refuse_longer(length, most)
                    await asyncio.to_thread(_take, file, sha, piece)
            if sha.hexdigest()[:DIGEST_LENGTH] != digest:
                raise ValueError("what came has another digest")
            await asyncio.to_thread(lambda: self._folder.keep(file, digest=digest))
        return True


def _refuse_longer(length: int, most: ManifestBound) -> None:
    if length > most.bytes:
        raise ManifestTooLongError(f"it has more than {most.bytes} bytes ({most.why})")


def _take(file: IO[bytes], sha: "hashlib._Hash", piece: bytes) -> None:
    sha.update(piece)
    file.write(piece)
