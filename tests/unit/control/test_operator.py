"""The operator reports when its view of the cluster is stale, and wakes what a change concerns."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.support.caches import MemoryCaches
from tests.support.twins.engine import MemoryEngine
from tests.support.waiting import eventually_async
from tests.unit.control.builders import dataset_object
from tests.unit.kube.fake import ScriptedApi, error

from tdcs.control.context import Settings, WorkKey
from tdcs.control.node_usage import trimmed
from tdcs.control.operator import operator as module
from tdcs.control.operator import startup
from tdcs.control.operator.operator import Operator
from tdcs.control.operator.operator_health import StaleError
from tdcs.control.release_certificates import Certificates
from tdcs.kube.api import ObjectList, WatchEvent
from tdcs.kube.errors import ForbiddenError, KubeError, UnavailableError
from tdcs.kube.lease import Lease, LeaseLostError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import (
    CACHE_CLUSTERS,
    DATASETS,
    NODES,
    PRELOADS,
    SECRETS,
    TRAINING_JOBS,
    Resource,
)
from tdcs.trust.identity import Identity
from tdcs.trust.settings import TrustSettings


@pytest.fixture(autouse=True)
def _restless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REST_SECONDS", 0.0)


@pytest.fixture
def operator() -> Operator:
    engine = MemoryEngine(sources={}, workers={})
    return Operator(api=ScriptedApi(), caches=lambda _: MemoryCaches(engine), settings=Settings())


def operator_of(api: ScriptedApi) -> Operator:
    return Operator(
        api=api, caches=lambda _: MemoryCaches(MemoryEngine(sources={}, workers={})), settings=Settings()
    )


class Clock:
    """Time that passes when the test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Away(ScriptedApi):
    """An API server that does not answer lists, of all kinds or of one, until it is back."""

    away = True
    only: Resource | None = None
    asked_while_away = 0

    def __init__(self, *, kind: type[KubeError] = UnavailableError) -> None:
        super().__init__()
        self._kind = kind

    async def list(self, resource: Resource, **options: object) -> ObjectList:
        if self.away and self.only in (None, resource):
            self.asked_while_away += 1
            raise error(self._kind)
        return await super().list(resource, **options)


def see(operator: Operator, resource: Resource, obj: Object, *, deleted: bool = False) -> None:
    """An event of one of TDCS's kinds, as its informer hears it."""
    (informer,) = operator._informers[resource]._informers
    informer._take(WatchEvent(type="DELETED" if deleted else "MODIFIED", object=obj))


async def waiting(operator: Operator) -> list[str]:
    """The keys in the queue, which is emptied."""
    queue, keys = operator.context.queue, []
    while len(queue):
        key = await queue.get()
        queue.done(key)
        keys.append(str(key))
    return sorted(keys)


def job(name: str, *datasets: str) -> Object:
    return {
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"datasets": [{"name": dataset} for dataset in datasets]},
    }


def cluster(state: str) -> Object:
    workers = [{"node": "a", "state": state, "usedBytes": 1}]
    return {"metadata": {"name": "default", "namespace": "tdcs-system"}, "status": {"workers": workers}}


async def test_the_addresses_of_all_pods_are_known() -> None:
    web: Object = {
        "metadata": {"name": "web", "namespace": "other", "resourceVersion": "1"},
        "spec": {"nodeName": "a", "containers": []},
        "status": {"podIPs": [{"ip": "192.0.2.7"}]},
    }
    ended = WatchEvent(
        type="DELETED", object={**web, "metadata": {**web["metadata"], "resourceVersion": "2"}}
    )
    over = asyncio.Event()

    class Api(ScriptedApi):
        async def watch(self, resource: Resource, **options: Any) -> AsyncIterator[WatchEvent]:
            await over.wait()
            yield ended
            await asyncio.Event().wait()

    operator = operator_of(Api(lists=[ObjectList(items=[trimmed(web)], resource_version="1")]))
    watching = asyncio.create_task(operator._other_pods.run())
    addresses = operator.context.stores.pod_addresses
    await eventually_async(lambda: "192.0.2.7" in addresses, deadline=20)
    over.set()
    await eventually_async(lambda: "192.0.2.7" not in addresses, deadline=20)
    watching.cancel()


