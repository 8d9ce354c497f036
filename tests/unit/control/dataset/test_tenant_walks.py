"""Random walks of ten namespaces with Datasets of one source and TrainingJobs of their own, mistakes included: what one
does is neither seen nor paid by another."""

from __future__ import annotations

import base64
import dataclasses
import itertools
import json
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.kube.objects import with_roles
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import QUICK, Cluster
from tests.unit.control.dataset.test_tenants import FILES, MB, NODES, NOWHERE, SIZE, SOURCE, Tenants
from tests.unit.control.jobs import GPU, Jobs, role

from tdcs.api import names
from tdcs.control.context import WorkKey
from tdcs.control.node_usage import trimmed
from tdcs.model.cache_engine import Credentials
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import (
    DATASETS,
    EVENTS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    PRELOADS,
    RESOURCE_QUOTAS,
    SECRETS,
    TRAINING_JOBS,
    Resource,
)

WALKS, STEPS = int(os.environ.get("TDCS_TENANT_WALKS", "1")), 6
RIGHT = Credentials(access_key_id="me", secret_access_key="me")
EVERYBODY = tuple(f"tenant-{letter}" for letter in "abcdefghij")
GPUS = 1000
"""Of each node: nobody waits for those that others have, which is no matter of data."""


class TenantJobs(Jobs):
    """The operator of jobs over the Datasets of a cluster, for all namespaces."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(gpus=dict.fromkeys(NODES, GPUS))
        self.cluster = cluster
        self.server._numbers = itertools.count(1_000_000)  # no id is given twice
        for resource in (DATASETS, TRAINING_JOBS, NAMESPACES):
            self.server.stores[resource.plural] = cluster.server.store(resource)

    def _changed(self, resource: Resource, obj: Object, deleted: bool) -> None:
        super()._changed(resource, obj, deleted)
        if resource is TRAINING_JOBS:
            for use in obj["spec"].get("datasets", ()):
                key = WorkKey(DATASETS, obj["metadata"]["namespace"], use["name"])
                self.cluster.context.queue.add(key)

    def _count(self, key: tuple[str, str], pod: Object | None) -> None:
        super()._count(key, pod)
        holds = pod is not None and pod["spec"].get("nodeName") and pod["status"]["phase"] == "Running"
        self.cluster.usage.seen(key, trimmed(pod) if pod is not None and holds else None)

    def pods(self, job: str = "") -> list[Object]:
        labelled = [
            (key, (pod["metadata"].get("labels") or {}).get(names.LABEL_TRAINING_JOB), pod)
            for key, pod in self.server.store(PODS).items()
        ]
        return [
            pod
            for _, owner, pod in sorted(labelled, key=lambda entry: entry[0])
            if owner and job in ("", owner)
        ]


class Walk(Tenants):
    """The namespaces, and what they may do."""

    def __init__(self, cluster: Cluster, jobs: TenantJobs, dice: random.Random) -> None:
        super().__init__(cluster)
        self.jobs, self.dice = jobs, dice
        self._numbers = itertools.count()

    async def begin(self) -> None:
        for tenant in EVERYBODY:
            if self.dice.random() < 0.4:
                await self.limit(tenant, self.dice.choice([3 * MB, SIZE, 4 * SIZE]))
            access = {"maxConcurrentJobs": 1, "onLimit": self.dice.choice(["Suspend", "Clone"])}
            await self.create(tenant, placement={"nodeCount": self.dice.randint(1, 2)}, access=access)
        await self.cluster.until(
            lambda: all(self.status(member).get("grant") for member in EVERYBODY), deadline=120.0
        )
        await self.settle()

    def keys(self, tenant: str, secret: str) -> None:
        data = {"accessKeyId": "me", "secretAccessKey": secret}
        self.cluster.server.store(SECRETS)[tenant, "keys"]["data"] = {
            field: base64.b64encode(value.encode()).decode() for field, value in data.items()
        }

    async def note(self, tenant: str) -> None:
        """What half a minute does: the operator reads the Secret again."""
        patch = {"metadata": {"annotations": {"tdcs.io/note": str(next(self._numbers))}}}
        await self.cluster.server.merge(DATASETS, name=self.dataset(tenant), namespace=tenant, patch=patch)

    async def submit(self, tenant: str, *, workers: int = 1, gpus: int = 1, **spec: Any) -> None:
        """A TrainingJob that reads the namespace's Dataset."""
        name = f"job-of-{tenant}-{next(self._numbers)}"
        reads = [{"name": self.dataset(tenant), "mountPath": "/data"}]
        job_spec = with_roles({"roles": {"Worker": role(workers, gpus=gpus)}, "datasets": reads, **spec})
        obj = {
            "apiVersion": names.API_VERSION,
            "kind": "TrainingJob",
            "metadata": {"name": name, "namespace": tenant},
            "spec": job_spec,
        }
        await self.jobs.server.create(TRAINING_JOBS, obj=obj)

    def own_jobs(self, tenant: str) -> list[Object]:
        return [obj for (place, _), obj in self.jobs.server.store(TRAINING_JOBS).items() if place == tenant]

    async def end_pods(self, tenant: str, code: int) -> None:
        for pod in self.jobs.pods():
            if pod["metadata"]["namespace"] == tenant and pod["status"]["phase"] == "Running":
                await self.jobs.end(pod, code=code)

    async def step(self, tenant: str) -> str:
        """Something at random that a namespace, or the administrator for it, does; says what."""
        server, dice = self.cluster.server, self.dice
        action = dice.choice(
            [
                "job",
                "job",
                "elastic",
                "huge",
                "typo",
                "end",
                "fail",
                "forget",
                "suspend",
                "quota",
                "keys",
                "cache quota",
                "nowhere",
                "nodes",
                "copies",
                "preload",
                "delete",
                "paths",
                "access",
                "refresh",
            ]
        )
        jobs = self.own_jobs(tenant)
        match action:
            case "job":
                await self.submit(tenant, workers=dice.randint(1, 3))
            case "elastic":
                await self.submit(tenant, workers=4, elastic={"minReplicas": 1, "maxReplicas": 8})
            case "huge":
                await self.submit(tenant, gpus=GPUS + 1)
            case "typo":
                await self.submit(tenant, datasets=[{"name": f"daat-of-{tenant}", "mountPath": "/data"}])
            case "end":
                await self.end_pods(tenant, 0)
            case "fail":
                await self.end_pods(tenant, 1)
            case "forget" if jobs:
                job = dice.choice(jobs)["metadata"]
                await self.jobs.server.delete(TRAINING_JOBS, name=job["name"], namespace=tenant)
            case "suspend" if jobs:
                policy = {"suspend": dice.random() < 0.5}
                await self.jobs.server.merge(
                    TRAINING_JOBS,
                    name=dice.choice(jobs)["metadata"]["name"],
                    namespace=tenant,
                    patch={"spec": {"runPolicy": policy}},
                )
            case "quota":
                name = f"quota-of-{tenant}"
                hard = {f"requests.{GPU}": str(dice.randint(0, 2))}
                quota = {"metadata": {"name": name, "namespace": tenant}, "spec": {"hard": hard}}
                self.jobs.server.store(RESOURCE_QUOTAS)[tenant, name] = {**quota, "status": {"hard": hard}}
                self.jobs.gangs.touch()
            case "keys":
                self.keys(tenant, dice.choice(["me", "mistyped"]))
                await self.note(tenant)
            case "cache quota":
                await self.limit(tenant, dice.choice([MB, SIZE, 4 * SIZE]))
            case "nowhere":
                await self.change(tenant, placement={"nodeSelector": NOWHERE})
            case "nodes":
                count = dice.choice([None, 1, 2, 3])
                await self.change(tenant, placement={"nodeSelector": None, "nodeCount": count})
            case "copies":
                await self.change(tenant, placement={"copies": dice.choice([1, 2])})
            case "preload":
                name = f"preload-of-{tenant}-{next(self._numbers)}"
                spec: Object = {"datasetRef": {"name": self.dataset(tenant)}}
                spec |= dice.choice([{}, {"percent": 50}, {"copies": 2}, {"paths": ["nothing/"]}])
                metadata = {"name": name, "namespace": tenant}
                obj = {"apiVersion": names.API_VERSION, "kind": "Preload", "metadata": metadata, "spec": spec}
                await server.create(PRELOADS, obj=obj)
            case "delete":
                for job in jobs:
                    await self.jobs.server.delete(
                        TRAINING_JOBS, name=job["metadata"]["name"], namespace=tenant
                    )
                await self.jobs.until(lambda: not [1 for pod in self.jobs.pods() if self.is_of(pod, tenant)])
                await self.delete(tenant)
                await self.create(tenant, placement={"nodeCount": dice.randint(1, 2)})
            case "paths":
                await self.change(tenant, preload={"paths": dice.choice([["f0"], ["f1", "f2"], ["none/"]])})
            case "access":
                await self.change(tenant, access={"maxConcurrentJobs": dice.choice([0, 1, 2])})
            case "refresh":
                patch = {"metadata": {"annotations": {"tdcs.io/refresh": str(next(self._numbers))}}}
                await server.merge(DATASETS, name=self.dataset(tenant), namespace=tenant, patch=patch)
        return action

    @staticmethod
    def is_of(obj: Object, tenant: str) -> bool:
        return bool(obj["metadata"]["namespace"] == tenant)

    async def settle(self) -> None:
        """Until everything is answered, pods run, and nothing is looked at any more."""
        claims = self.cluster.server.store(PERSISTENT_VOLUME_CLAIMS)
        last: list[object] = []

        def is_answered() -> bool:
            for claim in claims.values():
                claim.setdefault("status", {"phase": "Bound"})
            objects = [
                obj
                for resource in (DATASETS, PRELOADS, TRAINING_JOBS)
                for obj in self.cluster.server.store(resource).values()
            ]
            now = json.dumps([obj.get("status") for obj in objects])
            last.append(now)
            del last[:-12]
            return (
                self.quotas_are_known()
                and len(last) == 12
                and len(set(last)) == 1
                and all(
                    obj.get("status", {}).get("observedGeneration") == obj["metadata"]["generation"]
                    for obj in objects
                )
            )

        async def play() -> None:
            for job in list(self.jobs.server.store(TRAINING_JOBS).values()):
                await self.jobs.run(job["metadata"]["name"])

        for _ in range(3):  # what runs wakes Datasets, and these wake jobs
            await self.jobs.until(lambda: True)
            await play()
            for namespace, name in list(self.jobs.server.store(TRAINING_JOBS)):
                self.jobs.context.queue.add(WorkKey(TRAINING_JOBS, namespace, name))
            await self.jobs.until(is_answered, deadline=120.0)
            last.clear()

    def texts(self, tenant: str) -> Iterator[str]:
        """All that a namespace reads that is not its own words."""
        for resource in (DATASETS, PRELOADS, TRAINING_JOBS):
            for (place, _), obj in self.cluster.server.store(resource).items():
                if place == tenant:
                    yield json.dumps(obj.get("status"))
        for server in (self.cluster.server, self.jobs.server):
            for event in server.store(EVENTS).values():
                if event["involvedObject"].get("namespace") == tenant:
                    yield f"{event['type']} {event['reason']}: {event['message']}"

    def foreign(self, tenant: str) -> list[str]:
        return [
            text for text in self.texts(tenant) if any(name in text for name in EVERYBODY if name != tenant)
        ]

    def seen_by(self, tenant: str) -> object:
        """What a namespace would notice, without figures of the whole cluster such as a position in the queue."""
        jobs = sorted(
            (
                obj["metadata"]["name"],
                obj["status"].get("state"),
                obj["status"].get("reason"),
                sorted(
                    (condition["type"], condition["status"], condition["reason"])
                    for condition in obj["status"]["conditions"]
                ),
            )
            for obj in self.own_jobs(tenant)
        )
        events = sorted(
            (event["type"], event["reason"])
            for event in self.jobs.server.store(EVENTS).values()
            if event["involvedObject"].get("namespace") == tenant
        )
        preloads = sorted(
            (key[1], obj["status"].get("state"), obj["status"].get("reason"))
            for key, obj in self.cluster.server.store(PRELOADS).items()
            if key[0] == tenant
        )
        return self.view(tenant), jobs, events, preloads


