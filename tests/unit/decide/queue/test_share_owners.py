"""Namespaces with one value of a label have one share, whose weight none of them chooses."""

import pytest

from tdcs.api import names
from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.queue.fair_share import Shares
from tdcs.decide.queue.gang_turn import schedule
from tdcs.decide.queue.queue_nodes import Nodes
from tdcs.decide.queue.queued_job import QueuedJob
from tdcs.decide.queue.share_owners import ShareOwners, parsed_weights, wrong_weight
from tdcs.model.kube_objects import Key, Object

GPU = "nvidia.com/gpu"


def namespace(name: str, *, team: str = "", weight: str | None = None) -> Object:
    labels = {"team": team} if team else {}
    annotations = {} if weight is None else {names.ANNOTATION_SHARE_WEIGHT: weight}
    return {"metadata": {"name": name, "labels": labels, "annotations": annotations}}


def by_key(*namespaces: Object) -> dict[Key, Object]:
    return {("", namespace["metadata"]["name"]): namespace for namespace in namespaces}


THERE = by_key(
    namespace("train", team="vision"),
    namespace("tune", team="vision", weight="50"),
    namespace("vision", weight="3"),
    namespace("alone", weight="-1"),
)


def test_namespaces_of_one_label_share_and_those_without_share_with_nobody() -> None:
    by_team = ShareOwners(label="team")
    assert [by_team.of(THERE, name) for name in ("train", "tune", "vision", "unknown")] == [
        "vision",
        "vision",
        "namespace/vision",
        "namespace/unknown",
    ]
    assert ShareOwners().of(THERE, "train") == "train"


def test_a_namespace_that_shares_cannot_choose_the_weight_of_the_others() -> None:
    by_team = ShareOwners(label="team", weights={"vision": 2.0, "namespace/alone": 0.5})
    assert by_team.weights_in(THERE) == {"vision": 2.0, "namespace/alone": 0.5, "namespace/vision": 3.0}
    assert ShareOwners(weights={"vision": 2.0, "train": 4.0}).weights_in(THERE) == {
        "vision": 3.0,
        "train": 4.0,
        "tune": 50.0,
    }


@pytest.mark.parametrize("weight", ["-1", "much", "nan", "inf", ""])
def test_a_weight_that_is_none_is_named(weight: str) -> None:
    wrong = wrong_weight(namespace("alone", weight=weight))
    assert "tdcs.io/share-weight of namespace alone" in wrong
    assert "does not count" in wrong
    with pytest.raises(ValueError, match="is no NAME=WEIGHT"):
        parsed_weights([f"alone={weight}"])


def test_weights_of_the_chart_are_read() -> None:
    assert wrong_weight(namespace("alone", weight="0")) == ""
    assert wrong_weight(namespace("alone")) == ""
    assert parsed_weights(["a=2", "namespace/b=0.5", "c=0"]) == {"a": 2.0, "namespace/b": 0.5, "c": 0.0}
    for text in ("a", "=1", "1"):
        with pytest.raises(ValueError, match="is no NAME=WEIGHT"):
            parsed_weights([text])


def test_a_team_with_two_namespaces_has_one_turn() -> None:
    def job(name: str, inside: str, *, age: float) -> QueuedJob:
        return QueuedJob(
            key=(inside, name),
            uid=name,
            priority=0,
            submitted=-age,
            data_ready=True,
            passed=0,
            groups=(PodGroup(count=1, request={GPU: 1}),),
            share=ShareOwners(label="team").of(THERE, inside),
        )

    decision = schedule(
        waiting=[job("first", "train", age=3), job("second", "tune", age=2), job("other", "alone", age=1)],
        nodes=Nodes(free={"a": {GPU: 2}}, capacity={"a": {GPU: 2}}),
        shares=Shares(used={}),
    )
    assert [entry.uid for entry in decision.admitted] == ["first", "other"]
