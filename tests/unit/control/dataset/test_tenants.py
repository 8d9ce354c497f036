"""Tenants of one source: what each sees, has in the cache and pays for is its own, whatever the others do."""

from __future__ import annotations

import base64
import dataclasses
import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import QUICK, Cluster

from tdcs.api import names
from tdcs.control.context import WorkKey
from tdcs.control.node_usage import trimmed
from tdcs.decide.cache import wants
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import (
    CACHE_CLUSTERS,
    DATASETS,
    EVENTS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    SECRETS,
    TRAINING_JOBS,
)

MB = 1_000_000
SOURCE = "s3://pictures"
FILES = {f"f{number}": MB for number in range(8)}
SIZE = len(FILES) * MB
NODES = ("n1", "n2", "n3", "n4")
NOWHERE = {"zone": "nowhere"}
NOW = "2026-01-01T00:00:00Z"


class Tenants:
    """Namespaces with one Dataset of the source each, called after it.

    Args:
        owners: of tenants that read the Dataset of another one, and have no keys: which.
    """

    def __init__(self, cluster: Cluster, *, owners: Mapping[str, str] | None = None) -> None:
        self.cluster = cluster
        self.owners = dict(owners or {})
        self.shared = set(self.owners)
        self.names: list[str] = []
        self.quotas: dict[str, int] = {}

    @staticmethod
    def dataset(tenant: str) -> str:
        return f"data-of-{tenant}"

    async def create(self, tenant: str, **spec: Any) -> None:
        self.cluster.server.store(NAMESPACES)["", tenant] = {
            "metadata": {"name": tenant, "labels": {"kubernetes.io/metadata.name": tenant}}
        }
        data = {field: base64.b64encode(b"me").decode() for field in ("accessKeyId", "secretAccessKey")}
        secret = {"kind": "Secret", "metadata": {"name": "keys", "namespace": tenant}, "data": data}
        owner = self.owners.get(tenant)
        source: Object = {"uri": SOURCE, "secretRef": {"name": "keys"}}
        if owner is None:
            self.cluster.server.store(SECRETS)[tenant, "keys"] = secret
        else:
            source = {"datasetRef": {"namespace": owner, "name": self.dataset(owner)}}
        if tenant not in self.names:
            self.names.append(tenant)
        await self.cluster.server.create(
            DATASETS,
            obj={
                "apiVersion": names.API_VERSION,
                "kind": "Dataset",
                "metadata": {"name": self.dataset(tenant), "namespace": tenant},
                "spec": {
                    "source": source,
                    "sharedWith": self.grants(tenant),
                    "preload": {"enabled": True},
                    "placement": {"nodeCount": 1},
                    **spec,
                },
            },
        )

    async def change(self, tenant: str, **spec: Any) -> None:
        await self.cluster.server.merge(
            DATASETS, name=self.dataset(tenant), namespace=tenant, patch={"spec": spec}
        )

    async def delete(self, tenant: str) -> None:
        await self.cluster.server.delete(DATASETS, name=self.dataset(tenant), namespace=tenant)
        await self.cluster.until(
            lambda: (tenant, self.dataset(tenant)) not in self.cluster.server.store(DATASETS)
        )

    def grants(self, owner: str) -> list[Object]:
        """With whom an owner shares now."""
        readers = [reader for reader in sorted(self.shared) if self.owners[reader] == owner]
        return [{"namespaces": readers}] if readers else []

    async def share(self, owner: str, *readers: str) -> None:
        """Share with these, and with nobody else."""
        of_others = {reader for reader in self.shared if self.owners[reader] != owner}
        self.shared = of_others | set(readers)
        await self.change(owner, sharedWith=self.grants(owner))

    def readers(self, owner: str) -> list[str]:
        return [reader for reader in self.owners if self.owners[reader] == owner]

    async def limit(self, tenant: str, quota: int) -> None:
        """Give a namespace a quota of the cache."""
        self.quotas[tenant] = quota
        quotas = [
            {
                "name": f"quota-of-{name}",
                "bytes": size,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
            }
            for name, size in self.quotas.items()
        ]
        server = self.cluster.server
        ((namespace, name),) = server.store(CACHE_CLUSTERS)
        await server.merge(CACHE_CLUSTERS, name=name, namespace=namespace, patch={"spec": {"quotas": quotas}})

    def job(self, tenant: str, name: str, *, admitted: bool = False, elastic: bool = False) -> None:
        conditions = [{"type": "Admitted", "status": "True", "reason": "AllPodsFit"}] if admitted else []
        copies = [{"dataset": self.dataset(tenant), "copy": "0"}] if admitted else []
        spec: Object = {"datasets": [{"name": self.dataset(tenant), "mountPath": "/data"}]}
        if elastic:
            spec["elastic"] = {"minReplicas": 1, "maxReplicas": 8}
        self.cluster.server.store(TRAINING_JOBS)[tenant, name] = {
            "metadata": {"name": name, "namespace": tenant, "uid": name, "creationTimestamp": NOW},
            "spec": spec,
            "status": {"conditions": conditions, "copies": copies},
        }
        self.look(tenant)

    def end_jobs(self, tenant: str) -> None:
        jobs, usage = self.cluster.server.store(TRAINING_JOBS), self.cluster.usage
        for key in [key for key in jobs if key[0] == tenant]:
            del jobs[key]
        for node in NODES:
            usage.seen((tenant, f"pod-of-{tenant}-{node}"), None)
        self.look(tenant)

    def read(self, tenant: str, node: str) -> None:
        key = (tenant, f"pod-of-{tenant}-{node}")
        pod = {
            "metadata": {"name": key[1], "namespace": tenant},
            "spec": {
                "nodeName": node,
                "containers": [],
                "volumes": [
                    {"name": "d", "persistentVolumeClaim": {"claimName": self.dataset(tenant)}},
                ],
            },
        }
        self.cluster.usage.seen(key, trimmed(pod))

    def look(self, tenant: str) -> None:
        """What the operator's watch of jobs does."""
        self.cluster.context.queue.add(WorkKey(DATASETS, tenant, self.dataset(tenant)))

    def status(self, tenant: str) -> Object:
        obj = self.cluster.server.store(DATASETS).get((tenant, self.dataset(tenant)), {})
        return dict(obj.get("status") or {})

    def granted_bytes(self, tenant: str) -> int:
        """Bytes of its copies that the cache manager grants now."""
        grants = self.cluster.datasets._world.manager.grants(names.DEFAULT_CACHE_CLUSTER)
        key = wants.dataset_key(namespace=tenant, name=self.dataset(tenant))
        return sum(
            placement.wanted_bytes
            for mount in grants.mounts.values()
            for placement in mount.placements
            if placement.want.dataset == key
        )

    def quotas_are_known(self) -> bool:
        """Whether the cache manager has seen the quotas that there are."""
        quotas = self.cluster.datasets._world.manager._clusters[names.DEFAULT_CACHE_CLUSTER].quotas
        return quotas == {f"quota-of-{tenant}": size for tenant, size in self.quotas.items()}

    def bind(self) -> None:
        """As the cluster's binder does: while a claim waits for it, its Dataset is looked at five times a second."""
        store = self.cluster.server.store
        for volume in store(PERSISTENT_VOLUMES).values():
            reference = volume["spec"].get("claimRef") or {}
            key = (str(reference.get("namespace")), str(reference.get("name")))
            claim = store(PERSISTENT_VOLUME_CLAIMS).get(key)
            if claim is not None:
                volume.setdefault("status", {"phase": "Bound"})
                claim.setdefault("status", {"phase": "Bound"})

    async def settle(self) -> None:
        """Until each status is about what there is and was granted, and nothing is looked at any more."""

        def is_current(tenant: str) -> bool:
            obj = self.cluster.server.store(DATASETS)[tenant, self.dataset(tenant)]
            status = obj.get("status") or {}
            refused = "NotShared" in {condition["reason"] for condition in status.get("conditions", ())}
            if refused or tenant in self.owners.keys() - self.shared:
                return refused and tenant not in self.shared
            jobs = [
                job for (place, _), job in self.cluster.server.store(TRAINING_JOBS).items() if place == tenant
            ]
            active = sum(bool(job["status"]["conditions"]) for job in jobs)
            return (
                status.get("observedGeneration") == obj["metadata"]["generation"]
                and (status.get("activeJobs"), status.get("waitingJobs")) == (active, len(jobs) - active)
                and (status.get("grant") or {}).get("bytes") == self.granted_bytes(tenant)
                and not any(
                    node.get("arriving")
                    for copy in status.get("copies", ())
                    for node in copy.get("nodes", ())
                )
            )

        def is_settled() -> bool:
            self.bind()
            paying = any(self.granted_bytes(payer) for payer in self.owners.keys() - self.shared)
            return self.quotas_are_known() and not paying and all(map(is_current, self.names))

        await self.cluster.until(is_settled)
        await self.cluster.quiet(seconds=0.3)

    def nodes(self, tenant: str) -> set[str]:
        """The nodes of its own copies."""
        return {node["name"] for copy in self.status(tenant).get("copies", ()) for node in copy["nodes"]}

    def is_loaded(self, tenant: str) -> bool:
        return self.status(tenant).get("loaded") == "100%"

    def view(self, tenant: str) -> object:
        """What a namespace would notice: conditions, copies, room, counts and events."""
        status = self.status(tenant)
        conditions = [
            (condition["type"], condition["status"], condition["reason"])
            for condition in status.get("conditions", ())
        ]
        fields = ("state", "grant", "wantedBytes", "loadedBytes", "physicalBytes", "activeJobs", "copyCount")
        return (
            conditions,
            {field: status.get(field) for field in (*fields, "waitingJobs", "usedBy")},
            [
                (copy["id"], sorted(node["name"] for node in copy["nodes"]))
                for copy in status.get("copies", ())
            ],
            sorted(self.events(tenant)),
        )

    def events(self, tenant: str) -> Iterator[str]:
        for event in self.cluster.server.store(EVENTS).values():
            if event["involvedObject"].get("namespace") == tenant:
                yield f"{event['reason']}: {event['message']}"

    def foreign_names(self, tenant: str) -> list[str]:
        """What a namespace reads of others: each name of theirs has the tenant's name in it.

        It has written some of them itself: with whom it shares stands in its spec alone, and whose Dataset it reads is
        named in what is said of that.
        """
        objects = [
            {**obj, "spec": {**obj["spec"], "sharedWith": None}}
            for (place, _), obj in self.cluster.server.store(DATASETS).items()
            if place == tenant
        ]
        text = f"{json.dumps(objects)} {' '.join(self.events(tenant))}"
        own_names = {tenant, self.owners.get(tenant)}
        return [name for name in self.names if name not in own_names and name in text]


