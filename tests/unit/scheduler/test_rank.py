"""Which nodes are better for which pod."""

import json
import logging
from typing import Any

import pytest

from tdcs_scheduler.protocol import PrioritizeRequest
from tdcs_scheduler.rank import Kind, Ranking, rank
from tdcs_scheduler.view import DatasetView

MB = 10**6


def dataset(*copies: dict[str, int], total: int = 100 * MB) -> dict[str, Any]:
    """A Dataset with copies "0", "1", … given as bytes by node."""
    listed = [
        {"id": str(number), "nodes": [{"name": node, "bytes": held} for node, held in copy.items()]}
        for number, copy in enumerate(copies)
    ]
    return {"status": {"totalBytes": total, "copies": listed}}


def view(**datasets: dict[str, Any]) -> DatasetView:
    """A view of Datasets of namespace team."""
    made = DatasetView()
    for name, obj in datasets.items():
        made.on_change(("team", name), obj)
    return made


def asked(
    *references: dict[str, str], nodes: str = "abcd", annotation: str | None = None
) -> PrioritizeRequest:
    text = json.dumps(references) if annotation is None else annotation
    return PrioritizeRequest(pod="team/train-0", uid="u", annotation=text, nodes=list(nodes))


def ranked(request: PrioritizeRequest, known: DatasetView) -> Ranking:
    return rank(request=request, view=known, synced=True)


IMAGES = {"dataset": "team/images", "copy": "0"}


def test_nodes_are_ranked_by_the_bytes_they_hold_and_others_are_left_out() -> None:
    ranking = ranked(asked(IMAGES), view(images=dataset({"a": 60 * MB, "b": 30 * MB, "c": 0})))

    assert ranking.kind is Kind.SCORED
    assert ranking.scores == {"a": 10, "b": 5}


def test_only_the_pods_own_copy_counts() -> None:
    known = view(images=dataset({"a": 100 * MB}, {"b": 100 * MB}))

    assert ranked(asked({**IMAGES, "copy": "1"}), known).scores == {"b": 10}


def test_a_pod_that_names_no_copy_is_well_placed_at_any() -> None:
    known = view(images=dataset({"a": 100 * MB, "c": 20 * MB}, {"b": 100 * MB, "c": 50 * MB}))

    assert ranked(asked({"dataset": "team/images"}), known).scores == {"a": 10, "b": 10, "c": 5}


def test_scores_are_relative_to_the_best_candidate_not_to_a_node_without_room() -> None:
    known = view(images=dataset({"a": 100 * MB, "b": 4 * MB, "c": 1 * MB}))

    assert ranked(asked(IMAGES, nodes="bcd"), known).scores == {"b": 10, "c": 3}


def test_of_several_datasets_the_larger_one_weighs_more() -> None:
    known = view(images=dataset({"a": 100 * MB}), text=dataset({"b": 10 * MB}, total=10 * MB))

    scores = ranked(asked(IMAGES, {"dataset": "team/text", "copy": "0"}), known).scores

    assert scores["a"] > scores["b"] > 0


def test_a_pod_with_ten_datasets_goes_where_most_of_them_are() -> None:
    known = view(**{f"set{i}": dataset({"a": MB, "b": MB} if i < 3 else {"b": MB}) for i in range(10)})
    names = [{"dataset": f"team/set{i}", "copy": "0"} for i in range(10)]

    assert ranked(asked(*names), known).scores == {"a": 3, "b": 10}


def test_a_node_that_vanished_or_is_full_is_not_scored_and_does_not_outshine_the_others() -> None:
    known = view(images=dataset({"gone": 100 * MB, "b": 50 * MB}))

    assert ranked(asked(IMAGES), known).scores == {"b": 10}


def test_an_unknown_dataset_among_known_ones_is_named_and_the_others_still_count() -> None:
    ranking = ranked(
        asked(IMAGES, {"dataset": "team/gone", "copy": "0"}), view(images=dataset({"a": 1 * MB}))
    )

    assert ranking.scores == {"a": 10}
    assert "not known: team/gone copy 0" in ranking.reason


@pytest.mark.parametrize(
    "known",
    [
        view(),
        view(images=dataset({})),
        view(images=dataset({"z": MB})),
        view(images=dataset()),
        view(images={}),
    ],
    ids=["no datasets", "an empty copy", "copy elsewhere", "no copies", "no status"],
)
def test_without_data_on_a_candidate_nothing_is_said(known: DatasetView) -> None:
    ranking = ranked(asked(IMAGES), known)

    assert (ranking.kind, ranking.scores) == (Kind.NO_DATA, {})


def test_a_pod_without_datasets_is_left_to_the_scheduler() -> None:
    known = view(images=dataset({"a": MB}))
    none = PrioritizeRequest(pod="team/x", uid="u", annotation=None, nodes=list("ab"))

    assert ranked(none, known).kind is Kind.NO_DATASET
    assert ranked(asked(), known).kind is Kind.NO_DATASET
    assert ranked(asked(), known).scores == {}


def test_a_bad_annotation_is_no_error_of_scheduling() -> None:
    ranking = ranked(asked(annotation="images"), view(images=dataset({"a": MB})))

    assert (ranking.kind, ranking.scores) == (Kind.BAD_ANNOTATION, {})
    assert "tdcs.io/datasets" in ranking.reason


def test_before_the_first_list_nothing_is_said() -> None:
    ranking = rank(request=asked(IMAGES), view=view(), synced=False)

    assert (ranking.kind, ranking.scores) == (Kind.NOT_SYNCED, {})


def test_a_changed_and_a_deleted_dataset_change_the_scores() -> None:
    known = view(images=dataset({"a": MB}))

    known.on_change(("team", "images"), dataset({"b": MB}))
    assert ranked(asked(IMAGES), known).scores == {"b": 10}

    known.on_change(("team", "images"), None)
    assert ranked(asked(IMAGES), known).kind is Kind.NO_DATA
    assert len(known) == 0


@pytest.mark.parametrize(
    "status",
    [
        {"copies": [{"nodes": []}]},
        {"copies": [{"id": "0", "nodes": [{"bytes": 1}]}]},
        {"copies": 3},
        {"totalBytes": "many"},
        [],
        "x",
    ],
)
def test_a_broken_status_leaves_what_was_known(status: Any, caplog: pytest.LogCaptureFixture) -> None:
    known = view(images=dataset({"a": MB}))

    with caplog.at_level(logging.WARNING):
        known.on_change(("team", "images"), {"status": status})

    if status:
        assert "Dataset team/images" in caplog.text
        assert ranked(asked(IMAGES), known).scores == {"a": 10}
