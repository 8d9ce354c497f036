"""How long the loads of Datasets take, from the first look at what is missing to the last."""

import math

from tdcs.control.context import WorkKey


class LoadTimes:
    """Stopwatches of the loads that go on. A load that had begun before the operator is not measured, nor is one that
    brings less than half of the data."""

    def __init__(self) -> None:
        self._begun: dict[WorkKey, float | None] = {}
        """When each load began; None for one that is not measured."""

    def seen(self, key: WorkKey, *, missing: int, wanted: int, clock: float) -> int | None:
        """Take in how far a load is; gives its whole seconds, one at least, when it has just ended.

        Args:
            key: the Dataset.
            missing: bytes that it lacks.
            wanted: bytes that it is to have.
            clock: seconds that only grow.
        """
        if missing > 0:
            self._begun.setdefault(key, clock if 2 * missing >= wanted else None)
            return None
        begun = self._begun.pop(key, None)
        return None if begun is None else max(math.ceil(clock - begun), 1)

    def forget(self, key: WorkKey) -> None:
        """The Dataset is gone, or is not loaded any more."""
        self._begun.pop(key, None)
