"""Where Kueue has the pods of a pod set run, and what of their template changes for it."""

import json
from typing import Any

import pytest

from tdcs.decide.kueue.kueue_nodes import (
    GIVEN_BY_CHECKS,
    INDEX_LABEL,
    POD_SET,
    TOPOLOGY_GATE,
    UNCONSTRAINED,
    WORKLOAD,
    PodSetPlacement,
    pod_set_name,
    template_changes,
    topology_request,
)

REQUIRED = "kueue.x-k8s.io/podset-required-topology"
SPOT = {"key": "spot", "operator": "Exists"}


@pytest.mark.parametrize(
    ("annotations", "request_"),
    [
        (None, {}),
        ({"other": "x"}, {}),
        ({REQUIRED: "rack"}, {"required": "rack"}),
        ({"kueue.x-k8s.io/podset-preferred-topology": "rack"}, {"preferred": "rack"}),
        ({UNCONSTRAINED: "true"}, {"unconstrained": True}),
        ({UNCONSTRAINED: "True"}, {"unconstrained": True}),
        ({UNCONSTRAINED: "no"}, {"unconstrained": False}),
        ({REQUIRED: "rack", UNCONSTRAINED: "true"}, {"required": "rack"}),
    ],
)
def test_a_pod_set_asks_for_the_topology_of_its_templates_annotations(
    annotations: Any, request_: dict[str, Any]
) -> None:
    asked = topology_request({"metadata": {"annotations": annotations}})["topologyRequest"]
    assert asked == {**request_, "podIndexLabel": INDEX_LABEL}


def test_a_template_without_metadata_asks_for_no_topology() -> None:
    assert topology_request({}) == {"topologyRequest": {"podIndexLabel": INDEX_LABEL}}


def changes(
    live: dict[str, Any] | None = None,
    *,
    own: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    own_metadata: dict[str, Any] | None = None,
    node_labels: dict[str, str] | None = None,
    **place: Any,
) -> dict[str, dict[str, Any]]:
    """What changes of a live template, by what the job's own template has."""
    return template_changes(
        {"spec": live or {}, **({"metadata": metadata} if metadata else {})},
        template={"spec": own or {}, **({"metadata": own_metadata} if own_metadata else {})},
        place=PodSetPlacement(node_labels=node_labels or {}, pod_set="worker", **place),
    )


def test_without_a_placement_or_with_the_same_one_nothing_changes() -> None:
    live = {"spec": {"nodeSelector": {"old": "x"}}}
    assert template_changes(live, template={"spec": {}}, place=None) == {}
    assert changes({"nodeSelector": {"gpu": "a"}}, node_labels={"gpu": "a"}) == {}
    assert changes({"tolerations": [SPOT]}, tolerations=(SPOT,)) == {}
    assert changes() == {}


def test_labels_of_the_flavor_come_on_top_and_those_of_the_last_one_go() -> None:
    patch = changes(
        {"nodeSelector": {"gpu": "a", "mine": "1"}},
        own={"nodeSelector": {"mine": "1"}},
        node_labels={"zone": "b"},
    )
    assert patch == {"spec": {"nodeSelector": {"gpu": None, "mine": "1", "zone": "b"}}}


def test_tolerations_of_the_flavor_are_added_once_to_those_of_the_template() -> None:
    own = [{"key": "mine"}, SPOT]
    assert changes({"tolerations": own}, own={"tolerations": own}, tolerations=(SPOT,)) == {}
    assert changes({}, own={"tolerations": [{"key": "mine"}]}, tolerations=(SPOT,)) == {
        "spec": {"tolerations": [{"key": "mine"}, SPOT]}
    }
    assert changes({"tolerations": [SPOT]}) == {"spec": {"tolerations": []}}


def test_pods_with_assigned_domains_are_gated_and_named_to_kueue() -> None:
    patch = changes(workload="trainingjob-x")
    assert patch == {
        "spec": {"schedulingGates": [{"name": TOPOLOGY_GATE}]},
        "metadata": {
            "labels": {POD_SET: "worker"},
            "annotations": {WORKLOAD: "trainingjob-x", UNCONSTRAINED: "true"},
        },
    }


def test_a_template_that_asks_for_a_topology_is_not_marked_as_unconstrained() -> None:
    own = {"annotations": {REQUIRED: "rack"}}
    patch = changes(workload="trainingjob-x", metadata=own, own_metadata=own)
    assert patch["metadata"]["annotations"] == {WORKLOAD: "trainingjob-x"}


def test_the_marks_of_domains_go_with_them() -> None:
    patch = changes(
        {"schedulingGates": [{"name": TOPOLOGY_GATE}]},
        metadata={
            "labels": {POD_SET: "worker", "controller-uid": "1"},
            "annotations": {WORKLOAD: "trainingjob-x", UNCONSTRAINED: "true"},
        },
    )
    assert patch == {
        "spec": {"schedulingGates": []},
        "metadata": {
            "labels": {POD_SET: None},
            "annotations": {WORKLOAD: None, UNCONSTRAINED: None},
        },
    }


def test_what_checks_gave_is_recorded_so_that_it_can_be_taken_back() -> None:
    first = changes(labels={"cost": "x"}, annotations={"note": "y"})["metadata"]
    assert first["labels"] == {"cost": "x"}
    assert json.loads(first["annotations"][GIVEN_BY_CHECKS]) == {"labels": ["cost"], "annotations": ["note"]}
    live = {"labels": first["labels"], "annotations": first["annotations"]}
    assert changes(metadata=live, labels={"cost": "x"}, annotations={"note": "y"}) == {}
    assert changes(metadata=live)["metadata"] == {
        "labels": {"cost": None},
        "annotations": {"note": None, GIVEN_BY_CHECKS: None},
    }


def test_a_label_that_checks_gave_falls_back_to_that_of_the_template() -> None:
    live = {"labels": {"cost": "x"}, "annotations": {GIVEN_BY_CHECKS: '{"labels": ["cost"]}'}}
    patch = changes(metadata=live, own_metadata={"labels": {"cost": "own"}})
    assert patch["metadata"]["labels"] == {"cost": "own"}


@pytest.mark.parametrize("record", ["{", "[]", "3", '{"labels": 3}', "null"])
def test_a_record_that_somebody_has_changed_takes_nothing_back(record: str) -> None:
    live = {"labels": {"cost": "x"}, "annotations": {GIVEN_BY_CHECKS: record}}
    assert changes(metadata=live)["metadata"] == {"annotations": {GIVEN_BY_CHECKS: None}}


def test_a_pod_set_has_the_name_of_its_role_in_small_letters() -> None:
    assert [pod_set_name("Worker"), pod_set_name("PS")] == ["worker", "ps"]
