"""What an agent says of itself, for the operator that waits for another state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from tdcs.model.agent_state import AgentState, MountState

_SECONDS: Final = 0.5
_SHARE: Final = 20
"""Making a state takes at most one part in so many of the time."""


class StateFeed:
    """The last state, and those who wait for the next. All in one event loop."""

    def __init__(self, state: AgentState, *, clock: Callable[[], float]) -> None:
        self.state = state
        self._clock: Final = clock
        self._changed: Final = asyncio.Condition()
        self._began = 0.0
        self._due = 0.0
        self._notice: asyncio.Task[None] | None = None

    def due(self) -> bool:
        """Whether it is time for another state. The work of making one begins now."""
        self._began = self._clock()
        return self._began >= self._due

    def hurry(self) -> None:
        self._due = min(self._due, self._clock() + _SECONDS)

    def publish(
        self, *, used_bytes: int, kept_bytes: int, disk_free_bytes: int, mounts: Mapping[str, MountState]
    ) -> None:
        """Say this from now on; those who wait hear of it when it differs."""
        state = msgspec.structs.replace(
            self.state,
            used_bytes=used_bytes,
            kept_bytes=kept_bytes,
            disk_free_bytes=_rounded(disk_free_bytes),
            mounts=dict(mounts),
        )
        if state != self.state:
            self.state = msgspec.structs.replace(state, revision=self.state.revision + 1)
            self._notice = asyncio.create_task(self._notify())
        self._due = self._clock() + max(_SECONDS, (self._clock() - self._began) * _SHARE)

    async def after(self, *, instance: str, revision: int, wait_seconds: float) -> AgentState:
        """The state as soon as it is another one than that of `revision`, at the latest after so many seconds."""
        async with self._changed:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_seconds):
                    await self._changed.wait_for(
                        lambda: self.state.instance != instance or self.state.revision != revision
                    )
        return self.state

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _rounded(free: int) -> int:
    """Free space in steps, so that another process's small file is no news."""
    return free >> 24 << 24
