"""Counts the files of a shared folder before a cache learns a name: agents see the folder, the operator does not."""

import asyncio
from typing import Final

from tdcs.api.source_uri import parse_source_uri
from tdcs.listing.namespace_share import NamespaceShare
from tdcs.model.agent_state import AgentError, Agents, FolderCount, FolderLimit
from tdcs.model.cache_engine import EngineUnavailableError, Source, SourceError
from tdcs.model.listing_limit import CheckSize, LimitCount, ListingLimit, SourcesSize

_SECONDS: Final = 300.0
"""So long a count may take, which looks at each file: some 40,000 a second on a disk, and a few thousand over a network
where lengths do not come with names."""

_OF_ONE_NAMESPACE: Final = 2
"""So many counts are of one namespace at most. An agent has twice as many places: slow folders of one namespace keep
no other namespace waiting."""

_NODES: Final = 4
"""So many nodes are asked before what they say is taken for the folder's state: each may have to look through it."""


class FolderSize:
    """Asks agents of the cache: `CheckSize` for folders. Other sources are left to another one.

    Args:
        agents: of the cache, each of which sees the folder at the same place.
        others: counts what is no folder.
        seconds: so long a count may take.
    """

    def __init__(self, agents: Agents, *, others: CheckSize, seconds: float = _SECONDS) -> None:
        self._agents: Final = agents
        self._others: Final = others
        self._seconds: Final = seconds
        self._share: Final = NamespaceShare(_OF_ONE_NAMESPACE)
        self._counts = -1

    async def __call__(
        self, source: Source, limit: ListingLimit, *, path: str, namespace: str = ""
    ) -> SourcesSize | None:
        """See `CheckSize`.

        Raises:
            LimitExceededError: It has more.
            SourceError: No node that was asked has counted it to its end in time, or it is no folder that may be
                counted.
            EngineUnavailableError: No agent could be asked now.
        """
        uri = parse_source_uri(source.uri)
        if uri.scheme != "file":
            return await self._others(source, limit, path=path, namespace=namespace)
        asked = FolderLimit(folder=uri.folder, files=limit.files, bytes=limit.bytes, seconds=self._seconds)
        async with self._share.of(namespace):
            return await self._count(asked, source, limit, path=path)

    async def _count(
        self, asked: FolderLimit, source: Source, limit: ListingLimit, *, path: str
    ) -> SourcesSize:
        """What one node counts whose answer can be taken alone, else the most that any node sees.

        A node that cannot count, or sees an empty folder, may be the only one: its mount is stale, or not there. Each
        count begins with another node, so that what is counted again is not seen by the same one only.
        """
        clock = asyncio.get_running_loop().time
        begin, unasked = clock(), "no agent of the cache is there"
        refused: SourceError | None = None
        empty, slow = 0, 0
        for node in self._in_turn():
            try:
                found = await self._agents.count(node=node, limit=asked)
            except AgentError as error:
                if clock() - begin >= self._seconds:  # it would be as slow for the next one
                    raise slow_folder(source, str(error), path=path) from error
                unasked = str(error)
                continue
            if found.failure or found.cut_off:
                refused = refused or refused_count(source, found, node=node, seconds=self._seconds, path=path)
                slow += found.cut_off
                if slow > 1:
                    break
                continue
            if not found.counted and not found.folders:
                empty += 1
                continue
            count = LimitCount(limit, what=source.uri, path=path)
            count.add(files=found.counted, size=found.bytes, folders=found.folders, largest=found.largest)
            return count.size
        if refused is not None:
            raise refused
        if empty and (empty > 1 or len(self._agents.states()) == 1):
            return SourcesSize()
        if empty:
            unasked = f"one node sees an empty folder, and another one could not be asked: {unasked}"
        raise EngineUnavailableError(
            attempted=f"count the files of {source.uri}",
            reason=unasked,
            remedy="It is tried again; see `kubectl get pods` in the namespace of the cache if it goes on",
            path=path,
            retryable=True,
        )

    def _in_turn(self) -> list[str]:
        """The nodes to ask, one after the other."""
        nodes = sorted(self._agents.states())
        self._counts += 1
        first = self._counts % max(len(nodes), 1)
        return [*nodes[first:], *nodes[:first]][:_NODES]


def refused_count(source: Source, found: FolderCount, *, node: str, seconds: float, path: str) -> SourceError:
    """Why what a node has counted is not all that is there."""
    if found.cut_off and not found.failure:
        seen = f"node {node} has seen {found.files} of them"
        return slow_folder(source, f"{seen} after {seconds:.0f} s, and there are more", path=path)
    return SourceError(
        attempted=f"count the files of {source.uri}",
        reason=f"{found.failure} (node {node})",
        remedy=_remedy(found),
        path=path,
    )


def _remedy(found: FolderCount) -> str:
    if found.refused:
        return "Name the folder itself in spec.source.uri, without symbolic links on the way"
    if found.unreadable:
        return (
            "Make it readable for everybody, or have the cache's administrator name a group that may read it "
            "(spec.folderAccess of the CacheCluster)"
        )
    return "See what is wrong with the folder on that node"


def slow_folder(source: Source, reason: str, *, path: str) -> SourceError:
    return SourceError(
        attempted=f"count the files of {source.uri}",
        reason=reason,
        remedy="See why the folder is so slow there, or name one with fewer files in spec.source.uri",
        path=path,
    )
