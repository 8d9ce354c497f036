"""A victim's Dataset with a volume, and an attacker's of the same source: what is tried on them is in the tests."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import QUICK, Cluster

from tdcs.api import names
from tdcs.control.context import addresses_of
from tdcs.model.cache_engine import Credentials
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import DATASETS, NAMESPACES, PERSISTENT_VOLUMES, SECRETS

MB = 1_000_000
OWNER = Credentials(access_key_id="me", secret_access_key="s3cr3t")
RENEWED = Credentials(access_key_id="me", secret_access_key="renewed")
VICTIM, ATTACKER = ("n", "pictures"), ("stranger", "stolen")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with victims() as cluster:
        yield cluster


@contextlib.asynccontextmanager
async def victims(
    *, resolve: Callable[[str], Sequence[str]] = addresses_of, **settings: Any
) -> AsyncIterator[Cluster]:
    """A victim's Dataset in namespace n, mounted, with a volume; its source takes the victim's keys only."""
    engine = MemoryEngine(
        sources={"s3://pictures": {"a": MB}},
        workers={"n1": 100 * MB},
        credentials={"s3://pictures": OWNER},
    )
    quick = dataclasses.replace(QUICK, **settings)
    async with Cluster(engine=engine, nodes={"n1": {}}, settings=quick, resolve=resolve) as cluster:
        for namespace in ("n", "stranger"):
            cluster.server.store(NAMESPACES)["", namespace] = {"metadata": {"name": namespace}}
        await cluster.create_cache()
        await cluster.create_keys()
        await cluster.create_dataset()
        await cluster.until_state("Ready")
        yield cluster


def forged(cluster: Cluster) -> Object:
    """The victim's status with everything that says that its data can be read."""
    return copy.deepcopy(cluster.server.store(DATASETS)[VICTIM]["status"])


async def put_dataset(
    cluster: Cluster, *, status: Object | None = None, secret: Object | None = None, **more: Any
) -> None:
    """The attacker's Dataset of the victim's source, with the keys of `secret`, and a status of its own making."""
    namespace, name = ATTACKER
    if secret is not None:
        cluster.server.store(SECRETS)[namespace, "keys"] = secret
    await cluster.server.create(
        DATASETS,
        obj={
            "apiVersion": names.API_VERSION,
            "kind": "Dataset",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"source": {"uri": "s3://pictures", "secretRef": {"name": "keys"}}},
            **({"status": status} if status else {}),
            **more,
        },
    )


async def reason(cluster: Cluster, expected: set[str]) -> None:
    """Until the attacker's Dataset is not Ready for one of these reasons, and has no volume."""

    def refused() -> bool:
        status = cluster.server.store(DATASETS)[ATTACKER].get("status") or {}
        ready: Object = next(
            (condition for condition in status.get("conditions", ()) if condition["type"] == "Ready"), {}
        )
        return ready.get("status") == "False" and ready.get("reason") in expected

    await cluster.until(refused)
    assert ("", names.volume_name(namespace="stranger", dataset="stolen")) not in cluster.server.store(
        PERSISTENT_VOLUMES
    )


def volume_of_the_victim(cluster: Cluster) -> Object | None:
    return cluster.server.store(PERSISTENT_VOLUMES).get(
        ("", names.volume_name(namespace="n", dataset="pictures"))
    )
