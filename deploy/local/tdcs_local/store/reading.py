"""How fast pods read a bucket directly, and the same bucket as a Dataset: what the demo ends with.

The files are as large as ImageNet's JPEG files are on average, so that the store's link matters, and are read but not
decoded: it is the way of the bytes that is compared. Two pods on two nodes share them out, with the same script and as
many readers each.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tdcs_local.errors import LocalError
from tdcs_local.kind.kubectl import Kubectl, Object, condition, load, unmet
from tdcs_local.paths import EXAMPLES
from tdcs_local.progress import Reporter, duration
from tdcs_local.store import operations
from tdcs_local.store.operations import Made

SCRIPT = EXAMPLES / "read_images.py"
BUCKET = "pictures"
IMAGES = Made(files=1600, size="110KiB")
"""180 MB: seven seconds of a link of 200 Mbit/s."""
PODS = 2


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What the pods of a Job read together, from the first that began to the last that ended."""

    images: int
    bytes: int
    seconds: float

    @property
    def images_per_second(self) -> float:
        """Over all pods."""
        return self.images / max(self.seconds, 1e-3)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Both readings of the bucket, and how long the load between them took, in seconds."""

    direct: Reading
    cached: Reading
    load_seconds: float


def compare(*, namespace: str, image: str, reporter: Reporter, kubectl: Kubectl) -> Comparison:
    """Read the bucket directly, then load it as a Dataset, then read that; the namespace has the store's keys."""
    operations.fill("pictures", bucket=BUCKET, seeded=IMAGES, reporter=reporter)
    forget(namespace=namespace, kubectl=kubectl)
    kubectl.apply(_script(namespace))
    direct = _read(
        "read-directly", namespace=namespace, image=image, claim="", reporter=reporter, kubectl=kubectl
    )
    (dataset,) = load(EXAMPLES / "dataset.yaml")
    dataset["metadata"] = {"name": BUCKET, "namespace": namespace}
    dataset["spec"]["source"]["uri"] = f"s3://{BUCKET}/"
    began = time.monotonic()
    kubectl.apply(dataset)
    _wait_loaded(namespace=namespace, reporter=reporter, kubectl=kubectl)
    load_seconds = time.monotonic() - began
    cached = _read(
        "read-with-tdcs", namespace=namespace, image=image, claim=BUCKET, reporter=reporter, kubectl=kubectl
    )
    return Comparison(direct=direct, cached=cached, load_seconds=load_seconds)


def forget(*, namespace: str, kubectl: Kubectl) -> None:
    """Delete what an earlier comparison left."""
    for job in ("read-directly", "read-with-tdcs"):
        kubectl.delete("jobs", job, namespace=namespace)
        kubectl.delete("services", job, namespace=namespace)
    kubectl.delete("datasets.tdcs.io", BUCKET, namespace=namespace)


def summary(comparison: Comparison) -> str:
    """What the demo ends with: the gain, and what was paid for it before."""
    direct, cached = comparison.direct, comparison.cached
    ratio = cached.images_per_second / direct.images_per_second
    return (
        f"{PODS} pods read {direct.images_per_second:,.0f} images a second directly from the bucket, "
        f"{duration(direct.seconds)} in all, and {cached.images_per_second:,.0f} a second\n"
        f"with TDCS: {ratio:,.1f} times as many. The load before took {duration(comparison.load_seconds)}: these "
        "images were on the nodes' disks or in\n"
        "their page cache already. The first read of a bucket gains nothing by that, every later one does."
    )


def reading_of(logs: Sequence[str]) -> Reading:
    """What the pods printed, together."""
    reports: list[dict[str, Any]] = []
    for log in logs:
        try:
            reports.append(json.loads(log.strip().splitlines()[-1]))
        except (ValueError, IndexError) as error:
            raise LocalError(what="a pod that reads images printed no result", why=log[-500:]) from error
    return Reading(
        images=sum(int(report["images"]) for report in reports),
        bytes=sum(int(report["bytes"]) for report in reports),
        seconds=max(report["ended"] for report in reports) - min(report["began"] for report in reports),
    )


