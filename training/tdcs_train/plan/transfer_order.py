"""In which order to receive the parameters of an iteration."""

import enum
from collections.abc import Sequence

from tdcs_train.plan.iteration import Iteration

MOST_TRIALS = 4000
"""Orders that the search simulates at most: seconds for the largest published profiles."""


class Rule(enum.Enum):
    """How an order is found."""

    COUNT = "count"
    """By the number of operations that depend on a transfer; the longer the list, the earlier (Jiang et al. 2022)."""
    TIMED = "timed"
    """By the computation that a transfer sets free, against its own time (TicTac)."""
    SEARCHED = "searched"
    """The better of both in the simulation, improved by moving single transfers while that shortens the iteration."""


def priorities(iteration: Iteration, rule: Rule, order: Sequence[int]) -> list[int]:
    """The priority of each transfer of an order by a rule; larger goes first, equal ones in any order."""
    if rule is Rule.COUNT:
        return dependents(iteration)
    place = {transfer: index for index, transfer in enumerate(order)}
    return [len(order) - place[transfer] for transfer in range(len(order))]


def transfer_order(iteration: Iteration, rule: Rule) -> list[int]:
    """The transfers in the order of a rule."""
    if rule is Rule.COUNT:
        counts = dependents(iteration)
        return sorted(
            range(len(counts)), key=lambda each: (-counts[each], iteration.transfers[each].seconds, each)
        )
    if rule is Rule.TIMED:
        return _timed(iteration)
    return _searched(iteration)


def dependents(iteration: Iteration) -> list[int]:
    """How many operations depend on each transfer, directly or not."""
    return [
        sum(bits >> transfer & 1 for bits in iteration.missing)
        for transfer in range(len(iteration.transfers))
    ]


def _timed(iteration: Iteration) -> list[int]:
    """TicTac's rule: A before B if min(P_B, M_A) < min(P_A, M_B), ties by the smaller M+, repeated.

    M is the time of a transfer, P the computation that waits for it alone, and M+ the least total time of transfers
    that sets free an operation which waits for it and for others.
    """
    remaining = (1 << len(iteration.transfers)) - 1
    order: list[int] = []
    seconds = [transfer.seconds for transfer in iteration.transfers]
    while remaining:
        seconds_by_mask: dict[int, float] = {}
        for operation, mask in zip(iteration.operations, iteration.missing, strict=True):
            seconds_by_mask[mask & remaining] = seconds_by_mask.get(mask & remaining, 0.0) + operation.seconds
        alone = {transfer: seconds_by_mask.get(1 << transfer, 0.0) for transfer in _bits(remaining)}
        least_total = dict.fromkeys(alone, float("inf"))
        for mask in seconds_by_mask:
            if mask.bit_count() > 1:
                members = _bits(mask)
                total = sum(seconds[member] for member in members)
                for member in members:
                    least_total[member] = min(least_total[member], total)
        best = min(alone)
        for rival in alone:
            rival_first = min(alone[best], seconds[rival])
            best_first = min(alone[rival], seconds[best])
            if rival_first < best_first or (
                rival_first == best_first and least_total[rival] < least_total[best]
            ):
                best = rival
        order.append(best)
        remaining &= ~(1 << best)
    return order


def _searched(iteration: Iteration) -> list[int]:
    starts = [transfer_order(iteration, rule) for rule in (Rule.COUNT, Rule.TIMED)]
    orders = [_improved(iteration, start, trials=MOST_TRIALS // len(starts)) for start in starts]
    return min(orders, key=iteration.seconds)


def _improved(iteration: Iteration, order: Sequence[int], *, trials: int) -> list[int]:
    """Move one transfer at a time to the place that shortens the iteration most, until none does."""
    best, best_seconds = list(order), iteration.seconds(order)
    bound = max(iteration.compute_seconds, iteration.transfer_seconds)
    improved = True
    while improved and best_seconds > bound:
        improved = False
        for transfer in tuple(best):
            remaining = [entry for entry in best if entry != transfer]
            for place in range(len(best)):
                trial = [*remaining[:place], transfer, *remaining[place:]]
                if trials <= 0:
                    return best
                trials -= 1
                seconds = iteration.seconds(trial)
                if seconds < best_seconds * (1 - 1e-12):
                    best, best_seconds, improved = trial, seconds, True
    return best


def _bits(number: int) -> list[int]:
    return [place for place in range(number.bit_length()) if number >> place & 1]
