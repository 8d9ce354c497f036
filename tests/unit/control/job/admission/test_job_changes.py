"""What may change of a job that waits or is suspended, and what of one that runs."""

import json
from typing import Any

from tests.unit.control.jobs import GPU, Jobs, role
from tests.unit.control.kueue.test_kueue_jobs import QUEUE, Kueue

from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import JOBS, PODS, PRIORITY_CLASSES


def template(*, gpus: int = 1, image: str = "train") -> Object:
    spec: Object = role(1, gpus=gpus)["template"]["spec"]
    return {"spec": {"containers": [{**spec["containers"][0], "image": image}]}}


def specs(**more: Any) -> list[Object]:
    return [{"name": "Worker", "template": template(**more)}]


def spec_of(jobs: Jobs, name: str) -> Object:
    """Of the Job of the workers; empty while there is none."""
    return dict(jobs.server.store(JOBS).get(("n", f"{name}-worker"), {}).get("spec") or {})


async def test_a_job_that_waits_may_ask_for_less_and_keeps_its_age() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.stranger("stranger", node="a", gpus=4)
        await jobs.create("first", workers=8)
        await jobs.until_state("Queued", "first")
        await jobs.create("second", workers=2)
        await jobs.until_state("Queued", "second")
        await jobs.change("first", workers=2, replicaSpecs=specs(gpus=2, image="other"))
        await jobs.until(lambda: spec_of(jobs, "first").get("completions") == 2)
        container = jobs.job("first-worker")["spec"]["template"]["spec"]["containers"][0]
        assert (container["image"], container["resources"]["limits"][GPU]) == ("other", "2")
        await jobs.server.delete(PODS, name="stranger", namespace="else")
        await jobs.until(lambda: jobs.bound("first") == 2)
        assert jobs.condition("Admitted", "second")["status"] == "False"
        assert {pod["spec"]["containers"][0]["image"] for pod in jobs.pods("first")} == {"other"}


async def test_a_job_that_waits_may_change_its_priority_its_mode_and_whether_it_is_a_gang() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        jobs.server.store(PRIORITY_CLASSES)["", "high"] = {"metadata": {"name": "high"}, "value": 1000}
        await jobs.stranger("stranger", node="a", gpus=2)
        await jobs.create("first", workers=4)
        await jobs.until_state("Queued", "first")
        await jobs.create("second", workers=4)
        await jobs.until_state("Queued", "second")
        await jobs.change("second", scheduling={"priorityClassName": "high", "mode": "Affinity"})
        await jobs.until(lambda: '"high"' in json.dumps(spec_of(jobs, "second")))
        await jobs.server.delete(PODS, name="stranger", namespace="else")
        await jobs.until(lambda: jobs.bound("second") == 4)
        await jobs.change("first", scheduling={"gang": False})
        await jobs.until(lambda: len(jobs.pods("first")) == 4)


async def test_a_suspended_job_goes_on_with_what_it_was_changed_to() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create(framework="PyTorch", workers=2)
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.change(runPolicy={"suspend": True})
        await jobs.until(lambda: not jobs.pods("train"))
        await jobs.change(workers=4, replicaSpecs=specs(image="other"))
        await jobs.change(runPolicy={"suspend": False})
        await jobs.until(lambda: jobs.bound("train") == 4)
        env = jobs.pods("train")[0]["spec"]["containers"][0]["env"]
        assert {"name": "WORLD_SIZE", "value": "4"} in env
        assert jobs.status()["replicas"] == 4


async def test_gang_switched_on_for_a_running_job_ends_nothing() -> None:
    async with Jobs(gpus={"a": 4}, patience=0.1) as jobs:
        await jobs.create(workers=5, scheduling={"gang": False})
        await jobs.until(lambda: jobs.bound("train") == 4)
        await jobs.run()
        before = {pod["metadata"]["uid"] for pod in jobs.pods("train")}
        # The API server refuses it; an operator does not rely on that.
        await jobs.change(scheduling={"gang": True})
        await jobs.until(lambda: jobs.status().get("observedGeneration") == 2)
        jobs.advance(10_000)
        await jobs.change(runPolicy={"backoffLimit": 3})
        await jobs.until(lambda: jobs.status().get("observedGeneration") == 3)
        for _ in range(20):
            await jobs.play()
        assert {pod["metadata"]["uid"] for pod in jobs.pods("train")} == before
        assert jobs.condition("Admitted")["status"] == "True"


async def test_a_job_that_waits_in_kueue_asks_it_for_what_it_was_changed_to() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        kueue = Kueue(jobs)
        await jobs.create(workers=8, labels=QUEUE)
        await jobs.until(kueue.there)
        uid = kueue.workload()["metadata"]["uid"]
        await jobs.change(workers=2, replicaSpecs=specs(gpus=2))
        await jobs.until(lambda: kueue.workload()["spec"]["podSets"][0]["count"] == 2)
        assert kueue.workload()["metadata"]["uid"] == uid
        await kueue.admit()
        await jobs.until(lambda: jobs.bound("train") == 2)
