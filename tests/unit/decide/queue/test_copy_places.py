"""Places at the copies of Datasets."""

from typing import Any

import pytest

from tdcs.decide.queue.copy_places import (
    CopyPlaces,
    KeptPlaces,
    PlaceRequest,
    coming_copies,
    missing_place,
    readable_copies,
    requests_of,
)


def dataset(name: str, *, path: str = "/datasets/p", **access: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"access": access}, "status": {"mountPath": path}}


def test_a_job_asks_for_places_by_the_limit_of_the_dataset_that_it_names() -> None:
    objects = {("n", "a"): dataset("a", maxConcurrentJobs=2), ("n", "new"): {"spec": {}}}
    requests = requests_of(namespace="n", datasets=["a", "new", "missing"], dataset_objects=objects)
    assert [
        (place_request.dataset, place_request.limit, place_request.copies) for place_request in requests
    ] == [("n/a", 2, 1)]


def place_at(name: str = "m", *, limit: int = 1, copies: int = 1, coming: int = 0) -> PlaceRequest:
    return PlaceRequest(dataset=f"team/{name}", limit=limit, copies=copies, coming=coming)


@pytest.mark.parametrize(
    ("requested", "places"), [({"limit": 0}, None), ({"limit": 2, "copies": 3}, 6), ({"limit": 1}, 1)]
)
def test_each_copy_has_as_many_places_as_the_limit(requested: dict[str, Any], places: int | None) -> None:
    assert place_at(**requested).places == places


@pytest.mark.parametrize(("readers", "left"), [(0, 2), (1, 1), (2, 0), (3, 0)])
def test_readers_leave_the_rest_of_the_places_and_never_less_than_none(readers: int, left: int) -> None:
    places = CopyPlaces({"team/m": [("team", str(number)) for number in range(readers)]})
    assert places.left(place_at(limit=2)) == left
    assert places.left(place_at(limit=0)) is None
    assert (places.full([place_at("free"), place_at(limit=2)]) is not None) is (left == 0)


def test_a_job_takes_one_place_however_often_it_mounts_a_dataset() -> None:
    places = CopyPlaces()
    places.take(("team", "a"), [place_at(limit=2), place_at(limit=2)])
    assert places.left(place_at(limit=2)) == 1


@pytest.mark.parametrize(
    ("readers", "requested", "text"),
    [
        ("a", {}, "lets 1 job read it at once (spec.access.maxConcurrentJobs), and team/a reads it"),
        (
            "ba",
            {"limit": 2},
            "lets 2 jobs read it at once (spec.access.maxConcurrentJobs), and team/a, team/b read it",
        ),
        ("abcde", {"copies": 2}, "read each of its 2 copies at once"),
        ("abcde", {}, "team/a, team/b, team/c and 2 more read it"),
        ("a", {"coming": 1}, "reads it; 1 further to come (spec.access.onLimit)"),
    ],
)
def test_a_full_dataset_names_its_first_readers(readers: str, requested: dict[str, Any], text: str) -> None:
    places = CopyPlaces({"team/m": [("team", name) for name in readers]})
    assert text in places.sentence(place_at(**requested))


def test_a_kept_place_is_kept_from_those_behind_alone() -> None:
    kept = KeptPlaces()
    kept.keep(("team", "second"), [place_at()], order=(2,))
    kept.keep(("team", "first"), [place_at(), place_at()], order=(1,))
    assert [kept.count(place_at(), order=order) for order in ((0,), (1,), (2,), (3,), None)] == [
        0,
        0,
        1,
        2,
        2,
    ]
    assert kept.count(place_at("other")) == 0


@pytest.mark.parametrize(
    ("readers", "limit", "order", "words"),
    [
        pytest.param(1, 1, (9,), "team/r0 reads it", id="full"),
        pytest.param(0, 1, (9,), "the next place at Dataset team/m is kept for team/old", id="kept"),
        pytest.param(0, 1, (0,), "", id="before the one that it is kept for"),
        pytest.param(0, 2, (9,), "", id="one is kept and one is left"),
        pytest.param(1, 2, (9,), "kept for team/old", id="the last one is kept"),
        pytest.param(5, 0, (9,), "", id="no limit"),
    ],
)
def test_a_job_lacks_a_place_that_is_taken_or_kept(
    readers: int, limit: int, order: tuple[int], words: str
) -> None:
    kept = KeptPlaces()
    kept.keep(("team", "old"), [place_at()], order=(1,))
    places = CopyPlaces({"team/m": [("team", f"r{number}") for number in range(readers)]})
    missing = missing_place([place_at(limit=limit)], places=places, kept_places=kept, order=order)
    assert (missing is None) is (words == "")
    assert words in (missing[1] if missing else "")


def copy(copy_id: str, *nodes: tuple[int, int]) -> dict[str, Any]:
    """A copy with bytes on nodes and bytes on their way to them."""
    return {"id": copy_id, "nodes": [{"bytes": size, "arriving": coming} for size, coming in nodes]}


@pytest.mark.parametrize(
    ("copies", "readable", "coming"),
    [
        pytest.param(None, 1, 0, id="the source alone"),
        pytest.param([copy("0")], 1, 0, id="a copy on no node"),
        pytest.param([copy("0", (1, 9)), copy("1", (0, 9))], 2, 0, id="copies of the spec while they load"),
        pytest.param([copy("0", (9, 0)), copy("clone-1", (9, 0))], 2, 0, id="a clone that is there"),
        pytest.param([copy("0", (9, 0)), copy("clone-1", (9, 0), (1, 8))], 1, 1, id="a clone that comes"),
        pytest.param(
            [copy("0", (9, 0)), copy("clone-1", (0, 0))], 1, 1, id="a clone of which nothing is there"
        ),
        pytest.param([copy("0", (9, 0)), copy("preloads", (9, 0))], 1, 0, id="what Preloads brought"),
    ],
)
def test_jobs_choose_among_copies_that_are_there(
    copies: list[dict[str, Any]] | None, readable: int, coming: int
) -> None:
    obj = {"status": {"copies": copies}}
    assert (readable_copies(obj), coming_copies(obj)) == (readable, coming)


@pytest.mark.parametrize("limit", [None, "2", 2.0])
def test_a_limit_that_is_no_number_is_none(limit: object) -> None:
    objects = {("n", "a"): dataset("a", maxConcurrentJobs=limit)}
    (requested,) = requests_of(namespace="n", datasets=["a"], dataset_objects=objects)
    assert requested.places is None
