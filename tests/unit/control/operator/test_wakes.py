"""Who is woken by an event: those that it concerns, however many others there are."""

from typing import Any

import pytest
from tests.unit.control.builders import dataset_object

from tdcs.api import names
from tdcs.control.context import WorkKey
from tdcs.control.dataset_index import DatasetIndex
from tdcs.control.job_index import JobIndex
from tdcs.control.kept_job import kept_job
from tdcs.control.node_usage import PodAddresses, Usage
from tdcs.control.operator.event_handlers import ClaimUse, EventHandlers
from tdcs.control.operator.informers import empty_views
from tdcs.kube.queue import KeyedQueue
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, PRELOADS, TRAINING_JOBS

ENDED = 10_000


class Gangs:
    """The queue of jobs, which only hears that something has changed."""

    def touch(self, **_: bool) -> None:
        pass


def job(name: str, *conditions: str, data: str = "pictures") -> Object:
    statuses = [{"type": kind, "status": "True", "reason": "x"} for kind in conditions]
    spec = {"datasets": [{"name": data}]}
    return {"metadata": {"name": name, "namespace": "n"}, "spec": spec, "status": {"conditions": statuses}}


@pytest.fixture
def world() -> Any:
    jobs = JobIndex({("n", f"old-{i}"): job(f"old-{i}", "Admitted", "Succeeded") for i in range(ENDED)})
    jobs["n", "waits"], jobs["n", "runs"] = job("waits"), job("runs", "Admitted")
    jobs["n", "other"] = job("other", data="tables")
    queue: KeyedQueue[WorkKey] = KeyedQueue()
    views: Any = {CACHE_CLUSTERS: {}, DATASETS: {}, PRELOADS: {}, TRAINING_JOBS: jobs}
    gangs: Any = Gangs()
    handlers = EventHandlers(
        views=views,
        queue=queue,
        namespace="tdcs-system",
        gangs=gangs,
        usage=Usage(),
        pod_addresses=PodAddresses(),
        other_pods={},
    )

    async def woken() -> list[str]:
        keys = []
        while len(queue):
            key = await queue.get()
            keys += [key.name] if key.resource is TRAINING_JOBS else []
            queue.done(key)
        return sorted(keys)

    return handlers, woken


def pictures(**status: Any) -> Object:
    return {**dataset_object(), "status": {"mountPath": "/m", **status}}


async def test_the_progress_of_a_load_wakes_only_jobs_that_wait_for_it(world: Any) -> None:
    handlers, woken = world
    before, after = pictures(loadedRatio=0.10), pictures(loadedRatio=0.11)
    handlers.on_custom_resource(DATASETS, ("n", "pictures"), before, after)
    assert await woken() == ["waits"]


async def test_the_owner_of_a_shared_source_is_woken_by_those_who_begin_to_read_it() -> None:
    queue: KeyedQueue[WorkKey] = KeyedQueue()
    reference = {"datasetRef": {"namespace": "owners", "name": "shared"}}
    reader = {"metadata": {"name": "images", "namespace": "n"}, "spec": {"source": reference}}
    views: Any = {CACHE_CLUSTERS: {}, DATASETS: {("n", "images"): reader, ("owners", "shared"): pictures()}}
    ClaimUse(views=views, queue=queue, namespace="tdcs-system").changed(("n", "images"))
    assert {(key.namespace, key.name) for key in (await queue.get(), await queue.get())} == {
        ("n", "images"),
        ("owners", "shared"),
    }


async def test_a_job_that_waits_for_gpus_alone_looks_when_data_is_lost_and_not_when_it_comes(
    world: Any,
) -> None:
    handlers, woken = world
    jobs = handlers._views[TRAINING_JOBS]
    jobs["n", "queued"] = job("queued", "DataReady", "Queued")
    jobs["n", "cold"] = job("cold", "DataReady", "Queued")
    # The message of this one says how much is there.
    jobs["n", "cold"]["status"]["conditions"][0]["reason"] = "ReadinessTimedOut"
    few, more = pictures(loadedRatio=0.10), pictures(loadedRatio=0.11)
    handlers.on_custom_resource(DATASETS, ("n", "pictures"), few, more)
    assert await woken() == ["cold", "waits"]
    handlers.on_custom_resource(DATASETS, ("n", "pictures"), more, few)
    assert await woken() == ["cold", "queued", "waits"]


