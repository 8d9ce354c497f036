"""Managers of other projects as a user installs them: an image, and the project's own chart, without cert-manager.

The image is one static program. It is loaded on one node, and the chart's values make it run there.
"""

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from tests.support.ecosystem.go_modules import fetches, manager_program, module_folder
from tests.support.ecosystem.kubeflow import JobSetManager, TrainerManager
from tests.support.ecosystem.kueue import KueueManager
from tests.support.ecosystem.manager import Manager

from tdcs_local import mirrors, programs, shell
from tdcs_local.containers.image_archive import Entry, Image, write_archive, write_layer
from tdcs_local.kind import cluster
from tdcs_local.kind.kubectl import Kubectl, Object
from tdcs_local.paths import log_file

USER = 65532
REQUESTS = {"cpu": "50m", "memory": "64Mi"}
"""The charts ask for half a processor each, which a cluster on one machine does not have."""

START_MINUTES = 5
HOSTNAME = "kubernetes.io/hostname"
RBAC = {"apiVersion": "rbac.authorization.k8s.io/v1"}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a manager runs, and of what image."""

    node: str
    repository: str
    tag: str

    @property
    def selector(self) -> Mapping[str, str]:
        """The label of the node."""
        return {HOSTNAME: self.node}


class Chart(ABC):
    """A project's chart, in its Go module."""

    manager: ClassVar[type[Manager]]
    folder: ClassVar[str]
    namespace: ClassVar[str]
    left_out: ClassVar[str] = ""
    """A pattern of templates that no test needs and no value leaves out."""

    @abstractmethod
    def values(self, place: Place, *, chart: Path) -> Object:
        """Values of the chart for an image that is on one node."""


class KueueChart(Chart):
    """Kueue, for Jobs, JobSets, TrainJobs and TrainingJobs, without its API that shows who waits (visibility).

    That API answers 404 to the API server's question what it has; while one such API does not answer, no namespace of
    the cluster can be deleted.
    """

    manager = KueueManager
    folder = "charts/kueue"
    namespace = "kueue-system"
    left_out = "visibility/apiservice_*.yaml"

    def values(self, place: Place, *, chart: Path) -> Object:
        """As the chart has them, with the image, and with the kinds of jobs of the tests."""
        shipped = yaml.safe_load((chart / "values.yaml").read_text())["managerConfig"]
        config = yaml.safe_load(shipped["controllerManagerConfigYaml"])
        config["integrations"] = {
            "frameworks": ["batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob"],
            "externalFrameworks": ["TrainingJob.v1alpha2.tdcs.io"],
        }
        return {
            "controllerManager": {
                "featureGates": [{"name": "VisibilityOnDemand", "enabled": False}],
                "nodeSelector": place.selector,
                "manager": {
                    "image": {"repository": place.repository, "tag": place.tag, "pullPolicy": "Never"},
                    "resources": {"requests": REQUESTS},
                    "podSecurityContext": {"runAsUser": USER},
                },
            },
            "managerConfig": {"controllerManagerConfigYaml": yaml.safe_dump(config)},
        }


class JobSetChart(Chart):
    """JobSet."""

    manager = JobSetManager
    folder = "charts/jobset"
    namespace = "jobset-system"

    def values(self, place: Place, *, chart: Path) -> Object:
        """As the chart has them, with the image."""
        del chart
        return {
            "image": {"repository": place.repository, "tag": place.tag, "pullPolicy": "Never"},
            "controller": {
                "nodeSelector": place.selector,
                "resources": {"requests": REQUESTS},
                "podSecurityContext": {"runAsUser": USER},
            },
        }


class TrainerChart(Chart):
    """Kubeflow Trainer, next to a JobSet that is installed for itself."""

    manager = TrainerManager
    folder = "charts/kubeflow-trainer"
    namespace = "kubeflow-system"

    def values(self, place: Place, *, chart: Path) -> Object:
        """As the chart has them, with the image."""
        del chart
        registry, _, repository = place.repository.partition("/")
        image = {"registry": registry, "repository": repository, "tag": place.tag, "pullPolicy": "Never"}
        return {
            "image": image,
            "manager": {
                "nodeSelector": place.selector,
                "resources": {"requests": REQUESTS},
                "securityContext": {"runAsUser": USER},
            },
        }


CHARTS: Mapping[str, Chart] = {
    chart.manager.program: chart for chart in (KueueChart(), JobSetChart(), TrainerChart())
}


def require() -> None:
    """Skip the test where it is not asked for, or, with its name, where a manager or its module is not there."""
    if not fetches():
        pytest.skip("with other projects on the local cluster: `make ecosystem` (TDCS_ECOSYSTEM=1)")
    for chart in CHARTS.values():
        manager_program(chart.manager.program)
        module_folder(chart.manager.program, module=chart.manager.module)


