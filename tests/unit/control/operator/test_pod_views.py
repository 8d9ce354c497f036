"""What pods take of nodes, by two views: of the pods of jobs, and of all others that have a node."""

import json
from typing import Any

import pytest
from bench.control_plane.real_objects import pod_text

from tdcs.control.job_index import JobIndex
from tdcs.control.node_usage import PodAddresses, Usage, trimmed
from tdcs.control.operator.event_handlers import EventHandlers
from tdcs.control.operator.kept_pod import kept_pod
from tdcs.kube.queue import KeyedQueue
from tdcs.model.kube_objects import Key, Object, object_key
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, PODS, PRELOADS, TRAINING_JOBS

GPU = "nvidia.com/gpu"
ADDRESS = "192.0.2.7"


class Gangs:
    """The queue of jobs, which only hears that something has changed."""

    def touch(self, **_: bool) -> None:
        pass


class World:
    """The handlers, and the views that they look into."""

    def __init__(self) -> None:
        self.usage, self.addresses = Usage(), PodAddresses()
        self.of_jobs: dict[Key, Object] = {}
        self.other_pods: dict[Key, Object] = {}
        views: Any = {CACHE_CLUSTERS: {}, DATASETS: {}, PRELOADS: {}, TRAINING_JOBS: JobIndex()}
        gangs: Any = Gangs()
        self._handlers = EventHandlers(
            views={**views, PODS: self.of_jobs},
            queue=KeyedQueue(),
            namespace="tdcs-system",
            gangs=gangs,
            usage=self.usage,
            pod_addresses=self.addresses,
            other_pods=self.other_pods,
        )

    def of_job(self, key: Key, pod: Object | None) -> None:
        """The view of the pods of jobs has it so from now on."""
        before = self.of_jobs.pop(key, None)
        if pod is not None:
            self.of_jobs[key] = pod
        self._handlers.on_job_pod(key, before, pod)

    def other(self, key: Key, pod: Object | None) -> None:
        """The view of all others has it so from now on."""
        before = self.other_pods.pop(key, None)
        if pod is not None:
            self.other_pods[key] = pod
        self._handlers.on_other_pod(key, before, pod)


def pod(**changes: Any) -> Object:
    obj: Object = json.loads(pod_text(0))
    obj["spec"]["nodeName"] = "n0"
    obj["status"]["podIPs"] = [{"ip": ADDRESS}]
    for path, value in changes.items():
        part, field = path.split("_", 1)
        obj[part][field] = value
    return obj


@pytest.mark.parametrize("first", ["gone", "come"])
def test_a_pod_whose_label_is_taken_away_is_counted_once(first: str) -> None:
    """It leaves one view and comes into the other, and nothing says which of them hears of it first."""
    world, key = World(), object_key(pod())
    world.of_job(key, kept_pod(pod()))
    assert world.usage.taken("n0")[GPU] == 1
    assert len(list(world.usage.job_pods())) == 1
    for step in (first, {"gone": "come", "come": "gone"}[first]):
        if step == "gone":
            world.of_job(key, None)
        else:
            world.other(key, trimmed(pod(metadata_labels={})))
    assert world.usage.taken("n0")[GPU] == world.usage.foreign("n0")[GPU] == 1
    assert not list(world.usage.job_pods())
    assert ADDRESS in world.addresses
    world.other(key, None)
    assert not world.usage.taken("n0")
    assert ADDRESS not in world.addresses


def test_a_pod_of_a_job_takes_of_its_node_from_when_it_has_one_until_it_has_ended() -> None:
    world, key = World(), object_key(pod())
    for state, takes in (
        (pod(spec_nodeName=""), 0),
        (pod(), 1),
        (pod(status_phase="Succeeded"), 0),
    ):
        world.of_job(key, kept_pod(state))
        assert world.usage.taken("n0").get(GPU, 0) == takes
        assert (ADDRESS in world.addresses) is bool(takes)


def test_what_is_kept_of_a_pod_takes_the_same_of_its_node() -> None:
    for state in (
        pod(),
        pod(metadata_deletionTimestamp="2026-01-01T00:00:00Z"),
        pod(spec_hostNetwork=True),
        pod(metadata_labels={}, metadata_ownerReferences=[]),
    ):
        assert trimmed(kept_pod(state)) == trimmed(state)