@pytest.mark.parametrize("resource", [PRELOADS, CACHE_CLUSTERS], ids=["Preload", "CacheCluster"])
async def test_what_another_status_says_of_the_progress_wakes_no_job(world: Any, resource: Any) -> None:
    handlers, woken = world
    before = {"metadata": {"generation": 1}, "spec": {"datasetRef": {"name": "pictures"}}, "status": {}}
    after = {**before, "status": {"bytesDone": 5, "usedBytes": 5, "conditions": [{"type": "Ready"}]}}
    handlers.on_custom_resource(resource, ("n", "one"), before, after)
    assert await woken() == []


async def test_a_dataset_that_cannot_be_read_any_more_wakes_those_that_read_it_too(world: Any) -> None:
    handlers, woken = world
    unmounted = {"type": "Mounted", "status": "False", "reason": "SourceGone"}
    handlers.on_custom_resource(DATASETS, ("n", "pictures"), pictures(), pictures(conditions=[unmounted]))
    assert await woken() == ["runs", "waits"]
    handlers.on_custom_resource(DATASETS, ("n", "pictures"), pictures(), None)
    assert await woken() == ["runs", "waits"]


async def test_a_deleted_pod_wakes_its_job_alone(world: Any) -> None:
    handlers, woken = world
    pod = {"metadata": {"name": "runs-worker-0-abcde", "labels": {"tdcs.io/training-job": "runs"}}}
    handlers.on_job_child(("n", "runs-worker-0-abcde"), None, pod)
    assert await woken() == ["runs"]
    handlers.on_job_child(("n", "runs-worker-0-abcde"), pod, None)
    assert await woken() == ["runs"]


async def test_a_deleted_workload_wakes_its_job_alone(world: Any) -> None:
    handlers, woken = world
    workload = {"metadata": {"name": "w", "labels": {"tdcs.io/training-job": "waits"}}}
    handlers.on_workload(("n", "w"), None, workload)
    assert await woken() == ["waits"]
    handlers.on_workload(("n", "w"), workload, None)
    assert await woken() == ["waits"]


def nodes_world() -> tuple[EventHandlers, KeyedQueue[WorkKey], list[str]]:
    """Handlers with two CacheClusters, their queue, and each touch of the queue of jobs."""
    touched: list[str] = []

    class Touched:
        def touch(self, **of: bool) -> None:
            touched.append(",".join(of))

    gangs: Any = Touched()
    clusters = {("tdcs-system", name): {"metadata": {"name": name}} for name in ("default", "other")}
    views: Any = {CACHE_CLUSTERS: clusters, DATASETS: {}, PRELOADS: {}, TRAINING_JOBS: JobIndex()}
    queue: KeyedQueue[WorkKey] = KeyedQueue()
    handlers = EventHandlers(
        views=views,
        queue=queue,
        namespace="tdcs-system",
        gangs=gangs,
        usage=Usage(),
        pod_addresses=PodAddresses(),
        other_pods={},
    )
    return handlers, queue, touched


def node(*, gpus: str = "8", heartbeat: str = "1", unschedulable: bool = False, zone: str = "a") -> Object:
    return {
        "metadata": {"name": "node", "labels": {"zone": zone}},
        "spec": {"unschedulable": unschedulable},
        "status": {"allocatable": {"nvidia.com/gpu": gpus}, "conditions": [{"lastHeartbeatTime": heartbeat}]},
    }


@pytest.mark.parametrize(
    ("before", "after", "wakes_jobs", "wakes_clusters"),
    [
        (node(), node(heartbeat="2"), False, False),
        (node(), node(gpus="7"), True, False),
        (node(), node(unschedulable=True), True, False),
        (node(), node(zone="b"), True, True),
        (None, node(), True, True),
        (node(), None, True, True),
    ],
    ids=["heartbeat", "size", "cordon", "label", "new", "gone"],
)
async def test_a_node_wakes_by_what_placements_depend_on(
    before: Object | None, after: Object | None, wakes_jobs: bool, wakes_clusters: bool
) -> None:
    handlers, queue, touched = nodes_world()
    handlers.on_node(("", "node"), before, after)
    assert touched == (["nodes"] if wakes_jobs else [])
    assert len(queue) == (2 if wakes_clusters else 0)


