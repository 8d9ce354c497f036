"""Counts a source from another node than the operator's, where it has lost much by the operator's own listing."""

import random
from typing import Final, Protocol

from tdcs.api.source_uri import CLAIM_SCHEME, parse_source_uri
from tdcs.decide.source_loss import SecondCount
from tdcs.listing.result import access_of
from tdcs.model.agent_state import AgentError, Agents, SourceToCount
from tdcs.model.cache_engine import Source
from tdcs.model.listing_limit import SourcesSize

_NODES: Final = 3
"""So many nodes are asked before it is left to the next look at the source."""

_SECONDS: Final = 3600.0
"""So long a node may take: ten million names take some twenty minutes from a slow store."""


class CountElsewhere(Protocol):
    """Counts a source from another node."""

    async def __call__(self, source: Source, *, path: str, before: SourcesSize) -> SecondCount | None:
        """What another node finds; None where a listing is one of several nodes anyway.

        Args:
            source: with its keys.
            path: of the mount.
            before: how large it was: it is counted little further.
        """
        ...


async def nowhere(source: Source, *, path: str, before: SourcesSize) -> SecondCount | None:
    """`CountElsewhere` for a cache without agents that could be asked."""
    return None


class OtherNodes:
    """Has agents count a source: `CountElsewhere`. Folders are left out: agents list them, and none is believed alone.

    Each count begins with a node by chance: a loss that is believed was found from several of them where there are.
    """

    def __init__(self, agents: Agents) -> None:
        self._agents: Final = agents

    async def __call__(self, source: Source, *, path: str, before: SourcesSize) -> SecondCount | None:
        if parse_source_uri(source.uri).scheme in ("file", CLAIM_SCHEME):
            return None  # a claim is seen through one pod alone
        request = SourceToCount(mount=path, source=access_of(source), files=before.files, seconds=_SECONDS)
        nodes = sorted(self._agents.states())
        random.shuffle(nodes)
        reason = "no agent of the cache is there"
        for node in nodes[:_NODES]:
            try:
                count = await self._agents.count_source(node=node, source=request)
            except AgentError as error:
                reason = str(error)
                continue
            if not count.failure:
                return SecondCount(node=node, files=count.files, bytes=count.bytes)
            reason = f"node {node}: {count.failure}"
        return SecondCount(reason=reason)
