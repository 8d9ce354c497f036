"""Lists a shared folder through the agents of a cache: they see it, the operator does not.

No node is believed alone. What is not mounted on a node is an empty folder there, and a mount below it an empty one in
the middle of the names: another node counts what the first one lists. Where they do not agree, more nodes count, and
the one that sees the most is listed.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import aiohttp
import msgspec

from tdcs.api.source_uri import parse_source_uri
from tdcs.decide.source_loss import sees_more
from tdcs.engine import http_answers
from tdcs.listing.folder_refusal import refused_folder
from tdcs.model.agent_state import PAGE_LENGTH_BYTES, FolderCount, FolderLimit, FolderPage
from tdcs.model.cache_engine import EngineUnavailableError, Source
from tdcs.model.listing_limit import LimitCount, ListingLimit
from tdcs.model.manifest_builder import ManifestBuilder
from tdcs.trust.contexts import Contexts

SECONDS: Final = 4 * 3600.0
"""So long a node may look through a folder: some 40,000 files a second on a disk, a thousand over a slow network."""

_NODES: Final = 4
"""So many nodes are asked before what they say is taken for the folder's state."""

_SILENT_SECONDS: Final = 300.0
"""So long a node may say nothing while it lists: a page of a thousand names takes a second on slow ones."""

_CONNECT_SECONDS: Final = 10.0
_LARGEST_PAGE: Final = 16 << 20
_LARGEST_COUNT: Final = 64 << 10
_NO_LIMIT: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderAgents:
    """The agents that may be asked.

    Attributes:
        urls: by node.
        expected: so many nodes have or shall have an agent: it may be that only one of them is known yet.
        tls: of this process; None: connections are plain.
    """

    urls: Mapping[str, str]
    expected: int = 0
    tls: Contexts | None = None


NO_AGENTS: Final = FolderAgents(urls=MappingProxyType({}))


class NodeError(Exception):
    """A node cannot be asked, or does not say all. The text says why, for people."""


