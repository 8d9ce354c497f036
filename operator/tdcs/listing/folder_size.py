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


class FolderSize:
    """Asks an agent of the cache: `CheckSize` for folders. Other sources are left to another one.

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

    async def __call__(
        self, source: Source, limit: ListingLimit, *, path: str, namespace: str = ""
    ) -> SourcesSize:
        """See `CheckSize`.

        Raises:
            LimitExceededError: It has more.
            SourceError: It was not counted to its end in time, or is no folder that may be counted.
            EngineUnavailableError: No agent could count it now.
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
        clock = asyncio.get_running_loop().time
        begin, last = clock(), "no agent of the cache is there"
        for node in sorted(self._agents.states()):
            try:
                found = await self._agents.count(node=node, limit=asked)
            except AgentError as error:
                if clock() - begin >= self._seconds:  # it would be as slow for the next one
                    raise _slow(source, str(error), path=path) from error
                last = str(error)
                continue
            if found.failure:
                raise SourceError(
                    attempted=f"count the files of {source.uri}",
                    reason=f"{found.failure} (node {node})",
                    remedy=_remedy(found),
                    path=path,
                )
            count = LimitCount(limit, what=source.uri, path=path)
            count.add(files=found.counted, size=found.bytes, folders=found.folders, largest=found.largest)
            if found.cut_off:
                seen = f"node {node} has seen {found.files} of them"
                reason = f"{seen} after {self._seconds:.0f} s, and there are more"
                raise _slow(source, reason, path=path)
            return count.size
        raise EngineUnavailableError(
            attempted=f"count the files of {source.uri}",
            reason=last,
            remedy="It is tried again; see `kubectl get pods` in the namespace of the cache if it goes on",
            path=path,
            retryable=True,
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


def _slow(source: Source, reason: str, *, path: str) -> SourceError:
    return SourceError(
        attempted=f"count the files of {source.uri}",
        reason=reason,
        remedy="See why the folder is so slow there, or name one with fewer files in spec.source.uri",
        path=path,
    )