def memory_engine(count: int = 4) -> MemoryEngine:
    return MemoryEngine(sources={SOURCE: FILES}, workers=dict.fromkeys(NODES[:count], 50 * SIZE))


async def test_an_elastic_job_moves_the_copies_of_its_own_dataset_and_says_so() -> None:
    async with Cluster(engine=memory_engine(), nodes={name: {} for name in NODES}, settings=QUICK) as cluster:
        await cluster.create_cache()
        tenants = Tenants(cluster)
        for tenant in ("ann", "bob"):
            await tenants.create(tenant, placement={})
        await cluster.until(lambda: all(map(tenants.is_loaded, tenants.names)))
        before, home = tenants.view("bob"), tenants.nodes("ann")
        tenants.job("ann", "grows", admitted=True, elastic=True)
        for node in NODES[:3]:
            tenants.read("ann", node)
        await cluster.until(lambda: tenants.nodes("ann") == set(NODES[:3]) | (home & set(NODES[:3])))
        await cluster.until(lambda: "NodesChanged" in " ".join(tenants.events("ann")))
        (moved,) = [text for text in tenants.events("ann") if text.startswith("NodesChanged")]
        assert "its jobs read it there" in moved
        assert tenants.view("bob") == before
        usage = tenants.status("bob")["otherNamespaces"]
        assert usage["namespaces"] == 1


