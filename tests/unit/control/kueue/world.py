"""A Kueue that does nothing by itself, on an API server in memory, and the controller of its checks for data."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from tests.support.caches import MemoryCaches
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.builders import NOW
from tests.unit.control.server import Server
from tests.unit.decide.job.test_data_verdict import at, known_dataset
from tests.unit.kube.fake import error

from tdcs.control.context import Context, Stores
from tdcs.control.kueue.datacheck_controller import KueueChecks
from tdcs.kube.api import KubeApi
from tdcs.kube.apply import Applier
from tdcs.kube.errors import ConflictError, ForbiddenError, InvalidError, KubeError
from tdcs.kube.events import EventRecorder
from tdcs.kube.queue import KeyedQueue
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import (
    ADMISSION_CHECKS,
    DATA_CHECKS,
    DATASETS,
    PRELOADS,
    TRAINING_JOBS,
    WORKLOADS,
    Resource,
)


class KueueServer(Server):
    """A status that is applied keeps what others have written next to it.

    Attributes:
        refused: keys of objects that cannot be written.
        refusal: the error of such a write.
        code: its HTTP status; 0: there was no answer.
        holds_refused: what a webhook says that lets no Workload be put on hold; empty: there is none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[tuple[str, str]] = set()
        self.refusal: type[KubeError] = ForbiddenError
        self.code = 403
        self.holds_refused = ""

    async def create(self, resource: Resource, *, obj: Object, dry_run: bool = False) -> Object:
        self._check(resource, obj)
        return await super().create(resource, obj=obj, dry_run=dry_run)

    async def merge_status(
        self, resource: Resource, *, name: str, namespace: str | None = None, patch: Mapping[str, Any]
    ) -> Object:
        conditions = patch["status"].get("conditions") or ()
        if self.holds_refused and any(condition["reason"] == "OnHold" for condition in conditions):
            raise InvalidError(
                verb="change",
                resource=resource,
                namespace=namespace,
                name=name,
                code=422,
                reason="Invalid",
                detail=self.holds_refused,
            )
        return await super().merge_status(resource, name=name, namespace=namespace, patch=patch)

    def _check(self, resource: Resource, obj: Object) -> None:
        namespace, name = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
        if (namespace, name) in self.refused:
            raise self.refusal(
                verb="write",
                resource=resource,
                namespace=namespace,
                name=name,
                code=self.code,
                reason="",
                detail=f"refused {name}",
            )

    async def apply_status(self, resource: Resource, *, obj: Object) -> Object:
        self._check(resource, obj)
        live = self.store(resource).get((obj["metadata"].get("namespace", ""), obj["metadata"]["name"]))
        version = obj["metadata"].get("resourceVersion")
        if live is not None and version not in {None, live["metadata"].get("resourceVersion")}:
            raise error(ConflictError)
        before = (live or {}).get("status") or {}
        return await super().apply_status(resource, obj={**obj, "status": {**before, **obj["status"]}})


class World:
    """A Kueue that does nothing by itself, and the controller."""

    def __init__(self) -> None:
        self.server = KueueServer()
        self.second, self.seconds = 110, 0.0
        api = cast("KubeApi", self.server)
        context = Context(
            api=api,
            applier=Applier(api=api),
            recorder=EventRecorder(api=api, component="test", now=lambda: NOW),
            caches=MemoryCaches(MemoryEngine(sources={}, workers={})),
            stores=Stores(
                datasets=self.server.store(DATASETS),
                preloads=self.server.store(PRELOADS),
                training_jobs=self.server.store(TRAINING_JOBS),
            ),
            queue=KeyedQueue(),
            now=lambda: at(self.second),
        )
        self.checks = KueueChecks(context=context, clock=lambda: self.seconds)
        for informer, resource in (
            (self.checks._checks, ADMISSION_CHECKS),
            (self.checks._parameters, DATA_CHECKS),
            (self.checks._workloads, WORKLOADS),
        ):
            informer.store = self.server.store(resource)
        self.put(
            ADMISSION_CHECKS,
            {"metadata": {"name": "data", "uid": "c"}, "spec": {"controllerName": "tdcs.io/data"}},
        )

    def put(self, resource: Resource, obj: Object) -> None:
        self.server.store(resource)[obj["metadata"].get("namespace", ""), obj["metadata"]["name"]] = obj

    def dataset(self, name: str, cached: int, **more: Any) -> None:
        dataset = known_dataset(cached, **more).dataset
        assert dataset is not None
        document = dataset.model_dump(by_alias=True, mode="json")
        self.put(DATASETS, {**document, "metadata": {"namespace": "n", "name": name, "uid": name}})

    def look(self) -> list[str]:
        """One pass; what it wrote."""
        self.server.writes.clear()
        asyncio.run(self.checks.look())
        return list(self.server.writes)

    def state(self, name: str = "w") -> Object:
        check: Object = self.server.store(WORKLOADS)["n", name]["status"]["admissionChecks"][0]
        return check

    def active(self) -> Object:
        condition: Object = self.server.store(ADMISSION_CHECKS)["", "data"]["status"]["conditions"][0]
        return condition


def hold_soon(world: World) -> None:
    """Quota is held for five seconds."""
    world.put(DATA_CHECKS, {"metadata": {"name": "soon"}, "spec": {"holdQuota": "5s"}})
    parameters = {"apiGroup": "tdcs.io", "kind": "DataCheck", "name": "soon"}
    world.server.store(ADMISSION_CHECKS)["", "data"]["spec"]["parameters"] = parameters


def reserved(world: World, name: str) -> Object:
    """The condition of a Workload about its quota."""
    conditions = world.server.store(WORKLOADS)["n", name]["status"]["conditions"]
    condition: Object = next(condition for condition in conditions if condition["type"] == "QuotaReserved")
    return condition
