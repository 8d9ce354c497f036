"""Further copies of a dataset for its jobs."""

from typing import Any

import pytest

from tdcs.api.dataset import Copy
from tdcs.api.sharing import Access
from tdcs.decide.place.wanted_clones import clones

NOW = "2026-03-01T12:00:00Z"
EARLIER = "2026-03-01T11:00:00Z"


def test_a_copy_that_is_to_be_idle_in_a_year_is_idle_from_now_on() -> None:
    copies = (Copy(id="clone-1", idle_since="2027-01-01T00:00:00Z"),)
    access = Access(max_concurrent_jobs=2, on_limit="Clone")
    (clone,) = clones(
        access=access, copies=1, readers={}, jobs=0, existing_copies=copies, now=NOW, idle_seconds=600.0
    )
    assert clone.idle_since == NOW


def clone_ids(access: Access, *, jobs: int, existing: tuple[Copy, ...] = (), **more: Any) -> list[str]:
    arguments = {"copies": 1, "readers": {}, "now": NOW, "idle_seconds": 600.0, **more}
    return [copy.id for copy in clones(access=access, jobs=jobs, existing_copies=existing, **arguments)]


CLONE = Access(max_concurrent_jobs=2, on_limit="Clone")


@pytest.mark.parametrize(("jobs", "count"), [(0, 0), (2, 0), (3, 1), (4, 1), (5, 2)])
def test_there_are_as_many_copies_as_the_jobs_need(jobs: int, count: int) -> None:
    assert len(clone_ids(CLONE, jobs=jobs)) == count


def test_no_more_copies_are_made_than_the_spec_allows() -> None:
    assert clone_ids(CLONE.model_copy(update={"max_copies": 2}), jobs=9) == ["clone-1"]
    assert clone_ids(Access(max_concurrent_jobs=2), jobs=9) == []


def test_fewer_copies_than_there_are_let_those_stay_that_jobs_read() -> None:
    fewer = CLONE.model_copy(update={"max_copies": 1})
    copies = tuple(Copy(id=f"clone-{number}", idle_since=EARLIER) for number in (1, 2))
    assert clone_ids(fewer, jobs=9, existing=copies, readers={"clone-2": 1}) == ["clone-2"]
    assert clone_ids(fewer, jobs=9, existing=copies) == []


def test_a_clone_that_is_read_stays_and_one_that_nobody_needs_goes_after_a_while() -> None:
    copies = tuple(Copy(id=f"clone-{number}") for number in (1, 2))
    assert clone_ids(CLONE, jobs=1, existing=copies, readers={"clone-2": 1}) == ["clone-1", "clone-2"]
    old = (Copy(id="clone-1", idle_since=EARLIER), Copy(id="clone-2"))
    assert clone_ids(CLONE, jobs=1, existing=old, readers={"clone-2": 1}) == ["clone-2"]
    # The id of one that went is used again; another one keeps its own.
    assert clone_ids(CLONE, jobs=6, existing=(Copy(id="clone-2"),), readers={"clone-2": 2}) == [
        "clone-1",
        "clone-2",
    ]
