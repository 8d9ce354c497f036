"""Random objects of TDCS's kinds, from the schemas of their definitions and beyond them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import yaml
from tests.support.random_objects import from_schema

from tdcs.api import names
from tdcs.kube.api import Object
from tdcs.kube.resources import CACHE_CLUSTERS, DATASETS, PRELOADS, Resource

CRDS = Path(__file__).parents[2] / "crds"


def spec_schema(resource: Resource) -> dict[str, Any]:
    """The structural schema of a kind's spec."""
    definition = yaml.safe_load((CRDS / f"tdcs.io_{resource.plural}.yaml").read_text())
    version = next(one for one in definition["spec"]["versions"] if one["name"] == names.VERSION)
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
) -> Object:
    """An object; in some only few values are odd, so that what is inside is reached. Many name what is there.

    Args:
        seed: the same one gives the same object.
        cluster: a CacheCluster that is there.
        source: a URI that it may read.
        dataset: a Dataset that is there.
    """
    draw = random.Random(seed)
    spec = from_schema(schema, draw, odd=draw.choice((0.0, 0.005, 0.05)))
    if isinstance(spec, dict) and resource is DATASETS and draw.random() < 0.7:
        spec["cacheClusterRef"] = {"name": cluster}
        found = spec.get("source")
        if isinstance(found, dict) and draw.random() < 0.7:
            found |= {"uri": source, "secretRef": {"name": "keys"}}
            for field in (
                "options",
                "bandwidth",
                "startTime",
            ):  # a store's bandwidth is the least that one declares
                found.pop(field, None)
    if isinstance(spec, dict) and resource is PRELOADS and draw.random() < 0.5:
        spec["datasetRef"] = {"name": dataset}
    name = f"r{seed}" if resource is CACHE_CLUSTERS else f"random-{seed}"
    return {
        "apiVersion": names.API_VERSION,
        "kind": resource.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
