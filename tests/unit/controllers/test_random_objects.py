"""Random Datasets, Preloads and CacheClusters, from the schema and beyond it: no pass fails by a defect, each object is
answered, and a good Dataset beside them becomes Ready. TrainingJobs: `test_random_jobs.py`.

``TDCS_RANDOM_OBJECTS=10000`` draws so many of each kind.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from tests.support.generators.random_resources import random_object, spec_schema
from tests.unit.controllers.cluster import Cluster

from tdcs.api import names
from tdcs.engine.memory import MemoryEngine
from tdcs.kube.resources import CACHE_CLUSTERS, DATASETS, PRELOADS, Resource

COUNT = int(os.environ.get("TDCS_RANDOM_OBJECTS", "25"))
BATCH = 50
MB = 1_000_000


def nowhere(host: str) -> Sequence[str]:
    """Names of stores that lead nowhere: no test asks the network."""
    raise OSError(f"{host} has no address")


@pytest.mark.parametrize("resource", [DATASETS, PRELOADS, CACHE_CLUSTERS], ids=lambda one: one.plural)
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
            for seed in range(begin, min(begin + BATCH, COUNT)):
                obj = random_object(resource, schema, seed=seed, namespace=namespace)
                if isinstance(obj["spec"], dict):  # the server takes no other
                    await cluster.server.create(resource, obj=obj)
            await cluster.create_dataset("good", source={"uri": "s3://good"})
            await cluster.until_state("Ready", "good")

            def unanswered(cluster: Cluster = cluster) -> list[str]:
                return [
                    name
                    for (_, name), obj in cluster.server.store(resource).items()
                    if not (obj.get("status") or {}).get("conditions")
                ]

            await cluster.until(lambda: not unanswered())
