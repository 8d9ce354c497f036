"""The chart's HorizontalPodAutoscaler with a real Prometheus and a real prometheus-adapter on a control plane.

The adapter is built in minutes: the test runs with TDCS_ECOSYSTEM=1 (`make autoscaling`).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import start_http_server
from tests.controlplane.data.test_operator_cache import states, worker_nodes
from tests.controlplane.operator_world import CHECKOUT, TOTAL, World, condition_of, world
from tests.support.ecosystem.go_modules import fetches, manager_program
from tests.support.kube import Object
from tests.support.programs.monitoring import ADAPTER, Prometheus, external_metrics_api
from tests.support.programs.ports import free_ports

from tdcs_local import programs

__all__ = ["world"]

pytestmark = pytest.mark.skipif(
    not fetches(), reason="takes a program that is built in minutes; make autoscaling runs it"
)


class Monitoring:
    """Prometheus, which scrapes an operator, and the adapter, with the chart's rule.

    Args:
        world: whose operator.
        adapter: its program.
        scraped: the port of its metrics.
        rules: the adapter's configuration.
        folder: for files.
    """

    def __init__(self, world: World, *, adapter: Path, scraped: int, rules: str, folder: Path) -> None:
        self._world = world
        self._adapter = adapter
        (self._port,) = free_ports(1)
        self._prometheus = Prometheus(
            plane=world.plane, scraped={"operator": scraped}, namespace=world.namespace, folder=folder
        )
        (folder / "adapter.yml").write_text(rules)
        self._folder = folder

    def start(self) -> None:
        """Both programs, and the API that the adapter serves."""
        self._prometheus.start()
        kubeconfig = self._world.plane.kubeconfig
        self._world.plane.run(
            name=ADAPTER,
            argv=[
                str(self._adapter),
                f"--prometheus-url={self._prometheus.url}",
                f"--config={self._folder}/adapter.yml",
                f"--lister-kubeconfig={kubeconfig}",
                f"--authentication-kubeconfig={kubeconfig}",
                f"--authorization-kubeconfig={kubeconfig}",
                "--bind-address=127.0.0.1",
                f"--secure-port={self._port}",
                f"--cert-dir={self._folder}/certificates",
                "--metrics-relist-interval=2s",
            ],
        )
        kube = self._world.kube
        # The adapter runs next to the control plane: the name of its Service leads to this machine.
        kube.create(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": ADAPTER, "namespace": self._world.namespace},
                "spec": {
                    "type": "ExternalName",
                    "externalName": "localhost",
                    "ports": [{"port": self._port}],
                },
            }
        )
        kube.create(self._api())

    def stop(self) -> None:
        """All of it is gone."""
        self._world.kube.delete("APIService", self._api()["metadata"]["name"])
        self._world.plane.remove(ADAPTER)
        self._prometheus.stop()

    def _api(self) -> Object:
        return external_metrics_api(service=ADAPTER, namespace=self._world.namespace, port=self._port)


def rendered(world: World) -> tuple[Object, str]:
    """The chart's autoscaler for the cache cluster of this world, quicker than in life, and the adapter's rule."""
    values = {
        "cacheCluster.name": world.cluster,
        "autoscaling.enabled": "true",
        "autoscaling.maxReplicas": "3",
    }
    values |= {"autoscaling.scaleDownDelaySeconds": "0"}
    chosen = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    command: list[str | Path] = [
        *(programs.ensure("helm") / "helm", "template", "tdcs", CHECKOUT / "charts" / "tdcs")
    ]
    done = subprocess.run(
        [*command, "--namespace", world.namespace, "--show-only", "templates/autoscaling.yaml", *chosen],
        check=True,
        capture_output=True,
        text=True,
    )
    objects = {obj["kind"]: obj for obj in yaml.safe_load_all(done.stdout) if obj}
    autoscaler, rules = objects["HorizontalPodAutoscaler"], objects["ConfigMap"]
    autoscaler["spec"]["behavior"]["scaleDown"]["policies"][0]["periodSeconds"] = 1
    return autoscaler, str(rules["data"]["config.yaml"])


def running(world: World) -> set[str]:
    """The nodes with workers; the cache in memory has those that a kubelet would run."""
    nodes = set()
    for stateful_set in world.kube.list("StatefulSet", namespace=world.namespace):
        node = stateful_set["metadata"].get("annotations", {}).get("tdcs.io/node")
        if node and stateful_set["spec"]["replicas"]:
            nodes.add(node)
            if not world.engine.state.workers[node].live:
                world.engine.set_worker(name=node)
    return nodes


@pytest.fixture
def monitored(world: World, tmp_path: Path) -> Iterator[tuple[World, Any, Monitoring]]:
    """A cache with the chart's autoscaler, and what measures it; not started yet."""
    adapter = manager_program(ADAPTER)
    autoscaler, rules = rendered(world)
    (port,) = free_ports(1)
    world.create_cluster()
    with world.operator() as operator:
        world.wait(lambda: operator.registry is not None)
        assert operator.registry is not None
        server, thread = start_http_server(port, addr="127.0.0.1", registry=operator.registry)
        measured = Monitoring(world, adapter=adapter, scraped=port, rules=rules, folder=tmp_path)
        measured.start()
        try:
            yield world, autoscaler, measured
        finally:
            measured.stop()
            server.shutdown()
            thread.join()


def test_wanted_bytes_add_workers_and_their_end_takes_them_away_by_a_drain(
    monitored: tuple[World, Object, Monitoring],
) -> None:
    world, autoscaler, _ = monitored
    for node in world.nodes:
        world.engine.set_worker(name=node, capacity=TOTAL)
    world.wait(lambda: set(states(world).values()) == {"Ready"} and len(states(world)) == 3)
    world.kube.create(autoscaler)
    world.wait(lambda: len(worker_nodes(world)) == 1)  # nothing is wanted
    world.create_dataset(eviction={"policy": "Pin"}, placement={"mode": "Partition"})
    world.wait(lambda: len(running(world)) == 2)  # one worker would be full
    world.wait_ready()
    world.kube.patch(
        "Dataset",
        "pictures",
        {"spec": {"placement": {"copies": 2}}},
        namespace=world.namespace,
    )
    world.wait(lambda: len(running(world)) == 3)
    world.kube.patch(
        "Dataset", "pictures", {"spec": {"eviction": {"policy": "LRU"}}}, namespace=world.namespace
    )
    world.wait(lambda: len(worker_nodes(world)) == 1)  # idle data keeps no worker
    autoscaler_object = world.kube.get("HorizontalPodAutoscaler", world.cluster, namespace=world.namespace)
    assert condition_of(autoscaler_object, "ScalingActive")["status"] == "True"
    assert world.engine.source_bytes_read == TOTAL
