"""Several namespaces are one view, and a list of one takes nothing from the others."""

import asyncio

from tests.support.waiting import eventually_async
from tests.unit.kube.fake import ScriptedApi

from tdcs.kube.api import ObjectList
from tdcs.kube.informer_set import InformerSet
from tdcs.kube.scope import Scope
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, JOBS, TRAINING_JOBS, Resource

Jobs = list[Object]
Names = list[str]


class TwoNamespaces(ScriptedApi):
    """An API server with one Job in each of two namespaces; others are forbidden."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[str, Jobs] = {
            name: [{"metadata": {"name": "job", "namespace": name, "resourceVersion": "1"}}] for name in "ab"
        }
        self.namespaces_listed: Names = []

    async def list(self, resource: Resource, **options: object) -> ObjectList:
        namespace = str(options["namespace"])
        self.namespaces_listed.append(namespace)
        return ObjectList(items=self.jobs[namespace], resource_version="1")


async def test_a_namespace_that_is_listed_again_takes_nothing_from_the_view_of_another() -> None:
    api, deleted = TwoNamespaces(), list[tuple[str, str]]()
    informers = InformerSet(
        api=api,
        resource=JOBS,
        namespaces=["a", "b"],
        on_change=lambda key, _, after: deleted.append(key) if after is None else None,
    )
    task = asyncio.create_task(informers.run())
    try:
        await informers.wait_synced()
        assert set(informers.store) == {("a", "job"), ("b", "job")}
        api.jobs["a"] = []
        first, _second = informers._informers
        first._version = ""
        await first._list()
        assert set(informers.store) == {("b", "job")}
        assert deleted == [("a", "job")]
        assert informers.silent_seconds() < 60
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await eventually_async(lambda: set(api.namespaces_listed) == {"a", "b"}, deadline=10)


def test_a_scope_names_where_each_resource_is_looked_for() -> None:
    everywhere = Scope(own="tdcs")
    for resource in (JOBS, DATASETS, CACHE_CLUSTERS):
        assert everywhere.namespaces(resource) == (None,)
    scope = Scope(own="tdcs", datasets=frozenset({"data", "both"}), jobs=frozenset({"both"}))
    assert scope.namespaces(DATASETS) == ("both", "data", "tdcs")
    assert scope.namespaces(JOBS) == scope.namespaces(TRAINING_JOBS) == ("both", "tdcs")
    assert scope.namespaces(CACHE_CLUSTERS) == ("tdcs",)
