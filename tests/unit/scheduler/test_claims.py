"""Pods that mount a Dataset's claim are placed by its data, without an annotation."""

import json
from typing import Any

import pytest
from tests.unit.scheduler.test_app import Clock, ask, extender, metric
from tests.unit.scheduler.test_demand import World
from tests.unit.scheduler.test_rank import MB, candidates, dataset, ranked, view

from tdcs_scheduler.demand import waiting_pod
from tdcs_scheduler.protocol import PrioritizeRequest, decode_request
from tdcs_scheduler.rank import AnswerKind


def mounting(*claims: str, **fields: Any) -> PrioritizeRequest:
    """A pod of namespace team that mounts these claims."""
    mounted = tuple(f"team/{claim}" for claim in claims)
    return PrioritizeRequest(
        **{
            "pod": "team/p",
            "uid": "u",
            "annotation": None,
            "nodes": candidates("abcd"),
            "claims": mounted,
            **fields,
        }
    )


def request_with(**pod: Any) -> PrioritizeRequest:
    """A request as kube-scheduler sends it."""
    whole = {"metadata": {"name": "p", "namespace": "team", **pod.pop("metadata", {})}, **pod}
    return decode_request(body=json.dumps({"Pod": whole, "NodeNames": ["a"]}).encode())


IMAGES = dataset({"a": 100 * MB, "b": 50 * MB}, {"c": 100 * MB})


def test_claims_are_read_from_the_pods_volumes_each_once() -> None:
    volumes = [
        {"name": "tmp", "emptyDir": {}},
        {"name": "x", "persistentVolumeClaim": {"claimName": "images"}},
        {"name": "y", "persistentVolumeClaim": {"claimName": "images", "readOnly": True}},
        {"name": "z", "persistentVolumeClaim": {"claimName": "text"}},
        {"name": "odd", "persistentVolumeClaim": None},
    ]
    assert request_with(spec={"volumes": volumes}).claims == ("team/images", "team/text")
    without: list[Any] = [{}, {"volumes": None}, {"volumes": []}, None]
    assert [request_with(spec=spec).claims for spec in without] == [()] * 4


def test_a_pod_with_a_claim_is_placed_by_any_copy_of_its_dataset() -> None:
    ranking = ranked(mounting("images"), view(images=IMAGES))

    assert ranking.kind is AnswerKind.SCORED
    assert ranking.scores == {"a": 10, "b": 5, "c": 10}


def test_the_annotation_chooses_the_copy_and_claims_add_what_it_does_not_name() -> None:
    datasets = view(images=IMAGES, text=dataset({"d": 100 * MB}))
    annotation = json.dumps([{"dataset": "team/images", "copy": "1"}])

    assert ranked(mounting("images", annotation=annotation), datasets).scores == {"a": 5, "b": 3, "c": 10}
    scores = ranked(mounting("images", "text", annotation=annotation), datasets).scores
    assert scores == {"a": 3, "b": 2, "c": 5, "d": 5}


def test_a_worker_that_the_annotation_says_does_not_read_is_kept_from_its_claims_data() -> None:
    annotation = json.dumps([{"dataset": "team/images", "readers": "0-1"}])
    ranking = ranked(mounting("images", annotation=annotation, index=5), view(images=IMAGES))

    assert ranking.kind is AnswerKind.NO_READER
    assert ranking.scores == {"d": 1}


@pytest.mark.parametrize("claims", [("checkpoints",), ()])
def test_a_claim_without_a_dataset_is_some_other_volume(claims: tuple[str, ...]) -> None:
    ranking = ranked(mounting(*claims), view(images=IMAGES))

    assert ranking.kind is AnswerKind.NO_DATASET
    assert not ranking.scores
    assert not ranking.unknown


def test_a_pod_that_opted_out_is_placed_as_by_any_scheduler() -> None:
    annotation = json.dumps([{"dataset": "team/images"}])
    request = request_with(
        metadata={
            "labels": {"tdcs.io/place-by-data": "false"},
            "annotations": {"tdcs.io/datasets": annotation},
        },
        spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "images"}}]},
    )
    ranking = ranked(request, view(images=IMAGES))

    assert ranking.kind is AnswerKind.OPTED_OUT
    assert not ranking.scores
    assert not request_with(metadata={"labels": {"tdcs.io/place-by-data": "true"}}).opted_out


def test_a_dataset_that_is_deleted_while_a_pod_waits_has_no_say_any_more() -> None:
    datasets = view(images=IMAGES)
    assert ranked(mounting("images"), datasets).kind is AnswerKind.SCORED
    datasets.on_change(("team", "images"), None)
    assert ranked(mounting("images"), datasets).kind is AnswerKind.NO_DATASET


def test_claims_of_another_namespace_are_others() -> None:
    assert (
        ranked(mounting("images", claims=("other/images",)), view(images=IMAGES)).kind
        is AnswerKind.NO_DATASET
    )


async def test_a_bad_annotation_next_to_a_claim_is_reported_and_the_claim_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = extender(Clock())
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "images"}}
    metadata = {"name": "p", "namespace": "team", "uid": "u", "annotations": {"tdcs.io/datasets": "oops"}}
    body = {"Pod": {"metadata": metadata, "spec": {"volumes": [volume]}}, "NodeNames": ["a", "b"]}

    answer = ask(app, "POST", "/prioritize", json.dumps(body).encode())

    assert json.loads(answer.body) == [{"Host": "a", "Score": 10}]
    assert await metric(app, 'tdcs_extender_answers_total{kind="scored"}') == 1
    assert "it is scheduled by the Datasets of the claims that it mounts alone: annotation" in caplog.text


def waiting(*claims: str, **metadata: Any) -> dict[str, Any]:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return waiting_pod(
        {"metadata": {"namespace": "team", "name": "p", **metadata}, "spec": {"volumes": volumes}}
    )


def test_pods_that_wait_with_a_claim_are_left_their_nodes() -> None:
    world = World(images={"0": {"a": 5, "b": 5}})
    world.pod("p", waiting("images", "checkpoints"))

    assert world.awaited() == {"a": 0.5, "b": 0.5}
    assert len(world.demand) == 1
    world.demand.on_scored(("team", "p"))
    assert world.awaited() == {}


def test_a_pod_may_wait_before_its_dataset_is_there() -> None:
    world = World()
    world.pod("p", waiting("images"))
    assert (world.awaited(), len(world.demand)) == ({}, 0)

    world.put("images", {"0": {"a": 5}})
    assert (world.awaited(), len(world.demand)) == ({"a": 1.0}, 1)
    world.put("images", None)
    assert (world.awaited(), len(world.demand)) == ({}, 0)


def test_nothing_is_left_to_pods_that_opted_out() -> None:
    world = World(images={"0": {"a": 5}})
    world.pod("p", waiting("images", labels={"tdcs.io/place-by-data": "false"}))
    assert world.awaited() == {}
