"""Tenants of one source, each with a Secret of its own: whose keys are right hears nothing of the others' mistakes."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import random
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
from tests.support.twins.engine import MemoryEngine, Operation
from tests.unit.control.cluster import QUICK, Cluster

from tdcs.model.agent_state import Assignment
from tdcs.model.cache_engine import Credentials, Source
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import DATASETS, EVENTS, NAMESPACES, SECRETS

MB = 1_000_000
SOURCE = "s3://pictures"
OLD = Credentials(access_key_id="me", secret_access_key="s3cr3t")
NEW = Credentials(access_key_id="me", secret_access_key="renewed")
WRONG = Credentials(access_key_id="me", secret_access_key="mistyped")
A, B = ("team-a", "pictures"), ("team-b", "images")
AT_ONCE = 20.0
"""Seconds: far more than a woken pass takes, and fewer than until one that comes by itself."""


class Tenants:
    """Datasets of one source in namespaces of their own, and all keys that agents, and a mount that was there, got."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.received_keys: set[Credentials] = set()
        mount, assign = cluster.engine.mount, cluster.agents.assign

        async def note_mount(*, path: str, source: Source) -> None:
            if source.credentials and path in cluster.engine.state.mounts:
                self.received_keys.add(source.credentials)
            await mount(path=path, source=source)

        async def note_assign(*, node: str, assignments: Sequence[Assignment]) -> None:
            self.received_keys |= {
                Credentials(
                    access_key_id=assignment.source.access_key_id,
                    secret_access_key=assignment.source.secret_access_key,
                )
                for assignment in assignments
                if assignment.source is not None
            }
            await assign(node=node, assignments=assignments)

        monkeypatch.setattr(cluster.engine, "mount", note_mount)
        monkeypatch.setattr(cluster.agents, "assign", note_assign)

    def set_keys(self, namespace: str, keys: Credentials) -> None:
        data = {"accessKeyId": keys.access_key_id, "secretAccessKey": keys.secret_access_key}
        encoded = {field: base64.b64encode(value.encode()).decode() for field, value in data.items()}
        secret = {
            "kind": "Secret",
            "metadata": {"name": "keys", "namespace": namespace, "labels": {}},
            "data": encoded,
        }
        self.cluster.server.store(SECRETS)[namespace, "keys"] = secret

    async def create(self, key: tuple[str, str], keys: Credentials) -> None:
        namespace, name = key
        self.cluster.server.store(NAMESPACES)["", namespace] = {"metadata": {"name": namespace}}
        self.set_keys(namespace, keys)
        await self.cluster.server.create(
            DATASETS,
            obj={
                "apiVersion": "tdcs.io/v1alpha1",
                "kind": "Dataset",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {
                    "source": {"uri": SOURCE, "secretRef": {"name": "keys"}},
                    "preload": {"enabled": True},
                },
            },
        )

    async def delete(self, key: tuple[str, str]) -> None:
        namespace, name = key
        await self.cluster.server.delete(DATASETS, name=name, namespace=namespace)
        await self.cluster.until(lambda: key not in self.cluster.server.store(DATASETS))

    async def look_again(self, key: tuple[str, str], note: str) -> None:
        """What half a minute does: the operator reads the Secret again."""
        patch = {"metadata": {"annotations": {"tdcs.io/note": note}}}
        await self.cluster.server.merge(DATASETS, name=key[1], namespace=key[0], patch=patch)

    def status(self, key: tuple[str, str]) -> Object:
        return dict(self.cluster.server.store(DATASETS)[key].get("status") or {})

    def condition(self, key: tuple[str, str], kind: str) -> Object:
        conditions = self.status(key).get("conditions") or ()
        return next((condition for condition in conditions if condition["type"] == kind), {})

    def is_well(self, key: tuple[str, str]) -> bool:
        """Whether nothing is said of a Dataset that somebody would have to look at."""
        reachable = self.condition(key, "SourceReachable")
        return (
            self.status(key).get("state") == "Ready"
            and (reachable.get("status"), reachable.get("reason")) == ("True", "Reachable")
            and not self.status(key).get("reason")
        )

    def is_refused(self, key: tuple[str, str]) -> bool:
        return bool(self.condition(key, "SourceReachable").get("reason") == "SourceRefused")

    def texts(self, namespace: str) -> Iterator[str]:
        """All that a namespace reads."""
        for (place, _), obj in self.cluster.server.store(DATASETS).items():
            if place == namespace:
                yield from (
                    str(condition["message"]) for condition in obj.get("status", {}).get("conditions", ())
                )
        for event in self.cluster.server.store(EVENTS).values():
            if event["involvedObject"].get("namespace") == namespace:
                yield str(event["message"])

    def warnings(self, namespace: str) -> list[str]:
        return [
            str(event["message"])
            for event in self.cluster.server.store(EVENTS).values()
            if event["involvedObject"].get("namespace") == namespace and event["type"] == "Warning"
        ]

    def mounted_keys(self) -> list[Credentials | None]:
        return [mount.credentials for mount in self.cluster.engine.state.mounts.values()]


