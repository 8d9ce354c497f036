"""TrainingJobs in a queue of Kueue: the real controller; the test decides as Kueue does, by the Workload's status."""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from typing import Any

import pytest
from tests.unit.control.builders import dataset, dataset_object
from tests.unit.control.jobs import Jobs, role
from tests.unit.kube.fake import error

from tdcs.kube.errors import KubeError, NotFoundError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import (
    DATASETS,
    JOBS,
    NODES,
    RESOURCE_FLAVORS,
    TRAINING_JOBS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)

QUEUE = {"kueue.x-k8s.io/queue-name": "gpu"}
GATE = "kueue.x-k8s.io/admission-gated-by"
NOW = "2026-01-01T00:00:00Z"


class Kueue:
    """Kueue's part, by hand."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def workload(self, name: str = "train") -> Object:
        return self._jobs.server.store(WORKLOADS)["n", f"trainingjob-{name}"]

    def there(self, name: str = "train") -> bool:
        return ("n", f"trainingjob-{name}") in self._jobs.server.store(WORKLOADS)

    def condition(self, kind: str, name: str = "train") -> str:
        conditions = (self.workload(name).get("status") or {}).get("conditions") or ()
        return next((str(condition["status"]) for condition in conditions if condition["type"] == kind), "")

    async def admit(
        self,
        name: str = "train",
        *,
        counts: dict[str, int] | None = None,
        flavor: str = "",
        topology: Object | None = None,
        checks: list[Object] | None = None,
    ) -> None:
        """All pod sets have quota, and every check is ready."""
        sets = [
            {
                "name": pod_set["name"],
                "count": (counts or {}).get(pod_set["name"], pod_set["count"]),
                "flavors": {"nvidia.com/gpu": flavor} if flavor else {},
                **({"topologyAssignment": topology} if topology else {}),
            }
            for pod_set in self.workload(name)["spec"]["podSets"]
        ]
        status: dict[str, Any] = {"admissionChecks": checks} if checks is not None else {}
        await self._set(
            name,
            {"QuotaReserved": "True", "Admitted": "True", "Evicted": "False"},
            admission={"clusterQueue": "q", "podSetAssignments": sets},
            **status,
        )

    async def evict(self, name: str = "train", *, reason: str = "Preempted") -> None:
        await self._set(name, {"Evicted": "True"}, reason=reason)

    async def _set(self, name: str, statuses: dict[str, str], *, reason: str = "Test", **status: Any) -> None:
        live = self.workload(name)
        old = {
            condition["type"]: condition for condition in (live.get("status") or {}).get("conditions") or ()
        }
        new = {
            kind: {
                "type": kind,
                "status": value,
                "reason": reason,
                "message": reason,
                "lastTransitionTime": NOW,
            }
            for kind, value in statuses.items()
        }
        await self._jobs.server.merge(
            WORKLOADS,
            name=live["metadata"]["name"],
            namespace="n",
            patch={"status": {"conditions": list({**old, **new}.values()), **status}},
        )


@pytest.fixture
def playing() -> Callable[..., Jobs]:
    return lambda **more: Jobs(gpus={"a": 8, "b": 8}, kueue=True, **more)


def suspended(jobs: Jobs, name: str = "train-worker") -> bool:
    return bool(jobs.job(name)["spec"]["suspend"])


async def test_one_workload_stands_for_all_roles_and_its_admission_starts_them_all(
    playing: Callable[..., Jobs],
) -> None:
    async with playing() as jobs:
        kueue = Kueue(jobs)
        await jobs.create(
            labels=QUEUE, framework="TensorFlow", roles={"Chief": role(1, gpus=1), "Worker": role(2, gpus=2)}
        )
        await jobs.until(kueue.there)
        workload = kueue.workload()
        spec = workload["spec"]
        assert (spec["queueName"], spec["active"]) == ("gpu", True)
        assert [(pod_set["name"], pod_set["count"]) for pod_set in spec["podSets"]] == [
            ("chief", 1),
            ("worker", 2),
        ]
        limits = spec["podSets"][1]["template"]["spec"]["containers"][0]["resources"]["limits"]
        assert limits == {"nvidia.com/gpu": "2"}
        assert workload["metadata"]["ownerReferences"][0]["kind"] == "TrainingJob"
        assert GATE not in workload["metadata"].get("annotations", {})
        await jobs.until(lambda: jobs.status().get("state") == "Queued")
        assert jobs.condition("Admitted")["reason"] == "WaitsInKueue"
        assert "it waits in LocalQueue gpu" in jobs.status()["message"]
        assert suspended(jobs, "train-chief")
        # A Job with a queue of its own would be queued alone.
        assert not any(key.startswith("kueue") for key in jobs.job("train-chief")["metadata"]["labels"])
        await kueue.admit()
        await jobs.until(lambda: jobs.bound("train") == 3)
        await jobs.until_running()
        assert jobs.condition("Admitted")["reason"] == "AdmittedByKueue"
        await jobs.until(lambda: kueue.condition("PodsReady") == "True")
        for pod in jobs.pods():
            await jobs.end(pod)
        await jobs.until_state("Succeeded")
        await jobs.until(lambda: kueue.condition("Finished") == "True")


async def test_a_job_without_the_label_or_without_kueue_is_in_the_own_queue(
    playing: Callable[..., Jobs],
) -> None:
    async with playing() as jobs:
        await jobs.create()
        await jobs.until(lambda: jobs.bound("train") == 2)
        assert not jobs.server.store(WORKLOADS)
    async with Jobs(gpus={"a": 8}) as jobs:
        await jobs.create(labels=QUEUE)
        await jobs.until(lambda: jobs.bound("train") == 2)
        assert not jobs.server.store(WORKLOADS)


async def test_without_its_data_kueue_does_not_look_at_it_and_no_quota_is_held(
    playing: Callable[..., Jobs],
) -> None:
    async with playing() as jobs:
        kueue = Kueue(jobs)
        await jobs.create(labels=QUEUE, datasets=[{"name": "pictures", "mountPath": "/data"}])
        await jobs.until(kueue.there)
        assert kueue.workload()["metadata"]["annotations"][GATE] == "tdcs.io/data"
        await jobs.until(lambda: jobs.status().get("reason") == "DatasetNotFound")
        await put_dataset(jobs)
        await jobs.until(lambda: GATE not in kueue.workload()["metadata"].get("annotations", {}))
        assert suspended(jobs)
        claims = kueue.workload()["spec"]["podSets"][0]["template"]["spec"]["volumes"]
        assert [volume["persistentVolumeClaim"]["claimName"] for volume in claims] == ["pictures"]


async def put_dataset(jobs: Jobs, *, node: str = "a") -> None:
    """A Dataset that can be read, and all of which is there, on one node."""
    fields = dataset(nodes={node: 100}).model_dump(by_alias=True, mode="json", exclude_none=True)
    jobs.server.store(DATASETS)["n", "pictures"] = {**dataset_object(), **fields}
    metadata = {"labels": {"seen": "again"}}
    await jobs.server.merge(TRAINING_JOBS, name="train", namespace="n", patch={"metadata": metadata})


async def test_preempted_it_gives_quota_back_once_its_pods_are_gone_and_starts_again_elsewhere(
    playing: Callable[..., Jobs],
) -> None:
    async with playing() as jobs:
        kueue = Kueue(jobs)
        for name in ("old", "new"):
            jobs.server.store(RESOURCE_FLAVORS)["", name] = {
                "metadata": {"name": name},
                "spec": {"nodeLabels": {name: "yes"}, "tolerations": [{"key": name, "operator": "Exists"}]},
            }
            for node in jobs.server.store(NODES).values():
                node["metadata"]["labels"][name] = "yes"
        await jobs.create(labels=QUEUE)
        await jobs.until(kueue.there)
        await kueue.admit(flavor="old")
        await jobs.until(lambda: not suspended(jobs))
        pod = jobs.job("train-worker")["spec"]["template"]["spec"]
        assert (pod["nodeSelector"], pod["tolerations"]) == (
            {"old": "yes"},
            [{"key": "old", "operator": "Exists"}],
        )
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.until_running()
        await kueue.evict()
        await jobs.until(lambda: suspended(jobs))
        await jobs.until(lambda: kueue.condition("QuotaReserved") == "False")
        assert not [pod for pod in jobs.pods() if pod["status"]["phase"] == "Running"]
        assert "admission" not in kueue.workload()["status"]
        assert (kueue.condition("Requeued"), kueue.condition("Admitted")) == ("True", "False")
        await jobs.until(lambda: jobs.status()["state"] == "Queued")
        assert "placement" not in jobs.status() or not jobs.status()["placement"]
        await kueue.admit(flavor="new")
        await jobs.until(lambda: not suspended(jobs))
        pod = jobs.job("train-worker")["spec"]["template"]["spec"]
        assert (pod["nodeSelector"], pod["tolerations"]) == (
            {"new": "yes"},
            [{"key": "new", "operator": "Exists"}],
        )
        await jobs.until(lambda: jobs.bound("train") == 2)


async def test_suspended_by_its_user_it_gives_quota_back_and_waits_again(
    playing: Callable[..., Jobs],
) -> None:
    async with playing() as jobs:
        kueue = Kueue(jobs)
        await jobs.create(labels=QUEUE)
        await jobs.until(kueue.there)
        await kueue.admit()
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.change(runPolicy={"suspend": True})
        await jobs.until(lambda: kueue.workload()["spec"]["active"] is False)
        await kueue.evict(reason="Deactivated")
        await jobs.until(lambda: kueue.condition("QuotaReserved") == "False")
        assert kueue.condition("Requeued") == "False"
        await jobs.until(lambda: jobs.status()["state"] == "Suspended")
        await jobs.change(runPolicy={"suspend": False})
        await jobs.until(lambda: kueue.workload()["spec"]["active"] is True)
        assert suspended(jobs)
        await kueue.admit()
        await jobs.until(lambda: jobs.bound("train") == 2)


async def test_a_job_that_is_made_suspended_has_an_inactive_workload_until_it_is_resumed(
    playing: Callable[..., Jobs],
) -> None:
    async with playing() as jobs:
        kueue = Kueue(jobs)
        await jobs.create(labels=QUEUE, runPolicy={"suspend": True})
        await jobs.until(kueue.there)
        assert kueue.workload()["spec"]["active"] is False
        await jobs.change(runPolicy={"suspend": False})
        await jobs.until(lambda: kueue.workload()["spec"]["active"] is True)
        assert suspended(jobs)


async def test_an_elastic_job_that_is_admitted_in_part_runs_with_so_many_workers(
    playing: Callable[..., Jobs],
) -> None:
    async with playing() as jobs:
        kueue = Kueue(jobs)
        await jobs.create(labels=QUEUE, workers=5, elastic={"minReplicas": 2, "maxReplicas": 5})
        await jobs.until(kueue.there)
        (pods,) = kueue.workload()["spec"]["podSets"]
        assert (pods["count"], pods["minCount"]) == (5, 2)
        await kueue.admit(counts={"worker": 3})
        await jobs.until(lambda: jobs.bound("train") == 3)
        assert jobs.status()["admittedWorkers"] == 3
        assert jobs.job("train-worker")["spec"]["completions"] == 3


@pytest.mark.parametrize(
    ("annotations", "request_"),
    [
        ({"kueue.x-k8s.io/podset-required-topology": "rack"}, {"required": "rack"}),
        ({"kueue.x-k8s.io/podset-preferred-topology": "rack"}, {"preferred": "rack"}),
        ({"kueue.x-k8s.io/podset-unconstrained-topology": "true"}, {"unconstrained": True}),
        ({}, {}),
    ],
)
async def test_domains_that_kueue_assigned_are_carried_over_and_gone_with_the_next_admission(
    playing: Callable[..., Jobs], annotations: dict[str, str], request_: dict[str, object]
) -> None:
    async with playing() as jobs:
        kueue = Kueue(jobs)
        worker = role(2, gpus=2)
        worker["template"]["metadata"] = {"annotations": annotations}
        await jobs.create(labels=QUEUE, roles={"Worker": worker})
        await jobs.until(kueue.there)
        (pods,) = kueue.workload()["spec"]["podSets"]
        index = {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}
        assert pods["topologyRequest"] == {**request_, **index}
        await kueue.admit(topology={"levels": ["rack"], "slices": []})
        await jobs.until(lambda: not suspended(jobs))
        template = jobs.job("train-worker")["spec"]["template"]
        implied = {} if annotations else {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
        domain = {"kueue.x-k8s.io/workload": "trainingjob-train", **implied}
        assert {**domain, **annotations}.items() <= template["metadata"]["annotations"].items()
        assert template["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "worker"
        assert template["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]
        await kueue.evict()
        await jobs.until(lambda: kueue.condition("QuotaReserved") == "False")
        await kueue.admit()
        await jobs.until(lambda: not suspended(jobs))
        template = jobs.job("train-worker")["spec"]["template"]
        assert not domain.keys() & template["metadata"]["annotations"].keys()
        assert annotations.items() <= template["metadata"]["annotations"].items()
        assert "kueue.x-k8s.io/podset" not in template["metadata"]["labels"]
        assert template["spec"]["schedulingGates"] == []


async def test_in_mode_affinity_kueue_learns_where_the_data_is_once_it_is_there(
    playing: Callable[..., Jobs],
) -> None:
    def affinity(kueue: Kueue) -> Object:
        (pods,) = kueue.workload()["spec"]["podSets"]
        terms: Object = pods["template"]["spec"].get("affinity") or {}
        return terms

    async with playing() as jobs:
        kueue = Kueue(jobs)
        await jobs.create(
            labels=QUEUE,
            scheduling={"mode": "Affinity"},
            datasets=[{"name": "pictures", "mountPath": "/data"}],
        )
        await jobs.until(kueue.there)
        assert not affinity(kueue)
        await put_dataset(jobs, node="b")
        await jobs.until(lambda: GATE not in kueue.workload()["metadata"].get("annotations", {}))
        (term,) = affinity(kueue)["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        (expression,) = term["preference"]["matchExpressions"]
        assert expression["key"] == "kubernetes.io/hostname"
        assert expression["values"] == ["b"]


def absent(verb: str, resource: Resource) -> None:
    """The API server without Kueue's definitions."""
    if verb == "create" and resource is WORKLOADS:
        raise error(NotFoundError)