async def test_a_view_that_hears_nothing_is_unhealthy(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert operator.health()["queued"] == 0
    monkeypatch.setattr(module, "STALE_SECONDS", -1.0)
    with pytest.raises(StaleError, match="nothing was heard about nodes"):
        operator.health()


async def test_an_api_server_that_is_away_for_an_hour_is_no_reason_for_a_restart() -> None:
    """Not while it stands by or waits for its first views, and not while it works without a Lease."""
    clock = Clock()
    operator = operator_of(ScriptedApi())
    for informers in (*operator._informers.values(), operator._other_pods):
        for informer in informers._informers:
            informer._clock, informer._contact = clock, clock()
            informer.problem = error(UnavailableError)
    clock.now = 3600.0
    assert operator.health()["starting"] is True
    informer.problem = None  # it is heard again, and then says nothing: a watch that hangs
    with pytest.raises(StaleError, match="nothing was heard about pods for 3600 s"):
        operator.health()


@pytest.mark.failure_mode("operator-cannot-watch-a-kind")
async def test_a_view_that_the_api_server_refuses_for_minutes_is_unhealthy(operator: Operator) -> None:
    """It answers: a right was taken away, and what is worked on may not be so any more."""
    (informer,) = operator._other_pods._informers
    informer._clock, informer._contact = Clock(), -module.STALE_SECONDS - 1
    informer.problem = error(ForbiddenError)
    with pytest.raises(StaleError, match="nothing was heard about pods for 181 s"):
        operator.health()


@pytest.mark.failure_mode("operator-cannot-watch-a-kind")
async def test_a_part_that_a_defect_has_ended_is_unhealthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the API server is away: nothing else would start that part again."""

    class Broken(ScriptedApi):
        async def list(self, resource: Resource, **options: object) -> ObjectList:
            raise error(UnavailableError) if resource is not NODES else KeyError("items")

    monkeypatch.setattr(startup, "LOOK_SECONDS", 0.01)
    operator = operator_of(Broken())
    starting = asyncio.create_task(operator.start())

    def problem() -> str:
        try:
            operator.health()
        except StaleError as error:
            return str(error)
        return ""

    async with asyncio.timeout(60):
        await eventually_async(lambda: "by a defect" in problem(), deadline=60)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await operator.stop()


@pytest.mark.failure_mode("api-server-away-minutes")
async def test_an_operator_that_starts_waits_for_the_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "SYNC_SECONDS", 0.01)
    monkeypatch.setattr(startup, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(startup, "backoff", lambda failures: 0.001)
    api = Away()
    operator = operator_of(api)
    async with asyncio.timeout(60):
        starting = asyncio.create_task(operator.start())
        await eventually_async(lambda: api.asked_while_away > 20, deadline=60)
        assert not starting.done()
        assert operator.health()["starting"] is True
        api.away = False
        await starting
        assert operator.health()["starting"] is False
        await operator.stop()


async def test_a_server_that_goes_away_between_two_lists_of_the_start_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(startup, "backoff", lambda failures: 0.001)
    api = Away()
    api.away, api.only = True, TRAINING_JOBS
    operator = operator_of(api)
    async with asyncio.timeout(60):
        starting = asyncio.create_task(operator.start())
        await eventually_async(lambda: api.asked_while_away > 3, deadline=60)
        assert not starting.done()
        api.away = False
        await starting
        await operator.stop()


@pytest.mark.parametrize("only", [NODES, TRAINING_JOBS])
async def test_a_right_that_is_missing_for_long_ends_the_start(
    only: Resource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup, "SYNC_SECONDS", 0.05)
    monkeypatch.setattr(startup, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(startup, "backoff", lambda failures: 0.01)
    api = Away(kind=ForbiddenError)
    api.only = only
    operator = operator_of(api)
    with pytest.raises(ForbiddenError):
        await asyncio.wait_for(operator.start(), 60)
    await operator.stop()


async def test_a_queue_that_does_not_move_is_unhealthy(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    see(operator, DATASETS, dataset_object())
    monkeypatch.setattr(module, "QUEUE_LIMIT_SECONDS", 0.0)
    with pytest.raises(StaleError, match="oldest change"):
        operator.health()


async def test_a_changed_dataset_concerns_the_jobs_that_read_it(operator: Operator) -> None:
    see(operator, TRAINING_JOBS, job("reader", "pictures"))
    see(operator, TRAINING_JOBS, job("other", "words"))
    await waiting(operator)
    see(operator, DATASETS, dataset_object("pictures"))
    assert await waiting(operator) == ["Dataset n/pictures", "TrainingJob n/reader"]


async def test_where_a_job_and_its_data_meet_concerns_the_dataset(operator: Operator) -> None:
    def admitted(*nodes: str) -> Object:
        meeting = {"way": "Grow", "nodes": list(nodes)}
        status = {
            "conditions": [{"type": "Admitted", "status": "True"}],
            "copies": [{"dataset": "pictures", "copy": "0", "meeting": meeting}],
        }
        return {**job("train", "pictures"), "status": status}

    see(operator, TRAINING_JOBS, job("train", "pictures"))
    see(operator, TRAINING_JOBS, admitted("a"))
    assert "Dataset n/pictures" in await waiting(operator)
    see(operator, TRAINING_JOBS, admitted("a"))
    assert "Dataset n/pictures" not in await waiting(operator)
    see(operator, TRAINING_JOBS, admitted("b"))
    assert "Dataset n/pictures" in await waiting(operator)


async def test_a_lost_worker_concerns_the_datasets_of_its_cluster(operator: Operator) -> None:
    see(operator, DATASETS, dataset_object("pictures"))
    see(operator, CACHE_CLUSTERS, cluster("Ready"))
    await waiting(operator)
    see(operator, CACHE_CLUSTERS, cluster("Ready"))
    assert await waiting(operator) == []
    see(operator, CACHE_CLUSTERS, cluster("Lost"))
    assert await waiting(operator) == ["Dataset n/pictures"]


@pytest.mark.parametrize(
    "spec", [{"sources": [{"name": "s"}]}, {"sourceFolders": ["/nfs"]}, {"scaling": {"followJobs": True}}]
)
async def test_a_changed_spec_of_a_cluster_concerns_its_datasets(operator: Operator, spec: Object) -> None:
    see(operator, DATASETS, dataset_object("pictures"))
    see(operator, CACHE_CLUSTERS, cluster("Ready"))
    await waiting(operator)
    see(operator, CACHE_CLUSTERS, {**cluster("Ready"), "spec": spec})
    assert "Dataset n/pictures" in await waiting(operator)


async def test_what_the_stories_wake_a_dataset_for_the_operator_does_too(operator: Operator) -> None:
    """The stories' API server (`cluster.Cluster`) names the objects that a change concerns by rules of its own."""
    preload = {"metadata": {"name": "warm", "namespace": "n"}, "spec": {"datasetRef": {"name": "pictures"}}}
    labelled = {"metadata": {"name": "n", "labels": {"team": "a"}}}
    bound = {"phase": "Bound"}
    changes: list[tuple[Callable[[], None], set[str]]] = [
        (lambda: see(operator, PRELOADS, preload), {"Preload n/warm"}),
        (lambda: see(operator, PRELOADS, preload, deleted=True), {"Preload n/warm"}),
        (lambda: operator._handlers.on_namespace(("", "n"), None, labelled), set()),
        (lambda: operator._handlers.on_dataset_claim(("n", "pictures"), bound, None), set()),
        (lambda: operator._handlers.on_dataset_claim(("n", "pictures"), bound, {"phase": "Lost"}), set()),
        (
            lambda: see(operator, CACHE_CLUSTERS, cluster("Ready"), deleted=True),
            {"CacheCluster tdcs-system/default"},
        ),
    ]
    see(operator, DATASETS, dataset_object("pictures"))
    see(operator, CACHE_CLUSTERS, cluster("Ready"))
    await waiting(operator)
    for change, own_keys in changes:
        change()
        assert set(await waiting(operator)) == {"Dataset n/pictures", *own_keys}
    operator._handlers.on_namespace(("", "n"), labelled, labelled)
    operator._handlers.on_dataset_claim(("n", "pictures"), None, {"phase": "Pending"})
    assert await waiting(operator) == []


async def test_a_status_alone_makes_no_work_but_a_changed_spec_and_a_deletion_do(operator: Operator) -> None:
    obj = dataset_object("pictures")
    see(operator, DATASETS, obj)
    await waiting(operator)
    see(operator, DATASETS, {**obj, "status": {"state": "Failed"}})
    assert await waiting(operator) == []
    for change in ({"generation": 7}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}):
        obj = {**obj, "metadata": {**obj["metadata"], **change}}
        see(operator, DATASETS, obj)
        assert await waiting(operator) == ["Dataset n/pictures"]