class FolderListing:
    """The listing of one folder.

    Args:
        source: the folder.
        path: of the mount.
        limit: what it may have; None: anything.
        builder: gives an empty builder: one for each node that is listed.
        agents: of the cache, each of which sees the folder at the same place.
        seconds: so long a node may take.
    """

    def __init__(
        self,
        *,
        source: Source,
        path: str,
        limit: ListingLimit | None,
        builder: Callable[[], ManifestBuilder],
        agents: FolderAgents,
        seconds: float = SECONDS,
    ) -> None:
        self._source: Final = source
        self._path: Final = path
        self._limit: Final = limit
        self._builder: Final = builder
        self._nodes: Final = agents.urls
        self._expected: Final = max(len(agents.urls), agents.expected)
        self._tls: Final = agents.tls
        self._seconds: Final = seconds
        self._folder_limit: Final = FolderLimit(
            folder=parse_source_uri(source.uri).folder,
            files=limit.files if limit is not None else _NO_LIMIT,
            bytes=limit.bytes if limit is not None else None,
            seconds=seconds,
        )
        self._refused: list[tuple[str, FolderCount]] = []
        self._unasked = (
            f"of {self._expected} agents of the cache {len(self._nodes)} can be reached"
            if self._nodes
            else "no agent of the cache is there"
        )

    async def run(self) -> ManifestBuilder:
        """A builder with all files, as one node lists them, of which another one sees no more.

        Raises:
            LimitExceededError: There are more than the limit.
            SourceError: No node sees all of the folder.
            EngineUnavailableError: Not as many nodes could be asked as it takes; it is tried again.
            OSError: The disk does not take what was found.
        """
        nodes = sorted(self._nodes)
        random.shuffle(nodes)
        nodes = nodes[:_NODES]
        async with self._session() as session:
            while nodes:
                node = nodes.pop()
                listed = await self._listed(session, node)
                if listed is None:
                    continue
                if self._expected == 1:
                    return listed[0]
                witness = await self._witness(session, nodes)
                if witness is None:
                    break
                best = witness
                if sees_more(witness[1].files, than=listed[1].files) or sees_more(
                    listed[1].files, than=witness[1].files
                ):
                    # One of them does not see all of it, or both: whoever sees the most is right.
                    while (further := await self._witness(session, nodes)) is not None:
                        best = max(best, further, key=lambda candidate: candidate[1].files)
                if not sees_more(best[1].files, than=listed[1].files):
                    return listed[0]
                again = await self._listed(session, best[0])
                if again is not None:
                    return again[0]
        if self._refused:
            node, count = self._refused[0]
            raise refused_folder(self._source, count, node=node, seconds=self._seconds, path=self._path)
        raise EngineUnavailableError(
            attempted=f"list {self._source.uri}",
            reason=f"a folder is listed on two nodes at least, and another one could not be asked: {self._unasked}",
            remedy="It is tried again; see `kubectl get pods` in the namespace of the cache if it goes on",
            path=self._path,
            retryable=True,
        )

    async def _witness(
        self, session: aiohttp.ClientSession, nodes: list[str]
    ) -> tuple[str, FolderCount] | None:
        """What the next of these nodes counts that sees all that it can; each that was asked is taken out."""
        while nodes:
            node = nodes.pop()
            try:
                count = await self._count(session, node)
            except NodeError as error:
                self._unasked = str(error)
                continue
            if not count.failure and not count.cut_off:
                return node, count
            self._refused.append((node, count))
        return None

    async def _listed(
        self, session: aiohttp.ClientSession, node: str
    ) -> tuple[ManifestBuilder, FolderCount] | None:
        """What a node lists; None when it does not list all, which is noted. Raises LimitExceededError."""
        builder = self._builder()
        end: FolderCount | None = None
        try:
            async with aclosing(self._pages(session, node)) as pages:
                async for page in pages:
                    builder.add_listed(page.files)
                    for path in page.left_out:
                        builder.leave_out(path, "it is neither a file nor a link to a file of the folder")
                    end = page.end
        except NodeError as error:
            self._unasked = str(error)
            return None
        if end is None:
            self._unasked = f"node {node} does not end its listing"
            return None
        if end.failure or end.cut_off:
            self._refused.append((node, end))
            return None
        count = LimitCount(self._limit, subject=self._source.uri, path=self._path)
        count.add(files=end.counted, size=end.bytes, folders=end.folders, largest=end.largest)
        return builder, end

    async def _pages(self, session: aiohttp.ClientSession, node: str) -> AsyncGenerator[FolderPage]:
        async with self._ask(session, node, "/v1/list") as response, aclosing(pages_of(response)) as pages:
            async for page in pages:
                yield page

    async def _count(self, session: aiohttp.ClientSession, node: str) -> FolderCount:
        async with self._ask(session, node, "/v1/count") as response:
            content = await http_answers.read(response, most=_LARGEST_COUNT)
            return msgspec.msgpack.decode(content, type=FolderCount)

    @asynccontextmanager
    async def _ask(
        self, session: aiohttp.ClientSession, node: str, path: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Ask a node; raises NodeError, also for what goes wrong while its answer is read."""
        silent = self._seconds if path == "/v1/count" else _SILENT_SECONDS
        limits = aiohttp.ClientTimeout(total=self._seconds, sock_connect=_CONNECT_SECONDS, sock_read=silent)
        body = msgspec.msgpack.encode(self._folder_limit)
        try:
            async with session.post(
                f"{self._nodes[node]}{path}", data=body, timeout=limits, allow_redirects=False
            ) as response:
                if response.status != 200:
                    raise NodeError(f"the agent of node {node} answers {response.status}")
                yield response
        except (
            aiohttp.ClientError,
            asyncio.IncompleteReadError,
            TimeoutError,
            ValueError,
            msgspec.MsgspecError,
        ) as error:
            reason = str(error) or type(error).__name__
            raise NodeError(f"the agent of node {node} gives no whole answer: {reason}") from error

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[aiohttp.ClientSession]:
        tls = self._tls.following_client() if self._tls is not None else True
        session = http_answers.open_session(aiohttp.TCPConnector(limit=0, ssl=tls))
        async with session:
            yield session


async def pages_of(response: aiohttp.ClientResponse) -> AsyncGenerator[FolderPage]:
    """The pages of an answer to `/v1/list`.

    Raises:
        aiohttp.ClientError, asyncio.IncompleteReadError, TimeoutError, ValueError, msgspec.MsgspecError: It does not
            come whole.
    """
    while head := await response.content.read(PAGE_LENGTH_BYTES):
        if len(head) < PAGE_LENGTH_BYTES:
            head += await response.content.readexactly(PAGE_LENGTH_BYTES - len(head))
        length = int.from_bytes(head, "little")
        if length > _LARGEST_PAGE:
            raise ValueError(f"a page of {length} bytes")
        yield msgspec.msgpack.decode(await response.content.readexactly(length), type=FolderPage)