def going(verb: str, resource: Resource) -> None:
    """The API server while these are being deleted."""
    if verb == "create" and resource is WORKLOADS:
        raise KubeError(
            verb=verb,
            resource=resource,
            namespace="n",
            name="",
            code=405,
            reason="MethodNotAllowed",
            detail="create not allowed while custom resource definition is terminating",
        )


@pytest.mark.parametrize("refuse", [absent, going])
async def test_where_kueue_is_gone_a_job_that_runs_goes_on_and_one_that_waits_says_so(
    playing: Callable[..., Jobs], refuse: Callable[[str, Resource], None]
) -> None:
    async with playing() as jobs:
        kueue = Kueue(jobs)
        await jobs.create(labels=QUEUE)
        await jobs.until(kueue.there)
        await kueue.admit()
        await jobs.until(lambda: jobs.bound("train") == 2)
        jobs.server.refuse = refuse
        jobs.server.store(WORKLOADS).clear()
        await jobs.create("late", labels=QUEUE)
        await jobs.until(lambda: "there is no Kueue" in jobs.status("late").get("message", ""))
        await jobs.until_running()
        assert not suspended(jobs)


async def test_a_job_that_ran_before_it_was_put_into_a_queue_runs_on_until_it_is_evicted(
    playing: Callable[..., Jobs],
) -> None:
    async with playing() as jobs:
        kueue = Kueue(jobs)
        await jobs.create()
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.until_running()
        await jobs.server.merge(
            TRAINING_JOBS, name="train", namespace="n", patch={"metadata": {"labels": QUEUE}}
        )
        await jobs.until(kueue.there)
        await jobs.until(lambda: len(jobs.context.queue) == 0)
        assert not suspended(jobs)
        await kueue.admit()
        await kueue.evict()
        await jobs.until(lambda: kueue.condition("QuotaReserved") == "False")
        assert suspended(jobs)