class ScriptedLease(Lease):
    """A lease that is given and taken when the test says so."""

    def __init__(self) -> None:
        super().__init__(api=ScriptedApi(), namespace="n", name="l", identity="me")
        self.granted, self.lost, self.released = asyncio.Event(), asyncio.Event(), False

    async def acquire(self) -> None:
        await self.granted.wait()

    async def keep(self) -> None:
        await self.lost.wait()
        raise LeaseLostError("taken")

    async def release(self) -> None:
        self.released = True


async def test_without_the_lease_nothing_is_worked_on_and_with_its_loss_the_work_ends() -> None:
    engine = MemoryEngine(sources={}, workers={})
    lease, ended = ScriptedLease(), asyncio.Event()
    operator = Operator(
        api=ScriptedApi(),
        caches=lambda _: MemoryCaches(engine),
        settings=Settings(),
        lease=lease,
        on_lease_lost=ended.set,
    )
    async with asyncio.timeout(60):
        await operator.start()
        see(operator, CACHE_CLUSTERS, {"metadata": {"name": "gone", "uid": "u"}})
        await asyncio.sleep(0)
        assert operator.health()["standingBy"] is True
        assert operator.health()["queued"] == 1
        lease.granted.set()
        await eventually_async(lambda: operator.health()["queued"] == 0, deadline=60)
        lease.lost.set()
        await ended.wait()
        assert operator.health()["standingBy"] is True
        see(operator, CACHE_CLUSTERS, {"metadata": {"name": "later", "uid": "u"}})
        await asyncio.sleep(0.01)
        assert operator.health()["queued"] == 1
        await operator.stop()
    assert lease.released


