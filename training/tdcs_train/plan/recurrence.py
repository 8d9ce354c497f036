"""The dynamic program of PipeDream (SOSP'19, section 3.2) on one level of the network.

`A(j, m)` is the least cost, over all plans, of the worst stage when the layers of state j run on m machines: either as
one stage on all of them, or cut after a state k, so that the layers of k have m - m' machines and the rest is one
stage on m'. The cost is seconds a mini-batch, or bytes of memory.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy
from numpy.typing import NDArray

Floats = NDArray[numpy.float64]
Integers = NDArray[numpy.int64]


class Terms(Protocol):
    """The cost of one stage."""

    def alone(self, starts: Integers, end: int) -> Floats:
        """As the only stage, from each start to end, on 1 to M machines: shape (starts, M)."""
        ...

    def after_cut(self, cuts: Integers, end: int, machines: int) -> Floats:
        """From each cut to end, on m' = 1 to m - 1 of `machines` = m in all: shape (cuts, m - 1)."""
        ...


@dataclass(frozen=True)
class Table:
    """What a run of the dynamic program found."""

    starts: Integers
    best: Floats
    """A by start, state and machines less one; infinite where there is no plan."""
    cut: Integers
    """The state k to cut after; NO_CUT, or FEWER for the plan with a machine less. Same shape."""
    last: Integers
    """Machines of the stage after the cut. Same shape."""


NO_CUT = -1
FEWER = -2


def solve(
    terms: Terms, *, inside: NDArray[numpy.bool_], starts: Integers, machines: int, fewer: bool
) -> Table:
    """The dynamic program over all states, for ranges that begin at each of the starts."""
    count = len(inside)
    shape = (len(starts), count, machines)
    best = numpy.full(shape, numpy.inf)
    cut = numpy.full(shape, NO_CUT, dtype=numpy.int64)
    last = numpy.zeros(shape, dtype=numpy.int64)
    rows = numpy.arange(len(starts))
    for end in range(1, count):
        best[:, end] = numpy.where(inside[starts, end][:, None], terms.alone(starts, end), numpy.inf)
        last[:, end] = numpy.arange(1, machines + 1)
        cuts = numpy.flatnonzero(inside[1:, end]) + 1
        before = best[:, cuts]
        for total in range(2, machines + 1):
            index = total - 1
            if fewer:
                _take(best, cut, last, (rows, end, index), best[:, end, index - 1], FEWER, 0)
            if len(cuts):
                last_stage = terms.after_cut(cuts, end, total)
                slowest = numpy.maximum(before[:, :, total - 2 :: -1], last_stage).reshape(len(starts), -1)
                choice = slowest.argmin(axis=1)
                place, replicas = numpy.divmod(choice, total - 1)
                _take(best, cut, last, (rows, end, index), slowest[rows, choice], cuts[place], replicas + 1)
    return Table(starts=starts, best=best, cut=cut, last=last)


def _take(
    best: Floats,
    cut: Integers,
    last: Integers,
    where: tuple[Integers, int, int],
    value: Floats,
    new_cut: Integers | int,
    new_last: Integers | int,
) -> None:
    """Put a plan into the table where it is better than what is there."""
    rows, end, index = where
    better = value < best[rows, end, index]
    best[:, end, index] = numpy.where(better, value, best[:, end, index])
    cut[:, end, index] = numpy.where(better, new_cut, cut[:, end, index])
    last[:, end, index] = numpy.where(better, new_last, last[:, end, index])


def stages_of(table: Table, *, row: int, end: int, machines: int) -> list[tuple[int, int, int]]:
    """The stages (start state, end state, machines) of the best plan of a range, in order."""
    stages: list[tuple[int, int, int]] = []
    while True:
        cut = int(table.cut[row, end, machines - 1])
        if cut == FEWER:
            machines -= 1
            continue
        replicas = int(table.last[row, end, machines - 1])
        if cut == NO_CUT:
            stages.append((int(table.starts[row]), end, replicas))
            return stages[::-1]
        stages.append((cut, end, replicas))
        end, machines = cut, machines - replicas
