"""How far each agent asks for each slot that it lacks, so that as little as can be crosses racks, zones and regions.

A slot that nobody in a rack, zone or region has is brought there once, by one of the agents there that are to hold it,
the *gate*. The others wait for that one. A gate asks one level farther, where the same holds, up to the slot's origin,
which reads the source. The order of gates is the same on all levels, so nobody waits for one that waits for it.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tdcs.model.nearness import Place, steps

GATES = 4
"""So many agents of a rack, zone or region are its gates, always the same ones; others for slots that they shall not
hold."""

Mask = npt.NDArray[np.bool_]
Levels = npt.NDArray[np.int8]
Ranks = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far agents ask.

    Attributes:
        levels: for each agent and slot, how many levels of the topology may lie between it and whom it asks.
        between: how many levels lie between each two agents.
        gates: for each agent and slot, whether others wait for it.
    """

    levels: Levels
    between: Levels
    gates: Mask

    def may_ask(self, asker: int, giver: int) -> Mask:
        """For which slots one agent may ask another one."""
        return np.asarray(self.between[asker, giver] <= self.levels[asker])


def reach(places: Sequence[Place], *, has: Mask, ranks: Ranks) -> Reach | None:
    """How far agents at these places ask; None where all are equally near: each asks all.

    Args:
        has: for each agent and slot, whether others may ask it.
        ranks: for each agent and slot how much it is to be a gate, from 0; below 0: it does not bring it by itself.
    """
    if len(set(places)) <= 1:
        return None
    top = max(len(place) for place in places)
    groups = [list(_groups(places, level)) for level in range(top)]
    preferred = ranks.copy()
    for members in itertools.chain(*groups):
        first = members[np.argsort(-ranks[members].max(axis=1), kind="stable")[:GATES]]
        preferred[first] += ranks[first] >= 0
    reached = np.full(ranks.shape, top, dtype=np.int8)
    climbs = np.ones(ranks.shape, dtype=bool)
    gates = np.zeros(ranks.shape, dtype=bool)
    for level, members in (
        (level, group) for level, groups_of_level in enumerate(groups) for group in groups_of_level
    ):
        first_choice, held = preferred[members], has[members]
        first_rank = first_choice.max(axis=0)
        gates[members] |= (first_choice >= 0) & (first_choice == first_rank)
        stops = (held.sum(axis=0) - held > 0) | ((first_choice >= 0) & (first_choice < first_rank))
        reached[members] = np.where(climbs[members] & stops, level, reached[members])
        climbs[members] &= ~stops
    return Reach(levels=reached, between=_between(places), gates=gates)


def _groups(places: Sequence[Place], level: int) -> Iterator[npt.NDArray[np.int64]]:
    """The agents that share a level of the topology, by number."""
    shared: dict[Place, list[int]] = {}
    for number, place in enumerate(places):
        if level < len(place) and place[level]:
            shared.setdefault(place[level:], []).append(number)
    for members in shared.values():
        yield np.array(members, dtype=np.int64)


def _between(places: Sequence[Place]) -> Levels:
    different = list(dict.fromkeys(places))
    number_of = {place: number for number, place in enumerate(different)}
    table = np.array(
        [[steps(place, other_place) for other_place in different] for place in different], dtype=np.int8
    )
    numbers = np.array([number_of[place] for place in places])
    return np.asarray(table[np.ix_(numbers, numbers)])
