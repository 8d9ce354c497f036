"""The faults and changes of a chaos run, drawn from a seed: the same seed gives the same run. Pure.

Both forms are made of it: the one on processes (tests/engine/test_chaos.py), and the one on a cluster (e2e/chaos).
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

AT_ONCE = 2
"""So many parts fail at a time."""
MOST_CHANGES = 2
"""So many changes precede the faults of a step."""


@dataclass(frozen=True, kw_only=True)
class PossibleFault:
    """What may happen in a run.

    Attributes:
        kind: what happens, as a verb.
        part: what it happens to.
        seconds: the least and the most that it lasts.
        places: how many of the part there are; it happens to one of them.
        alone: nothing else happens meanwhile.
    """

    kind: str
    part: str
    seconds: tuple[float, float]
    places: int = 1
    alone: bool = False


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens, for so many seconds, to one of so many of a part."""

    kind: str
    part: str
    seconds: float
    place: int = 0
    places: int = 1

    def __str__(self) -> str:
        position = f" {self.place + 1} of {self.places}" if self.places > 1 else ""
        return f"{self.kind} {self.part}{position} for {self.seconds:.1f} s"


@dataclass(frozen=True, kw_only=True)
class Step:
    """The changes, and then the faults, all of them at once."""

    changes: tuple[str, ...]
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, (*self.changes, *self.faults)))


def steps(*, seed: int, possible: Sequence[PossibleFault], changes: Sequence[str]) -> Iterator[Step]:
    """Steps without end.

    Each part fails in the first steps, and each fault happens once before any happens again.

    Args:
        seed: chooses the run.
        possible: the faults.
        changes: what users do meanwhile.
    """
    drawn = random.Random(seed)
    waiting: list[PossibleFault] = []
    while True:
        chosen: list[PossibleFault] = []
        count = drawn.randint(1, AT_ONCE)
        while len(chosen) < count:
            waiting = waiting or _in_random_order(possible, drawn)
            if chosen and not _go_together(chosen, waiting[0]):
                break
            chosen.append(waiting.pop(0))
        faults = tuple(
            Fault(
                kind=fault.kind,
                part=fault.part,
                seconds=drawn.uniform(*fault.seconds),
                place=drawn.randrange(fault.places),
                places=fault.places,
            )
            for fault in chosen
        )
        yield Step(changes=tuple(drawn.choices(changes, k=drawn.randint(0, MOST_CHANGES))), faults=faults)


def _go_together(chosen: Sequence[PossibleFault], other: PossibleFault) -> bool:
    return not any(fault.alone or other.alone or fault.part == other.part for fault in chosen)


def _in_random_order(possible: Sequence[PossibleFault], drawn: random.Random) -> list[PossibleFault]:
    """All faults, one of each part first."""
    mixed = drawn.sample(possible, len(possible))
    first = {fault.part: fault for fault in reversed(mixed)}
    return [
        *(fault for fault in mixed if first[fault.part] is fault),
        *(fault for fault in mixed if first[fault.part] is not fault),
    ]
