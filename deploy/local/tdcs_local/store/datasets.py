"""Datasets of buckets of the local store, and what a namespace needs for them."""

from typing import Any

from tdcs_local.kind.kubectl import Kubectl, Object, load, unmet
from tdcs_local.paths import EXAMPLES
from tdcs_local.progress import Reporter
from tdcs_local.store import operations

KEYS = "tdcs-store"


def grant_access(kubectl: Kubectl, *, namespace: str, reporter: Reporter) -> None:
    """The store's keys in a namespace, and the operator's right to read them."""
    operations.credentials(namespace=namespace, name=KEYS, reporter=reporter)
    for thing in load(EXAMPLES / "secret-access.yaml"):
        kubectl.apply({**thing, "metadata": {**thing["metadata"], "namespace": namespace}})


def dataset(name: str, *, namespace: str, bucket: str, **spec: Any) -> Object:
    """A Dataset of a bucket of the local store; `spec` has its other fields."""
    options = {"endpoint": operations.ENDPOINT, "region": "us-east-1", "pathStyle": True}
    source = {"uri": f"s3://{bucket}/", "options": options, "secretRef": {"name": KEYS}}
    return {
        "apiVersion": "tdcs.io/v1alpha2",
        "kind": "Dataset",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"source": source, **spec},
    }


def copies_of(kubectl: Kubectl, name: str, *, namespace: str) -> dict[str, dict[str, int]]:
    """Bytes by node of each copy of a Dataset, as its status says."""
    dataset = kubectl.get("datasets.tdcs.io", name, namespace=namespace) or {}
    return {
        copy["id"]: {node["name"]: int(node["bytes"]) for node in copy["nodes"]}
        for copy in dataset.get("status", {}).get("copies", [])
    }


def wait_ready(kubectl: Kubectl, name: str, *, namespace: str, seconds: float = 180) -> None:
    """Wait until a Dataset is where its placement says."""

    def look() -> str | None:
        return unmet(kubectl.get("datasets.tdcs.io", name, namespace=namespace), "Ready")

    kubectl.wait(
        look,
        what=f"Dataset {namespace}/{name} was not loaded",
        seconds=seconds,
        explain=lambda: kubectl("describe", "datasets.tdcs.io", name, "-n", namespace),
    )
