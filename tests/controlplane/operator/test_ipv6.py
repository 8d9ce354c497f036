"""The operator, the extender and its scheduler on a control plane with addresses of IPv6 alone."""

from __future__ import annotations

import ipaddress
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.controlplane.extender_world import start_extender, start_scheduler
from tests.controlplane.operator_command import allow_secrets, install_rights, start_operator
from tests.controlplane.operator_world import CHECKOUT, FILES, SOURCE, TOTAL, World
from tests.support.controlplane.fixtures import TEST_LABEL, OwnControlPlane
from tests.support.controlplane.nodes import add_fake_nodes
from tests.support.kube import condition
from tests.support.programs.ipv6 import LOOPBACK, needs_ipv6
from tests.support.programs.ports import free_ports, listens_at

from tdcs.listening import at

pytestmark = needs_ipv6

NAMESPACE = "ipv6"
RELEASE = "tdcs-ipv6"
NODES = [f"ipv6-{number}" for number in range(3)]


@pytest.fixture
def world(own_control_plane: OwnControlPlane) -> Iterator[World]:
    """Three nodes on a control plane that listens at `::1`."""
    plane = own_control_plane(host=LOOPBACK)
    plane.kube.install_crds(CHECKOUT / "crds")
    plane.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    plane.wait_for_namespace(NAMESPACE)
    add_fake_nodes(plane, names=NODES, gpus=3, labels={TEST_LABEL: NAMESPACE})
    world = World(plane=plane, namespace=NAMESPACE, nodes=NODES)
    yield world
    world.clear()


def test_a_job_is_placed_next_to_its_data_and_runs_where_all_addresses_are_ipv6(
    world: World, tmp_path: Path
) -> None:
    kube = world.kube
    install_rights(
        kube,
        release=RELEASE,
        namespace=NAMESPACE,
        templates=["operator-rbac", "operator"],
        values={"trust.enabled": False},
    )
    allow_secrets(kube, release=RELEASE, namespace=NAMESPACE)
    manifests, metrics = free_ports(2)
    operator = start_operator(
        world.plane,
        release=RELEASE,
        namespace=NAMESPACE,
        engine={"sources": {SOURCE: FILES}, "workers": dict.fromkeys(NODES, 10 * TOTAL)},
        folder=tmp_path,
        options=(
            f"--manifest-port={manifests}",
            f"--manifest-address={LOOPBACK}",
            f"--metrics-port={metrics}",
        ),
    )
    extender = start_extender(world.plane)
    start_scheduler(world.plane, extender.url)

    world.create_cluster()
    world.create_dataset(placement={"mode": "Replicate", "nodeCount": 1})
    dataset = world.wait_ready()
    ((home,),) = ([node["name"] for node in copy["nodes"]] for copy in dataset["status"]["copies"])
    assert listens_at(manifests, host=LOOPBACK)
    with urllib.request.urlopen(f"http://{at(LOOPBACK, metrics)}/metrics", timeout=5) as answer:
        assert b"tdcs_" in answer.read()

    container = {"name": "main", "image": "train:test", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    template = {
        "spec": {
            "schedulerName": "tdcs-scheduler",
            "nodeSelector": {TEST_LABEL: NAMESPACE},
            "containers": [container],
        }
    }
    world.create_job(roles={"Worker": {"replicas": 2, "template": template}})
    world.wait(lambda: condition(world.job(), "Succeeded") == "True")
    pods = kube.list("Pod", namespace=NAMESPACE, labels={"tdcs.io/training-job": "train"})
    assert {pod["spec"]["nodeName"] for pod in pods} == {home}
    assert all(ipaddress.ip_address(pod["status"]["podIP"]).version == 6 for pod in pods)
    assert "Traceback" not in operator.log.read_text()
