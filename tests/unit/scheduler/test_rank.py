"""Which nodes are better for which pod."""

import json
import logging
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from tdcs.decide.place.dataset_copies import CopyOnNodes
from tdcs_scheduler.app import Combinations
from tdcs_scheduler.demand import Demand, waiting_pod
from tdcs_scheduler.protocol import Candidates, PrioritizeRequest, decode_request
from tdcs_scheduler.rank import AnswerKind, Ranking, rank
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


def candidates(nodes: str) -> Candidates:
    return Candidates(json.dumps(list(nodes)).encode())


def asked(
    *references: dict[str, str], nodes: str = "abcd", annotation: str | None = None
) -> PrioritizeRequest:
    text = json.dumps(references) if annotation is None else annotation
    return PrioritizeRequest(pod="team/train-0", uid="u", annotation=text, nodes=candidates(nodes))


def ranked(request: PrioritizeRequest, known: DatasetView, demand: Demand | None = None) -> Ranking:
    return rank(
        request=request, view=known, demand=Demand(view=known) if demand is None else demand, synced=True
    )


IMAGES = {"dataset": "team/images", "copy": "0"}


def test_nodes_are_ranked_by_the_bytes_they_hold_and_others_are_left_out() -> None:
    ranking = ranked(asked(IMAGES), view(images=dataset({"a": 60 * MB, "b": 30 * MB, "c": 0})))

    assert ranking.kind is AnswerKind.SCORED
    assert ranking.scores == {"a": 10, "b": 5}


@pytest.mark.parametrize("copy", ["0", "1"])
def test_nodes_that_a_preload_brought_the_data_to_are_as_good_as_those_of_the_pods_copy(copy: str) -> None:
    images = dataset({"a": 100 * MB}, {"b": 100 * MB})
    images["status"]["copies"].append(
        {
            "id": "preloads",
            "nodes": [{"name": "c", "bytes": 100 * MB}, {"name": "d", "bytes": 0, "arriving": 60 * MB}],
        }
    )
    own, other = ("a", "b") if copy == "0" else ("b", "a")

    assert ranked(asked({**IMAGES, "copy": copy}), view(images=images)).scores == {
        own: 10,
        other: 5,
        "c": 10,
        "d": 3,
    }


@pytest.mark.failure_mode("job-copy-gone")
def test_the_pods_own_copy_comes_first_and_another_before_nothing() -> None:
    known = view(images=dataset({"a": 100 * MB}, {"b": 100 * MB}))

    assert ranked(asked({**IMAGES, "copy": "1"}), known).scores == {"b": 10, "a": 5}
    assert ranked(asked({**IMAGES, "copy": "1"}, nodes="ac"), known).scores == {"a": 10}


@pytest.mark.failure_mode("job-copy-gone")
def test_a_pod_whose_copy_is_gone_is_well_placed_at_any_other() -> None:
    known = view(images=dataset({"a": 100 * MB, "c": 10 * MB}))

    assert ranked(asked({**IMAGES, "copy": "7"}), known).scores == {"a": 10, "c": 1}


def test_a_pod_that_names_no_copy_is_well_placed_at_any() -> None:
    known = view(images=dataset({"a": 100 * MB, "c": 20 * MB}, {"b": 100 * MB, "c": 50 * MB}))

    assert ranked(asked({"dataset": "team/images"}), known).scores == {"a": 10, "b": 10, "c": 5}


def test_scores_are_relative_to_the_best_candidate_not_to_a_node_without_room() -> None:
    known = view(images=dataset({"a": 100 * MB, "b": 4 * MB, "c": 1 * MB}))

    assert ranked(asked(IMAGES, nodes="bcd"), known).scores == {"b": 10, "c": 3}


@pytest.mark.parametrize("seed", range(200))
def test_what_is_no_candidate_has_no_say_in_what_candidates_are_worth(seed: int) -> None:
    draw = random.Random(seed)
    nodes = "abcdefghij"
    here = sorted(draw.sample(nodes, draw.randint(1, len(nodes))))
    held = {
        name: {node: draw.choice([0, 1, 50, 95, 100]) * MB for node in draw.sample(nodes, draw.randint(1, 8))}
        for name in ("images", "text", "sound")
    }
    whole = view(**{name: dataset(one) for name, one in held.items()})
    of_candidates = view(
        **{name: dataset({node: one[node] for node in one if node in here}) for name, one in held.items()}
    )
    demand = waiting(whole, **{name: draw.randint(0, 3) for name in held})
    named = [
        {"dataset": f"team/{name}", "copy": "0"} for name in draw.sample(sorted(held), draw.randint(1, 2))
    ]
    arguments = {
        "Pod": {"metadata": {"annotations": {"tdcs.io/datasets": json.dumps(named)}}},
        "NodeNames": here,
    }

    def request() -> PrioritizeRequest:
        return decode_request(body=json.dumps(arguments).encode())

    found = rank(request=request(), view=whole, demand=demand, synced=True)
    quick = rank(request=request(), view=whole, demand=demand, synced=True, exact=False)
    exact = rank(request=request(), view=of_candidates, demand=demand, synced=True)
    remembered = Combinations()
    for _ in range(2):
        again = rank(request=request(), view=whole, demand=demand, synced=True, combine=remembered.combine)
        assert again == found

    assert (found.kind, found.scores, found.reason) == (exact.kind, exact.scores, exact.reason)
    assert quick.kind is exact.kind
    assert all(1 <= score <= 10 for score in quick.scores.values())
    scores = {node: score for node, score in quick.scores.items() if node in here}
    if len(named) == 1 or not any(quick.scores.keys() - here):
        assert scores == exact.scores
    # What pods wait for that is no candidate may lift all scores of a pod with several datasets alike.
    lifts = {scores[node] - exact.scores[node] for node in exact.scores}
    assert scores.keys() == exact.scores.keys()
    assert min(lifts, default=0) >= 0
    assert max(lifts, default=0) - min(lifts, default=0) <= 1


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
    assert "unknown: team/gone copy 0" in ranking.reason


