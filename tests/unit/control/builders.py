"""Builders of what controllers look at."""

from collections.abc import Mapping
from typing import Any

from tests.support.kube.objects import with_roles

from tdcs.api.dataset import Dataset
from tdcs.api.trainingjob import TrainingJobSpec
from tdcs.model.cache_engine import WorkerInfo
from tdcs.model.kube_objects import Object

GIB = 1 << 30
NOW = "2026-01-01T00:00:00Z"


def worker(name: str, *, capacity: int = GIB, used: int = 0, live: bool = True) -> WorkerInfo:
    """A cache worker."""
    return WorkerInfo(name=name, address=f"{name}:29999", capacity_bytes=capacity, used_bytes=used, live=live)


def dataset_object(name: str = "pictures", *, namespace: str = "n") -> Object:
    """A Dataset as the API server has it."""
    return {
        "apiVersion": "tdcs.io/v1alpha2",
        "kind": "Dataset",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {"source": {"uri": "s3://bucket/prefix"}},
    }


def dataset(
    *,
    total: int = 100,
    cached: int = 100,
    nodes: Mapping[str, int] | None = None,
    preload: bool = True,
    claim: str = "pictures",
    **conditions: bool,
) -> Dataset:
    """A Dataset with this much cached; `conditions` by type, Mounted unless given otherwise."""
    statuses = {"Mounted": True, **conditions}
    return Dataset.model_validate(
        {
            "spec": {"source": {"uri": "s3://bucket/prefix"}, "preload": {"enabled": preload}},
            "status": {
                "totalBytes": total,
                "claimName": claim,
                "cachedBytes": cached,
                "cachedRatio": cached / total,
                "loadedRatio": cached / total,
                "copies": [{"id": "0", "nodes": [{"name": k, "bytes": v} for k, v in (nodes or {}).items()]}],
                "conditions": [
                    {"type": kind, "status": str(value), "reason": "Reported", "lastTransitionTime": NOW}
                    for kind, value in statuses.items()
                ],
            },
        }
    )


def job_spec(**changes: Any) -> TrainingJobSpec:
    """The spec of a TensorFlow job of two workers that reads one dataset."""
    worker = {"replicas": 2, "template": {"spec": {"containers": [{"name": "main", "image": "train"}]}}}
    return TrainingJobSpec.model_validate(
        with_roles(
            {
                "framework": "TensorFlow",
                "roles": {"Worker": worker},
                "datasets": [{"name": "pictures", "mountPath": "/data"}],
                **changes,
            }
        )
    )


JOB_OBJECT: Object = {
    "apiVersion": "tdcs.io/v1alpha2",
    "kind": "TrainingJob",
    "metadata": {"name": "train", "namespace": "n", "uid": "uid-train"},
}
