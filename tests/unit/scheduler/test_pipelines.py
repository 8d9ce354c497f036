"""Workers that read no data leave the nodes that hold it to those that read it."""

import json
import random
from typing import Any

import pytest
from tests.support.generators.random_clusters import GROUP, NODES
from tests.support.generators.random_pipelines import INDEX, place_one_by_one, random_pipelines
from tests.unit.scheduler.test_rank import IMAGES, MB, candidates, dataset, ranked, view

from tdcs_scheduler.demand import Demand, waiting_pod
from tdcs_scheduler.protocol import BadAnnotationError, PrioritizeRequest, decode_annotation, decode_request
from tdcs_scheduler.rank import AnswerKind

READ_BY_FIRST = {**IMAGES, "readers": "0-1"}


def worker(index: int | None, *references: dict[str, Any], nodes: str = "abc") -> PrioritizeRequest:
    """What kube-scheduler asks about a worker of a pipeline."""
    return PrioritizeRequest(
        pod=f"team/train-{index}",
        uid=str(index),
        annotation=json.dumps(references),
        nodes=candidates(nodes),
        index=index,
    )


def test_a_reader_goes_to_its_data_and_the_others_leave_it_alone() -> None:
    datasets = view(images=dataset({"a": 100 * MB}))
    assert ranked(worker(0, READ_BY_FIRST), datasets).scores == {"a": 10}
    ranking = ranked(worker(2, READ_BY_FIRST), datasets)
    assert ranking.kind is AnswerKind.NO_READER
    assert ranking.scores == {"b": 1, "c": 1}
    # Of a pod without an index it is not known that it reads nothing.
    assert ranked(worker(None, READ_BY_FIRST), datasets).scores == {"a": 10}


def test_a_worker_that_reads_one_of_two_datasets_is_placed_by_that_one() -> None:
    datasets = view(images=dataset({"a": 100 * MB}), text=dataset({"b": 100 * MB}))
    text = {"dataset": "team/text", "copy": "0"}
    assert ranked(worker(5, READ_BY_FIRST, text), datasets).scores == {"b": 10}


def test_a_worker_that_reads_nothing_also_leaves_nodes_to_pods_of_other_jobs() -> None:
    datasets = view(images=dataset({"a": 100 * MB}), text=dataset({"b": 100 * MB}))
    demand = Demand(view=datasets)
    annotations = {"tdcs.io/datasets": json.dumps([{"dataset": "team/text", "copy": "0"}])}
    demand.on_pod(("team", "other"), waiting_pod({"metadata": {"annotations": annotations}}))
    assert ranked(worker(2, READ_BY_FIRST), datasets, demand).scores == {"c": 1}


def test_a_waiting_pod_wants_only_what_it_reads() -> None:
    datasets = view(images=dataset({"a": 100 * MB}))
    demand = Demand(view=datasets)
    for index in range(4):
        annotations = {"tdcs.io/datasets": json.dumps([READ_BY_FIRST])}
        pod = {"metadata": {"annotations": annotations, "labels": {INDEX: str(index)}}}
        demand.on_pod(("team", str(index)), waiting_pod(pod))
    assert demand.awaited(nodes="abc", apart_from=frozenset()) == {"a": 2.0}


@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_the_completion_index_is_read_from_annotation_or_label(where: str) -> None:
    metadata: dict[str, Any] = {"annotations": {"tdcs.io/datasets": "[]"}, "labels": {}}
    metadata[where][INDEX] = "3"
    body = json.dumps({"Pod": {"metadata": metadata}, "NodeNames": ["a"]}).encode()
    assert decode_request(body=body).index == 3
    for odd in ("", "x", "-1", "9" * 30):
        metadata[where][INDEX] = odd
        body = json.dumps({"Pod": {"metadata": metadata}, "NodeNames": ["a"]}).encode()
        assert decode_request(body=body).index is None


@pytest.mark.parametrize("readers", ["", "a", "0-", "-1", "0,,1", "0 - 1", 3, None])
def test_readers_that_are_no_indices_are_a_bad_annotation(readers: object) -> None:
    text = json.dumps([{**IMAGES, "readers": readers}])
    if readers is None:
        assert decode_annotation(text=text)[0].readers is None
        return
    with pytest.raises(BadAnnotationError):
        decode_annotation(text=text)


@pytest.mark.failure_mode("pipeline-workers-first")
def test_every_reader_that_can_be_on_a_node_with_data_is_whoever_comes_first() -> None:
    draw = random.Random(1)
    nodes = [f"n{number:02}" for number in range(NODES)]
    for first in range(0, 400, GROUP):
        for pipeline in random_pipelines(first=first, nodes=nodes):
            placed = place_one_by_one(pipeline, draw=draw)
            assert pipeline.on_data(placed) == pipeline.most_on_data(), pipeline
