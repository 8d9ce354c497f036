"""Each of TDCS's kinds is followed by an informer, whatever becomes of its watch, and worked on in passes."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from tests.support import virtual_time
from tests.support.caches import MemoryCaches
from tests.support.twins.engine import MemoryEngine
from tests.support.waiting import eventually_async
from tests.unit.control.watched_server import WatchedServer
from tests.unit.kube.fake import error

from tdcs.control.context import Settings, WorkKey
from tdcs.control.operator import operator as module
from tdcs.control.operator.informers import OWN_KINDS
from tdcs.control.operator.operator import Operator
from tdcs.kube.errors import UnavailableError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, PRELOADS, TRAINING_JOBS, Resource

Pass = Callable[[WorkKey], Awaitable[float | None]]

every_kind = pytest.mark.parametrize("kind", OWN_KINDS, ids=lambda kind: kind.kind)


def object_of(kind: Resource, name: str = "x", *, namespace: str = "tdcs-system", **spec: Any) -> Object:
    """An object that concerns no object of another kind."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


class World:
    """An operator whose passes are only counted, and its API server.

    Attributes:
        passes: how often each object had one, by the text of its key.
        make: what a pass does next to that.
    """

    def __init__(self, server: WatchedServer, operator: Operator) -> None:
        self.server, self.operator = server, operator
        self.passes: Counter[str] = Counter()
        self.make: Pass = self._nothing
        operator._passes = dict.fromkeys(OWN_KINDS, self._pass)

    async def change(self, kind: Resource, name: str = "x", **spec: Any) -> None:
        await self.server.merge(kind, name=name, namespace="tdcs-system", patch={"spec": spec})

    async def settle(self) -> None:
        """Wait until everybody watches, no event is under way, and no object waits for a pass."""
        queue = self.operator.context.queue

        def is_quiet() -> bool:
            return not len(queue) and not queue._working and not queue._later

        await eventually_async(
            lambda: all(self.server.watches.get(kind.plural) for kind in OWN_KINDS), deadline=60
        )
        for _ in range(20):  # turns of the loop, for events on their way
            await asyncio.sleep(0)
        await eventually_async(is_quiet, deadline=60)

    async def _pass(self, key: WorkKey) -> float | None:
        self.passes[str(key)] += 1
        return await self.make(key)

    async def _nothing(self, _: WorkKey) -> float | None:
        return None


@asynccontextmanager
async def running(
    *objects: Object, server: WatchedServer | None = None, **settings: Any
) -> AsyncIterator[World]:
    """A world with these objects, after the first passes over them."""
    server = server or WatchedServer()
    for obj in objects:
        kind = next(own_kind for own_kind in OWN_KINDS if own_kind.kind == obj["kind"])
        await server.create(kind, obj=obj)
    caches = MemoryCaches(MemoryEngine(sources={}, workers={}))
    world = World(server, Operator(api=server, caches=lambda _: caches, settings=Settings(**settings)))
    async with asyncio.timeout(120):
        await world.operator.start()
        await world.settle()
    try:
        yield world
    finally:
        await world.operator.stop()


