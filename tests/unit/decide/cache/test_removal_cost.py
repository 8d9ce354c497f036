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


A, B = frozenset("a"), frozenset("b")
NOBODY = frozenset[str]()


def holding(
    *complete: int, partly: tuple[int, ...] = (), held: int | None = None, version: str = ""
) -> NodeHolding:
    """Slots of 100 bytes each; `partly`: those with half of their bytes."""
    size = 100 * len(complete) + 50 * len(partly) if held is None else held
    return NodeHolding(
        held_bytes=size,
        complete=slots.bitmap(complete),
        present=slots.bitmap([*complete, *partly]),
        version=version,
    )


def lost(node: str, *, draining: frozenset[str] = NOBODY, **nodes: NodeHolding) -> int:
    sizes = np.full(slots.SLOTS, 100, dtype=np.int64)
    ledger: MountLedger[WorkKey] = MountLedger(path="/m", sizes=sizes, nodes=nodes)
    return ledger.last_copies(node=node, draining=draining)


@pytest.mark.parametrize(
    ("nodes", "draining", "size"),
    [
        pytest.param({}, NOBODY, 0, id="nothing is known of it"),
        pytest.param({"a": holding()}, NOBODY, 0, id="it holds nothing"),
        pytest.param({"a": holding(1, 2)}, NOBODY, 200, id="it alone"),
        pytest.param({"a": holding(1, 2), "b": holding(2)}, NOBODY, 100, id="another one has a part"),
        pytest.param({"a": holding(1, 2), "b": holding(1, 2)}, NOBODY, 0, id="another one has all"),
        pytest.param({"a": holding(1, 2), "b": holding(1, 2)}, B, 200, id="which leaves, too"),
        pytest.param({"a": holding(1), "b": holding(1)}, A, 0, id="it leaves itself"),
        pytest.param(
            {"a": holding(1, version="new"), "b": holding(1, version="old")}, NOBODY, 100, id="an old version"
        ),
        pytest.param({"a": holding(1), "b": holding(partly=(1,))}, NOBODY, 100, id="half of a whole slot"),
        pytest.param({"a": holding(partly=(1, 2))}, NOBODY, 100, id="halves of two slots"),
        pytest.param({"a": holding(partly=(1, 2)), "b": holding(1)}, NOBODY, 50, id="one half is elsewhere"),
        pytest.param({"a": holding(partly=(1,)), "b": holding(partly=(1,))}, NOBODY, 0, id="two halves"),
        pytest.param({"a": holding(1, held=60)}, NOBODY, 100, id="fewer bytes than its slots have"),
    ],
)
def test_bytes_that_no_staying_node_holds_are_lost(
    nodes: dict[str, NodeHolding], draining: frozenset[str], size: int
) -> None:
    assert lost("a", draining=draining, **nodes) == size


def test_bytes_on_a_node_count_whoever_holds_them_too() -> None:
    ledger: MountLedger[WorkKey] = MountLedger(path="/m", nodes={"a": holding(1), "b": holding(1)})
    assert (ledger.bytes_on("a"), ledger.bytes_on("stranger")) == (100, 0)
