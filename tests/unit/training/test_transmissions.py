"""The trace of what left over a connection of a parameter server."""

import pytest

from tdcs_train.ps.transmissions import OrderKept, Transmission, order_kept, together


def trace(*entries: tuple[int, float, float]) -> list[Transmission]:
    """Priority, when it was queued and when it began, of each."""
    return [Transmission(number, *entry) for number, entry in enumerate(entries)]


@pytest.mark.parametrize(
    ("entries", "kept", "overtook"),
    [
        pytest.param([], 0, 0, id="nothing left"),
        pytest.param([(1, 0.0, 0.1), (3, 0.2, 0.3)], 2, 0, id="the urgent one came when the other had left"),
        pytest.param([(1, 0.0, 0.5), (3, 0.2, 0.3)], 2, 1, id="the urgent one overtook"),
        pytest.param([(1, 0.0, 0.3), (3, 0.2, 0.5)], 1, 0, id="it waited while the other one left"),
        pytest.param([(2, 0.0, 0.1), (2, 0.05, 0.2)], 2, 0, id="equal ones"),
        pytest.param([(1, 0.0, 0.4), (2, 0.1, 0.3), (3, 0.15, 0.2)], 3, 2, id="two overtook"),
    ],
)
def test_a_transmission_keeps_the_order_when_nothing_more_urgent_waited(
    entries: list[tuple[int, float, float]], kept: int, overtook: int
) -> None:
    outcome = order_kept(trace(*entries))
    assert outcome == OrderKept(transmissions=len(entries), kept=kept, overtook=overtook)


def test_several_connections_are_added_up() -> None:
    good = order_kept(trace((1, 0.0, 0.5), (3, 0.2, 0.3)))
    bad = order_kept(trace((1, 0.0, 0.3), (3, 0.2, 0.5)))
    assert together([good, bad]) == OrderKept(transmissions=4, kept=3, overtook=1)
    assert together([good, bad]).share == 0.75
    assert together([]).share == 1.0
