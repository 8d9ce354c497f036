"""Ten namespaces with Datasets of one source, jobs, quotas and mistakes at random: what one does is neither seen nor
paid by another. The unit tier walks further, in memory (`tests/unit/control/dataset/test_tenant_walks.py`).

    TDCS_TENANT_STEPS=60 TDCS_TENANT_SEED=7 .venv/bin/python -m pytest e2e/training/test_tenants.py
"""

import json
import os
import random
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from e2e.conftest import RESTRICTED, describe
from e2e.support.jobs import reading_job
from tdcs_local.kind.kubectl import Kubectl, Object
from tdcs_local.progress import Reporter
from tdcs_local.store import datasets, operations
from tdcs_local.store.operations import Made

STEPS = int(os.environ.get("TDCS_TENANT_STEPS", "8"))
SEED = int(os.environ.get("TDCS_TENANT_SEED", "1"))
BUCKET = "e2e-tenants"
FILES = Made(files=60, size="100KiB")
LETTERS = "abcdefghij"
DATASETS, JOBS, PRELOADS = "datasets.tdcs.io", "trainingjobs.tdcs.io", "preloads.tdcs.io"
ALIKE = 6
"""So many looks, one after the other, that find the same: nothing happens any more."""
PASSING = frozenset({"Mounting", "Loading", "Reloading", "DatasetLoading", "KeysUnchecked"})
"""Reasons of what goes on."""


@dataclass(kw_only=True)
class Tenants:
    """The namespaces, what they do, and what each of them sees.

    Attributes:
        names: of the namespaces.
        image: of the jobs' pods.
    """

    kubectl: Kubectl
    reporter: Reporter
    names: list[str]
    image: str
    dice: random.Random
    _counts: dict[str, int] = field(default_factory=dict)

    def name(self, tenant: str, kind: str) -> str:
        """A name with the namespace in it, so that messages of others can be searched for it; used once."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return f"{kind}{self._counts[kind]}-{tenant}"

    def dataset(self, tenant: str, **spec: object) -> None:
        """Create the Dataset of a namespace, or change it."""
        self.kubectl.apply(datasets.dataset(f"data-{tenant}", namespace=tenant, bucket=BUCKET, **spec))

    def job(self, tenant: str, *, dataset: str = "", gpus: int = 0, workers: int = 1) -> None:
        name = self.name(tenant, "job")
        job = reading_job(
            name, image=self.image, workers=workers, namespace=tenant, dataset=dataset or f"data-{tenant}"
        )
        (role,) = job["spec"]["replicaSpecs"]
        (container,) = role["template"]["spec"]["containers"]
        # Places on nodes are everybody's: only one that no node could give is asked for.
        limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        container["resources"] = {"requests": {"cpu": "10m", "memory": "16Mi"}, **limits}
        self.kubectl.apply(job)

    def step(self, tenant: str) -> str:
        """Something at random that a namespace does; what it was."""
        dice = self.dice
        actions: Mapping[str, Callable[[], object]] = {
            "run a job": lambda: self.job(tenant, workers=dice.randint(1, 2)),
            "name a Dataset that is not there": lambda: self.job(tenant, dataset="mistyped"),
            "ask for more GPUs than a node has": lambda: self.job(tenant, gpus=100),
            "use up a quota": lambda: self.quota(tenant),
            "forget all jobs": lambda: self.kubectl(
                "delete", JOBS, "--all", "-n", tenant, "--wait", timeout=180
            ),
            "mistype the keys": lambda: self.keys(tenant, "mistyped"),
            "correct the keys": lambda: self.keys(tenant, ""),
            "ask for no node": lambda: self.dataset(tenant, placement={"nodeSelector": {"e2e": "nowhere"}}),
            "ask for two copies": lambda: self.dataset(tenant, placement={"copies": 2, "nodeCount": 1}),
            "let one job read": lambda: self.dataset(tenant, access={"maxConcurrentJobs": 1}),
            "load what is not there": lambda: self.dataset(tenant, preload={"paths": ["none/"]}),
            "make a Preload": lambda: self.preload(tenant),
            "make the Dataset again": lambda: self.again(tenant),
        }
        action = dice.choice(sorted(actions))
        actions[action]()
        return action

    def quota(self, tenant: str) -> None:
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "pods", "namespace": tenant},
        }
        self.kubectl.apply({**quota, "spec": {"hard": {"pods": str(self.dice.randint(1, 3))}}})

    def keys(self, tenant: str, secret: str) -> None:
        if not secret:
            datasets.grant_access(self.kubectl, namespace=tenant, reporter=self.reporter)
        else:
            patch = {"stringData": {"secretAccessKey": secret}}
            self.kubectl(
                "patch", "secret", datasets.KEYS, "-n", tenant, "--type=merge", "-p", json.dumps(patch)
            )
        # The operator need not wait for its next look at the Secret.
        note = f"tdcs.io/refresh={self.name(tenant, 'look')}"
        self.kubectl("annotate", DATASETS, f"data-{tenant}", note, "--overwrite", "-n", tenant)

    def preload(self, tenant: str) -> None:
        self.kubectl.apply(
            {
                "apiVersion": "tdcs.io/v1alpha2",
                "kind": "Preload",
                "metadata": {"name": self.name(tenant, "preload"), "namespace": tenant},
                "spec": {"datasetRef": {"name": f"data-{tenant}"}, "percent": 50},
            }
        )

    def again(self, tenant: str) -> None:
        self.kubectl("delete", JOBS, "--all", "-n", tenant, "--wait", timeout=180)
        self.kubectl.delete(DATASETS, f"data-{tenant}", namespace=tenant)
        self.dataset(tenant)

    def objects(self) -> list[Object]:
        """All Datasets, Preloads and jobs of these namespaces."""
        return [
            obj
            for kind in (DATASETS, PRELOADS, JOBS)
            for obj in self.kubectl.list(kind)
            if obj["metadata"]["namespace"] in self.names
        ]

    def settle(self) -> None:
        """Wait until everything is answered, and nothing changes any more."""
        last: list[str] = []

        def look() -> str | None:
            objects = self.objects()
            for obj in objects:
                status, title = obj.get("status") or {}, obj["metadata"]["name"]
                if status.get("observedGeneration") != obj["metadata"]["generation"]:
                    return f"{title} is not answered"
                if status.get("reason") in PASSING or status.get("state") in {
                    *PASSING,
                    "Starting",
                    "Running",
                }:
                    return f"{title} is {status.get('state')} ({status.get('reason')})"
            last.append(json.dumps([_compared_fields(obj) for obj in objects]))
            del last[:-ALIKE]
            return None if len(last) == ALIKE and len(set(last)) == 1 else "something changes still"

        self.kubectl.wait(
            look,
            what="the namespaces do not come to rest",
            seconds=300,
            explain=lambda: "\n".join(describe(self.kubectl, namespace) for namespace in self.names),
        )

    def views(self) -> dict[str, object]:
        """What each namespace would notice of a change: conditions, copies, what it is charged, events."""
        events = [
            (event["metadata"]["namespace"], event["type"], event["reason"], event["involvedObject"]["name"])
            for event in self.kubectl.list("events")
            if event["involvedObject"].get("apiVersion", "").startswith("tdcs.io")
        ]
        objects = self.objects()
        return {
            namespace: (
                sorted(
                    json.dumps(_compared_fields(obj))
                    for obj in objects
                    if obj["metadata"]["namespace"] == namespace
                ),
                sorted({event[1:] for event in events if event[0] == namespace}),
            )
            for namespace in self.names
        }

    def foreign_words(self) -> dict[str, list[str]]:
        """By namespace: sentences of its statuses and events that name another one."""
        words = [
            (obj["metadata"]["namespace"], json.dumps(obj.get("status") or {})) for obj in self.objects()
        ] + [
            (event["metadata"]["namespace"], str(event.get("message", "")))
            for event in self.kubectl.list("events")
            if event["metadata"]["namespace"] in self.names
        ]
        words_by_tenant: dict[str, list[str]] = {}
        for tenant, text in words:
            if any(name in text for name in self.names if name != tenant):
                words_by_tenant.setdefault(tenant, []).append(text)
        return words_by_tenant


def _compared_fields(obj: Object) -> Object:
    """What of an object's status counts: no times, and no figures of the whole cluster."""
    status = obj.get("status") or {}
    return {
        "name": obj["metadata"]["name"],
        "state": status.get("state"),
        "reason": status.get("reason"),
        "conditions": sorted(
            (condition["type"], condition["status"], condition["reason"])
            for condition in status.get("conditions", ())
        ),
        "copies": [sorted(node["name"] for node in copy["nodes"]) for copy in status.get("copies", ())],
        "grant": status.get("grant"),
        "loaded": status.get("loadedBytes"),
    }


