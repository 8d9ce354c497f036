"""What Preloads want, and what of completed ones a Dataset keeps: the newest, however often it is asked."""

import pytest

from tdcs.api.dataset import KEPT_BYTES, Dataset, Kept
from tdcs.api.preload import Preload
from tdcs.planning.wants import kept_now, of_preload


def complete(name: str, *, at: int, paths: int = 1, length: int = 4) -> tuple[str, Preload]:
    """A Preload that completed so many seconds past the hour."""
    when = f"2026-01-01T00:00:{at:02d}Z"
    status = {
        "datasetGeneration": 1,
        "completionTime": when,
        "conditions": [
            {"type": "Complete", "status": "True", "reason": "Complete", "lastTransitionTime": when}
        ],
    }
    named = [f"{number:03d}".ljust(length, "x") for number in range(paths)]
    return name, Preload.model_validate(
        {"spec": {"datasetRef": {"name": "d"}, "paths": named}, "status": status}
    )


def names(kept: list[Kept]) -> list[str]:
    return [one.name for one in kept]


def test_of_more_than_sixteen_the_newest_are_kept_whatever_their_names_and_their_order() -> None:
    there = [complete(f"p{20 - number:02d}", at=number) for number in range(20)]
    kept = kept_now(known=[], preloads=there, generation=1)
    assert names(kept) == [f"p{20 - number:02d}" for number in range(4, 20)]
    for shuffled in (there[::-1], sorted(there, key=lambda one: one[0]), there[7:] + there[:7]):
        assert kept_now(known=kept, preloads=shuffled, generation=1) == kept


def test_those_of_one_second_are_ordered_by_name() -> None:
    there = [complete(f"p{number:02d}", at=0) for number in range(17)]
    kept = kept_now(known=[], preloads=there, generation=1)
    assert names(kept) == [f"p{number:02d}" for number in range(1, 17)]
    assert kept_now(known=kept, preloads=there, generation=1) == kept


def test_a_preload_that_was_deleted_keeps_its_place_until_a_newer_one_takes_it() -> None:
    there = [complete(f"p{number:02d}", at=number) for number in range(16)]
    kept = kept_now(known=[], preloads=there, generation=1)
    assert kept_now(known=kept, preloads=[], generation=1) == kept
    newer = kept_now(known=kept, preloads=[complete("a", at=30)], generation=1)
    assert names(newer) == [*(f"p{number:02d}" for number in range(1, 16)), "a"]
    assert kept_now(known=newer, preloads=[complete("a", at=30)], generation=2) == []


def test_long_lists_of_paths_leave_room_for_fewer() -> None:
    there = [complete(f"p{number:02d}", at=number, paths=64, length=1024) for number in range(16)]
    kept = kept_now(known=[], preloads=there, generation=1)
    assert 1 < len(kept) < 16
    assert sum(len(one.model_dump_json()) for one in kept) <= KEPT_BYTES
    assert names(kept) == [f"p{number:02d}" for number in range(16 - len(kept), 16)]
    assert kept_now(known=kept, preloads=there, generation=1) == kept


@pytest.mark.parametrize(
    ("reason", "asked"),
    [
        ("", ("Sampled", "uid", False, True)),
        ("PathNotFound", ("None", "", False, False)),
        ("LoadFailed", ("None", "", False, False)),
        # What it refused stays refused for as long as its comparison is asked for.
        ("VerifyFailed", ("Sampled", "uid", True, False)),
    ],
)
def test_a_preload_that_failed_wants_no_comparison_but_the_one_that_found_wrong_copies(
    reason: str, asked: tuple[str, str, bool, bool]
) -> None:
    status = "True" if reason else "False"
    when = "2026-01-01T00:00:00Z"
    failed = {"type": "Failed", "status": status, "reason": reason or "Loading", "lastTransitionTime": when}
    preload = Preload.model_validate(
        {
            "spec": {"datasetRef": {"name": "d"}, "verify": "Sampled"},
            "status": {"conditions": [failed]},
        }
    )
    dataset = Dataset.model_validate({"spec": {"source": {"uri": "s3://bucket"}}})
    want = of_preload(namespace="n", name="p", uid="uid", preload=preload, dataset=dataset, now=when)
    assert (want.verify, want.check, want.verdict, want.load) == asked
