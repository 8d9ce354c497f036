"""What the extender's tests share: the running extender, its scheduler, Datasets that it knows, and where pods land."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.controlplane import ControlPlane
from tests.support.kube import Kube, Object
from tests.support.kube.describe import describe
from tests.support.programs.ports import free_ports
from tests.support.programs.processes import Process
from tests.support.scheduler_configuration import scheduler_configuration
from tests.support.waiting import eventually

from tdcs.control.dataset.access import volume_objects
from tdcs.listening import at

CRDS = Path(__file__).parents[2] / "crds"
SCHEDULER = "tdcs-scheduler"


@dataclass(frozen=True)
class Extender:
    """A running extender and its scheduler."""

    process: Process
    url: str
    metrics_url: str

    def get(self, path: str) -> tuple[int, str]:
        return self._get(f"{self.url}{path}")

    def metrics(self) -> list[str]:
        """The lines of its metrics."""
        return self._get(f"{self.metrics_url}/metrics")[1].splitlines()

    def _get(self, url: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - loopback
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def scored(self, annotation: str) -> set[str]:
        """The nodes that it scores for a pod with this annotation: what it knows now."""
        return self.prioritize(
            {"metadata": {"name": "asked-by-test", "annotations": {"tdcs.io/datasets": annotation}}}
        )

    def prioritize(self, pod: Object, *, nodes: Sequence[str] | None = None) -> set[str]:
        """Ask it as kube-scheduler would; the nodes that it scores for a pod, of these candidates."""
        body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": nodes}).encode()
        request = urllib.request.Request(f"{self.url}/prioritize", data=body, method="POST")  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - loopback
            return {host["Host"] for host in json.load(answer)}

    def answers(self, kind: str) -> int:
        """How many answers of a kind it gave."""
        line = f'tdcs_extender_answers_total{{kind="{kind}"}} '
        return next(
            int(float(sample.removeprefix(line))) for sample in self.metrics() if sample.startswith(line)
        )

    def waiting_pods(self) -> int:
        """How many pods it knows to wait for a node."""
        name = "tdcs_extender_waiting_pods "
        lines = self.metrics()
        return next(int(float(line.removeprefix(name))) for line in lines if line.startswith(name))

    def all_answers(self) -> int:
        """How many answers it gave in all."""
        counts = [line for line in self.metrics() if line.startswith("tdcs_extender_answers_total{")]
        return sum(int(float(line.rpartition(" ")[2])) for line in counts)


def start_extender(
    plane: ControlPlane,
    *,
    stale_after: float = 180,
    explain: bool = True,
    kubeconfig: Path | None = None,
    scheduler_name: str = SCHEDULER,
    options: Sequence[str] = (),
) -> Extender:
    """The extender's process, once it is healthy; `kubeconfig`: whose rights it has, by default an administrator's;
    `options`: more of the command's. It listens where the control plane does."""
    port, metrics_port = free_ports(2)
    host = plane.options.host
    url, metrics_url = (f"http://{at(host, server_port)}" for server_port in (port, metrics_port))
    argv = [
        sys.executable,
        "-m",
        "tdcs_scheduler",
        f"--host={host}",
        f"--port={port}",
        f"--metrics-port={metrics_port}",
        f"--stale-after={stale_after}",
        f"--scheduler-name={scheduler_name}",
        *(["--explain"] if explain else []),
        *options,
    ]
    plane.kube.install_crds(CRDS)

    def ready() -> bool:
        return Extender(process, url, metrics_url).get("/healthz")[0] == 200

    rights = kubeconfig or plane.stand_in_kubeconfig("scheduler")
    process = plane.run(name="extender", argv=argv, kubeconfig=rights)
    extender = Extender(process, url, metrics_url)
    eventually(ready, deadline=90, describe=process.tail)
    return extender


def start_scheduler(plane: ControlPlane, extender_url: str, *, patient: bool = True) -> Process:
    """The scheduler that asks the extender at this address, with the configuration that is shipped.

    `patient`: but for the time that it waits for an answer. On a busy machine some answers take longer than is
    shipped, and where such a pod lands says nothing about the extender.
    """
    config = scheduler_configuration(extender_url=extender_url)
    if patient:
        config["extenders"][0]["httpTimeout"] = "10s"
    return plane.start_scheduler(name="kube-scheduler-tdcs", config=config)


@pytest.fixture
def extender(control_plane: ControlPlane) -> Extender:
    """The extender, and next to it a scheduler that waits for its answers."""
    extender = start_extender(control_plane)
    start_scheduler(control_plane, extender.url)
    return extender


def put_dataset(
    extender: Extender, kube: Kube, *, namespace: str, held: Mapping[str, int], name: str = "images"
) -> str:
    """A Dataset whose one copy is on these nodes, in bytes, as the extender knows; its annotation for a pod."""
    kube.apply(
        {
            "apiVersion": "tdcs.io/v1alpha2",
            "kind": "Dataset",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"source": {"uri": f"s3://{namespace}/{name}", "secretRef": {"name": "keys"}}},
        }
    )
    copy = {"id": "0", "nodes": [{"name": node, "bytes": size} for node, size in held.items()]}
    status = {"totalBytes": sum(held.values()), "copies": [copy]}
    kube.patch("Dataset", name, {"status": status}, namespace=namespace, subresource="status")
    annotation = f'[{{"dataset": "{namespace}/{name}", "copy": "0"}}]'
    eventually(lambda: extender.scored(annotation) == set(held), deadline=90, describe=extender.process.tail)
    return annotation


def put_claim(kube: Kube, *, namespace: str, name: str = "images") -> None:
    """The claim of a Dataset and its volume, as the operator makes them, once they are bound."""
    dataset = kube.get("Dataset", name, namespace=namespace)
    where = volume_objects.attributes(cluster="default", path=f"/datasets/{name}")
    kube.create(volume_objects.volume(dataset=dataset, storage="1Mi", attributes=where))
    kube.create(volume_objects.claim(dataset=dataset, storage="1Mi"))
    eventually(
        lambda: kube.get("PersistentVolumeClaim", name, namespace=namespace)["status"]["phase"] == "Bound",
        deadline=60,
        describe=lambda: describe(kube, namespace=namespace, kinds=("PersistentVolumeClaim",)),
    )


def landed(kube: Kube, *, namespace: str, count: int, labels: Mapping[str, str]) -> Counter[str]:
    def nodes() -> list[str]:
        pods = kube.list("Pod", namespace=namespace, labels=labels)
        return [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")]

    eventually(
        lambda: len(nodes()) == count, deadline=120, describe=lambda: describe(kube, namespace=namespace)
    )
    return Counter(nodes())