async def test_what_is_there_for_other_namespaces_is_shown_apart_and_costs_their_quota() -> None:
    async with Cluster(engine=memory_engine(), nodes={name: {} for name in NODES}, settings=QUICK) as cluster:
        await cluster.create_cache()
        tenants = Tenants(cluster)
        await tenants.limit("bob", 2 * SIZE)
        await tenants.create("ann", placement={"mode": "Replicate", "nodeCount": 1})
        await tenants.create("bob", placement={"mode": "Replicate", "nodeCount": 3})
        await cluster.until(
            lambda: tenants.is_loaded("ann") and tenants.status("bob").get("grant") is not None
        )

        def is_apart() -> bool:
            shared = tenants.status("ann").get("otherNamespaces") or {}
            return shared.get("namespaces") == 1 and shared.get("bytes", 0) >= SIZE

        tenants.look("ann")
        await cluster.until(is_apart)
        ann = tenants.status("ann")
        assert ann["physicalBytes"] == SIZE
        assert tenants.status("bob")["grant"]["bytes"] <= 2 * SIZE
        assert tenants.status("bob")["grant"]["reason"] == "QuotaExceeded"
        assert not tenants.foreign_names("ann") + tenants.foreign_names("bob")
        # The one that was there first goes: the other one has what it had.
        before = tenants.status("bob")["grant"]
        await tenants.delete("ann")
        tenants.bind()
        await cluster.quiet()
        assert tenants.status("bob")["grant"] == before
        assert "otherNamespaces" not in tenants.status("bob")


