"""Jobs, pods, nodes and datasets to explain, and what the command prints of them."""

import io
from typing import Any

from tests.unit.control.builders import NOW, dataset

from tdcs.cli.console import Console
from tdcs.cli.explain.explain_command import show
from tdcs.cli.explain.explained_job import JobReport
from tdcs.model.kube_objects import Object

GPU = "nvidia.com/gpu"


def job(**status: Any) -> Object:
    template = {"spec": {"containers": [{"name": "main", "image": "x", "resources": {"limits": {GPU: "2"}}}]}}
    return {
        "metadata": {"name": "train", "namespace": "team", "creationTimestamp": NOW},
        "spec": {
            "replicaSpecs": [{"name": "Worker", "template": template}],
            "datasets": [{"name": "pictures", "mountPath": "/data"}],
        },
        "status": status,
    }


def pod(
    name: str, *, node: str = "", gpus: int = 2, labels: dict[str, str] | None = None, **status: Any
) -> Object:
    container = {"name": "main", "resources": {"limits": {GPU: str(gpus)}}}
    return {
        "metadata": {"name": name, "namespace": "team", "labels": labels or {}},
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
        "status": {"phase": "Running", **status},
    }


def node(name: str, *, gpus: int = 4, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": spec, "status": {"allocatable": {GPU: str(gpus)}}}


def held(**nodes: int) -> dict[str, Object]:
    """The dataset, of which these nodes hold so many bytes of 100."""
    return {"pictures": dataset(nodes=nodes).model_dump(by_alias=True, mode="json")}


def printed(report: JobReport) -> str:
    console = Console(file=io.StringIO(), width=200)
    show(report, console=console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]
