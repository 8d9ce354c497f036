"""Random objects of TDCS's kinds, from the schemas of their definitions and beyond them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.support.documents import document
from tests.support.generators.random_objects import TEXTS, from_schema

from tdcs.api import names
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, PRELOADS, TRAINING_JOBS, Resource

CRDS = Path(__file__).parents[3] / "crds"

_READ_FROM_METADATA = (
    names.ANNOTATION_REFRESH,
    names.ANNOTATION_PREDICTED,
    names.ANNOTATION_DRAINING,
    names.ANNOTATION_RESTARTED,
)
"""Annotations that the operator itself reads or writes."""


def spec_schema(resource: Resource) -> dict[str, Any]:
    """The structural schema of a kind's spec."""
    definition = document((CRDS / f"tdcs.io_{resource.plural}.yaml").read_text())
    version = next(
        version_definition
        for version_definition in definition["spec"]["versions"]
        if version_definition["name"] == names.VERSION
    )
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def random_object(
    resource: Resource,
    schema: dict[str, Any],
    *,
    seed: int,
    namespace: str,
    cluster: str = names.DEFAULT_CACHE_CLUSTER,
    source: str = "s3://pictures",
    dataset: str = "good",
    keys: str = "keys",
    odd: tuple[float, ...] = (0.0, 0.005, 0.05),
) -> Object:
    """An object; in some only few values are odd, so that what is inside is reached. Many name what is there.

    Args:
        seed: the same one gives the same object.
        cluster: a CacheCluster that is there.
        source: a URI that it may read.
        dataset: a Dataset that is there.
        keys: a Secret that is there.
        odd: shares of values that are something else entirely, one of them for each object.
    """
    draw = random.Random(seed)
    spec = from_schema(schema, draw, odd=draw.choice(odd))
    if isinstance(spec, dict) and resource is DATASETS and draw.random() < 0.7:
        spec["cacheClusterRef"] = {"name": cluster}
        if draw.random() < 0.5:
            for field in ("access", "eviction", "sharedWith"):
                spec.pop(field, None)
        source_field = spec.get("source")
        if isinstance(source_field, dict) and draw.random() < 0.7:
            source_field |= {"uri": source, "secretRef": {"name": keys}}
            # It has this source instead of another Dataset's, with keys and no account; and a store's bandwidth is the
            # least that one declares.
            for field in ("datasetRef", "options", "bandwidth", "startTime", "serviceAccountName"):
                source_field.pop(field, None)
    if isinstance(spec, dict) and resource is PRELOADS and draw.random() < 0.5:
        spec["datasetRef"] = {"name": dataset}
    if isinstance(spec, dict) and resource is TRAINING_JOBS:
        _complete(spec, draw, dataset)
    name = f"r{seed}" if resource is CACHE_CLUSTERS else f"random-{seed}"
    metadata: Object = {"name": name, "namespace": namespace}
    if draw.random() < 0.2:
        metadata["annotations"] = {draw.choice(_READ_FROM_METADATA): draw.choice(TEXTS)}
    return {"apiVersion": names.API_VERSION, "kind": resource.kind, "metadata": metadata, "spec": spec}


def _complete(job: dict[str, Any], draw: random.Random, dataset: str) -> None:
    """Give most jobs what one needs that a server takes; without it hardly any would get so far."""
    if draw.random() < 0.6:
        container = {"name": "main", "image": "train:test"}
        job["replicaSpecs"] = [{"name": "Worker", "template": {"spec": {"containers": [container]}}}]
        job.pop("elastic", None)
    if draw.random() < 0.6:
        job["datasets"] = [{"name": dataset, "mountPath": "/data"}]
    elif draw.random() < 0.5:
        job.pop("datasets", None)
