"""A cache without a master: what is mounted, who its workers are, and what its pods have."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from tests.support.programs.bucket_store import BucketStore, serving
from tests.unit.control.builders import GIB
from tests.unit.control.server import Server
from tests.unit.engine.contract import SMALL_CAPACITY, EngineContract, mounts
from tests.unit.kube.fake import error

from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.control.cachecluster import cache_certificates, cache_children
from tdcs.control.cachecluster.blueprint import Blueprint
from tdcs.control.operator.native_engine import LOST_SECONDS, MountTable, NativeEngine
from tdcs.decide.worker_nodes import worker_states
from tdcs.kube.errors import UnavailableError
from tdcs.model.agent_state import (
    AgentState,
    Assignment,
    FolderCount,
    FolderLimit,
    SourceCount,
    SourceToCount,
)
from tdcs.model.cache_engine import (
    Engine,
    EngineUnavailableError,
    MountConflictError,
    NoSuchPathError,
    NoSuchWorkerError,
    Source,
    SourceError,
)
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, CONFIG_MAPS, Resource
from tdcs.trust.settings import TrustSettings

__all__ = ["mounts"]

PATH, OTHER = "/datasets/0123456789abcdef", "/datasets/fedcba9876543210"
PLACE = (names.SYSTEM_NAMESPACE, names.mounts_name(cluster="default"))


class Agents:
    """Agents that say what a test lets them say."""

    def __init__(self) -> None:
        self.state_by_node: dict[str, AgentState] = {}

    def states(self) -> Mapping[str, AgentState]:
        return self.state_by_node

    async def assign(self, *, node: str, assignments: Sequence[Assignment]) -> None:
        raise AssertionError

    async def drop_mounts(self, *, node: str, mounts: Sequence[str]) -> None:
        raise AssertionError

    async def count(self, *, node: str, limit: FolderLimit) -> FolderCount:
        raise AssertionError

    async def count_source(self, *, node: str, source: SourceToCount) -> SourceCount:
        raise AssertionError

    async def close(self) -> None:
        return

    def say(self, node: str, *, instance: str = "1", capacity: int = 10, target: str = "") -> None:
        self.state_by_node[node] = AgentState(
            node=node, instance=instance, revision=1, capacity_bytes=capacity, used_bytes=3, target=target
        )


class World:
    """An API server with one CacheCluster, a bucket, and engines of one operator after the other."""

    def __init__(self, store: BucketStore) -> None:
        self.server, self.agents, self.store = Server(), Agents(), store
        self.hosts = {"a": "a.example", "b": "b.example"}
        self.now = 0.0

    async def create(self) -> None:
        spec = {"engine": "Native"}
        metadata = {"name": "default", "namespace": names.SYSTEM_NAMESPACE}
        kind = {"apiVersion": names.API_VERSION, "kind": "CacheCluster"}
        await self.server.create(CACHE_CLUSTERS, obj={**kind, "metadata": metadata, "spec": spec})

    def owner(self) -> Object | None:
        return self.server.store(CACHE_CLUSTERS).get((names.SYSTEM_NAMESPACE, "default"))

    def engine(self) -> NativeEngine:
        table = MountTable(
            api=self.server, namespace=names.SYSTEM_NAMESPACE, cluster="default", owner=self.owner
        )
        return NativeEngine(table=table, hosts=lambda: self.hosts, agents=self.agents, clock=lambda: self.now)

    @property
    def source(self) -> Source:
        return self.store.source


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with serving(BucketStore(keys=[b"data/x"])) as store:
        world = World(store)
        await world.create()
        yield world


class ContractWorld:
    """The same, as the tests of all engines ask for it."""

    large, small = "a", "b"

    def __init__(self, world: World) -> None:
        self._world = world
        self.engine: Engine = world.engine()
        world.agents.say(self.large, capacity=GIB)
        world.agents.say(self.small, capacity=SMALL_CAPACITY)

    def source(self, below: str = "") -> Source:
        source = self._world.source
        return alongside(source, uri=f"{source.uri}/{below}".rstrip("/"))

    def refused(self, source: Source) -> Source:
        refusal = (403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        self._world.store.failures = dict.fromkeys(range(9), refusal)
        return source

    async def revive(self, worker: str) -> None:
        self._world.agents.say(worker, instance="2", capacity=SMALL_CAPACITY)


class TestNativeEngine(EngineContract):
    """The shared promises."""

    @pytest.fixture
    async def world(self) -> AsyncIterator[ContractWorld]:
        async with serving(BucketStore(keys=[b"data/deep/x"])) as store:
            made = World(store)
            await made.create()
            yield ContractWorld(made)


async def test_the_next_operator_knows_what_is_mounted_and_in_which_version(world: World) -> None:
    engine = world.engine()
    assert isinstance(engine, Engine)
    assert await engine.mounts() == {}
    await engine.mount(path=PATH, source=world.source)
    await engine.mount(path=OTHER, source=alongside(world.source, uri="s3://bucket/data/below"))
    await engine.set_version(path=PATH, version="f" * 32)

    after = world.engine()
    assert set(await after.mounts()) == {PATH, OTHER}, "one may be below the other"
    assert await after.versions() == {PATH: "f" * 32}
    assert after.source_of(PATH) is None, "keys are kept nowhere"
    for text in world.server.store(CONFIG_MAPS)[PLACE]["data"].values():
        assert not any(secret in text for secret in world.source.credentials.secrets)  # type: ignore[union-attr]
    await after.mount(path=PATH, source=world.source)
    assert await after.versions() == {PATH: "f" * 32}, "its version stays"
    assert after.source_of(PATH) == world.source

    await after.unmount(path=PATH)
    await after.unmount(path=PATH)
    assert set(await world.engine().mounts()) == {OTHER}


def alongside(source: Source, *, uri: str) -> Source:
    return Source(uri=uri, options=source.options, credentials=source.credentials)


async def test_what_cannot_be_mounted_is_refused_and_leaves_nothing(world: World) -> None:
    engine = world.engine()
    world.store.failures = dict.fromkeys(range(9), (403, b"<Code>SignatureDoesNotMatch</Code>"))
    with pytest.raises(SourceError):
        await engine.mount(path=PATH, source=world.source)
    world.store.failures = {}
    with pytest.raises(NoSuchPathError):
        await engine.set_version(path=PATH, version="1")
    assert await engine.mounts() == {}
    await engine.mount(path=PATH, source=world.source)
    with pytest.raises(MountConflictError):
        await engine.mount(path=PATH, source=alongside(world.source, uri="s3://other"))
    elsewhere = Source(
        uri=world.source.uri, options={**world.source.options, "region": "eu-1"}, credentials=None
    )
    with pytest.raises(MountConflictError):
        await engine.mount(path=PATH, source=elsewhere)


async def test_a_write_that_fails_is_an_error_and_what_stands_there_counts(world: World) -> None:
    engine = world.engine()

    def refuse(verb: str, resource: Resource) -> None:
        if verb in {"create", "merge"} and resource is CONFIG_MAPS:
            raise error(UnavailableError)

    world.server.refuse = refuse
    with pytest.raises(EngineUnavailableError, match="as told"):
        await engine.mount(path=PATH, source=world.source)
    assert await engine.mounts() == {}
    world.server.refuse = lambda verb, resource: None
    await engine.mount(path=PATH, source=world.source)
    # Somebody deletes it by hand: the next write brings all of it back.
    del world.server.store(CONFIG_MAPS)[PLACE]
    await engine.mount(path=OTHER, source=world.source)
    assert set(await world.engine().mounts()) == {PATH, OTHER}


async def test_what_no_operator_wrote_is_left_out_and_what_is_another_clusters_is_left_alone(
    world: World,
) -> None:
    engine = world.engine()
    await engine.mount(path=PATH, source=world.source)
    world.server.store(CONFIG_MAPS)[PLACE]["data"]["broken"] = "{"
    assert set(await world.engine().mounts()) == {PATH}
    # A CacheCluster that is made again, before the one of the earlier one of its name is collected.
    del world.server.store(CACHE_CLUSTERS)[names.SYSTEM_NAMESPACE, "default"]
    with pytest.raises(EngineUnavailableError, match="no such CacheCluster"):
        await engine.mounts()
    await world.create()
    assert await engine.mounts() == {}
    with pytest.raises(EngineUnavailableError, match="not of CacheCluster"):
        await engine.mount(path=PATH, source=world.source)
    del world.server.store(CONFIG_MAPS)[PLACE]
    await engine.mount(path=PATH, source=world.source)
    assert set(await engine.mounts()) == {PATH}


async def test_many_mounts_at_once_are_all_written(world: World) -> None:
    engine = world.engine()
    paths = [f"/datasets/{number:016x}" for number in range(20)]
    await asyncio.gather(*(engine.mount(path=path, source=world.source) for path in paths))
    assert set(await world.engine().mounts()) == set(paths)


async def test_a_mount_that_goes_while_its_version_is_published_does_not_come_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, merge = world.engine(), world.server.merge

    async def slow(resource: Resource, **options: Any) -> Object:
        await asyncio.sleep(0)  # others wait for their turns meanwhile
        return await merge(resource, **options)

    for path in (PATH, OTHER):
        await engine.mount(path=path, source=world.source)
    monkeypatch.setattr(world.server, "merge", slow)
    await asyncio.gather(
        engine.set_version(path=OTHER, version="1"),
        engine.set_version(path=PATH, version="1"),
        engine.unmount(path=PATH),
    )
    assert set(await world.engine().mounts()) == {OTHER}
    assert await engine.versions() == {OTHER: "1"}


async def test_workers_are_nodes_with_an_agent_and_lost_only_after_a_while(world: World) -> None:
    engine = world.engine()
    world.agents.say("a")
    first, second = await engine.workers()
    assert (first.name, first.live, first.capacity_bytes, first.used_bytes) == ("a", True, 10, 3)
    assert first.address == f"a.example:{names.AGENT_BLOCK_PORT}"
    assert not second.live, "nothing was heard of its agent"
    del world.agents.state_by_node["a"]
    world.now = LOST_SECONDS - 1
    assert (await engine.workers())[0].live
    world.now = LOST_SECONDS
    assert not (await engine.workers())[0].live


async def test_a_retired_worker_comes_back_with_another_process(world: World) -> None:
    engine = world.engine()
    world.agents.say("a")
    await engine.workers()
    await engine.retire(worker="a")
    assert not (await engine.workers())[0].live
    world.agents.say("a", instance="2")
    assert (await engine.workers())[0].live
    with pytest.raises(NoSuchWorkerError):
        await engine.retire(worker="c")


def plan(**spec: object) -> Blueprint:
    return Blueprint(
        owner={
            "apiVersion": names.API_VERSION,
            "kind": "CacheCluster",
            "metadata": {"name": "default", "uid": "u"},
        },
        spec=CacheClusterSpec.model_validate({"engine": "Native", **spec}),
        namespace=names.SYSTEM_NAMESPACE,
        image="alluxio",
        agent_image="tdcs",
        trust=TrustSettings(provider="selfSigned", prefix="tdcs-trust"),
    )


def test_a_native_worker_has_an_agent_alone_and_nothing_of_alluxio() -> None:
    worker = cache_children.worker(plan(), node="a")
    pod = worker["spec"]["template"]["spec"]
    (agent,) = pod["containers"]
    (prepare,) = pod["initContainers"]
    variables = {variable["name"] for variable in (*agent["env"], *prepare["env"])}
    assert not variables & {"TDCS_MASTER", "TDCS_WORKER"}
    assert {container["image"] for container in (agent, prepare)} == {"tdcs"}
    assert "config" not in {volume["name"] for volume in pod["volumes"]}
    (service,) = cache_children.services(plan())
    assert {port["name"] for port in service["spec"]["ports"]} == {"agent", "blocks"}
    roles = {
        subject.role for subject in cache_certificates.subjects(plan(), nodes=["a"], fuse=False).values()
    }
    assert {str(role) for role in roles} == {"agent"}


def test_an_agents_disk_is_made_ready_without_the_master_that_it_tells() -> None:
    worker = cache_children.worker(plan(engine="Alluxio"), node="a")
    pod = worker["spec"]["template"]["spec"]
    (_, agent), (prepare,) = pod["containers"], pod["initContainers"]
    assert {"TDCS_MASTER", "TDCS_WORKER"} <= {variable["name"] for variable in agent["env"]}
    assert "TDCS_MASTER" not in {variable["name"] for variable in prepare["env"]}


def test_an_agent_in_memory_asks_for_its_tier() -> None:
    tiers = [{"medium": "MEM", "path": "/dev/shm/x", "capacity": GIB}]
    (agent,) = cache_children.worker(plan(storage={"tiers": tiers}), node="a")["spec"]["template"]["spec"][
        "containers"
    ]
    assert agent["resources"]["requests"]["memory"] == f"{192 + 1024}Mi"


async def test_the_status_says_which_target_each_agent_reports(world: World) -> None:
    world.agents.say("a", target="x86-64-v3")
    world.agents.say("b")  # of an earlier version
    states = worker_states(wanted=["a", "b"], workers=await world.engine().workers())
    assert [state.target for state in states] == ["x86-64-v3", None]
