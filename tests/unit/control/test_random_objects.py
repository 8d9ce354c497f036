"""Random Datasets, Preloads and CacheClusters, from the schema and beyond it: no pass fails by a defect, each object is
answered, and a good Dataset next to them becomes Ready; the same when each Dataset
and Preload has become another one at random. TrainingJobs: `test_random_jobs.py`.

``TDCS_RANDOM_OBJECTS=10000`` draws so many of each kind.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

import pytest
from tests.support.generators.random_resources import random_object, spec_schema
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import Cluster

from tdcs.api import names
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, PRELOADS, Resource

COUNT = int(os.environ.get("TDCS_RANDOM_OBJECTS", "25"))
BATCH = 50
MB = 1_000_000


def nowhere(host: str) -> Sequence[str]:
    """Names of stores that lead nowhere: no test asks the network."""
    raise OSError(f"{host} has no address")


@pytest.mark.parametrize("resource", [DATASETS, PRELOADS, CACHE_CLUSTERS], ids=lambda kind: kind.plural)
@pytest.mark.threat("random-objects")
async def test_no_random_object_stops_the_operator_or_goes_unanswered(resource: Resource) -> None:
    """Takes a second a kind: whole stories of many objects."""
    schema = spec_schema(resource)
    for begin in range(0, COUNT, BATCH):
        engine = MemoryEngine(
            sources={"s3://pictures": {"a": MB}, "s3://good": {"a": MB}}, workers={"a": 100 * MB}
        )
        async with Cluster(engine=engine, nodes={"a": {}}, resolve=nowhere) as cluster:
            await cluster.create_cache()
            await cluster.create_keys()
            namespace = names.SYSTEM_NAMESPACE if resource is CACHE_CLUSTERS else "n"
            drawn = partial(random_object, resource, schema, namespace=namespace)
            seeds = range(begin, min(begin + BATCH, COUNT))
            for seed in seeds:
                obj = drawn(seed=seed)
                if isinstance(obj["spec"], dict):  # the server takes no other
                    await cluster.server.create(resource, obj=obj)
            await cluster.create_dataset("good", source={"uri": "s3://good"})
            await cluster.until_state("Ready", "good")
            await cluster.until(partial(all_answered, cluster, resource))

            if resource is CACHE_CLUSTERS:
                continue  # here they share one engine, and what one of them lets go is lost to the others
            objects = dict(cluster.server.store(resource))
            for seed in seeds:
                name, spec = drawn(seed=seed)["metadata"]["name"], drawn(seed=COUNT + seed)["spec"]
                if (namespace, name) in objects and isinstance(spec, dict):
                    left_out = dict.fromkeys(objects[namespace, name]["spec"])
                    patch = {"spec": left_out | spec}
                    await cluster.server.merge(resource, name=name, namespace=namespace, patch=patch)
            await cluster.create_dataset("next", source={"uri": "s3://good"})
            await cluster.until_state("Ready", "next")
            await cluster.until(partial(all_answered, cluster, resource))
            await cluster.until_state("Ready", "good")


def all_answered(cluster: Cluster, resource: Resource) -> bool:
    """Whether the status of each object says what is thought of it as it is now."""
    return all(
        (obj.get("status") or {}).get("conditions")
        and obj["status"].get("observedGeneration") == obj["metadata"]["generation"]
        for obj in cluster.server.store(resource).values()
    )
