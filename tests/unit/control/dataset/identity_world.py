"""A cluster in which Datasets name ServiceAccounts, with a token service whose keys its store takes."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.support.programs.token_service import AMAZON, ROLE, TokenIssuer, TokenService, token_service
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import QUICK, Cluster

from tdcs.model.cache_engine import Credentials
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import SERVICE_ACCOUNTS

MB = 1_000_000
STORE = "http://store.example:9000"


class World:
    def __init__(self, cluster: Cluster, service: TokenService) -> None:
        self.cluster, self.service = cluster, service

    async def account(self, name: str = "reader", *, namespace: str = "n", **annotations: str) -> None:
        await self.cluster.server.apply(
            SERVICE_ACCOUNTS,
            obj={
                "kind": "ServiceAccount",
                "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
            },
        )

    async def reader(self, name: str = "reader", *, role: str = ROLE) -> None:
        await self.account(name, **{"eks.amazonaws.com/role-arn": role})

    async def dataset(self, name: str = "pictures", account: str = "reader", **options: str) -> None:
        source: Object = {
            "uri": "s3://pictures",
            "serviceAccountName": account,
            "secretRef": None,
            "options": {"endpoint": STORE, **options},
        }
        await self.cluster.create_dataset(name, source=source)

    async def message_for(self, reason: str, name: str = "pictures", *, kind: str = "Ready") -> str:
        await self.cluster.until(lambda: self.cluster.condition(kind, name).get("reason") == reason)
        return str(self.cluster.condition(kind, name)["message"])


@asynccontextmanager
async def identity_world() -> AsyncIterator[World]:
    """The cluster: `n/reader` is trusted for `ROLE`, and the store takes the keys of that role alone."""
    sessions: list[Credentials] = []
    engine = MemoryEngine(sources={"s3://pictures": {"a": MB, "b": MB}}, workers={"a": 100 * MB})
    engine.credentials["s3://pictures"] = sessions

    def accept_keys(role: str, keys: Mapping[str, str]) -> None:
        if role == ROLE:
            sessions.append(
                Credentials(
                    access_key_id=keys["AccessKeyId"],
                    secret_access_key=keys["SecretAccessKey"],
                    session_token=keys["SessionToken"],
                )
            )

    settings = replace(QUICK, keys_check_seconds=0.2)
    with token_service(TokenIssuer().public_key, trusts={ROLE: ("n:reader", AMAZON)}) as service:
        service.on_keys = accept_keys
        async with Cluster(engine=engine, nodes={"a": {}}, settings=settings) as cluster:
            rule = {"name": "store", "endpoints": [STORE], "identity": {"endpoint": service.endpoint}}
            await cluster.create_cache(sources=[rule])
            yield World(cluster, service)
