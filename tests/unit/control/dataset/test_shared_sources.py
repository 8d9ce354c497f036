"""A source that its owner shares with other namespaces: read with the owner's keys, mounted once, revocable; and the
tries of a tenant to have it without consent."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import QUICK, Cluster

from tdcs.control.node_usage import trimmed
from tdcs.model.cache_engine import Credentials
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import (
    DATASETS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SECRETS,
)

MB = 1_000_000
SOURCE = "s3://pictures"
KEYS = Credentials(access_key_id="me", secret_access_key="s3cr3t")
OWNER, READER = ("team-a", "pictures"), ("team-b", "images")
REFERENCE = {"datasetRef": {"namespace": "team-a", "name": "pictures"}}


class World:
    """The owner's Dataset with its keys, and those of other namespaces."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def create(
        self, key: tuple[str, str], source: Object, *, status: Object | None = None, **spec: Any
    ) -> None:
        namespace, name = key
        namespace_object = self.cluster.server.store(NAMESPACES).setdefault(
            ("", namespace), {"metadata": {"name": namespace}}
        )
        namespace_object["metadata"].setdefault("labels", {})
        obj: Object = {
            "apiVersion": "tdcs.io/v1alpha2",
            "kind": "Dataset",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"source": source, **spec},
        }
        if status is not None:
            obj["status"] = status
        await self.cluster.server.create(DATASETS, obj=obj)

    async def share(self, *grants: Object) -> None:
        await self.cluster.server.merge(
            DATASETS, name=OWNER[1], namespace=OWNER[0], patch={"spec": {"sharedWith": list(grants)}}
        )

    def status(self, key: tuple[str, str]) -> Object:
        return dict(self.cluster.server.store(DATASETS)[key].get("status") or {})

    def condition(self, key: tuple[str, str], kind: str = "Ready") -> Object:
        conditions = self.status(key).get("conditions") or ()
        return next((condition for condition in conditions if condition["type"] == kind), {})

    async def until_ready(self, key: tuple[str, str]) -> None:
        await self.cluster.until(lambda: self.condition(key).get("status") == "True")

    async def until_refused(self, key: tuple[str, str]) -> str:
        await self.cluster.until(lambda: self.condition(key).get("reason") == "NotShared")
        return str(self.condition(key)["message"])

    def has_volume(self, key: tuple[str, str]) -> bool:
        """Whether a Dataset has a claim, or any volume is for it."""
        server = self.cluster.server
        bound = [
            volume
            for volume in server.store(PERSISTENT_VOLUMES).values()
            if (volume["spec"].get("claimRef") or {}).get("namespace") == key[0]
        ]
        return bool(bound) or key in server.store(PERSISTENT_VOLUME_CLAIMS)

    @property
    def mounts(self) -> int:
        return len(self.cluster.engine.state.mounts)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    for module in ("decide.problem", "decide.shared_source", "control.dataset.access.key_checks"):
        monkeypatch.setattr(f"tdcs.{module}.RETRY_LATER", 0.2)
    engine = MemoryEngine(
        sources={SOURCE: {"train/a": MB, "train/b": 2 * MB, "val/c": 4 * MB, "trainer": 8 * MB}},
        workers={"n1": 100 * MB, "n2": 100 * MB},
        credentials={SOURCE: [KEYS]},
    )
    settings = dataclasses.replace(QUICK, resync_seconds=0.3)
    async with Cluster(engine=engine, nodes={"n1": {}, "n2": {}}, settings=settings) as cluster:
        await cluster.create_cache()
        world = World(cluster)
        data = {"accessKeyId": KEYS.access_key_id, "secretAccessKey": KEYS.secret_access_key}
        cluster.server.store(SECRETS)["team-a", "keys"] = {
            "kind": "Secret",
            "metadata": {"name": "keys", "namespace": "team-a", "labels": {}},
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
        }
        await world.create(
            OWNER,
            {"uri": SOURCE, "secretRef": {"name": "keys"}},
            placement={"mode": "Partition", "nodeCount": 1},
        )
        await world.until_ready(OWNER)
        yield world


