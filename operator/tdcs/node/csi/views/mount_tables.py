"""What is mounted in each cache cluster, and in which version: asked of the operator."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from tdcs.engine.holder_table import LARGEST_MOUNTS, MOUNTS_PATH, ClusterMounts
from tdcs.engine.operator_client import OperatorClient
from tdcs.model.cache_engine import EngineUnavailableError

_ANSWER_SECONDS: Final = 3.0
_SHARED_SECONDS: Final = 0.5
"""So old an answer may be: volumes that are published at the same time share it."""


class Mounts(Protocol):
    """What is mounted in a cache cluster."""

    async def versions(self) -> Mapping[str, str]:
        """The version of each mount, by its path; empty of one that is not listed yet. Raises EngineError."""
        ...


class ClusterMountTable:
    """The mounts of one cache cluster.

    Args:
        operator: None: none is named, and nothing is known.
    """

    def __init__(
        self, *, cluster: str, operator: OperatorClient | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster: Final = cluster
        self._operator: Final = operator
        self._clock: Final = clock
        self._last = ClusterMounts()
        self._answered_at = float("-inf")
        self._lock: Final = asyncio.Lock()

    async def versions(self) -> Mapping[str, str]:
        async with self._lock:
            if self._clock() >= self._answered_at + _SHARED_SECONDS:
                self._last = await self._ask()
                self._answered_at = self._clock()
            return self._last.versions

    async def _ask(self) -> ClusterMounts:
        try:
            if self._operator is None:
                raise OSError("no operator is named")
            content = await asyncio.to_thread(
                self._operator.get,
                f"{MOUNTS_PATH}{self._cluster}",
                seconds=_ANSWER_SECONDS,
                largest=LARGEST_MOUNTS,
            )
            return msgspec.msgpack.decode(content, type=ClusterMounts)
        except (OSError, msgspec.MsgspecError) as error:
            raise EngineUnavailableError(
                attempted=f"ask the operator what is mounted in cache cluster {self._cluster}",
                reason=str(error),
                remedy="See the operator's pod",
                retryable=True,
            ) from error