async def test_a_deleted_workload_set_wakes_its_cache_cluster_alone() -> None:
    handlers, queue, _ = nodes_world()
    metadata = {"name": "x", "namespace": "tdcs-system", "labels": {names.LABEL_CACHE_CLUSTER: "other"}}
    handlers.on_cluster_child(("tdcs-system", "x"), {"metadata": metadata}, None)
    assert [str(await queue.get())] == ["CacheCluster tdcs-system/other"]
    assert not len(queue)


def test_the_index_follows_what_becomes_of_jobs() -> None:
    index = JobIndex()
    index["n", "a"] = job("a")
    assert list(index.reading(("n", "pictures"))) == [("n", "a")]
    index["n", "a"] = job("a", data="tables")
    assert not index.reading(("n", "pictures"))
    assert list(index.reading(("n", "tables"))) == [("n", "a")]
    index["n", "a"] = job("a", "Failed", data="tables")
    assert (len(index), len(index.live), index.reading(("n", "tables"))) == (1, 0, {})
    index["n", "b"] = job("b")
    assert index.pop(("n", "b"))["metadata"]["name"] == "b"
    assert index.pop(("n", "b"), None) is None
    assert (list(index), index.reading(("n", "pictures"))) == ([("n", "a")], {})


def test_of_a_job_that_has_ended_a_view_keeps_no_template() -> None:
    ended = job("a", "Succeeded")
    ended["spec"] |= {"replicaSpecs": [{"name": "Worker"}], "runPolicy": {"ttlSecondsAfterFinished": 5}}
    ended["status"] |= {"placement": [{"pod": "p"}], "observedGeneration": 3}
    reduced = kept_job(ended)
    assert reduced["spec"] == {
        "datasets": [{"name": "pictures"}],
        "runPolicy": {"ttlSecondsAfterFinished": 5},
    }
    assert reduced["status"] == {
        "conditions": [{"type": "Succeeded", "status": "True"}],
        "observedGeneration": 3,
    }
    runs = job("b", "Admitted")
    assert kept_job(runs) == runs


async def test_what_an_owner_shares_or_takes_back_wakes_those_that_read_by_it() -> None:
    queue: KeyedQueue[WorkKey] = KeyedQueue()

    def reader(namespace: str, name: str) -> Object:
        reference = {"namespace": namespace, "name": name}
        return {"metadata": {"generation": 1}, "spec": {"source": {"datasetRef": reference}}}

    datasets = {
        ("n", "pictures"): pictures(),
        ("b", "reads"): reader("n", "pictures"),
        ("b", "reads-another"): reader("n", "tables"),
        ("c", "reads"): reader("elsewhere", "pictures"),
    }
    gangs: Any = Gangs()
    views: Any = {CACHE_CLUSTERS: {}, DATASETS: datasets, PRELOADS: {}, TRAINING_JOBS: JobIndex()}
    handlers = EventHandlers(
        views=views,
        queue=queue,
        namespace="tdcs-system",
        gangs=gangs,
        usage=Usage(),
        pod_addresses=PodAddresses(),
        other_pods={},
    )

    async def woken() -> set[tuple[str, str]]:
        jobs = set()
        while len(queue):
            key = await queue.get()
            jobs.add((key.namespace, key.name))
            queue.done(key)
        return jobs

    changed = pictures()
    changed["metadata"]["generation"] = 7
    handlers.on_custom_resource(DATASETS, ("n", "pictures"), pictures(), changed)
    assert await woken() == {("n", "pictures"), ("b", "reads")}
    handlers.on_custom_resource(DATASETS, ("n", "pictures"), pictures(), pictures(loadedRatio=0.5))
    assert await woken() == set()
    handlers.on_namespace(("", "n"), None, {"metadata": {"labels": {"org": "vision"}}})
    assert await woken() == {("n", "pictures"), ("b", "reads"), ("b", "reads-another")}