@every_kind
@pytest.mark.parametrize("compacted", [True, False])
@pytest.mark.failure_mode("deletion-in-watch-gap")
async def test_what_happens_while_nobody_watches_is_known_afterwards(
    kind: Resource, compacted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a new list where the server does not know the version of the watch any more, and else by the watch."""
    monkeypatch.setattr("tdcs.kube.informer.backoff", lambda failures: 0.001)
    names = ("deleted", "changed", "made-again", "same")
    async with running(*(object_of(kind, name) for name in names)) as world:
        lists = world.server.lists[kind.plural]
        world.server.cut(error(UnavailableError))
        await world.server.delete(kind, name="deleted", namespace="tdcs-system")
        await world.server.delete(kind, name="made-again", namespace="tdcs-system")
        await world.server.create(kind, obj=object_of(kind, "made-again"))
        await world.server.create(kind, obj=object_of(kind, "new"))
        await world.change(kind, "changed", field=1)
        world.passes.clear()
        world.server.heal(compacted=compacted)
        view = world.operator._views[kind]
        expected = {key: obj["metadata"]["uid"] for key, obj in world.server.store(kind).items()}
        await eventually_async(
            lambda: {key: obj["metadata"]["uid"] for key, obj in view.items()} == expected, deadline=60
        )
        await world.settle()
        prefix = f"{kind.kind} tdcs-system/"
        assert {key for key in world.passes if key.startswith(prefix)} == {
            prefix + name for name in ("deleted", "made-again", "new", "changed")
        }
        assert (world.server.lists[kind.plural] > lists) == compacted
        # And it goes on to hear of what changes.
        await world.change(kind, "same", field=2)
        await eventually_async(lambda: world.passes[prefix + "same"] == 1, deadline=60)


@every_kind
async def test_a_new_list_of_what_has_not_changed_makes_no_pass_and_no_write(kind: Resource) -> None:
    async with running(object_of(kind)) as world:
        lists, writes = world.server.lists[kind.plural], len(world.server.writes)
        world.passes.clear()
        world.server.cut(error(UnavailableError))
        world.server.heal(compacted=True)
        await eventually_async(lambda: world.server.lists[kind.plural] > lists, deadline=60)
        await world.settle()
        assert not world.passes
        assert len(world.server.writes) == writes


@every_kind
async def test_a_status_alone_makes_no_pass(kind: Resource) -> None:
    async with running(object_of(kind)) as world:
        world.passes.clear()
        uid = world.server.store(kind)["tdcs-system", "x"]["metadata"]["uid"]
        metadata = {"name": "x", "namespace": "tdcs-system", "uid": uid}
        await world.server.apply_status(kind, obj={"metadata": metadata, "status": {"message": "told"}})
        view = world.operator._views[kind]
        await eventually_async(
            lambda: view["tdcs-system", "x"].get("status") == {"message": "told"}, deadline=60
        )
        await world.settle()
        assert not world.passes


@every_kind
async def test_changes_during_a_pass_are_one_more_pass(kind: Resource) -> None:
    async with running(object_of(kind)) as world:
        world.passes.clear()
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def wait(_: WorkKey) -> None:
            begun.set()
            await go_on.wait()

        world.make = wait
        await world.change(kind, count=0)
        async with asyncio.timeout(60):
            await begun.wait()
        for number in range(1, 101):
            await world.change(kind, count=number)
        view = world.operator._views[kind]
        await eventually_async(lambda: view["tdcs-system", "x"]["spec"]["count"] == 100, deadline=60)
        go_on.set()
        await world.settle()
        assert world.passes[f"{kind.kind} tdcs-system/x"] == 2


def test_changes_in_quick_succession_are_few_passes() -> None:
    async def main() -> None:
        async with running(object_of(DATASETS)) as world:
            await asyncio.sleep(1)
            world.passes.clear()
            for number in range(100):  # one each 10 ms
                await world.change(DATASETS, count=number)
                await asyncio.sleep(0.01)
            await world.settle()
            # One at once, and one for each rest since then.
            assert 2 <= world.passes["Dataset tdcs-system/x"] <= 2 + 100 * 0.01 / module.REST_SECONDS

    virtual_time.run(main())


def test_a_pass_that_fails_is_tried_again_later_each_time_and_holds_up_no_other() -> None:
    async def main() -> None:
        loop, tried = asyncio.get_running_loop(), list[float]()

        async def fail(key: WorkKey) -> None:
            if key.name == "bad" and key.resource is PRELOADS:
                tried.append(loop.time())
                raise error(UnavailableError) if len(tried) % 2 else KeyError("a defect")

        async with running(object_of(PRELOADS, "good")) as world:
            world.make = fail
            await world.server.create(PRELOADS, obj=object_of(PRELOADS, "bad"))
            await asyncio.sleep(100)
            good_before = world.passes["Preload tdcs-system/good"]
            await world.change(PRELOADS, "good", field=1)
            await asyncio.sleep(1)
            assert world.passes["Preload tdcs-system/good"] == good_before + 1
        pauses = [later - earlier for earlier, later in pairwise(tried)]
        assert len(pauses) >= 6
        for number, pause in enumerate(
            pauses, start=1
        ):  # doubled each time, half of it by chance, up to a minute
            most = min(60.0, 0.2 * 2.0 ** (number - 1))
            assert most / 2 - 1e-6 <= pause <= most + module.REST_SECONDS + 1e-6

    virtual_time.run(main())


async def test_an_operator_that_was_killed_is_followed_by_one_that_knows_all() -> None:
    """It writes nothing of its own into objects, so the next one needs nothing but the list."""
    server = WatchedServer()
    async with running(*(object_of(kind) for kind in OWN_KINDS), server=server) as first:
        for task in first.operator._tasks:  # as by SIGKILL: nothing is stopped in order
            task.cancel()
        await server.delete(PRELOADS, name="x", namespace="tdcs-system")
        await first.change(TRAINING_JOBS, field=1)
        async with running(server=server) as second:
            assert set(second.passes) == {
                "CacheCluster tdcs-system/x",
                "Dataset tdcs-system/x",
                "TrainingJob tdcs-system/x",
            }
            assert second.operator._views[TRAINING_JOBS]["tdcs-system", "x"]["spec"] == {"field": 1}
            metadata = server.store(DATASETS)["tdcs-system", "x"]["metadata"]
            assert not metadata.keys() & {"finalizers", "annotations"}


async def test_what_another_framework_left_at_an_object_is_no_matter_and_no_reason_for_a_pass() -> None:
    """Its finalizer keeps the object; who put it there takes it away."""
    obj = object_of(DATASETS)
    obj["metadata"] |= {
        "annotations": {"kopf.zalando.org/last-handled-configuration": "{}"},
        "finalizers": ["kopf.zalando.org/KopfFinalizerMarker"],
    }
    async with running(obj) as world:
        await world.server.delete(DATASETS, name="x", namespace="tdcs-system")
        await world.settle()
        assert ("tdcs-system", "x") in world.operator._views[DATASETS]
        await world.server.merge(
            DATASETS, name="x", namespace="tdcs-system", patch={"metadata": {"finalizers": None}}
        )
        await eventually_async(lambda: not world.operator._views[DATASETS], deadline=60)


async def test_only_objects_of_namespaces_that_are_served_are_followed() -> None:
    places = ("tdcs-system", "data", "jobs", "else")
    objects = [object_of(kind, namespace=namespace) for kind in OWN_KINDS for namespace in places]
    async with running(
        *objects, scope="namespaces", dataset_namespaces=("data",), job_namespaces=("jobs",)
    ) as world:
        followed = {
            kind.kind: sorted(namespace for namespace, _ in world.operator._views[kind]) for kind in OWN_KINDS
        }
        assert followed == {
            "CacheCluster": ["tdcs-system"],
            "Dataset": ["data", "tdcs-system"],
            "Preload": ["data", "tdcs-system"],
            "TrainingJob": ["jobs", "tdcs-system"],
        }
        await world.server.create(DATASETS, obj=object_of(DATASETS, "late", namespace="else"))
        await world.server.create(DATASETS, obj=object_of(DATASETS, "late", namespace="data"))
        await eventually_async(lambda: world.passes["Dataset data/late"] == 1, deadline=60)
        assert not world.passes["Dataset else/late"]


async def test_an_ended_job_is_kept_without_its_templates_from_a_list_and_from_an_event() -> None:
    def ended(name: str) -> Object:
        job = object_of(TRAINING_JOBS, name, replicaSpecs=[{"name": "Worker"}], datasets=[])
        condition = {"type": "Succeeded", "status": "True", "reason": "x"}
        return {**job, "status": {"conditions": [condition], "placement": [{"pod": "p"}]}}

    async with running(ended("listed"), object_of(CACHE_CLUSTERS)) as world:
        await world.server.create(TRAINING_JOBS, obj=ended("heard"))
        jobs = world.operator.context.stores.training_jobs
        await eventually_async(lambda: len(jobs) == 2, deadline=60)
        assert all(
            job["spec"] == {"datasets": []} and "placement" not in job["status"] for job in jobs.values()
        )


@pytest.mark.failure_mode("api-server-sends-no-events")
async def test_a_server_that_takes_watches_and_sends_nothing_is_listed_again() -> None:
    async with running(object_of(CACHE_CLUSTERS)) as world:
        for informers in world.operator._informers.values():
            for informer in informers._informers:
                informer._silence = 0.2
        world.server.fall_silent()
        world.server.cut(error(UnavailableError))  # so that all watches begin again
        world.server.heal()
        await world.server.create(DATASETS, obj=object_of(DATASETS, "late"))
        datasets = world.operator.context.stores.datasets
        await eventually_async(lambda: len(datasets) == 1, deadline=60)
        await world.server.delete(DATASETS, name="late", namespace=next(iter(datasets))[0])
        await eventually_async(lambda: not datasets, deadline=60)
