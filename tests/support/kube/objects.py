"""Builders of the Kubernetes objects that tests create, as plain dicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.kube import Object

GPU = "nvidia.com/gpu"


def fake_node(*, name: str, gpus: int = 8, cpus: int = 96, labels: Mapping[str, str] | None = None) -> Object:
    """A node that KWOK plays: Ready within a second, its pods "run" at once, or end if a Job owns them."""
    resources = {"cpu": str(cpus), "memory": "768Gi", "pods": "110", GPU: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **(labels or {})},
        },
        "spec": {"providerID": f"kwok://{name}"},
        "status": {"capacity": resources, "allocatable": resources},
    }


def gpu_pod(
    *,
    name: str,
    namespace: str,
    gpus: int = 1,
    cpus: int = 8,
    scheduler: str = "default-scheduler",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> Object:
    """A pod that asks for ``gpus`` GPUs; ``spec`` is laid over its spec."""
    limits = {"cpu": str(cpus), "memory": "16Gi", GPU: str(gpus)}
    container = {"name": "main", "image": "not-pulled-by-kwok", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "schedulerName": scheduler,
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
            **(spec or {}),
        },
    }


def with_roles(spec: Mapping[str, Any]) -> Object:
    """The spec of a TrainingJob with its `roles`, number of pods and template by role, written as the API has them."""
    job_spec = dict(spec)
    roles: Mapping[str, Mapping[str, Any]] | None = job_spec.pop("roles", None)
    if roles is None:
        return job_spec
    items = []
    for name, role in roles.items():
        if name == "Worker":
            job_spec |= {"workers": role["replicas"]} if "replicas" in role else {}
            role = {key: value for key, value in role.items() if key != "replicas"}
        items.append({"name": name, **role})
    return {**job_spec, "replicaSpecs": items}


def role_of(job: Mapping[str, Any], name: str = "Worker") -> Object:
    """The item of a role in a TrainingJob's spec."""
    role: Object = next(
        replica_spec for replica_spec in job["spec"]["replicaSpecs"] if replica_spec["name"] == name
    )
    return role


def counts_of(status: Mapping[str, Any], name: str = "Worker") -> Object:
    """The counts of a role's pods in a TrainingJob's status, without its name; the status leaves zeros out."""
    counts = next(
        status_of_role for status_of_role in status["replicaStatuses"] if status_of_role["name"] == name
    )
    return {key: counts.get(key, 0) for key in ("active", "ready", "succeeded", "failed")}
