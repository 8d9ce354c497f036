"""What kube-scheduler sends and what it gets."""

import json
from typing import Any

import pytest

from tdcs_scheduler.protocol import (
    MOST_REFERENCES,
    BadAnnotationError,
    BadRequestError,
    DatasetReference,
    decode_annotation,
    decode_request,
    encode_scores,
    read_by,
)


def arguments(**changes: Any) -> dict[str, Any]:
    pod = {
        "metadata": {
            "name": "train-0",
            "namespace": "team",
            "uid": "u-1",
            "labels": {"a": "b"},
            "annotations": {"other/key": "x", "tdcs.io/datasets": '[{"dataset":"team/images","copy":"0"}]'},
        },
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Pending"},
    }
    return {"Pod": pod, "Nodes": None, "NodeNames": ["a", "b"], **changes}


def test_a_request_of_kube_scheduler_is_understood() -> None:
    request = decode_request(body=json.dumps(arguments()).encode())

    assert request.pod == "team/train-0"
    assert request.nodes is not None
    assert list(request.nodes) == ["a", "b"]
    assert request.annotation is not None
    assert decode_annotation(text=request.annotation) == [DatasetReference("team/images", "0")]


def test_whole_nodes_instead_of_names_leave_the_candidates_open() -> None:
    nodes = {"items": [{"metadata": {"name": "a"}}]}

    assert decode_request(body=json.dumps(arguments(Nodes=nodes, NodeNames=None)).encode()).nodes is None


def test_candidates_are_found_however_many_are_looked_for() -> None:
    nodes = decode_request(body=json.dumps(arguments(NodeNames=["node-1", "node-20"])).encode()).nodes

    assert nodes is not None
    for _ in range(10):
        assert "node-1" in nodes
        assert "node-2" not in nodes
        assert "node-20" in nodes
    assert len(nodes) == 2


def test_names_that_are_no_strings_are_refused_when_they_are_read() -> None:
    nodes = decode_request(body=json.dumps(arguments(NodeNames=["a", 1])).encode()).nodes

    assert nodes is not None
    with pytest.raises(BadRequestError, match="NodeNames"):
        len(nodes)


@pytest.mark.parametrize("metadata", [{}, {"annotations": None}, {"annotations": {}}, {"generateName": "x-"}])
def test_a_pod_without_the_annotation_has_none(metadata: dict[str, Any]) -> None:
    request = decode_request(body=json.dumps(arguments(Pod={"metadata": metadata})).encode())

    assert request.annotation is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'{"Pod": null}',
        b'{"Pod": {"metadata": {}}, "NodeNames": "a"}',
        b'{"Pod": {"metadata": {"name": 1}}}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"Pod": {"metadata": {}}, "Nodes": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_anything_else_is_refused_with_a_sentence(body: bytes) -> None:
    with pytest.raises(BadRequestError, match="no ExtenderArgs"):
        decode_request(body=body)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "images",
        "{}",
        '["images"]',
        '[{"copy": "0"}]',
        '[{"dataset": 1}]',
        "\ud800",
        '[{"dataset": "images"}]',
        '[{"dataset": "/images"}]',
        '[{"dataset": "team/"}]',
        '[{"dataset": "team/images/cats"}]',
        '[{"dataset": "team/images", "copies": "0"}]',
        '[{"dataset": "team/images", "x": ' + "[" * 100_000 + "]" * 100_000 + "}]",
    ],
    ids=lambda text: text[:40].encode("ascii", "replace").decode(),
)
def test_a_bad_annotation_is_refused_with_an_example_of_a_good_one(text: str) -> None:
    with pytest.raises(BadAnnotationError, match="write a JSON list such as"):
        decode_annotation(text=text)


def test_a_dataset_without_a_copy_means_any_copy() -> None:
    assert decode_annotation(text='[{"dataset": "team/images"}]') == [DatasetReference("team/images", None)]


@pytest.mark.failure_mode("annotation-repeats-dataset")
def test_a_dataset_that_an_annotation_repeats_counts_once() -> None:
    images, words = '{"dataset": "team/images"}', '{"dataset": "team/words"}'
    text = f"[{', '.join([images] * 12_000 + [words])}]"
    assert decode_annotation(text=text) == [DatasetReference("team/images"), DatasetReference("team/words")]


@pytest.mark.failure_mode("annotation-too-long")
def test_an_annotation_of_more_datasets_than_a_pod_reads_is_refused() -> None:
    entries = [{"dataset": f"team/images-{number}"} for number in range(MOST_REFERENCES + 1)]
    assert len(decode_annotation(text=json.dumps(entries[1:]))) == MOST_REFERENCES
    with pytest.raises(BadAnnotationError, match=r"has 65 different entries, and 64 are the most: name only"):
        decode_annotation(text=json.dumps(entries))


def test_a_copy_that_two_entries_name_for_one_pod_is_read_once() -> None:
    first, second = (DatasetReference("team/images", "0", readers) for readers in ("0-3", "2-5"))
    assert len(read_by([first, second], index=2)) == 1
    assert read_by([first, second], index=5) == [second]


def test_the_answer_is_a_bare_list_of_integers_with_go_names() -> None:
    assert json.loads(encode_scores(scores={"a": 10, "b": 3})) == [
        {"Host": "a", "Score": 10},
        {"Host": "b", "Score": 3},
    ]
    assert encode_scores(scores={}) == b"[]"
