"""Blocks that lie on other nodes by now, and stay for a moment: who has not heard of it yet still asks here.

No clock: times are seconds that only grow, given by the caller.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tdcs.model import slots
from tdcs.model.agent_state import Assignment
from tdcs.node.agent.mount.failed_fetches import Mask


class Handover:
    """Since when each slot of a mount has moved away, by the assignments."""

    def __init__(self) -> None:
        self._moved: Mask = np.zeros(slots.SLOTS, dtype=np.bool_)
        self._until: Final = np.zeros(slots.SLOTS)
        self._last = 0.0

    def assign(self, assignment: Assignment, *, now: float) -> None:
        """Take another assignment; a slot that was moved by the one before it waits no longer for that."""
        moved = slots.mask_of(assignment.moved)
        self._until[moved & ~self._moved] = now + assignment.handover_seconds
        self._moved = moved
        self._last = float(self._until[moved].max(initial=0.0))

    def kept(self, *, now: float) -> Mask | None:
        """Slots that stay for now; None when there are none."""
        if now >= self._last:
            return None
        return np.asarray(self._moved & (self._until > now))
