"""The list of files that are in no ledger, of which many are struck off a few at a time."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tdcs.node.agent.blocks.inventory import ROWS, Rows, _keys
from tdcs.node.agent.blocks.strangers import Strangers


def rows_of(names: list[int]) -> Rows:
    rows = np.zeros(len(names), dtype=ROWS)
    rows["name"], rows["size"] = names, 2
    return rows


@pytest.mark.parametrize("at_once", [1, 70, 20_000])
def test_what_is_struck_off_is_gone_once_and_the_others_stay(at_once: int) -> None:
    names = random.Random(1).sample(range(1 << 30), 20_000)
    strangers, names_left = Strangers(rows_of(names), key=_keys), set(names)
    struck_names = names[:15_000] if at_once > 1 else names[:300]
    for begin in range(0, len(struck_names), at_once):
        part = struck_names[begin : begin + at_once]
        assert strangers.strike(rows_of([*part, 1 << 40])) == 2 * len(part)
        assert strangers.strike(rows_of(part)) == 0
        names_left.difference_update(part)
        assert len(strangers) == len(names_left)
    assert strangers.rows["name"].tolist() == sorted(names_left)
    strangers.replace(rows_of([7, 3]))
    assert strangers.strike(rows_of([3, 3])) == 2
    assert strangers.rows["name"].tolist() == [7]
