"""Rate of a store, measured from the reads of its loads.

The rate is what all loads of a store read together over a window without limits. Loads that are limited to their shares
never read more than the sum of the shares, so they would only confirm an old measurement. Therefore loads have no limit
during a measurement. One is made when the first load starts, when another starts, and at intervals while loads run.
Between measurements the rate can rise, since the load that is served first has no limit. Only a measurement lowers it,
each time by half of the difference, since a short disturbance does not make a slow store.

A measurement starts with the first byte. Otherwise a store that pauses would get rate 0, and all loads but one would
stop when it resumes.

If the nodes are slower than the store, their speed is measured: it is what can be shared.
"""

import itertools
from collections.abc import Collection
from dataclasses import dataclass, replace

CHANGE = 0.1
"""Relative difference from which a measured rate replaces the previous one, so that shares ignore small variations."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """When a store is measured, and how long; all in seconds.

    Attributes:
        settle: pause after the last limit was lifted: agents report means over seconds.
        window: duration of a measurement.
        again: time after which a measurement is repeated while loads run.
        between: minimum time between measurements, also for a new load.
    """

    settle: float = 6.0
    window: float = 10.0
    again: float = 300.0
    between: float = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """The measured rate of a store.

    Attributes:
        rate: bytes a second; None before the first measurement.
        at: when `rate` was measured.
        loads: the loads that were measured.
        began: since when loads have no limit; None between measurements.
        samples: time and bytes a second of all loads, over the last window.
    """

    rate: float | None = None
    at: float = 0.0
    loads: frozenset[str] = frozenset()
    began: float | None = None
    samples: tuple[tuple[float, float], ...] = ()

    @property
    def shared(self) -> float | None:
        """The rate to share among the loads; None while they have no limit."""
        return self.rate if self.began is None else None


def measure(
    measurement: Measurement, *, now: float, rate: float, loads: Collection[str], timing: Timing
) -> Measurement:
    """Add a sample of the present reads of a store's loads.

    Args:
        now: monotonic time in seconds.
        rate: bytes a second that all its loads read now.
        loads: names of the loads that only their shares limit; loads with a limit of their own say nothing about the
            store.
    """
    names = frozenset(loads)
    if not names:
        return replace(measurement, began=None, samples=())
    age = now - measurement.at
    due = (
        measurement.rate is None
        or age >= timing.again
        or (not names <= measurement.loads and age >= timing.between)
    )
    began = measurement.began
    if began is None and due:
        began, measurement = now, replace(measurement, samples=())
    from_ = now if began is None else began + timing.settle
    samples = (*measurement.samples, (now, rate)) if began is None or now >= from_ else ()
    while len(samples) > 1 and samples[1][0] <= now - timing.window:
        samples = samples[1:]
    # Loads that read nothing, because the source or the agents do not answer, say nothing about the store's rate.
    while began is not None and samples and samples[0][1] <= 0:
        samples = samples[1:]
    updated = replace(measurement, began=began, samples=samples)
    if not samples or now - samples[0][0] < timing.window:
        return updated
    kept_up = _mean(samples)
    if began is not None:
        return replace(updated, rate=_measured(measurement.rate, kept_up), at=now, loads=names, began=None)
    return replace(updated, rate=max(_measured(measurement.rate, kept_up), measurement.rate or 0.0))


def _measured(previous_rate: float | None, kept_up: float) -> float:
    if previous_rate is None or previous_rate <= 0:
        return kept_up
    if abs(kept_up - previous_rate) <= CHANGE * previous_rate:
        return previous_rate
    return kept_up if kept_up > previous_rate else (previous_rate + kept_up) / 2


def _mean(samples: tuple[tuple[float, float], ...]) -> float:
    """The mean over time: each rate holds until the next one."""
    bytes_ = sum(rate * (after - at) for (at, rate), (after, _) in itertools.pairwise(samples))
    return bytes_ / (samples[-1][0] - samples[0][0])
