"""Which part of a model is tuned next."""

import math

from tdcs_train.compile.promise import MOST_FAILED_VISITS, promise


def _visits(best: dict[str, float], *, budget: int) -> dict[str, int]:
    """How often each part is tried within a budget; the times of the parts are known after their first visit."""
    visits = dict.fromkeys(best, 0)
    for _ in range(budget):
        part = max(
            best,
            key=lambda name: promise(
                weight=1, best=best[name] if visits[name] else math.inf, visits=visits[name]
            ),
        )
        visits[part] += 1
    return visits


def test_a_part_whose_trials_all_fail_does_not_take_the_budget_of_the_model() -> None:
    visits = _visits({"fails": math.inf, "slow": 0.2, "fast": 0.1}, budget=33)
    assert visits["fails"] == MOST_FAILED_VISITS
    assert visits["slow"] + visits["fast"] == 30
    assert visits["slow"] > visits["fast"] > 5


def test_a_part_that_fails_is_tried_again_when_no_other_is_left() -> None:
    assert promise(weight=1, best=math.inf, visits=100) >= 0