async def test_ten_tenants_at_random_change_and_hear_nothing_of_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tdcs.control.dataset.dataset_controller.LOCKED_RETRY", 0.05)
    for module in ("decide.problem", "decide.shared_source", "control.dataset.access.key_checks"):
        monkeypatch.setattr(f"tdcs.{module}.RETRY_LATER", 0.2)
    dice = random.Random(1)
    settings = dataclasses.replace(QUICK, clone_idle_seconds=600.0)
    async with Cluster(
        engine=memory_engine(), nodes={name: {} for name in NODES}, settings=settings
    ) as cluster:
        await cluster.create_cache()
        # Two of them read by what others share.
        tenants = Tenants(cluster, owners={"tenant-i": "tenant-a", "tenant-j": "tenant-b"})
        everybody = [f"tenant-{letter}" for letter in "abcdefghij"]
        for tenant in everybody:
            if dice.random() < 0.4:
                await tenants.limit(tenant, dice.choice([3 * MB, SIZE, 4 * SIZE]))
            access = {"maxConcurrentJobs": 1, "onLimit": dice.choice(["Suspend", "Clone"])}
            await tenants.create(tenant, placement={"nodeCount": dice.randint(1, 2)}, access=access)
        await cluster.until(
            lambda: all(tenants.status(tenant).get("grant") for tenant in everybody), deadline=60.0
        )
        await tenants.settle()
        for step, move in enumerate(dice.sample(range(9), k=9)):
            tenant = dice.choice(everybody if move != 8 else sorted(set(tenants.owners.values())))
            # What an owner takes away or gives back is what may change those that it shares with.
            heirs = tenants.readers(tenant) if move in {7, 8} else []
            before = {
                neighbour: tenants.view(neighbour)
                for neighbour in everybody
                if neighbour not in {tenant, *heirs}
            }
            match move:
                case 0:
                    tenants.job(tenant, f"job-of-{tenant}-{step}")
                case 1:
                    tenants.job(tenant, f"job-of-{tenant}-{step}", admitted=True, elastic=dice.random() < 0.5)
                case 2:
                    tenants.job(tenant, f"job-of-{tenant}-{step}", admitted=True, elastic=True)
                    for node in dice.sample(NODES, 2):
                        tenants.read(tenant, node)
                case 3:
                    tenants.end_jobs(tenant)
                case 4:
                    await tenants.change(tenant, placement={"nodeSelector": NOWHERE})
                case 5:
                    await tenants.change(
                        tenant, placement={"nodeSelector": None, "nodeCount": dice.choice([None, 1, 2, 3])}
                    )
                case 6:
                    await tenants.limit(tenant, dice.choice([MB, SIZE, 4 * SIZE]))
                case 8:
                    await tenants.share(tenant)
                    await tenants.settle()
                    for member in heirs:
                        assert not tenants.foreign_names(member)
                    assert before == {neighbour: tenants.view(neighbour) for neighbour in before}
                    await tenants.share(tenant, *heirs)
                case _:
                    for member in (tenant, *heirs):
                        tenants.end_jobs(member)
                    await tenants.delete(tenant)
                    await tenants.create(tenant, placement={"nodeCount": dice.randint(1, 2)})
            await tenants.settle()
            for neighbour, view in before.items():
                assert tenants.view(neighbour) == view, f"step {step}: {tenant} changed {neighbour}"
            for member in everybody:
                assert not tenants.foreign_names(member), (
                    f"step {step}: {tenants.foreign_names(member)} in {member}"
                )
