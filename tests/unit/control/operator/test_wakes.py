"""Who is woken by an event: those that it concerns, however many others there are."""

from typing import Any

import pytest
from tests.unit.control.builders import dataset_object

from tdcs.control.context import WorkKey
from tdcs.control.job_index import JobIndex, kept_job
from tdcs.control.node_usage import PodAddresses, Usage
from tdcs.control.operator.event_handlers import EventHandlers
from tdcs.kube.queue import KeyedQueue
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, PRELOADS, TRAINING_JOBS

ENDED = 10_000


class Gangs:
    """The queue of jobs, which only hears that something has changed."""

    def touch(self, **_: bool) -> None:
        pass


def job(name: str, *conditions: str, data: str = "pictures") -> Object:
    told = [{"type": kind, "status": "True", "reason": "x"} for kind in conditions]
    spec = {"datasets": [{"name": data}]}
    return {"metadata": {"name": name, "namespace": "n"}, "spec": spec, "status": {"conditions": told}}


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
    )

    async def woken() -> list[str]:
        found = []
        while len(queue):
            key = await queue.get()
            found += [key.name] if key.resource is TRAINING_JOBS else []
            queue.done(key)
        return sorted(found)

    return handlers, woken


def pictures(**status: Any) -> Object:
    return {**dataset_object(), "status": {"mountPath": "/m", **status}}


async def test_the_progress_of_a_load_wakes_only_jobs_that_wait_for_it(world: Any) -> None:
    handlers, woken = world
    before, after = pictures(loadedRatio=0.10), pictures(loadedRatio=0.11)
    handlers.on_custom_resource(DATASETS, ("n", "pictures"), after, before=before, deleted=False)
    assert await woken() == ["waits"]


async def test_a_dataset_that_cannot_be_read_any_more_wakes_those_that_read_it_too(world: Any) -> None:
    handlers, woken = world
    gone = {"type": "Mounted", "status": "False", "reason": "SourceGone"}
    handlers.on_custom_resource(
        DATASETS, ("n", "pictures"), pictures(conditions=[gone]), before=pictures(), deleted=False
    )
    assert await woken() == ["runs", "waits"]
    handlers.on_custom_resource(DATASETS, ("n", "pictures"), pictures(), before=pictures(), deleted=True)
    assert await woken() == ["runs", "waits"]


async def test_a_deleted_pod_wakes_its_job_alone(world: Any) -> None:
    handlers, woken = world
    pod = {"metadata": {"name": "runs-worker-0-abcde", "labels": {"tdcs.io/training-job": "runs"}}}
    handlers.on_job_child(("n", "runs-worker-0-abcde"), pod)
    assert await woken() == ["runs"]
    handlers.on_job_child(("n", "runs-worker-0-abcde"), None)
    assert await woken() == ["runs"]
    handlers.on_job_child(("n", "runs-worker-0-abcde"), None)
    assert await woken() == []


async def test_a_deleted_workload_wakes_its_job_alone(world: Any) -> None:
    handlers, woken = world
    workload = {"metadata": {"name": "w", "labels": {"tdcs.io/training-job": "waits"}}}
    handlers.on_workload(("n", "w"), workload)
    assert await woken() == ["waits"]
    handlers.on_workload(("n", "w"), None)
    assert await woken() == ["waits"]


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
    kept = kept_job(ended)
    assert kept["spec"] == {"datasets": [{"name": "pictures"}], "runPolicy": {"ttlSecondsAfterFinished": 5}}
    assert kept["status"] == {"conditions": ended["status"]["conditions"], "observedGeneration": 3}
    runs = job("b", "Admitted")
    assert kept_job(runs) is runs


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
    )

    async def woken() -> set[tuple[str, str]]:
        found = set()
        while len(queue):
            key = await queue.get()
            found.add((key.namespace, key.name))
            queue.done(key)
        return found

    changed = pictures()
    changed["metadata"]["generation"] = 7
    handlers.on_custom_resource(DATASETS, ("n", "pictures"), changed, before=pictures(), deleted=False)
    assert await woken() == {("n", "pictures"), ("b", "reads")}
    handlers.on_custom_resource(
        DATASETS, ("n", "pictures"), pictures(loadedRatio=0.5), before=pictures(), deleted=False
    )
    assert await woken() == set()
    handlers.on_namespace(("", "n"), {"metadata": {"labels": {"org": "vision"}}})
    assert await woken() == {("n", "pictures"), ("b", "reads"), ("b", "reads-another")}