def _read(
    name: str, *, namespace: str, image: str, claim: str, reporter: Reporter, kubectl: Kubectl
) -> Reading:
    kubectl.apply(_meeting_place(name, namespace=namespace))
    kubectl.apply(_job(name, namespace=namespace, image=image, claim=claim))

    def look() -> str | None:
        job = kubectl.get("job", name, namespace=namespace) or {}
        if condition(job, "Failed").get("status") == "True":
            raise LocalError(
                what=f"Job {name} failed", why=kubectl("logs", f"job/{name}", "-n", namespace)[-1500:]
            )
        return None if condition(job, "Complete").get("status") == "True" else "its pods run"

    with reporter.step(f"Job {name}") as step:
        kubectl.wait(
            look,
            what=f"Job {namespace}/{name} did not complete",
            seconds=240,
            step=step,
            explain=lambda: kubectl("describe", "pods", "-n", namespace, "-l", f"job-name={name}"),
        )
        pods = kubectl.list("pods", namespace=namespace, selector=f"job-name={name}")
        reading = reading_of(
            [kubectl("logs", pod["metadata"]["name"], "-n", namespace) for pod in _succeeded(pods)]
        )
        step.result = f"{reading.images} images, {reading.bytes / 1e6:,.0f} MB in {reading.seconds:.1f} s"
    return reading


def _succeeded(pods: Sequence[Object]) -> list[Object]:
    return [pod for pod in pods if pod["status"].get("phase") == "Succeeded"]


def _wait_loaded(*, namespace: str, reporter: Reporter, kubectl: Kubectl) -> None:
    def look() -> str | None:
        return unmet(kubectl.get("datasets.tdcs.io", BUCKET, namespace=namespace), "Loaded")

    with reporter.step(f"Dataset {BUCKET} loaded") as step:
        began = time.monotonic()
        kubectl.wait(
            look,
            what=f"Dataset {namespace}/{BUCKET} was not loaded",
            seconds=300,
            step=step,
            explain=lambda: kubectl("describe", "datasets.tdcs.io", BUCKET, "-n", namespace),
        )
        step.result = f"after {time.monotonic() - began:.0f} s"


def _script(namespace: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "read-images", "namespace": namespace},
        "data": {SCRIPT.name: SCRIPT.read_text(encoding="utf-8")},
    }


def _meeting_place(name: str, *, namespace: str) -> Object:
    """A service without an address of its own, which gives the Job's pods names."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterIP": "None", "selector": {"app": name}, "publishNotReadyAddresses": True},
    }


def _job(name: str, *, namespace: str, image: str, claim: str) -> Object:
    """Two pods that read; each mounts the Dataset's claim, or has the store's keys."""
    where = ["--data", "/data"] if claim else ["--bucket", BUCKET, "--endpoint", operations.ENDPOINT]
    keys = {"AWS_ACCESS_KEY_ID": "accessKeyId", "AWS_SECRET_ACCESS_KEY": "secretAccessKey"}
    environment = [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": "tdcs-store", "key": key}}}
        for variable, key in keys.items()
    ]
    volumes: list[Object] = [{"name": "script", "configMap": {"name": "read-images"}}]
    mounts: list[Object] = [{"name": "script", "mountPath": "/script"}]
    if claim:
        volumes.append({"name": "data", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}})
        mounts.append({"name": "data", "mountPath": "/data", "readOnly": True})
    container = {
        "name": "main",
        "image": image,
        "command": ["python3", f"/script/{SCRIPT.name}"],
        "args": [*where, "--pods", str(PODS), "--meet", f"{name}-0.{name}"],
        "env": [] if claim else environment,
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"nvidia.com/gpu": "1"}},
        "volumeMounts": mounts,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    # On two nodes, in both cases: one node's processor would share out what two have.
    apart = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": "kubernetes.io/hostname"}
    pod = {
        "restartPolicy": "Never",
        "subdomain": name,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "containers": [container],
        "volumes": volumes,
        # The claim alone would do where the chart places pods by their data.
        **({"schedulerName": "tdcs-scheduler"} if claim else {}),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "completionMode": "Indexed",
            "completions": PODS,
            "parallelism": PODS,
            "backoffLimit": 0,
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        },
    }
