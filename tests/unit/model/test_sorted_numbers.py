"""Sets of numbers as ascending arrays."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tdcs.model.sorted_numbers import distinct, union

NUMBERS = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=20)


@given(first=NUMBERS, second=NUMBERS)
def test_sets_of_numbers_are_in_order_and_have_each_once(first: list[int], second: list[int]) -> None:
    arrays = [np.array(numbers, dtype=np.int64) for numbers in (first, second)]
    assert distinct(arrays[0]).tolist() == sorted(set(first))
    assert union(arrays[0], arrays[1]).tolist() == sorted({*first, *second})
    assert arrays[0].tolist() == first, "what is given stays"