@pytest.fixture
async def tenants(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tenants]:
    for module in ("decide.problem", "control.dataset.access.key_checks"):
        monkeypatch.setattr(f"tdcs.{module}.RETRY_LATER", 0.2)
    engine = MemoryEngine(
        sources={SOURCE: {"a": MB, "b": MB}},
        workers={"n1": 100 * MB},
        credentials={SOURCE: [OLD, NEW]},
    )
    settings = dataclasses.replace(QUICK, resync_seconds=0.3)
    async with Cluster(engine=engine, nodes={"n1": {}}, settings=settings) as cluster:
        await cluster.create_cache()
        tenants = Tenants(cluster, monkeypatch)
        for key in (A, B):
            await tenants.create(key, OLD)
        await cluster.until(lambda: all(tenants.is_well(key) for key in (A, B)))
        assert len(cluster.engine.state.mounts) == 1
        tenants.received_keys.clear()
        yield tenants


@pytest.mark.failure_mode("wrong-keys-in-one-namespace")
async def test_wrong_keys_of_one_namespace_are_its_own_matter(tenants: Tenants) -> None:
    cluster = tenants.cluster
    tenants.set_keys(B[0], WRONG)
    await tenants.look_again(B, "changed")
    await cluster.until(lambda: tenants.is_refused(B))
    assert tenants.condition(B, "Ready")["status"] == "True"  # what is cached stays readable
    cluster.agents.evict("n1", count=2)
    cluster.agents.restart("n1")
    await cluster.until(lambda: cluster.held() == {"n1": 2 * MB})
    for number in range(3):
        await tenants.look_again(A, str(number))
        await cluster.until(lambda: tenants.is_well(A))
    assert tenants.received_keys <= {OLD}
    assert tenants.mounted_keys() == [OLD]
    assert not tenants.warnings(A[0])
    assert not [text for text in tenants.texts(A[0]) if "differ" in text or B[0] in text]


async def test_a_refused_change_heals_at_once_when_the_keys_are_right_again(tenants: Tenants) -> None:
    cluster = tenants.cluster
    for keys in (OLD, NEW):
        tenants.set_keys(B[0], WRONG)
        await tenants.look_again(B, f"wrong before {keys.secret_access_key}")
        await cluster.until(lambda: tenants.is_refused(B))
        tenants.set_keys(B[0], keys)
        await cluster.until(lambda: tenants.is_well(B), deadline=AT_ONCE)
    assert tenants.is_well(A)


async def test_a_dataset_is_let_in_again_with_right_keys_after_the_other_ones_changed(
    tenants: Tenants,
) -> None:
    """Its message once said that its keys had changed, although they had not."""
    cluster = tenants.cluster
    tenants.set_keys(B[0], NEW)
    await cluster.until(lambda: tenants.is_well(B))
    await tenants.delete(A)
    await cluster.until(lambda: tenants.mounted_keys() == [NEW])
    await tenants.create(A, OLD)
    await cluster.until(lambda: tenants.is_well(A), deadline=AT_ONCE)
    await tenants.delete(A)
    tenants.set_keys(B[0], WRONG)
    await cluster.until(lambda: tenants.is_refused(B))
    await tenants.create(A, OLD)
    await cluster.until(lambda: tenants.is_well(A), deadline=AT_ONCE)


async def test_other_keys_of_one_namespace_that_the_source_takes_are_not_read_with_by_others(
    tenants: Tenants,
) -> None:
    cluster = tenants.cluster
    tenants.set_keys(B[0], NEW)
    await tenants.look_again(B, "changed")
    await asyncio.sleep(0.5)
    assert tenants.mounted_keys() == [OLD]
    assert tenants.is_well(A)
    assert tenants.is_well(B)  # which has keys that the source takes
    tenants.set_keys(A[0], NEW)
    await cluster.until(lambda: tenants.mounted_keys() == [NEW])
    assert WRONG not in tenants.received_keys