@pytest.fixture
def tenants(
    tdcs: None, store_filled: None, kubectl: Kubectl, reporter: Reporter, toolbox: str
) -> Iterator[Tenants]:
    """Ten namespaces, each with a Dataset of the same bucket that is where it is wanted."""
    run = uuid.uuid4().hex[:6]
    names = [f"tenant-{letter}-{run}" for letter in LETTERS]
    operations.fill("small", bucket=BUCKET, seeded=FILES, reporter=reporter)
    dice = random.Random(SEED)  # noqa: S311 - a walk that can be walked again
    tenants_of_run = Tenants(kubectl=kubectl, reporter=reporter, names=names, image=toolbox, dice=dice)
    for name in names:
        kubectl.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": RESTRICTED}}
        )
        datasets.grant_access(kubectl, namespace=name, reporter=reporter)
        tenants_of_run.dataset(name, placement={"nodeCount": tenants_of_run.dice.randint(1, 2)})
    for name in names:
        datasets.wait_ready(kubectl, f"data-{name}", namespace=name)
    yield tenants_of_run
    for name in names:
        for kind in (JOBS, DATASETS):
            kubectl("delete", kind, "--all", "-n", name, "--wait", timeout=180)
        kubectl("delete", "namespace", name, "--wait=false")


def test_ten_tenants_of_one_source_neither_see_nor_pay_each_other(tenants: Tenants) -> None:
    tenants.settle()
    assert not tenants.foreign_words()
    for number in range(STEPS):
        tenant = tenants.dice.choice(tenants.names)
        before = tenants.views()
        action = tenants.step(tenant)
        tenants.settle()
        after, title = tenants.views(), f"seed {SEED}, step {number}: {tenant} did {action!r}"
        for neighbour in tenants.names:
            assert neighbour == tenant or after[neighbour] == before[neighbour], (
                f"{title}, and {neighbour} changed"
            )
        assert not tenants.foreign_words(), title
