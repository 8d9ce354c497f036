"""What Preloads want, and what of completed ones a Dataset keeps: the newest, however often it is asked."""

from functools import partial

import pytest

from tdcs.api.dataset import KEPT_BYTES, Dataset, Kept
from tdcs.api.preload import Preload
from tdcs.decide.cache.wants import is_of_another, kept_now, of_preload, runs_again

MADE, AGAIN = "one", "two"
"""The uids of a Dataset, and of the one that is made under its name after it."""


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


def names(entries: list[Kept]) -> list[str]:
    return [entry.name for entry in entries]


def test_of_more_than_sixteen_the_newest_are_kept_whatever_their_names_and_their_order() -> None:
    preloads = [complete(f"p{20 - number:02d}", at=number) for number in range(20)]
    entries = kept_now(previous=[], preloads=preloads, generation=1, dataset_uid=MADE)
    assert names(entries) == [f"p{20 - number:02d}" for number in range(4, 20)]
    for shuffled in (preloads[::-1], sorted(preloads, key=lambda pair: pair[0]), preloads[7:] + preloads[:7]):
        assert kept_now(previous=entries, preloads=shuffled, generation=1, dataset_uid=MADE) == entries


def test_those_of_one_second_are_ordered_by_name() -> None:
    preloads = [complete(f"p{number:02d}", at=0) for number in range(17)]
    entries = kept_now(previous=[], preloads=preloads, generation=1, dataset_uid=MADE)
    assert names(entries) == [f"p{number:02d}" for number in range(1, 17)]
    assert kept_now(previous=entries, preloads=preloads, generation=1, dataset_uid=MADE) == entries


def test_a_preload_that_was_deleted_keeps_its_place_until_a_newer_one_takes_it() -> None:
    preloads = [complete(f"p{number:02d}", at=number) for number in range(16)]
    entries = kept_now(previous=[], preloads=preloads, generation=1, dataset_uid=MADE)
    assert kept_now(previous=entries, preloads=[], generation=1, dataset_uid=MADE) == entries
    newer = kept_now(previous=entries, preloads=[complete("a", at=30)], generation=1, dataset_uid=MADE)
    assert names(newer) == [*(f"p{number:02d}" for number in range(1, 16)), "a"]
    assert kept_now(previous=newer, preloads=[complete("a", at=30)], generation=2, dataset_uid=MADE) == []


def test_long_lists_of_paths_leave_room_for_fewer() -> None:
    preloads = [complete(f"p{number:02d}", at=number, paths=64, length=1024) for number in range(16)]
    entries = kept_now(previous=[], preloads=preloads, generation=1, dataset_uid=MADE)
    assert 1 < len(entries) < 16
    assert sum(len(entry.model_dump_json()) for entry in entries) <= KEPT_BYTES
    assert names(entries) == [f"p{number:02d}" for number in range(16 - len(entries), 16)]
    assert kept_now(previous=entries, preloads=preloads, generation=1, dataset_uid=MADE) == entries


def of(uid: str, pair: tuple[str, Preload]) -> tuple[str, Preload]:
    """A Preload that ended for the Dataset of this uid."""
    name, preload = pair
    assert preload.status is not None
    status = preload.status.model_copy(update={"dataset_uid": uid})
    return name, preload.model_copy(update={"status": status})


@pytest.mark.parametrize(("uid", "of_another"), [(MADE, False), (AGAIN, True)])
def test_what_ended_before_its_dataset_was_made_is_about_another_one_and_not_kept(
    uid: str, of_another: bool
) -> None:
    name, preload = of(MADE, complete("p", at=10))
    assert preload.status is not None
    assert is_of_another(preload.status, dataset_uid=uid) is of_another
    entries = kept_now(previous=[], preloads=[(name, preload)], generation=1, dataset_uid=uid)
    assert names(entries) == ([] if of_another else ["p"])


def test_for_a_dataset_that_was_made_again_those_run_again_that_it_would_keep_and_that_failed() -> None:
    preloads = dict(of("one", complete(f"p{number:02d}", at=number)) for number in range(19))

    def again() -> list[str]:
        return [
            name
            for name, preload in preloads.items()
            if preload.status is not None
            and is_of_another(preload.status, dataset_uid=AGAIN)
            and runs_again(preload, name=name, preloads=preloads.items(), dataset_uid=AGAIN)
        ]

    newest = [f"p{number:02d}" for number in range(3, 19)]
    assert again() == newest
    # It stays so while they run, and when they have completed.
    preloads["p18"] = preloads["p18"].model_copy(update={"status": None})
    assert again() == newest[:-1]
    preloads["p18"] = of("two", complete("p18", at=59))[1]
    assert again() == newest[:-1]
    failed = {
        "type": "Failed",
        "status": "True",
        "reason": "LoadFailed",
        "lastTransitionTime": "2026-01-01T00:01:00Z",
    }
    status = {"conditions": [failed], "completionTime": "2026-01-01T00:00:00Z", "datasetUid": "one"}
    preloads["p00"] = Preload.model_validate({"spec": {"datasetRef": {"name": "d"}}, "status": status})
    assert "p00" in again()


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("", ("Sampled", "uid/one", False, True)),
        ("PathNotFound", ("None", "", False, False)),
        ("LoadFailed", ("None", "", False, False)),
        # What it refused stays refused for as long as its comparison is asked for.
        ("VerifyFailed", ("Sampled", "uid/one", True, False)),
    ],
)
def test_a_preload_that_failed_wants_no_comparison_but_the_one_that_found_wrong_copies(
    reason: str, expected: tuple[str, str, bool, bool]
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
    want_at = partial(
        of_preload, namespace="n", name="p", uid="uid", preload=preload, dataset=dataset, now=when
    )
    want = want_at(dataset_uid=MADE)
    assert (want.verify, want.check, want.verdict, want.load) == expected
    # For another Dataset it is another comparison, also on nodes that remember this one.
    assert (want_at(dataset_uid=AGAIN).check == want.check) == (not want.check)
