"""What is mounted in each cache cluster, and in which version: asked of its master, or of the operator where a cluster
has none.

The operator says which of the two a cluster is. While it says nothing, a cluster has a master.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from tdcs.engine.holder_table import LARGEST_MOUNTS, MOUNTS_PATH, ClusterMounts
from tdcs.engine.operator_client import OperatorClient
from tdcs.listing.result import Listed
from tdcs.model.cache_engine import EngineError, EngineUnavailableError
from tdcs.model.listing_limit import ListingLimit

_ANSWER_SECONDS: Final = 3.0
_AGAIN_SECONDS: Final = 60.0
"""So long a cluster that has a master is believed to have one."""
_SILENT_SECONDS: Final = 10.0
"""So long an operator that gave no answer is not asked again what kind a cluster is."""
_SHARED_SECONDS: Final = 0.5
"""So old the operator's answer may be: both questions about a volume are answered by one."""


class Mounts(Protocol):
    """What an `Engine` says of its mounts."""

    async def mounts(self) -> Mapping[str, str]: ...

    async def versions(self) -> Mapping[str, str]: ...


class ClusterMountTable:
    """The mounts of one cache cluster.

    Args:
        master: what its master says, if it has one.
        operator: None: none is named, so that every cluster has a master.
    """

    def __init__(
        self,
        *,
        cluster: str,
        master: Mounts,
        operator: OperatorClient | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster: Final = cluster
        self._master: Final = master
        self._operator: Final = operator
        self._clock: Final = clock
        self._ask_after = 0.0
        self._last: ClusterMounts | None = None
        """The operator's last answer, of a cluster without a master."""
        self._answered_at = 0.0
        self._lock: Final = asyncio.Lock()

    @property
    def native(self) -> bool:
        """Whether the cluster is known to have no master."""
        return self._last is not None

    async def mounts(self) -> Mapping[str, str]:
        found = await self._of_operator()
        return dict.fromkeys(found.versions, "") if found is not None else await self._master.mounts()

    async def versions(self) -> Mapping[str, str]:
        found = await self._of_operator()
        if found is None:
            return await self._master.versions()
        return {path: version for path, version in found.versions.items() if version}

    async def _of_operator(self) -> ClusterMounts | None:
        """What the operator says of a cluster without a master; None for one that has one. Raises EngineError."""
        if self._operator is None:
            return None
        async with self._lock:
            now = self._clock()
            if self._last is not None and now < self._answered_at + _SHARED_SECONDS:
                return self._last
            if self._last is None and now < self._ask_after:
                return None
            try:
                content = await asyncio.to_thread(
                    self._operator.get,
                    f"{MOUNTS_PATH}{self._cluster}",
                    seconds=_ANSWER_SECONDS,
                    largest=LARGEST_MOUNTS,
                )
                answer = msgspec.msgpack.decode(content, type=ClusterMounts)
            except (OSError, msgspec.MsgspecError) as error:
                if self._last is None:
                    self._ask_after = self._clock() + _SILENT_SECONDS
                    return None
                raise EngineUnavailableError(
                    attempted=f"ask the operator what is mounted in cache cluster {self._cluster}",
                    reason=str(error),
                    remedy="See the operator's pod",
                    retryable=True,
                ) from error
            if not answer.native:
                self._last, self._ask_after = None, self._clock() + _AGAIN_SECONDS
                return None
            self._last, self._answered_at = answer, self._clock()
            return answer


class NativeLister:
    """In the place of a lister on a node, for a cluster without a master: the operator alone lists its sources."""

    async def list(
        self, *, path: str, refresh: bool = False, resume: bool = False, limit: ListingLimit | None = None
    ) -> Listed:
        raise EngineError(
            attempted=f"list {path}",
            reason="the operator has not listed it yet, or its list cannot be had from the operator or an agent now",
            remedy="See the conditions of its Dataset: kubectl describe datasets -A",
            path=path,
            retryable=True,
        )