@pytest.mark.parametrize(
    "known",
    [
        view(images=dataset({})),
        view(images=dataset({"z": MB})),
        view(images=dataset()),
        view(images={}),
    ],
    ids=["an empty copy", "copy elsewhere", "no copies", "no status"],
)
def test_without_data_on_a_candidate_nothing_is_said(known: DatasetView) -> None:
    ranking = ranked(asked(IMAGES), known)

    assert (ranking.kind, ranking.scores) == (AnswerKind.NO_DATA, {})


def test_a_pod_without_datasets_is_left_to_the_scheduler() -> None:
    known = view(images=dataset({"a": MB}))
    none = PrioritizeRequest(pod="team/x", uid="u", annotation=None, nodes=candidates("ab"))

    assert ranked(none, known).kind is AnswerKind.NO_DATASET
    assert ranked(asked(), known).kind is AnswerKind.NO_DATASET
    assert ranked(asked(), known).scores == {}


def test_a_bad_annotation_is_no_error_of_scheduling() -> None:
    ranking = ranked(asked(annotation="images"), view(images=dataset({"a": MB})))

    assert (ranking.kind, ranking.scores) == (AnswerKind.BAD_ANNOTATION, {})
    assert "tdcs.io/datasets" in ranking.reason


def test_before_the_first_list_nothing_is_said() -> None:
    ranking = rank(request=asked(IMAGES), view=view(), demand=Demand(view=view()), synced=False)

    assert (ranking.kind, ranking.scores) == (AnswerKind.NOT_SYNCED, {})


def waiting(known: DatasetView, **pods: int) -> Demand:
    """So many pods wait for each of these datasets of namespace team."""
    demand = Demand(view=known)
    for name, count in pods.items():
        text = json.dumps([{"dataset": f"team/{name}", "copy": "0"}])
        for number in range(count):
            metadata = {
                "namespace": "team",
                "name": f"{name}-{number}",
                "annotations": {"tdcs.io/datasets": text},
            }
            demand.on_pod(("team", f"{name}-{number}"), waiting_pod({"metadata": metadata}))
    return demand


def test_a_pod_leaves_to_another_what_only_that_one_can_use() -> None:
    known = view(images=dataset({"a": 100 * MB, "b": 90 * MB}), text=dataset({"a": MB}))

    assert ranked(asked(IMAGES), known, waiting(known, images=5)).scores == {"a": 10, "b": 9}
    ranking = ranked(asked(IMAGES), known, waiting(known, images=5, text=1))

    assert ranking.scores == {"b": 10, "a": 6}
    assert (
        ranking.reason == "2 candidates hold data of 1 dataset; other pods wait for other data on 1 candidate"
    )


