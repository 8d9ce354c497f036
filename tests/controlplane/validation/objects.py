"""Small objects that are accepted, to be made bad in one field."""

import copy
from typing import Any

from tests.support.kube import Object

API_VERSION = "tdcs.io/v1alpha2"
POD = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}


def dataset(*, namespace: str, name: str = "pictures") -> Object:
    """A Dataset that is accepted."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Dataset",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"source": {"uri": "s3://bucket/prefix", "secretRef": {"name": "keys"}}},
    }


def training_job(*, namespace: str, name: str = "train") -> Object:
    """A TrainingJob that is accepted."""
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicaSpecs": [
                {
                    "name": "Worker",
                    "template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}},
                }
            ],
            "datasets": [{"name": "pictures", "mountPath": "/data"}],
        },
    }


def cache_cluster(*, namespace: str, name: str = "cache") -> Object:
    """A CacheCluster that is accepted."""
    return {
        "apiVersion": API_VERSION,
        "kind": "CacheCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {},
    }


def preload(*, namespace: str, name: str = "warm") -> Object:
    """A Preload that is accepted."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Preload",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"datasetRef": {"name": "pictures"}, "paths": ["train"]},
    }


MAKERS = {"Dataset": dataset, "Preload": preload, "TrainingJob": training_job, "CacheCluster": cache_cluster}


def edited(obj: Object, path: str, value: Any) -> Object:
    """A copy with the field at a dotted path set (numbers are indices); `...` removes it."""
    edited_object = copy.deepcopy(obj)
    *parents, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    target: Any = edited_object
    for step in parents:
        target = target[step] if isinstance(step, int) else target.setdefault(step, {})
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return edited_object