async def test_a_shared_source_is_mounted_once_and_read_without_keys_of_ones_own(world: World) -> None:
    await world.share({"namespaces": ["team-b"]})
    await world.create(READER, REFERENCE, placement={"mode": "Partition", "nodeCount": 2})
    await world.until_ready(READER)
    assert world.mounts == 1
    assert world.status(READER)["totalBytes"] == 15 * MB
    assert world.has_volume(READER)
    assert not [key for key in world.cluster.server.store(SECRETS) if key[0] == "team-b"]
    assert len(world.status(READER)["copies"][0]["nodes"]) == 2, "its own placement"
    assert len(world.status(OWNER)["copies"][0]["nodes"]) == 1


async def test_a_grant_that_is_taken_back_takes_the_volume_and_what_it_kept(world: World) -> None:
    await world.share({"namespaces": ["team-b", "team-c"]})
    await world.create(READER, REFERENCE)
    await world.until_ready(READER)
    await world.share({"namespaces": ["team-c"]})
    message = await world.until_refused(READER)
    assert "not shared with namespace team-b: ask its owner" in message
    await world.cluster.until(lambda: not world.has_volume(READER))
    assert world.condition(OWNER)["status"] == "True"
    assert world.mounts == 1
    await world.share({"namespaces": ["team-b"]})
    await world.until_ready(READER)


async def test_the_deletion_of_the_owner_revokes_too(world: World) -> None:
    await world.share({"namespaces": ["team-b"]})
    await world.create(READER, REFERENCE)
    await world.until_ready(READER)
    await world.cluster.server.delete(DATASETS, name=OWNER[1], namespace=OWNER[0])
    await world.until_refused(READER)
    await world.cluster.until(lambda: not world.has_volume(READER) and not world.mounts)


def _pod(key: tuple[str, str], pod: str) -> Object:
    """A pod that reads the claim of a Dataset."""
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": key[1]}}
    return {
        "metadata": {"name": pod, "namespace": key[0]},
        "spec": {"nodeName": "n1", "containers": [], "volumes": [volume]},
    }


def _mounts(world: World, key: tuple[str, str], pod: str) -> None:
    world.cluster.usage.seen((key[0], pod), trimmed(_pod(key, pod)))


@pytest.mark.threat("withdrawn-while-read")
async def test_a_withdrawn_dataset_shows_only_what_is_true_now(world: World) -> None:
    await world.share({"namespaces": ["team-b", "team-c"]})
    await world.create(READER, REFERENCE)
    await world.until_ready(READER)
    assert world.status(READER)["loaded"] == "100%"
    server = world.cluster.server
    server.store(PERSISTENT_VOLUME_CLAIMS)[READER]["metadata"]["finalizers"] = [
        "kubernetes.io/pvc-protection"
    ]
    server.store(PODS)["team-b", "one"] = _pod(READER, "one")
    _mounts(world, READER, "one")
    await world.share({"namespaces": ["team-c"]})
    await world.until_refused(READER)
    await world.cluster.until(lambda: "is still used by 1 pod: pod one" in world.condition(READER)["message"])
    status = world.status(READER)
    assert not any(condition["status"] == "True" for condition in status["conditions"]), status["conditions"]
    assert {condition["reason"] for condition in status["conditions"]} == {"NotShared"}
    fields = {
        "copies",
        "copyCount",
        "grant",
        "loaded",
        "loadedBytes",
        "cached",
        "cachedBytes",
        "wantedBytes",
        "claimName",
    }
    assert not {field: status[field] for field in fields if status.get(field)}
    assert status["inUse"]
    assert status["usedBy"] == ["one"]
    assert world.condition(OWNER)["status"] == "True"
    server.store(PODS).clear()
    server.store(PERSISTENT_VOLUME_CLAIMS).pop(READER)  # the last pod has gone
    await world.cluster.until(lambda: not world.status(READER).get("mountPath"))