async def test_pods_that_find_no_place_are_kueues_matter(playing: Callable[..., Jobs]) -> None:
    async with playing(patience=0.05) as jobs:
        kueue = Kueue(jobs)
        await jobs.create(labels=QUEUE, workers=2, gpus=8)
        await jobs.create("large", labels=QUEUE, workers=2, gpus=8)
        await jobs.until(lambda: kueue.there() and kueue.there("large"))
        await kueue.admit()
        await jobs.until(lambda: jobs.bound("train") == 2)
        await kueue.admit("large")
        await jobs.until(lambda: len(jobs.pods("large")) == 2)
        jobs.advance(300)
        passes = jobs.passes
        await asyncio.sleep(0.3)  # in which it must neither give back what it has nor look without a pause
        assert jobs.passes - passes < 20
        assert not suspended(jobs, "large-worker")


async def test_its_priority_is_that_of_its_class(playing: Callable[..., Jobs]) -> None:
    async with playing() as jobs:
        kueue = Kueue(jobs)
        jobs.server.store(WORKLOAD_PRIORITY_CLASSES)["", "high"] = {"metadata": {"name": "high"}, "value": 70}
        await jobs.create(labels={**QUEUE, "kueue.x-k8s.io/priority-class": "high"})
        await jobs.create("plain", labels=QUEUE)
        await jobs.until(lambda: kueue.there() and kueue.there("plain"))
        assert (kueue.workload()["spec"]["priority"], kueue.workload("plain")["spec"]["priority"]) == (70, 0)