@pytest.mark.parametrize("seed", range(1, 1 + WALKS))
async def test_ten_tenants_with_jobs_and_mistakes_hear_nothing_of_each_other(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tdcs.control.dataset.dataset_controller.LOCKED_RETRY", 0.05)
    for module in ("decide.problem", "control.dataset.access.key_checks"):
        monkeypatch.setattr(f"tdcs.{module}.RETRY_LATER", 0.2)
    dice = random.Random(seed)
    engine = MemoryEngine(
        sources={SOURCE: FILES},
        workers=dict.fromkeys(NODES, 50 * SIZE),
        credentials={SOURCE: [RIGHT]},
    )
    settings = dataclasses.replace(QUICK, clone_idle_seconds=600.0)
    async with Cluster(engine=engine, nodes={name: {} for name in NODES}, settings=settings) as cluster:
        await cluster.create_cache()
        async with TenantJobs(cluster) as jobs:
            walk = Walk(cluster, jobs, dice)
            await walk.begin()
            for step in range(STEPS):
                tenant = dice.choice(EVERYBODY)
                before = {
                    neighbour: walk.seen_by(neighbour) for neighbour in EVERYBODY if neighbour != tenant
                }
                action = await walk.step(tenant)
                await walk.settle()
                for neighbour, view in before.items():
                    assert walk.seen_by(neighbour) == view, (
                        f"step {step}: {action} of {tenant} changed {neighbour}"
                    )
                for member in EVERYBODY:
                    assert not walk.foreign(member), f"step {step}: {walk.foreign(member)} in {member}"
