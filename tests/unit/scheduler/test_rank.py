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
    dataset_view = DatasetView()
    for name, obj in datasets.items():
        dataset_view.on_change(("team", name), obj)
    return dataset_view


def candidates(nodes: str) -> Candidates:
    return Candidates(json.dumps(list(nodes)).encode())


def request_for(
    *references: dict[str, str], nodes: str = "abcd", annotation: str | None = None
) -> PrioritizeRequest:
    text = json.dumps(references) if annotation is None else annotation
    return PrioritizeRequest(pod="team/train-0", uid="u", annotation=text, nodes=candidates(nodes))


def ranked(request: PrioritizeRequest, datasets: DatasetView, demand: Demand | None = None) -> Ranking:
    return rank(
        request=request,
        view=datasets,
        demand=Demand(view=datasets) if demand is None else demand,
        synced=True,
    )


IMAGES = {"dataset": "team/images", "copy": "0"}


def test_nodes_are_ranked_by_the_bytes_they_hold_and_others_are_left_out() -> None:
    ranking = ranked(request_for(IMAGES), view(images=dataset({"a": 60 * MB, "b": 30 * MB, "c": 0})))

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
    own_node, other_node = ("a", "b") if copy == "0" else ("b", "a")

    assert ranked(request_for({**IMAGES, "copy": copy}), view(images=images)).scores == {
        own_node: 10,
        other_node: 5,
        "c": 10,
        "d": 3,
    }


@pytest.mark.failure_mode("job-copy-gone")
def test_the_pods_own_copy_comes_first_and_another_before_nothing() -> None:
    datasets = view(images=dataset({"a": 100 * MB}, {"b": 100 * MB}))

    assert ranked(request_for({**IMAGES, "copy": "1"}), datasets).scores == {"b": 10, "a": 5}
    assert ranked(request_for({**IMAGES, "copy": "1"}, nodes="ac"), datasets).scores == {"a": 10}


@pytest.mark.failure_mode("job-copy-gone")
def test_a_pod_whose_copy_is_gone_is_well_placed_at_any_other() -> None:
    datasets = view(images=dataset({"a": 100 * MB, "c": 10 * MB}))

    assert ranked(request_for({**IMAGES, "copy": "7"}), datasets).scores == {"a": 10, "c": 1}


def test_a_pod_that_names_no_copy_is_well_placed_at_any() -> None:
    datasets = view(images=dataset({"a": 100 * MB, "c": 20 * MB}, {"b": 100 * MB, "c": 50 * MB}))

    assert ranked(request_for({"dataset": "team/images"}), datasets).scores == {"a": 10, "b": 10, "c": 5}


def test_scores_are_relative_to_the_best_candidate_not_to_a_node_without_room() -> None:
    datasets = view(images=dataset({"a": 100 * MB, "b": 4 * MB, "c": 1 * MB}))

    assert ranked(request_for(IMAGES, nodes="bcd"), datasets).scores == {"b": 10, "c": 3}


@pytest.mark.parametrize("seed", range(200))
def test_what_is_no_candidate_has_no_say_in_what_candidates_are_worth(seed: int) -> None:
    draw = random.Random(seed)
    nodes = "abcdefghij"
    candidate_names = sorted(draw.sample(nodes, draw.randint(1, len(nodes))))
    held = {
        name: {node: draw.choice([0, 1, 50, 95, 100]) * MB for node in draw.sample(nodes, draw.randint(1, 8))}
        for name in ("images", "text", "sound")
    }
    whole = view(**{name: dataset(node_bytes) for name, node_bytes in held.items()})
    of_candidates = view(
        **{
            name: dataset({node: node_bytes[node] for node in node_bytes if node in candidate_names})
            for name, node_bytes in held.items()
        }
    )
    demand = waiting(whole, **{name: draw.randint(0, 3) for name in held})
    named = [
        {"dataset": f"team/{name}", "copy": "0"} for name in draw.sample(sorted(held), draw.randint(1, 2))
    ]
    arguments = {
        "Pod": {"metadata": {"annotations": {"tdcs.io/datasets": json.dumps(named)}}},
        "NodeNames": candidate_names,
    }

    def request() -> PrioritizeRequest:
        return decode_request(body=json.dumps(arguments).encode())

    ranking = rank(request=request(), view=whole, demand=demand, synced=True)
    quick = rank(request=request(), view=whole, demand=demand, synced=True, exact=False)
    exact = rank(request=request(), view=of_candidates, demand=demand, synced=True)
    remembered = Combinations()
    for _ in range(2):
        again = rank(request=request(), view=whole, demand=demand, synced=True, combine=remembered.combine)
        assert again == ranking

    assert (ranking.kind, ranking.scores, ranking.reason) == (exact.kind, exact.scores, exact.reason)
    assert quick.kind is exact.kind
    assert all(1 <= score <= 10 for score in quick.scores.values())
    scores = {node: score for node, score in quick.scores.items() if node in candidate_names}
    if len(named) == 1 or not any(quick.scores.keys() - candidate_names):
        assert scores == exact.scores
    # What pods wait for that is no candidate may lift all scores of a pod with several datasets alike.
    lifts = {scores[node] - exact.scores[node] for node in exact.scores}
    assert scores.keys() == exact.scores.keys()
    assert min(lifts, default=0) >= 0
    assert max(lifts, default=0) - min(lifts, default=0) <= 1


