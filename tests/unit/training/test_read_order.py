"""The order in which a TensorFlow step reads variables, from a plan's document, and whether a trace kept it."""

from typing import Any

import pytest

from tdcs_train.errors import InputError
from tdcs_train.ps.read_order import kept, layer_priorities, read_order


def document(**priorities: int) -> dict[str, Any]:
    return {"transfers": [{"node": node, "priority": priority} for node, priority in priorities.items()]}


def test_layers_are_taken_in_the_order_of_their_numbers_whatever_the_plan_begins_with() -> None:
    assert layer_priorities(document(node11=1, node2=4, node5=2), source="plan.json") == [4, 2, 1]


def test_the_largest_priority_is_read_first_and_equal_ones_as_they_are_given() -> None:
    assert read_order([1, 3, 3, 2]) == [1, 2, 3, 0]


@pytest.mark.parametrize(
    ("arrivals", "window", "expected"),
    [
        ([1.0, 2.0, 3.0], 1, True),
        ([1.0, 3.0, 2.0], 1, False),
        ([1.0, 3.0, 2.0], 2, True),  # neighbours may change places
        ([3.0, 2.0, 1.0], 2, False),
        ([5.0], 2, True),
    ],
)
def test_an_order_is_kept_when_nothing_came_before_what_is_a_window_ahead(
    arrivals: list[float], window: int, expected: bool
) -> None:
    priorities = list(range(len(arrivals), 0, -1))
    assert kept(arrivals, priorities, window=window) is expected


def test_the_trace_is_judged_by_the_plan_and_not_by_the_places_of_the_variables() -> None:
    assert kept([2.0, 1.0], [1, 2], window=1)
    assert not kept([1.0, 2.0], [1, 2], window=1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "plan.json has no list `transfers`"),
        ({"transfers": []}, "plan.json has no list `transfers`"),
        ({"transfers": [{"node": "conv1", "priority": 1}]}, r"transfers\[0\] needs node, such as node7"),
        ({"transfers": [{"node": "node1", "priority": True}]}, r"transfers\[0\] needs node"),
        ({"transfers": [{"node": "node1", "priority": 1}] * 2}, r"transfers\[1\]: node1 is there twice"),
    ],
)
def test_what_is_no_order_is_refused_with_the_file_and_the_entry(content: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        layer_priorities(content, source="plan.json")