def test_a_pod_goes_without_its_data_for_nobody() -> None:
    known = view(images=dataset({"a": MB}), text=dataset({"a": MB}))

    assert ranked(asked(IMAGES), known, waiting(known, text=100)).scores == {"a": 10}
    known.on_change(("team", "images"), dataset({"a": MB, "b": MB // 20}))
    assert ranked(asked(IMAGES), known, waiting(known, text=100)).scores == {"a": 10, "b": 10}


def test_a_pod_that_finds_its_data_nowhere_leaves_others_theirs() -> None:
    known = view(images=dataset({"z": MB}), text=dataset({"a": MB, "c": MB}))
    ranking = ranked(asked(IMAGES), known, waiting(known, images=1, text=1))

    assert ranking.kind is AnswerKind.NO_DATA
    assert ranking.scores == {"b": 1, "d": 1}
    assert ranking.reason.endswith("; other pods wait for other data on 2 candidates")
    assert ranked(asked(IMAGES, nodes="ac"), known, waiting(known, text=1)).scores == {}


def test_a_changed_and_a_deleted_dataset_change_the_scores() -> None:
    known = view(images=dataset({"a": MB}))

    known.on_change(("team", "images"), dataset({"b": MB}))
    assert ranked(asked(IMAGES), known).scores == {"b": 10}

    known.on_change(("team", "images"), None)
    gone = ranked(asked(IMAGES), known)
    assert (gone.kind, gone.scores, gone.unknown) == (AnswerKind.UNKNOWN_DATASET, {}, ("team/images",))
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


def test_what_pods_read_together_is_combined_once_until_a_dataset_changes() -> None:
    known = view(images=dataset({"a": 100 * MB, "b": 10 * MB}), text=dataset({"b": 100 * MB}))
    both = [copy for name in ("images", "text") if (copy := known.find(dataset=f"team/{name}", copy="0"))]
    remembered = Combinations()

    first = remembered.combine(both, [0, 0])
    assert remembered.combine(both, [0, 0]) is first
    alongside = remembered.combine(both, [1, 0])
    assert dict(zip(alongside.nodes, alongside.worth, strict=True)) == {"b": 1.0}
    known.on_change(("team", "images"), dataset({"c": 100 * MB}))
    changed = known.find(dataset="team/images", copy="0")
    assert changed is not None
    assert remembered.combine([changed, both[1]], [0, 0]).nodes == ("c", "b")


def test_the_combinations_that_were_asked_for_longest_ago_are_forgotten() -> None:
    nodes = {f"node-{number}": 1 for number in range(9_999)}
    copies = [CopyOnNodes(total_bytes=1, node_bytes=nodes) for _ in range(12)]
    remembered = Combinations()
    kept = remembered.combine(copies[:1], [0])
    for copy in copies[1:]:
        remembered.combine([copy], [0])
        assert remembered.combine(copies[:1], [0]) is kept

    assert len(remembered) == 10
    large = CopyOnNodes(total_bytes=1, node_bytes={f"n{number}": 1 for number in range(100_001)})
    assert remembered.combine([large], [0]) is remembered.combine([large], [0])
    assert len(remembered) == 1


def test_the_copies_of_a_combination_count_for_its_memory_as_its_nodes_do() -> None:
    copy = CopyOnNodes(total_bytes=1, node_bytes={"a": 1})
    remembered = Combinations()
    for more in range(20):
        remembered.combine([copy] * (9_000 + more), [0] * (9_000 + more))
    assert len(remembered) == 11


UNTIL = "2026-01-01T00:01:00Z"


def leaving(left: str, *, minute: int = 0) -> Ranking:
    """A pod with its data on a and b, with this annotation, so many minutes into 2026."""
    known = view(images=dataset({"a": 60 * MB, "b": 30 * MB}))
    request = PrioritizeRequest(
        pod="team/train-0", uid="u", annotation=json.dumps([IMAGES]), nodes=candidates("abc"), leave=left
    )
    return rank(
        request=request,
        view=known,
        demand=Demand(view=known),
        synced=True,
        now=lambda: datetime(2026, 1, 1, 0, minute, tzinfo=UTC),
    )


def test_a_pod_keeps_off_the_nodes_that_it_leaves_to_larger_ones() -> None:
    ranking = leaving(json.dumps({"nodes": ["a", "z"], "until": UNTIL}))
    assert ranking.scores == {"b": 5, "c": 1}
    assert ranking.reason.endswith("1 candidate is left to larger pods that wait")
    both = leaving(json.dumps({"nodes": ["a", "b"], "until": UNTIL}))
    assert both.scores == {"c": 1}


@pytest.mark.parametrize("nodes", [["a", "b", "c"], ["z"], []])
def test_a_pod_without_another_candidate_goes_to_its_data(nodes: list[str]) -> None:
    assert leaving(json.dumps({"nodes": nodes, "until": UNTIL})).scores == {"a": 10, "b": 5}


def test_a_pod_that_is_made_again_later_leaves_no_node() -> None:
    text = json.dumps({"nodes": ["a"], "until": UNTIL})
    assert leaving(text, minute=1).scores == {"a": 10, "b": 5}


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"nodes": ["a"]}', '{"nodes": ["a"], "until": "soon"}', '{"nodes": "a"}',
             '{"nodes": ["a"], "until": "2026-01-01T00:01:00"}']
)  # fmt: skip
def test_an_annotation_of_left_nodes_that_cannot_be_read_counts_for_nothing(text: str) -> None:
    ranking = leaving(text)
    assert ranking.scores == {"a": 10, "b": 5}
    assert "annotation tdcs.io/leave-nodes is" in ranking.reason


def test_the_left_nodes_are_read_from_the_pod_of_the_request() -> None:
    left = json.dumps({"nodes": ["a"], "until": UNTIL})
    metadata = {"name": "p", "namespace": "n", "annotations": {"tdcs.io/leave-nodes": left}}
    body = json.dumps({"Pod": {"metadata": metadata}, "NodeNames": ["a"]}).encode()
    assert decode_request(body=body).leave == left
