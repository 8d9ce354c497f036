"""Counts the files of a shared folder before a cache learns a name: agents see the folder, the operator does not."""

from typing import Final

from tdcs.api.source_uri import parse_source_uri
from tdcs.engine.agents import AgentError, Agents, FolderLimit
from tdcs.engine.protocol import Source, SourceError
from tdcs.listing.limit import CheckSize, LimitCount, ListingLimit, SourcesSize

_SECONDS: Final = 60.0
"""So long a count may take: some 100,000 names a second on a disk, and a tenth of that over a network."""


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

    async def __call__(
        self, source: Source, limit: ListingLimit, *, path: str, namespace: str = ""
    ) -> SourcesSize:
        """See `CheckSize`. While no agent answers nothing is counted, and the limit holds for the listing alone.

        Raises:
            LimitExceededError: It has more.
            SourceError: It was not counted to its end in time.
        """
        uri = parse_source_uri(source.uri)
        if uri.scheme != "file":
            return await self._others(source, limit, path=path, namespace=namespace)
        asked = FolderLimit(folder=uri.folder, files=limit.files, bytes=limit.bytes, seconds=self._seconds)
        for node in sorted(self._agents.states()):
            try:
                found = await self._agents.count(node=node, limit=asked)
            except AgentError:
                continue
            count = LimitCount(limit, what=source.uri, path=path)
            count.add(files=found.files, size=found.bytes, folders=found.folders)
            if found.cut_off:
                raise SourceError(
                    attempted=f"count the files of {source.uri}",
                    reason=f"node {node} has seen {found.files} of them in {found.folders} folders after "
                    f"{self._seconds:.0f} s, and there are more",
                    remedy="See why the folder is so slow there, or name one with fewer files in spec.source.uri",
                    path=path,
                )
            return SourcesSize(files=found.files, bytes=found.bytes)
        return SourcesSize()
