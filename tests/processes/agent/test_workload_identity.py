"""A bucket that is read as a ServiceAccount: operator, token service, agents, and a store that checks signatures."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
from tests.processes.agent.test_native_cache import NODES, World
from tests.processes.agent.test_native_cache import running as world_running
from tests.support.programs.session_store import SessionStore, session_store
from tests.support.programs.token_service import AMAZON, ROLE, TokenService, token_service
from tests.unit.control.cluster import Cluster

from tdcs.api import names
from tdcs.model.kube_resources import CACHE_CLUSTERS, SERVICE_ACCOUNTS

MANY = {
    f"data/{number // 100:02}/{number:04}": random.Random(number).randbytes(3_000) for number in range(1000)
}


@pytest.fixture
def store() -> Iterator[SessionStore]:
    with session_store(MANY) as running:
        yield running


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async for running_world in world_running(World(tmp_path, "Native", files=MANY), tmp_path):
        yield running_world


@pytest.fixture
def service(world: World, store: SessionStore) -> Iterator[TokenService]:
    with token_service(
        world.cluster.server.tokens.public_key, trusts={ROLE: ("n:reader", AMAZON)}
    ) as running:

        def given(_role: str, keys: Mapping[str, str]) -> None:
            store.begin(keys, seconds=running.seconds)

        running.on_keys = given
        yield running


async def dataset(
    cluster: Cluster, store: SessionStore, service: TokenService, account: str, name: str
) -> None:
    rule = {"name": "store", "endpoints": [store.endpoint], "identity": {"endpoint": service.endpoint}}
    await cluster.server.merge(
        CACHE_CLUSTERS, name="default", namespace=names.SYSTEM_NAMESPACE, patch={"spec": {"sources": [rule]}}
    )
    annotations = {"eks.amazonaws.com/role-arn": ROLE}
    metadata = {"name": account, "namespace": "n", "annotations": annotations}
    await cluster.server.apply(SERVICE_ACCOUNTS, obj={"kind": "ServiceAccount", "metadata": metadata})
    await cluster.create_dataset(
        name,
        source={
            "uri": "s3://bucket/data",
            "options": {"endpoint": store.endpoint},
            "secretRef": None,
            "serviceAccountName": account,
        },
        placement={"mode": "Partition", "nodeCount": 2},
    )


async def test_a_thousand_files_are_loaded_as_a_service_account_and_its_keys_renewed(
    world: World, store: SessionStore, service: TokenService
) -> None:
    service.seconds = 30.0
    await dataset(world.cluster, store, service, "reader", "pictures")
    await world.cluster.until(lambda: world.cluster.status().get("state") == "Ready", deadline=240)
    assert world.cluster.status()["totalFiles"] == len(MANY)
    await world.reads(*NODES)

    # What is new at the source comes with later keys, when the first have ended.
    await world.cluster.until(lambda: len(service.given) >= 4, deadline=120)
    store.files["data/new"] = b"with later keys"
    await world.cluster.annotate("pictures", refresh="now")
    total = sum(map(len, store.files.values()))
    await world.cluster.until(lambda: world.cluster.status().get("cachedBytes") == total, deadline=120)
    assert store.refused == []


async def test_an_account_that_is_not_trusted_reads_nothing_and_is_named(
    world: World, store: SessionStore, service: TokenService
) -> None:
    await dataset(world.cluster, store, service, "stranger", "mine")
    await world.cluster.until(
        lambda: world.cluster.condition("Ready", "mine").get("reason") == "IdentityRefused"
    )
    message = world.cluster.condition("Ready", "mine")["message"]
    assert "ServiceAccount n/stranger (spec.source.serviceAccountName) is not taken" in message
    assert service.given == []
    assert store.refused == []
