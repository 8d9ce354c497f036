"""Which of several artifacts of a model is tried first."""

from types import SimpleNamespace
from typing import Any

import msgspec

from tdcs_train.artifacts.choice import by_preference


def manifest(key: str, *, target: str = "x86-64-v3", gain: float | None = None) -> Any:
    tuning = msgspec.UNSET if gain is None else SimpleNamespace(gain=gain)
    return SimpleNamespace(key=key, target=target, regions=(), runtime=msgspec.UNSET, tuning=tuning)


def test_of_equal_artifacts_that_is_tried_first_which_tuning_made_faster() -> None:
    plain, slower, faster = manifest("a"), manifest("b", gain=0.9), manifest("c", gain=9.1)
    assert by_preference([plain, slower, faster], []) == [faster, plain, slower]


def test_a_better_target_comes_before_a_tuned_one() -> None:
    better, tuned = manifest("a", target="x86-64-v4"), manifest("b", gain=2.0)
    assert by_preference([tuned, better], []) == [better, tuned]
