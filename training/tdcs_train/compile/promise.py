"""Which part of a model the next trials of a tuning go to."""

import math

MOST_FAILED_VISITS = 3
"""After so many without a trial that ran, a part waits until no other part is left."""


def promise(*, weight: float, best: float, visits: int) -> float:
    """How much more trials of a part may gain: much where it takes long and was seldom tried.

    Args:
        weight: how often the model has the part.
        best: seconds of its fastest trial; infinite where none has run.
        visits: how often trials of it were made.
    """
    if math.isinf(best) and visits >= MOST_FAILED_VISITS:
        return 0.0
    return weight * best / (1 + visits)