def test_of_several_datasets_the_larger_one_weighs_more() -> None:
    datasets = view(images=dataset({"a": 100 * MB}), text=dataset({"b": 10 * MB}, total=10 * MB))

    scores = ranked(request_for(IMAGES, {"dataset": "team/text", "copy": "0"}), datasets).scores

    assert scores["a"] > scores["b"] > 0


def test_a_pod_with_ten_datasets_goes_where_most_of_them_are() -> None:
    datasets = view(**{f"set{i}": dataset({"a": MB, "b": MB} if i < 3 else {"b": MB}) for i in range(10)})
    names = [{"dataset": f"team/set{i}", "copy": "0"} for i in range(10)]

    assert ranked(request_for(*names), datasets).scores == {"a": 3, "b": 10}


def test_a_node_that_vanished_or_is_full_is_not_scored_and_does_not_outshine_the_others() -> None:
    datasets = view(images=dataset({"gone": 100 * MB, "b": 50 * MB}))

    assert ranked(request_for(IMAGES), datasets).scores == {"b": 10}


def test_an_unknown_dataset_among_known_ones_is_named_and_the_others_still_count() -> None:
    ranking = ranked(
        request_for(IMAGES, {"dataset": "team/gone", "copy": "0"}), view(images=dataset({"a": 1 * MB}))
    )

    assert ranking.scores == {"a": 10}
    assert "unknown: team/gone copy 0" in ranking.reason


@pytest.mark.parametrize(
    "datasets",
    [
        view(images=dataset({})),
        view(images=dataset({"z": MB})),
        view(images=dataset()),
        view(images={}),
    ],
    ids=["an empty copy", "copy elsewhere", "no copies", "no status"],
)
def test_without_data_on_a_candidate_nothing_is_said(datasets: DatasetView) -> None:
    ranking = ranked(request_for(IMAGES), datasets)

    assert (ranking.kind, ranking.scores) == (AnswerKind.NO_DATA, {})


def test_a_pod_without_datasets_is_left_to_the_scheduler() -> None:
    datasets = view(images=dataset({"a": MB}))
    none = PrioritizeRequest(pod="team/x", uid="u", annotation=None, nodes=candidates("ab"))

    assert ranked(none, datasets).kind is AnswerKind.NO_DATASET
    assert ranked(request_for(), datasets).kind is AnswerKind.NO_DATASET
    assert ranked(request_for(), datasets).scores == {}


def test_a_bad_annotation_is_no_error_of_scheduling() -> None:
    ranking = ranked(request_for(annotation="images"), view(images=dataset({"a": MB})))

    assert (ranking.kind, ranking.scores) == (AnswerKind.BAD_ANNOTATION, {})
    assert "tdcs.io/datasets" in ranking.reason


def test_before_the_first_list_nothing_is_said() -> None:
    ranking = rank(request=request_for(IMAGES), view=view(), demand=Demand(view=view()), synced=False)

    assert (ranking.kind, ranking.scores) == (AnswerKind.NOT_SYNCED, {})


def waiting(datasets: DatasetView, **pods: int) -> Demand:
    """So many pods wait for each of these datasets of namespace team."""
    demand = Demand(view=datasets)
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
    datasets = view(images=dataset({"a": 100 * MB, "b": 90 * MB}), text=dataset({"a": MB}))

    assert ranked(request_for(IMAGES), datasets, waiting(datasets, images=5)).scores == {"a": 10, "b": 9}
    ranking = ranked(request_for(IMAGES), datasets, waiting(datasets, images=5, text=1))

    assert ranking.scores == {"b": 10, "a": 6}
    assert (
        ranking.reason == "2 candidates hold data of 1 dataset; other pods wait for other data on 1 candidate"
    )


