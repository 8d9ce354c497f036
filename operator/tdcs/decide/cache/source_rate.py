"""How fast a store gives data, measured from what its loads read.

The rule: what all loads of a store read together over a window, while none of them was held back, is its rate. Loads
that are held back by their shares never read more than their sum, so shares alone would only ever confirm an old
measurement. Therefore nobody is held back during a measurement, and one is made when the first load begins, when
another one begins, and now and then while loads go on. Between measurements the rate can rise, since the load that is
served first has no limit then either; it falls only by a measurement, and then half of the way at a time, since a
short disturbance is no slower store.

A measurement begins with the first byte: a store that gives nothing for a while would else be one of rate 0, and
every load but one would be stopped when it gives again.

Limits: where the nodes cannot take what the store could give, that is what is measured, and it is what can be shared.
"""

import itertools
from collections.abc import Collection
from dataclasses import dataclass, replace

CHANGE = 0.1
"""Part by which a measured rate must differ from the known one to replace it: shares stay while it only varies."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """When a store is measured, and how long; all in seconds.

    Attributes:
        settle: so long after the last limit was lifted nothing counts: what agents report is a mean over seconds.
        window: so long a rate must be kept up.
        again: so long after a measurement another one is made while loads go on.
        between: so long it is not made for a new load either.
    """

    settle: float = 6.0
    window: float = 10.0
    again: float = 300.0
    between: float = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """What is known of a store's rate.

    Attributes:
        rate: bytes a second; None before the first measurement.
        began: since when nobody is held back; None between measurements.
        seen: times, and bytes a second that all loads read then; those of the last window.
    """

    rate: float | None = None
    at: float = 0.0
    loads: frozenset[str] = frozenset()
    began: float | None = None
    seen: tuple[tuple[float, float], ...] = ()

    @property
    def shared(self) -> float | None:
        """The rate that is to be shared now; None while nobody is held back."""
        return self.rate if self.began is None else None


def measure(
    known: Measurement, *, now: float, rate: float, loads: Collection[str], timing: Timing
) -> Measurement:
    """Take in what the loads of a store read now.

    Args:
        now: seconds that only grow.
        rate: bytes a second that all of its loads read now.
        loads: names of the loads that may read as fast as they can but for their shares; those with a limit of their
            own say nothing of the store.
    """
    names = frozenset(loads)
    if not names:
        return replace(known, began=None, seen=())
    age = now - known.at
    due = known.rate is None or age >= timing.again or (not names <= known.loads and age >= timing.between)
    began = known.began
    if began is None and due:
        began, known = now, replace(known, seen=())
    from_ = now if began is None else began + timing.settle
    seen = (*known.seen, (now, rate)) if began is None or now >= from_ else ()
    while len(seen) > 1 and seen[1][0] <= now - timing.window:
        seen = seen[1:]
    # Loads that read nothing, since their source or their agents do not answer, say nothing of what it can give.
    while began is not None and seen and seen[0][1] <= 0:
        seen = seen[1:]
    found = replace(known, began=began, seen=seen)
    if not seen or now - seen[0][0] < timing.window:
        return found
    kept_up = _mean(seen)
    if began is not None:
        return replace(found, rate=_measured(known.rate, kept_up), at=now, loads=names, began=None)
    return replace(found, rate=max(_measured(known.rate, kept_up), known.rate or 0.0))


def _measured(known: float | None, kept_up: float) -> float:
    if known is None or known <= 0:
        return kept_up
    if abs(kept_up - known) <= CHANGE * known:
        return known
    return kept_up if kept_up > known else (known + kept_up) / 2


def _mean(seen: tuple[tuple[float, float], ...]) -> float:
    """The mean over time: each rate holds until the next one."""
    bytes_ = sum(rate * (after - at) for (at, rate), (after, _) in itertools.pairwise(seen))
    return bytes_ / (seen[-1][0] - seen[0][0])
