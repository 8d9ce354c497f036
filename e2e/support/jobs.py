"""TrainingJobs that read the example Dataset, or another one, and how they end."""

import hashlib
from typing import Any

from e2e.support.pods import NOBODY, UNPRIVILEGED
from tdcs_local import demo
from tdcs_local.kind.kubectl import Kubectl, condition
from tdcs_local.store import operations

PRINT_CHECKSUMS = (
    "cd /data; find . ! -type d | LC_ALL=C sort | cut -c3- | xargs -d '\\n' sha256sum | sha256sum"
)


def expected_digest(bucket: str = demo.DATASET) -> str:
    """What PRINT_CHECKSUMS prints when every byte of the dataset is as the store was filled with it."""
    files = operations.manifest(bucket)["files"]
    lines = sorted((entry["path"], entry["sha256"]) for entry in files)
    return hashlib.sha256("".join(f"{digest}  {path}\n" for path, digest in lines).encode()).hexdigest()


def reading_job(
    name: str,
    *,
    image: str,
    workers: int,
    script: str = "ls /data",
    namespace: str = demo.NAMESPACE,
    dataset: str = demo.DATASET,
) -> dict[str, Any]:
    """A TrainingJob whose workers run a shell script on the dataset. With these resource requests the
    default scheduler spreads its pods over nodes."""
    container = {
        "name": "main",
        "image": image,
        "command": ["sh", "-ec", script],
        "resources": {
            "requests": {"cpu": "100m", "memory": "512Mi"},
            "limits": {"nvidia.com/gpu": "1"},
        },
        "securityContext": UNPRIVILEGED,
    }
    return {
        "apiVersion": "tdcs.io/v1alpha2",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "framework": "None",
            "workers": workers,
            "replicaSpecs": [
                {
                    "name": "Worker",
                    "template": {"spec": {"securityContext": NOBODY, "containers": [container]}},
                }
            ],
            "datasets": [{"name": dataset, "mountPath": "/data", "readiness": {"percent": 100}}],
        },
    }


def succeeded(
    kubectl: Kubectl, name: str, *, seconds: float = 180, namespace: str = demo.NAMESPACE
) -> dict[str, Any]:
    """Wait until a TrainingJob has succeeded and return its status."""

    def look() -> str | None:
        job = kubectl.get("trainingjobs.tdcs.io", name, namespace=namespace)
        assert condition(job, "Failed").get("status") != "True", kubectl(
            "describe", "trainingjobs.tdcs.io,pods", "-n", namespace
        )
        return None if condition(job, "Succeeded").get("status") == "True" else "not succeeded yet"

    kubectl.wait(
        look,
        what=f"TrainingJob {name} did not succeed",
        seconds=seconds,
        explain=lambda: kubectl("describe", "trainingjobs.tdcs.io,pods", "-n", namespace),
    )
    job = kubectl.get("trainingjobs.tdcs.io", name, namespace=namespace)
    assert job is not None
    status: dict[str, Any] = job["status"]
    return status


def logs_of(kubectl: Kubectl, job: str, *, namespace: str = demo.NAMESPACE) -> list[str]:
    pods = kubectl.list("pods", namespace=namespace, selector=f"tdcs.io/training-job={job}")
    return [kubectl("logs", pod["metadata"]["name"], "-n", namespace) for pod in pods]
