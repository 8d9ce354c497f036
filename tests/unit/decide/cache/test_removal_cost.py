"""Bytes that would be lost with a worker."""

import numpy as np
import pytest

from tdcs.control.context import WorkKey
from tdcs.decide.cache.removal_cost import MountLedger, NodeHolding, last_holders
from tdcs.model import slots


@pytest.mark.parametrize("seed", range(20))
def test_last_holders_are_the_nodes_whose_last_copies_are_above_zero(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 3, slots.SLOTS) * 1000
    nodes = "abcdef"[: int(random.integers(1, 7))]
    held = {}
    for name in nodes:
        present = random.random(slots.SLOTS) < random.choice([0.0, 0.3, 0.999, 1.0])
        complete = present & (random.random(slots.SLOTS) < random.choice([0.5, 1.0]))
        bits = slots.of_mask(complete), slots.of_mask(present)
        # Of a slot that is not complete, half is there.
        size = slots.bytes_in(bits[0], sizes) + slots.bytes_in(slots.difference(bits[1], bits[0]), sizes) // 2
        held[name] = NodeHolding(held_bytes=size, complete=bits[0], present=bits[1])
    leaving = frozenset(name for name in nodes if random.random() < 0.3)
    ledger: MountLedger[WorkKey] = MountLedger(path="/m", sizes=sizes, nodes=held)
    expected = {name for name in nodes if ledger.last_copies(node=name, draining=leaving)}
    assert last_holders(held, sizes=sizes, leaving=leaving) == expected


def test_nobody_is_a_last_holder_of_nothing() -> None:
    assert last_holders({}, sizes=np.ones(slots.SLOTS, dtype=np.int64), leaving=frozenset("a")) == frozenset()