@pytest.mark.failure_mode("keys-revoked-another-namespace-serves")
async def test_keys_that_are_revoked_leave_the_mount_to_those_of_another_namespace(tenants: Tenants) -> None:
    cluster = tenants.cluster
    tenants.set_keys(B[0], NEW)
    await tenants.look_again(B, "changed")
    await cluster.until(lambda: tenants.is_well(B))
    cluster.engine.credentials[SOURCE] = [NEW]
    cluster.agents.evict("n1", count=2)  # what is read from the source fails: that shows it
    await cluster.until(lambda: tenants.mounted_keys() == [NEW], deadline=AT_ONCE)
    await cluster.until(lambda: cluster.held() == {"n1": 2 * MB})
    await cluster.until(lambda: tenants.is_refused(A))
    await cluster.until(lambda: tenants.is_well(B))
    assert A[0] not in "".join(tenants.texts(B[0]))


async def test_a_source_that_does_not_answer_leaves_others_the_keys_they_have(tenants: Tenants) -> None:
    cluster = tenants.cluster
    silent = asyncio.Event()

    async def hang(operation: Operation) -> None:
        if operation.name == "check_keys":
            await silent.wait()

    cluster.engine.before = hang
    tenants.set_keys(B[0], WRONG)
    await tenants.look_again(B, "changed")
    await asyncio.sleep(0.5)
    assert tenants.is_well(A)
    assert tenants.received_keys <= {OLD}
    silent.set()
    await cluster.until(lambda: tenants.is_refused(B))
    assert tenants.is_well(A)


async def test_after_a_restart_wrong_keys_are_tried_by_the_source_alone(tenants: Tenants) -> None:
    cluster = tenants.cluster
    tenants.set_keys(B[0], WRONG)
    await tenants.look_again(B, "changed")
    await cluster.until(lambda: tenants.is_refused(B))
    await cluster.stop()
    cluster.agents.restart("n1")
    cluster.agents.evict("n1", count=2)
    tenants.received_keys.clear()
    await cluster.start()
    await cluster.until(lambda: cluster.held() == {"n1": 2 * MB} and tenants.is_well(A))
    assert tenants.received_keys == {OLD}


@pytest.mark.parametrize("count", [2, 10])
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.failure_mode("wrong-keys-in-one-namespace")
async def test_ten_tenants_whose_keys_change_at_random_meet_only_their_own_mistakes(
    monkeypatch: pytest.MonkeyPatch, count: int, seed: int
) -> None:
    for module in ("decide.problem", "control.dataset.access.key_checks"):
        monkeypatch.setattr(f"tdcs.{module}.RETRY_LATER", 0.2)
    dice, accepted = random.Random(seed), [OLD, NEW]
    files = {f"f{number}": MB for number in range(4)}
    engine = MemoryEngine(sources={SOURCE: files}, workers={"n1": 100 * MB}, credentials={SOURCE: accepted})
    settings = dataclasses.replace(QUICK, resync_seconds=0.3)
    async with Cluster(engine=engine, nodes={"n1": {}}, settings=settings) as cluster:
        await cluster.create_cache()
        tenants = Tenants(cluster, monkeypatch)
        innocent = ("innocent", "data")
        neighbours = [(f"tenant{number}", f"secret-data{number}") for number in range(count - 1)]
        for key in (innocent, *neighbours):
            await tenants.create(key, OLD)
        await cluster.until(lambda: all(tenants.is_well(key) for key in (innocent, *neighbours)))
        for step in range(12):
            key = dice.choice(neighbours)
            now = dice.choice([OLD, NEW, WRONG, WRONG])
            if dice.random() < 0.2:
                await tenants.delete(key)
                await tenants.create(key, now)
            else:
                tenants.set_keys(key[0], now)
                await tenants.look_again(key, str(step))
            if dice.random() < 0.5:
                cluster.agents.evict("n1", count=1)
            if dice.random() < 0.2:
                cluster.agents.restart("n1")
            right = now in accepted
            await cluster.until(
                lambda key=key, right=right: (  # type: ignore[misc]
                    tenants.is_well(key)
                    if right
                    else tenants.is_refused(key)
                    or tenants.condition(key, "Ready").get("reason") == "SourceRefused"
                ),
                deadline=60.0,
            )
            await cluster.until(lambda: tenants.is_well(innocent), deadline=AT_ONCE)
            assert WRONG not in tenants.mounted_keys()
        await cluster.until(lambda: tenants.status(innocent)["cachedBytes"] == 4 * MB, deadline=AT_ONCE)
        assert WRONG not in tenants.received_keys
        assert not tenants.warnings(innocent[0])
        for namespace in (innocent[0], *(key[0] for key in neighbours)):
            foreign = [name for key in (innocent, *neighbours) if key[0] != namespace for name in key]
            for text in tenants.texts(namespace):
                assert not [name for name in foreign if f" {name}" in text or f"{name}/" in text], text
