"""The operator outlives the failures of what it talks to."""

from __future__ import annotations

import pytest
import urllib3
from tests.controlplane.operator_world import CHECKOUT, World, message_of, reason_of, world
from tests.support.controlplane.fixtures import TEST_LABEL, OwnControlPlane
from tests.support.kube import KubeRequestError, condition
from tests.support.kube.objects import fake_node
from tests.support.waiting import eventually

__all__ = ["world"]


@pytest.mark.failure_mode("api-server-restarted")
def test_an_api_server_that_restarts_is_no_reason_to_stop(own_control_plane: OwnControlPlane) -> None:
    plane = own_control_plane()
    plane.kube.install_crds(CHECKOUT / "crds")
    nodes = [f"node-{number}" for number in range(3)]
    for name in nodes:
        plane.kube.create(fake_node(name=name, labels={TEST_LABEL: "default"}))
    world = World(plane=plane, namespace="default", nodes=nodes)
    world.make_engine(seconds_per_block=0.1)
    world.create_cluster()
    with world.operator():
        world.create_dataset()
        world.wait(lambda: (world.dataset().get("status") or {}).get("cachedBytes", 0) > 0)
        plane.process("kube-apiserver").restart()
        eventually(
            lambda: condition(world.dataset(), "Ready") == "True",
            deadline=120,
            retry_on=(AssertionError, KubeRequestError, urllib3.exceptions.HTTPError),
        )
        # What is created and deleted from now on is seen: the watches are back.
        world.create_job(datasets=[])
        world.wait(lambda: condition(world.job(), "Succeeded") == "True", deadline=120)
        plane.kube.delete("Dataset", "pictures", namespace="default")
        world.wait(lambda: plane.kube.find("Dataset", "pictures", namespace="default") is None)


def test_a_cache_that_is_away_is_told_and_used_again_when_it_is_back(world: World) -> None:
    world.create_cluster()
    world.create_dataset()
    with world.operator(outage_seconds=1.0):
        world.wait_ready()
        world.engine.available = False
        world.wait(
            lambda: (
                reason_of(world.kube.get("CacheCluster", world.cluster, namespace=world.namespace), "Ready")
                == "CacheUnavailable"
            )
        )
        world.change_dataset(placement={"nodeCount": 3})
        world.wait(lambda: reason_of(world.dataset(), "Ready") == "CacheUnavailable")
        assert message_of(world.dataset(), "Ready")
        world.engine.available = True
        world.wait(lambda: len(world.wait_ready()["status"]["copies"][0]["nodes"]) == 3)
