"""What is kept of a node decides the same as the node, and holds nothing that nobody reads."""

import copy
import gc
import json
import tracemalloc
from typing import Any

import pytest
from bench.control_plane.real_objects import ended_job_text, node_text, pod_text

from tdcs.control.cachecluster.cleaning import _answers
from tdcs.control.context import Settings
from tdcs.control.dataset.access.cluster_networks import ClusterNetworks
from tdcs.control.job import ended_job
from tdcs.control.job_index import ran_seconds, template_of
from tdcs.control.kept_job import kept_job
from tdcs.control.node_usage import PodAddresses, Usage, trimmed
from tdcs.control.node_view import gpus_of
from tdcs.control.operator.event_handlers import _node_size, _node_view
from tdcs.control.operator.kept_node import kept_node
from tdcs.control.operator.kept_pod import kept_pod
from tdcs.decide.node_departure import departure, may_cache
from tdcs.decide.place.node_eligibility import may_run, why_nowhere
from tdcs.decide.worker_nodes import gpus
from tdcs.model.kube_objects import Object, object_key
from tdcs.model.pod_resources import amounts

TOLERATES = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
PODS: list[dict[str, Any]] = [
    {},
    TOLERATES,
    {**TOLERATES, "nodeSelector": {"nvidia.com/gpu.property-3": "value-3"}},
    {**TOLERATES, "nodeSelector": {"nvidia.com/gpu.property-3": "another"}},
    {"nodeName": "elsewhere"},
]


def node(**changes: Any) -> Object:
    obj: Object = json.loads(node_text(7))
    for path, value in changes.items():
        part, field = path.split("_", 1)
        obj[part][field] = value
    return obj


NOT_READY = [
    {"type": "Ready", "status": "False", "message": "node is shutting down", "reason": "KubeletNotReady"}
]
NODES: dict[str, dict[str, Any]] = {
    "as it shall": {},
    "cordoned": {"spec_unschedulable": True},
    "shuts down": {"status_conditions": NOT_READY},
    "is deleted": {"metadata_deletionTimestamp": "2026-01-01T00:00:00Z"},
    "goes": {"spec_taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]},
    "new": {
        "metadata_labels": None,
        "spec_taints": None,
        "status_allocatable": None,
        "status_conditions": None,
    },
}


@pytest.mark.parametrize("state", NODES)
def test_what_is_kept_of_a_node_decides_the_same(state: str) -> None:
    whole = node(**NODES[state])
    untouched = copy.deepcopy(whole)
    reduced = kept_node(whole)
    for pod in PODS:
        assert may_run(pod, reduced) == may_run(pod, whole)
        assert why_nowhere(pod, [reduced]) == why_nowhere(pod, [whole])
    assert departure(reduced) == departure(whole)
    assert may_cache(reduced, answers=False) == may_cache(whole, answers=False)
    assert _answers(reduced) == _answers(whole)
    assert gpus_of(reduced) == gpus_of(whole)
    assert gpus(reduced) == gpus(whole)
    assert amounts(reduced["status"].get("allocatable")) == amounts(whole["status"].get("allocatable"))
    assert [networks(reduced)] == [networks(whole)]
    assert reduced["metadata"]["creationTimestamp"] == whole["metadata"]["creationTimestamp"]
    assert kept_node(reduced) == reduced
    assert whole == untouched


def networks(obj: Object) -> tuple[str, ...]:
    api: Any = None
    return ClusterNetworks(api=api, settings=Settings(), nodes={("", "n"): obj}).all()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("status_images", [{"names": ["another"], "sizeBytes": 1}]),
        ("status_volumesInUse", ["another"]),
        ("status_nodeInfo", {"kernelVersion": "7"}),
        ("metadata_managedFields", []),
        ("metadata_annotations", {"a": "b"}),
        ("spec_providerID", "another"),
    ],
)
def test_what_nobody_reads_of_a_node_is_not_kept(path: str, value: object) -> None:
    assert kept_node(node(**{path: value})) == kept_node(node())


def test_a_heartbeat_of_a_node_changes_nothing_that_is_kept() -> None:
    beats = node()
    for condition in beats["status"]["conditions"]:
        condition["lastHeartbeatTime"] = "2026-01-02T00:00:00Z"
    assert kept_node(beats) == kept_node(node())


def test_a_change_that_handlers_look_for_shows_in_what_is_kept() -> None:
    before = kept_node(node())
    for changes in list(NODES.values())[1:]:
        after = kept_node(node(**changes))
        assert (_node_view(before), _node_size(before)) != (_node_view(after), _node_size(after))


def kept_bytes(text_of: Any, keep: Any, *, count: int) -> float:
    """Of one of so many objects, in memory, as their text is decoded."""
    for number in range(count):
        keep(json.loads(text_of(number)))  # what all have in common is there already
    texts = [text_of(number) for number in range(count)]
    tracemalloc.start()
    objects = [keep(json.loads(text)) for text in texts]
    gc.collect()
    used_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used_bytes / len(objects)


def test_a_node_takes_a_tenth_of_what_it_takes_whole() -> None:
    assert kept_bytes(node_text, kept_node, count=200) * 10 < kept_bytes(
        node_text, lambda obj: obj, count=200
    )


def test_a_job_that_has_ended_takes_half_a_kilobyte_at_most() -> None:
    assert kept_bytes(ended_job_text, kept_job, count=500) < 512


def test_a_pod_of_a_job_takes_two_kilobytes_at_most_with_all_that_is_noted_of_it() -> None:
    """50,000 of them with 100,000 ended jobs and 5,000 nodes: less than the 400 MiB that an operator may take."""

    def noted(pod: Object) -> Object:
        reduced = kept_pod(pod)
        key, bound = object_key(reduced), trimmed(reduced)
        usage.seen(key, bound)
        addresses.seen(key, bound["addresses"])
        return reduced

    usage, addresses = Usage(), PodAddresses()
    assert kept_bytes(pod_text, noted, count=500) < 2_048


def test_an_ended_job_that_is_read_again_is_kept_as_the_same() -> None:
    """A list that shows nothing new wakes nobody."""
    whole = json.loads(ended_job_text(7))
    assert kept_job(whole) == kept_job(json.loads(ended_job_text(7)))
    whole["metadata"]["resourceVersion"] = "9"
    assert kept_job(whole) != kept_job(json.loads(ended_job_text(7)))


@pytest.mark.parametrize("policy", [{}, {"ttlSecondsAfterFinished": 60}, {"cleanPodPolicy": "All"}])
def test_what_is_kept_of_an_ended_job_decides_the_same(policy: dict[str, Any]) -> None:
    whole = json.loads(ended_job_text(7))
    whole["spec"]["runPolicy"] = policy
    whole["status"]["completionTime"] = "2026-01-01T00:10:00Z"
    reduced = kept_job(whole)
    assert ended_job.left(reduced, now="2026-01-01T00:10:30Z") == ended_job.left(
        whole, now="2026-01-01T00:10:30Z"
    )
    assert ran_seconds(reduced) == ran_seconds(whole) == 600
    assert reduced["template"] == template_of(whole["spec"])
    assert kept_job(reduced) == reduced
    for field in ("locality", "state", "dataStall", "restarts", "observedGeneration"):
        assert reduced["status"][field] == whole["status"][field]
    assert not {"annotations", "labels", "managedFields"} & reduced["metadata"].keys()
    assert not {"placement", "copies", "message"} & reduced["status"].keys()