@pytest.mark.failure_mode("source-hangs-at-mount")
async def test_passes_that_hang_hold_up_no_other_kind(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: set[str] = set()

    async def hang(key: WorkKey) -> None:
        await asyncio.Event().wait()

    async def end(key: WorkKey) -> None:
        done.add(key.resource.kind)

    other_kinds = (CACHE_CLUSTERS, PRELOADS, TRAINING_JOBS)
    monkeypatch.setattr(operator, "_passes", {DATASETS: hang, **dict.fromkeys(other_kinds, end)})
    for number in range(2 * module.PASSES_AT_ONCE[DATASETS]):
        see(operator, DATASETS, dataset_object(f"slow-{number}"))
    for resource in other_kinds:
        operator.context.queue.add(WorkKey(resource, "n", "x"))
    await operator.start()
    await eventually_async(lambda: len(done) == len(other_kinds), deadline=60)
    await operator.stop()


class SlowSecrets(ScriptedApi):
    """An API server that lists Secrets when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()
        self.asked_for_secrets = False

    async def list(self, resource: Resource, **options: object) -> ObjectList:
        if resource is SECRETS:
            self.asked_for_secrets = True
            await self.may.wait()
        return await super().list(resource, **options)


async def test_no_pass_begins_before_the_operator_has_its_certificate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = SlowSecrets()
    settings = TrustSettings(provider="selfSigned", prefix="tdcs-trust")
    certificates = Certificates(api=api, namespace="tdcs-system", settings=settings)
    engine = MemoryEngine(sources={}, workers={})
    operator = Operator(
        api=api, caches=lambda _: MemoryCaches(engine), settings=Settings(), certificates=certificates
    )
    identities: list[Identity] = []

    async def call(key: WorkKey) -> None:
        identities.append(certificates.identify())

    monkeypatch.setattr(operator, "_passes", {DATASETS: call, CACHE_CLUSTERS: call})
    see(operator, DATASETS, dataset_object("pictures"))
    await operator.start()
    await eventually_async(lambda: api.asked_for_secrets, deadline=60)
    assert len(operator.context.queue) == 1
    api.may.set()
    await eventually_async(lambda: identities, deadline=60)
    await operator.stop()
