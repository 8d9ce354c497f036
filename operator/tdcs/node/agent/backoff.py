"""The one back-off rule of the agent: doubling pauses with a bound and a random part."""

from __future__ import annotations

import random

FIRST_SECONDS = 1.0
MOST_SECONDS = 300.0


def pause(failures: int, *, first: float = FIRST_SECONDS, most: float = MOST_SECONDS) -> float:
    """Seconds to wait after so many failures in a row (1 or more, without bound): between half and all of
    `first * 2 ** (failures - 1)`, at most `most`.
    """
    doublings = min(max(failures, 1) - 1, 32)  # 2.0 ** 1024 would overflow
    return min(most, first * 2.0**doublings) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