@pytest.mark.parametrize("killed_after", range(1, 9))
async def test_an_operator_that_is_killed_at_any_write_never_flips_suspend_back_and_forth(
    playing: Callable[..., Jobs], killed_after: int
) -> None:
    async with playing() as jobs:
        kueue, states = Kueue(jobs), list[bool]()

        def record(resource: Resource, obj: Object) -> None:
            if resource is JOBS:
                states.append(obj["spec"]["suspend"])

        jobs.server.play = record  # type: ignore[method-assign]
        await jobs.stop()
        await jobs.start(killed_after=killed_after)
        await jobs.create(labels=QUEUE)
        await jobs.until(lambda: jobs.operator.dead or kueue.there())
        await jobs.stop()
        await jobs.start()
        await jobs.until(kueue.there)
        await kueue.admit()
        await jobs.until(lambda: jobs.bound("train") == 2)
        await kueue.evict()
        await jobs.until(lambda: kueue.condition("QuotaReserved") == "False")
        assert suspended(jobs)
        assert len(jobs.server.store(WORKLOADS)) == 1
        assert [value for value, _ in groupby(states)] == [True, False, True]


async def test_a_pass_over_a_job_that_is_as_it_should_be_writes_nothing(playing: Callable[..., Jobs]) -> None:
    async with playing() as jobs:
        kueue = Kueue(jobs)
        await jobs.create(labels=QUEUE)
        await jobs.until(kueue.there)
        await kueue.admit()
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.run()
        await jobs.until(lambda: kueue.condition("PodsReady") == "True")
        await jobs.until_state("Running")
        await jobs.until(lambda: len(jobs.context.queue) == 0)
        before = Counter(jobs.server.writes)
        live = kueue.workload()["metadata"]["name"]
        await jobs.server.merge(
            WORKLOADS, name=live, namespace="n", patch={"metadata": {"annotations": {"a": "b"}}}
        )
        await jobs.until(lambda: len(jobs.context.queue) == 0)
        after = Counter(jobs.server.writes)
        assert {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key)} == {
            f"merge Workload n/{live}": 1
        }