async def test_the_owner_sees_how_many_other_namespaces_read_by_its_consent_and_no_more(world: World) -> None:
    await world.share({"namespaces": ["team-b", "team-c"]})
    for key in (READER, ("team-b", "twin"), ("team-c", "images"), ("team-d", "images")):
        await world.create(key, REFERENCE)
    await world.until_ready(READER)
    await world.until_refused(("team-d", "images"))
    _mounts(world, ("team-d", "images"), "stranger")
    assert "usedElsewhere" not in world.status(OWNER)
    _mounts(world, READER, "one")
    _mounts(world, ("team-b", "twin"), "two")
    await world.cluster.until(lambda: world.status(OWNER).get("usedElsewhere") == 1)
    _mounts(world, ("team-c", "images"), "three")
    await world.cluster.until(lambda: world.status(OWNER).get("usedElsewhere") == 2)
    assert "usedBy" not in world.status(OWNER)
    for namespace, pod in (("team-b", "one"), ("team-b", "two"), ("team-c", "three")):
        world.cluster.usage.seen((namespace, pod), None)
    await world.cluster.until(lambda: "usedElsewhere" not in world.status(OWNER))


async def test_namespaces_are_granted_by_their_labels_as_long_as_they_have_them(world: World) -> None:
    await world.share({"namespaceSelector": {"matchLabels": {"org": "vision"}}})
    await world.create(READER, REFERENCE)
    await world.until_refused(READER)
    namespace = world.cluster.server.store(NAMESPACES)["", "team-b"]
    namespace["metadata"]["labels"]["org"] = "vision"
    await world.until_ready(READER)
    namespace["metadata"]["labels"].clear()
    await world.until_refused(READER)


async def test_a_grant_of_paths_gives_nothing_else(world: World) -> None:
    await world.share({"namespaces": ["team-b"], "paths": ["train"]}, {"namespaces": ["team-c"]})
    await world.create(READER, REFERENCE)
    await world.until_ready(READER)
    assert world.status(READER)["totalBytes"] == 3 * MB, "train/a and train/b, and not trainer"
    await world.share({"namespaces": ["team-b"], "paths": ["val/"]})
    # What it had is not within the grant any more: its volume goes, and the next one has what is.
    await world.cluster.until(lambda: world.status(READER).get("totalBytes") == 4 * MB)
    await world.until_ready(READER)


@pytest.mark.parametrize("exists", [True, False])
async def test_without_a_grant_nothing_is_read_nor_said_of_what_is_there(world: World, exists: bool) -> None:
    name = "pictures" if exists else "nothing"
    mounted = world.status(OWNER)["mountPath"]
    # A status that comes with the object grants nothing.
    await world.create(
        READER,
        {"datasetRef": {"namespace": "team-a", "name": name}},
        status={"mountPath": mounted, "claimName": "images", "state": "Ready"},
    )
    message = await world.until_refused(READER)
    assert message.startswith(
        f"Dataset team-a/{name} (spec.source.datasetRef) is not shared with namespace team-b"
    )
    assert SOURCE not in message
    assert not world.has_volume(READER)
    assert world.condition(OWNER)["status"] == "True"
    assert "otherNamespaces" not in world.status(OWNER) or not world.status(OWNER)["otherNamespaces"]


async def test_what_was_shared_is_not_shared_on(world: World) -> None:
    await world.share({"namespaces": ["team-b"]})
    await world.create(READER, REFERENCE, sharedWith=[{"namespaces": ["team-c"]}])
    await world.until_ready(READER)
    third = ("team-c", "images")
    await world.create(third, {"datasetRef": {"namespace": "team-b", "name": "images"}})
    message = await world.until_refused(third)
    assert "reads another one's source itself" in message
    assert not world.has_volume(third)


async def test_both_a_uri_and_a_reference_are_refused(world: World) -> None:
    await world.create(READER, {**REFERENCE, "uri": SOURCE})
    await world.cluster.until(lambda: world.condition(READER).get("reason") == "InvalidSpec")
    assert "either uri, or datasetRef" in world.condition(READER)["message"]