@contextmanager
def installed(kubectl: Kubectl, names: Sequence[str], *, node: str, scratch: Path) -> Iterator[float]:
    """Managers for the time of a test; gives the seconds from the first command until all were ready.

    Args:
        kubectl: the cluster.
        names: of their programs.
        node: on which they run; it gets their images.
        scratch: a folder for charts and values.
    """
    places = {name: _place(name, node=node) for name in names}
    begun = time.monotonic()
    try:
        with ThreadPoolExecutor() as together:
            list(
                together.map(lambda name: _install(kubectl, name, place=places[name], scratch=scratch), names)
            )
        yield time.monotonic() - begun
    finally:
        for name in names:
            uninstall(kubectl, name)
            _clear(kubectl, name)


def uninstall(kubectl: Kubectl, name: str) -> None:
    """Remove a manager by Helm, with its webhooks and, where the chart has them as templates, its definitions."""
    chart = CHARTS[name]
    _helm(kubectl, "uninstall", name, "--ignore-not-found", "--namespace", chart.namespace)


def _clear(kubectl: Kubectl, name: str) -> None:
    """Remove what Helm leaves: the namespace, and definitions that the chart has next to its templates."""
    chart = CHARTS[name]
    definitions = module_folder(name, module=chart.manager.module) / chart.folder / "crds"
    if definitions.is_dir():
        kubectl("delete", "-f", str(definitions), "--ignore-not-found")
    kubectl.delete("namespace", chart.namespace)


def allow_to_read_training_jobs() -> list[Object]:
    """What docs/how-to/kueue.md asks for: Kueue may look who owns a Job."""
    name = "tdcs-e2e-kueue"
    rule = {"apiGroups": ["tdcs.io"], "resources": ["trainingjobs"], "verbs": ["get", "list", "watch"]}
    account = {
        "kind": "ServiceAccount",
        "name": "kueue-controller-manager",
        "namespace": KueueChart.namespace,
    }
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    return [
        {**RBAC, "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]},
        {
            **RBAC,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": role,
            "subjects": [account],
        },
    ]


def _install(kubectl: Kubectl, name: str, *, place: Place, scratch: Path) -> None:
    chart = CHARTS[name]
    source = module_folder(name, module=chart.manager.module) / chart.folder
    copy = scratch / name
    shutil.copytree(source, copy, copy_function=shutil.copyfile)
    left_out = list((copy / "templates").glob(chart.left_out)) if chart.left_out else []
    assert bool(left_out) == bool(chart.left_out), f"the chart has no templates {chart.left_out}"
    for template in left_out:
        template.unlink()
    metadata: dict[str, Any] = yaml.safe_load((source / "Chart.yaml").read_text())
    metadata.pop("dependencies", None)  # they are installed for themselves, or are not needed
    (copy / "Chart.yaml").write_text(yaml.safe_dump(metadata))
    values = scratch / f"{name}.yaml"
    values.write_text(yaml.safe_dump(chart.values(place, chart=copy)))
    place_words = ("--namespace", chart.namespace, "--create-namespace", "--values", values)
    _helm(
        kubectl,
        *("upgrade", "--install", name, copy),
        *place_words,
        *("--wait", "--timeout", f"{START_MINUTES}m"),
    )


def _helm(kubectl: Kubectl, *words: str | Path) -> None:
    shell.run(
        [programs.ensure("helm") / "helm", "--kubeconfig", kubectl.kubeconfig, *words],
        what=f"helm {' '.join(map(str, words[:3]))} failed",
        log=log_file(f"helm-{words[1]}"),
        remedy="look at the pods of its namespace",
    )


def _place(name: str, *, node: str) -> Place:
    """The node has the image of a manager afterwards."""
    repository, tag = f"docker.io/tdcs-e2e/{name}", programs.PROGRAMS[name].key()[:12]
    control = ["docker", "exec", node, "ctr", "--namespace=k8s.io", "images"]
    listed = shell.capture([*control, "ls", "--quiet"], what=f"listing the images on {node} failed")
    if f"{repository}:{tag}" not in listed.split():
        _load(name, reference=f"{repository}:{tag}", control=control)
    return Place(node=node, repository=repository, tag=tag)


def _load(name: str, *, reference: str, control: Sequence[str]) -> None:
    cluster.TRANSFER.mkdir(parents=True, exist_ok=True)
    layer_file, archive = (cluster.TRANSFER / f"{name}-{part}.tar" for part in ("layer", "image"))
    try:
        entries = [Entry(path="manager", source=manager_program(name)), Entry(path="tmp/.keep")]
        layer = write_layer(layer_file, entries)
        image = Image(reference=reference, layers=[layer], entrypoint=["/manager"])
        write_archive(archive, [image], architecture=mirrors.architecture())
        shell.run(
            [*control, "import", f"{cluster.NODE_TRANSFER}/{archive.name}"],
            what=f"loading {reference} failed",
            log=log_file(f"load-{name}"),
        )
    finally:
        layer_file.unlink(missing_ok=True)
        archive.unlink(missing_ok=True)