def test_a_pod_goes_without_its_data_for_nobody() -> None:
    datasets = view(images=dataset({"a": MB}), text=dataset({"a": MB}))

    assert ranked(request_for(IMAGES), datasets, waiting(datasets, text=100)).scores == {"a": 10}
    datasets.on_change(("team", "images"), dataset({"a": MB, "b": MB // 20}))
    assert ranked(request_for(IMAGES), datasets, waiting(datasets, text=100)).scores == {"a": 10, "b": 10}


def test_a_pod_that_finds_its_data_nowhere_leaves_others_theirs() -> None:
    datasets = view(images=dataset({"z": MB}), text=dataset({"a": MB, "c": MB}))
    ranking = ranked(request_for(IMAGES), datasets, waiting(datasets, images=1, text=1))

    assert ranking.kind is AnswerKind.NO_DATA
    assert ranking.scores == {"b": 1, "d": 1}
    assert ranking.reason.endswith("; other pods wait for other data on 2 candidates")
    assert ranked(request_for(IMAGES, nodes="ac"), datasets, waiting(datasets, text=1)).scores == {}


def test_a_changed_and_a_deleted_dataset_change_the_scores() -> None:
    datasets = view(images=dataset({"a": MB}))

    datasets.on_change(("team", "images"), dataset({"b": MB}))
    assert ranked(request_for(IMAGES), datasets).scores == {"b": 10}

    datasets.on_change(("team", "images"), None)
    after_deletion = ranked(request_for(IMAGES), datasets)
    assert (after_deletion.kind, after_deletion.scores, after_deletion.unknown) == (
        AnswerKind.UNKNOWN_DATASET,
        {},
        ("team/images",),
    )
    assert len(datasets) == 0


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
    datasets = view(images=dataset({"a": MB}))

    with caplog.at_level(logging.WARNING):
        datasets.on_change(("team", "images"), {"status": status})

    if status:
        assert "Dataset team/images" in caplog.text
        assert ranked(request_for(IMAGES), datasets).scores == {"a": 10}


def test_what_pods_read_together_is_combined_once_until_a_dataset_changes() -> None:
    datasets = view(images=dataset({"a": 100 * MB, "b": 10 * MB}), text=dataset({"b": 100 * MB}))
    copies = [
        copy for name in ("images", "text") if (copy := datasets.find(dataset=f"team/{name}", copy="0"))
    ]
    remembered = Combinations()

    first = remembered.combine(copies, [0, 0])
    assert remembered.combine(copies, [0, 0]) is first
    alongside = remembered.combine(copies, [1, 0])
    assert dict(zip(alongside.nodes, alongside.worth, strict=True)) == {"b": 1.0}
    datasets.on_change(("team", "images"), dataset({"c": 100 * MB}))
    changed = datasets.find(dataset="team/images", copy="0")
    assert changed is not None
    assert remembered.combine([changed, copies[1]], [0, 0]).nodes == ("c", "b")


def test_the_combinations_that_were_asked_for_longest_ago_are_forgotten() -> None:
    nodes = {f"node-{number}": 1 for number in range(9_999)}
    copies = [CopyOnNodes(total_bytes=1, node_bytes=nodes) for _ in range(12)]
    remembered = Combinations()
    combined = remembered.combine(copies[:1], [0])
    for copy in copies[1:]:
        remembered.combine([copy], [0])
        assert remembered.combine(copies[:1], [0]) is combined

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


def leaving(leave_text: str, *, minute: int = 0) -> Ranking:
    """A pod with its data on a and b, with this annotation, so many minutes into 2026."""
    datasets = view(images=dataset({"a": 60 * MB, "b": 30 * MB}))
    request = PrioritizeRequest(
        pod="team/train-0",
        uid="u",
        annotation=json.dumps([IMAGES]),
        nodes=candidates("abc"),
        leave=leave_text,
    )
    return rank(
        request=request,
        view=datasets,
        demand=Demand(view=datasets),
        synced=True,
        now=lambda: datetime(2026, 1, 1, 0, minute, tzinfo=UTC),
    )


def test_a_pod_keeps_off_the_nodes_that_it_leaves_to_larger_ones() -> None:
    ranking = leaving(json.dumps({"nodes": ["a", "z"], "until": UNTIL}))
    assert ranking.scores == {"b": 5, "c": 1}
    assert ranking.reason.endswith("1 candidate is left to larger pods that wait")
    leaves_both = leaving(json.dumps({"nodes": ["a", "b"], "until": UNTIL}))
    assert leaves_both.scores == {"c": 1}


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
    leave_text = json.dumps({"nodes": ["a"], "until": UNTIL})
    metadata = {"name": "p", "namespace": "n", "annotations": {"tdcs.io/leave-nodes": leave_text}}
    body = json.dumps({"Pod": {"metadata": metadata}, "NodeNames": ["a"]}).encode()
    assert decode_request(body=body).leave == leave_text