async def test_a_priority_class_that_comes_or_goes_wakes_the_caches_that_name_it() -> None:
    queue: KeyedQueue[WorkKey] = KeyedQueue()
    caches = {
        ("tdcs-system", "names-it"): {"spec": {"priorityClassName": "first"}},
        ("tdcs-system", "names-another"): {"spec": {"priorityClassName": "last"}},
        ("tdcs-system", "names-none"): {},
    }
    gangs: Any = Gangs()
    views: Any = {**empty_views(), CACHE_CLUSTERS: caches}
    handlers = EventHandlers(
        views=views,
        queue=queue,
        namespace="tdcs-system",
        gangs=gangs,
        usage=Usage(),
        pod_addresses=PodAddresses(),
        other_pods={},
    )
    first: Object = {"metadata": {"name": "first"}, "value": 9}
    for before, after in ((None, first), (first, None)):
        handlers.on_priority_class(("", "first"), before, after)
        assert (await queue.get()).name == "names-it"
        queue.done(WorkKey(CACHE_CLUSTERS, "tdcs-system", "names-it"))
        assert not len(queue)
    handlers.on_priority_class(("", "first"), first, {**first, "description": "of caches"})
    assert not len(queue)


class CountedDataset(dict[str, Any]):
    """A Dataset that counts how often something of any of them is read."""

    reads = 0

    def get(self, field: str, default: Any = None) -> Any:
        CountedDataset.reads += 1
        return super().get(field, default)

    def __getitem__(self, field: str) -> Any:
        CountedDataset.reads += 1
        return super().__getitem__(field)


def reads_of_a_first_list(count: int) -> int:
    """How often Datasets are read while so many are listed, each with its namespace, and shared by the next one."""
    views, gangs = empty_views(), Gangs()
    handlers = EventHandlers(
        views=views,
        queue=KeyedQueue(),
        namespace="tdcs-system",
        gangs=gangs,  # type: ignore[arg-type]
        usage=Usage(),
        pod_addresses=PodAddresses(),
        other_pods={},
    )
    CountedDataset.reads = 0
    for number in range(count):
        key = f"team-{number}", "pictures"
        reference = {"datasetRef": {"namespace": f"team-{number - 1}", "name": "pictures"}}
        views[DATASETS][key] = dataset = CountedDataset(
            metadata={"namespace": key[0], "name": key[1]}, spec={"source": reference}
        )
        handlers.on_custom_resource(DATASETS, key, None, dataset)
    for number in range(count):
        handlers.on_namespace(("", f"team-{number}"), None, {"metadata": {"labels": {}}})
    return CountedDataset.reads


def test_the_work_of_a_first_list_of_datasets_and_namespaces_grows_as_their_number() -> None:
    assert reads_of_a_first_list(200) == 10 * reads_of_a_first_list(20) > 0


def test_the_index_follows_which_sources_datasets_read() -> None:
    def reads(namespace: str) -> Object:
        return {"spec": {"source": {"datasetRef": {"namespace": namespace, "name": "pictures"}}}}

    index = DatasetIndex({("b", "x"): reads("a"), ("c", "y"): reads("a"), ("a", "pictures"): pictures()})
    assert list(index.sharers(("a", "pictures"))) == [("b", "x"), ("c", "y")]
    assert list(index.touching("a")) == [("b", "x"), ("c", "y"), ("a", "pictures")]
    index["b", "x"] = reads("c")
    assert list(index.sharers(("a", "pictures"))) == [("c", "y")]
    assert list(index.touching("c")) == [("c", "y"), ("b", "x")]
    index["b", "x"] = {"spec": "nonsense"}
    assert list(index.touching("c")) == [("c", "y")]
    assert list(index.touching("b")) == [("b", "x")]
    del index["c", "y"]
    assert index.pop(("b", "x")) == {"spec": "nonsense"}
    assert index.pop(("b", "x"), None) is None
    assert (list(index), list(index.sharers(("a", "pictures")))) == ([("a", "pictures")], [])
    assert [list(index.touching(namespace)) for namespace in "abc"] == [[("a", "pictures")], [], []]
