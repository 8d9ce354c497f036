"""How many blocks each mount registers at the same time, and which of these lanes end when fewer are allowed."""

from __future__ import annotations

from typing import Final

from tdcs.node.agent.transfer.registrar import BUSY_LANES


class RegistrationLanes:
    """The lanes of all mounts. All in one event loop."""

    def __init__(self) -> None:
        self._allowed = 0
        self._lanes: Final[dict[str, int]] = {}
        self._resting: Final[set[str]] = set()
        """Mounts that got their lanes while no blocks were brought."""

    @property
    def free(self) -> int:
        """Lanes that may begin; below 0 when there are more than are allowed now."""
        return self._allowed - sum(self._lanes.values())

    def allow(self, lanes: int) -> None:
        self._allowed = lanes

    def begin(self, mount: str, *, lanes: int) -> None:
        """A mount begins a batch of blocks on so many lanes."""
        self._lanes[mount] = lanes
        if self._allowed > BUSY_LANES:
            self._resting.add(mount)

    def leaves(self, mount: str) -> bool:
        """Whether one lane of a mount ends before its batch: blocks are brought since it began, and fewer are allowed.

        The few lanes that began while blocks were brought end with their batches, which are short.
        """
        if mount not in self._resting or self.free >= 0:
            return False
        self._lanes[mount] -= 1
        return True

    def end(self, mount: str) -> None:
        self._lanes.pop(mount, None)
        self._resting.discard(mount)
