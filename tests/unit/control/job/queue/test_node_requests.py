"""A gang that the present nodes cannot hold asks for more, of a stand-in that adds them late, too few, or never."""

import threading
import time
from typing import Any

import pytest
from tests.unit.control.job.admission.test_data_meetings import SIZE, pictures
from tests.unit.control.jobs import GPU, Jobs, time_at

from tdcs.control.context import WorkKey
from tdcs.control.job.job_children import CONSUME
from tdcs.kube.errors import NotFoundError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import (
    DATASETS,
    NODES,
    POD_TEMPLATES,
    PROVISIONING_REQUESTS,
    TRAINING_JOBS,
    Resource,
)

NAME = ("n", "trainingjob-train")


class Autoscaled(Jobs):
    """Jobs whose operator asks for nodes, on a clock that stands still until a test puts it forward."""

    def __init__(self, **options: Any) -> None:
        super().__init__(clock=lambda: 1000.0 + self._ahead, **options)
        self._began = time.time()

    def now(self) -> str:
        return time_at(self._began + self._ahead)

    async def add_node(self, name: str, *, gpus: int) -> None:
        node: Object = {
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name},
                "creationTimestamp": self.now(),
            },
            "status": {"allocatable": {GPU: str(gpus), "cpu": "96", "pods": "110"}},
        }
        await self.server.create(NODES, obj=node)

    async def later(self, seconds: float) -> None:
        """Time goes on, and brings the pass that it makes due."""
        self.advance(seconds)
        for key in list(self.server.store(TRAINING_JOBS)):
            self.context.queue.add(WorkKey(TRAINING_JOBS, *key))

    def request_state(self, name: str = "train") -> tuple[str | None, str | None]:
        """Status and reason of the condition NodesRequested."""
        condition = self.condition("NodesRequested", name)
        return condition.get("status"), condition.get("reason")

    def request(self) -> Object | None:
        return self.server.store(PROVISIONING_REQUESTS).get(NAME)

    async def answer(self, **conditions: str) -> None:
        """The autoscaler says these conditions True, each with its message."""
        conditions_now = [
            {"type": kind, "status": "True", "reason": kind, "message": text}
            for kind, text in conditions.items()
        ]
        await self.server.merge_status(
            PROVISIONING_REQUESTS,
            name=NAME[1],
            namespace="n",
            patch={"status": {"conditions": conditions_now}},
        )
        await self.later(0)


async def test_a_gang_is_released_at_once_and_starts_when_its_nodes_come() -> None:
    async with Autoscaled(gpus={"a": 1}, provisioning="Release") as jobs:
        await jobs.create(workers=3)
        await jobs.until(lambda: len(jobs.pods("train")) == 3)
        await jobs.until(lambda: jobs.request_state() == ("True", "PodsReleased"))
        assert jobs.condition("Admitted")["status"] == "True"
        await jobs.later(800)  # longer than it has to start, and than pods have to find places
        await jobs.until(lambda: jobs.bound("train") == 1)
        await jobs.add_node("b", gpus=2)
        await jobs.until(lambda: jobs.bound("train") == 3)
        await jobs.until(lambda: jobs.status()["queue"]["nodesAsked"].get("cameTime"))
        await jobs.later(500)  # an image is pulled: the time to start counts from when the nodes came
        await jobs.run("train")
        await jobs.until_state("Running")
        await jobs.until(lambda: jobs.request_state() == ("False", "NodesCame"))
        await jobs.until(lambda: "queue" not in jobs.status())
        assert (
            "NodesRequested" in "".join(str(event) for event in jobs.events())
            or "PodsReleased" in jobs.events()
        )


async def test_with_too_few_nodes_all_pods_are_given_back_and_asked_for_again_after_a_pause() -> None:
    async with Autoscaled(gpus={"a": 1}, provisioning="Release") as jobs:
        await jobs.create(workers=3)
        await jobs.until(lambda: len(jobs.pods("train")) == 3)
        await jobs.add_node("b", gpus=1)
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.later(901)
        await jobs.until(lambda: not jobs.pods("train"))
        await jobs.until(lambda: jobs.request_state() == ("False", "NodesDidNotCome"))
        assert "for 1 of its 3 pods within 900 s" in jobs.condition("NodesRequested")["message"]
        assert jobs.status()["queue"]["nodesAsked"]["tries"] == 1
        # Others have the room meanwhile, also when the pause of a gang that gave its room back is over.
        await jobs.create("small", workers=2)
        await jobs.until(lambda: jobs.bound("small") == 2)
        await jobs.later(50)
        await jobs.until(lambda: jobs.condition("Admitted").get("reason") == "NoNodeIsLargeEnough")
        assert not jobs.pods("train")
        await jobs.later(30)
        await jobs.until(lambda: len(jobs.pods("train")) == 3)


async def test_room_that_comes_in_the_pause_is_used_without_asking() -> None:
    async with Autoscaled(gpus={"a": 1}, provisioning="Release") as jobs:
        await jobs.create(workers=3)
        await jobs.until(lambda: len(jobs.pods("train")) == 3)
        await jobs.later(901)
        await jobs.until(lambda: not jobs.pods("train"))
        await jobs.later(50)
        await jobs.until(lambda: jobs.condition("Admitted").get("reason") == "NoNodeIsLargeEnough")
        await jobs.add_node("b", gpus=2)
        await jobs.until(lambda: jobs.bound("train") == 3)
        await jobs.run("train")
        await jobs.until_state("Running")


async def test_a_job_that_fits_is_not_released_and_one_without_data_neither() -> None:
    async with Autoscaled(gpus={"a": 1}, provisioning="Release") as jobs:
        await jobs.create("reads", workers=3, datasets=[{"name": "none", "mountPath": "/data"}])
        await jobs.create("fits", workers=1)
        await jobs.until(lambda: jobs.bound("fits") == 1)
        await jobs.until_state("Waiting", "reads")
        assert jobs.request_state("fits") == jobs.request_state("reads") == (None, None)
        assert not jobs.pods("reads")


@pytest.mark.parametrize("write", range(1, 8))
async def test_an_operator_that_is_killed_at_any_write_goes_on_with_a_released_gang(write: int) -> None:
    async with Autoscaled(gpus={"a": 1}, provisioning="Release") as jobs:
        await jobs.stop()
        await jobs.start(killed_after=write)
        await jobs.create(workers=3)
        for _ in range(30):
            await jobs.play()
        await jobs.stop()
        await jobs.start()
        await jobs.until(
            lambda: len(jobs.pods("train")) == 3 and "nodesAsked" in jobs.status().get("queue", {})
        )
        since = jobs.status()["queue"]["nodesAsked"]["since"]
        await jobs.stop()
        await jobs.start()
        await jobs.later(0)
        await jobs.add_node("b", gpus=2)
        await jobs.until(lambda: jobs.bound("train") == 3)
        assert jobs.status()["queue"]["nodesAsked"]["since"] == since
        await jobs.run("train")
        await jobs.until_state("Running")


async def test_a_request_names_the_pods_and_they_use_the_nodes_that_come() -> None:
    async with Autoscaled(gpus={"a": 1}, provisioning="ProvisioningRequest") as jobs:
        await jobs.create(workers=3)
        await jobs.until(jobs.request)
        request = jobs.request()
        assert request is not None
        assert request["spec"] == {
            "provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
            "podSets": [{"podTemplateRef": {"name": "train-worker"}, "count": 3}],
        }
        template = jobs.server.store(POD_TEMPLATES)["n", "train-worker"]["template"]
        assert template["spec"]["containers"][0]["resources"] == {"limits": {GPU: "1"}}
        await jobs.answer(Accepted="it is looked for")
        await jobs.until(lambda: jobs.request_state() == ("True", "Accepted"))
        assert not jobs.pods("train")
        await jobs.answer(Accepted="", Provisioned="all nodes are there")
        await jobs.until(lambda: jobs.request_state() == ("True", "Provisioned"))
        await jobs.add_node("b", gpus=2)
        await jobs.until(lambda: jobs.bound("train") == 3)
        marks = jobs.job("train-worker")["spec"]["template"]["metadata"]["annotations"]
        assert marks[CONSUME] == NAME[1]
        await jobs.run("train")
        await jobs.until_state("Running")
        await jobs.later(10)
        await jobs.until(lambda: jobs.request_state() == ("False", "NodesCame"))
        assert jobs.request() is None
        assert not jobs.server.store(POD_TEMPLATES)


async def test_a_small_job_does_not_take_the_first_node_that_comes_for_a_large_one() -> None:
    async with Autoscaled(gpus={"a": 1}, provisioning="ProvisioningRequest") as jobs:
        await jobs.create("runs", workers=1)
        await jobs.until(lambda: jobs.bound("runs") == 1)
        await jobs.create(workers=2)
        await jobs.until(jobs.request)
        await jobs.create("small", workers=1)
        await jobs.until_state("Queued", "small")
        await jobs.add_node("b", gpus=1)
        for _ in range(20):
            await jobs.play()
        assert not jobs.pods("small")
        await jobs.add_node("c", gpus=1)
        await jobs.until(lambda: jobs.bound("train") == 2)
        assert not jobs.pods("small")


@pytest.mark.parametrize(
    ("answer", "seconds", "reason"),
    [
        ({"Failed": "quota of the cloud"}, 0, "ProvisioningFailed"),
        ({"Provisioned": "", "BookingExpired": "ten minutes are over"}, 0, "BookingExpired"),
        ({"Provisioned": "", "CapacityRevoked": "spot"}, 0, "CapacityRevoked"),
        ({"Accepted": "in a line"}, 901, "ProvisioningFailed"),
        ({}, 901, "ProvisioningFailed"),
    ],
)
async def test_a_request_that_comes_to_nothing_is_made_again_after_a_pause(
    answer: dict[str, str], seconds: int, reason: str
) -> None:
    async with Autoscaled(gpus={"a": 1}, provisioning="ProvisioningRequest") as jobs:
        await jobs.create(workers=3)
        await jobs.until(jobs.request)
        first = jobs.request()
        assert first is not None
        await jobs.answer(**answer)
        await jobs.later(seconds)
        await jobs.until(lambda: jobs.request_state() == ("False", reason))
        assert "it asks again at" in jobs.condition("NodesRequested")["message"]
        assert jobs.request() is None
        await jobs.later(61)
        await jobs.until(jobs.request)
        again = jobs.request()
        assert again is not None
        assert again["metadata"]["uid"] != first["metadata"]["uid"]


async def test_a_pass_that_was_decided_before_a_request_failed_does_not_ask_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Autoscaled(gpus={"a": 1}, provisioning="ProvisioningRequest") as jobs:
        await jobs.create(workers=3)
        await jobs.until(lambda: jobs.request_state()[0] == "True" and jobs.request())
        decide, began, failed = jobs.gangs._decide, threading.Event(), threading.Event()

        def late(*arguments: Any) -> Any:
            decision = decide(*arguments)
            began.set()
            failed.wait(30)
            return decision

        with monkeypatch.context() as patched:
            patched.setattr(jobs.gangs, "_decide", late)
            jobs.gangs.touch()
            await jobs.until(began.is_set)
            await jobs.answer(Failed="quota of the cloud")
            await jobs.until(lambda: jobs.request_state() == ("False", "ProvisioningFailed"))
        failed.set()
        uid = jobs.server.store(TRAINING_JOBS)["n", "train"]["metadata"]["uid"]
        await jobs.until(lambda: not jobs.gangs._passes.is_running)
        assert not jobs.gangs.turns.of(uid).nodes_since, "it pauses"
        assert jobs.request_state() == ("False", "ProvisioningFailed")
        assert jobs.request() is None


async def test_a_cluster_without_the_definition_says_what_to_do() -> None:
    async with Autoscaled(gpus={"a": 1}, provisioning="ProvisioningRequest") as jobs:
        apply = jobs.server.apply

        async def without_definition(resource: Resource, **options: Any) -> Object:
            if resource is PROVISIONING_REQUESTS:
                raise NotFoundError(
                    verb="apply",
                    resource=resource,
                    namespace="n",
                    name=NAME[1],
                    code=404,
                    reason="",
                    detail="",
                )
            return await apply(resource, **options)

        jobs.server.apply = without_definition  # type: ignore[method-assign]
        await jobs.create(workers=3)
        await jobs.until(lambda: jobs.request_state() == ("False", "ProvisioningFailed"))
        assert "operator.nodeProvisioning" in jobs.condition("NodesRequested")["message"]
        assert jobs.status()["state"] == "Queued"


async def test_a_request_goes_when_the_job_is_suspended_and_follows_what_it_asks_for() -> None:
    async with Autoscaled(gpus={"a": 1}, provisioning="ProvisioningRequest") as jobs:
        await jobs.create(workers=3)
        await jobs.until(jobs.request)
        await jobs.change(workers=2)
        await jobs.until(
            lambda: (jobs.request() or {"spec": {"podSets": [{}]}})["spec"]["podSets"][0].get("count") == 2
        )
        await jobs.change(runPolicy={"suspend": True})
        await jobs.until(lambda: jobs.request() is None)
        await jobs.until(lambda: jobs.request_state() == ("False", "NotNeeded"))


async def test_no_more_jobs_are_released_than_a_dataset_has_places_for() -> None:
    async with Autoscaled(gpus={"a": 1}, provisioning="Release") as jobs:
        pictures(jobs, held={"a": SIZE})
        dataset = jobs.server.store(DATASETS)["n", "pictures"]
        dataset["spec"]["access"] = {"maxConcurrentJobs": 1, "onLimit": "Suspend"}
        reads = [{"name": "pictures", "mountPath": "/data"}]
        await jobs.create("first", workers=2, datasets=reads)
        await jobs.create("second", workers=2, datasets=reads)
        await jobs.until(lambda: len(jobs.pods("first")) + len(jobs.pods("second")) >= 2)
        released = "first" if jobs.pods("first") else "second"
        waiting = "second" if released == "first" else "first"
        await jobs.until(lambda: jobs.request_state(released) == ("True", "PodsReleased"))
        for _ in range(20):
            await jobs.later(1)
            await jobs.play()
        assert jobs.request_state(waiting) == (None, None)
        assert not jobs.pods(waiting)


async def test_an_elastic_gang_asks_for_as_few_workers_as_it_starts_with() -> None:
    async with Autoscaled(gpus={"a": 1}, provisioning="ProvisioningRequest") as jobs:
        await jobs.create(workers=100, framework="PyTorch", elastic={"minReplicas": 2, "maxReplicas": 100})
        await jobs.until(jobs.request)
        request = jobs.request()
        assert request is not None
        assert [pod_set["count"] for pod_set in request["spec"]["podSets"]] == [2]
        assert "nodes for its 2 pods" in jobs.condition("NodesRequested")["message"]
        await jobs.add_node("b", gpus=2)
        await jobs.until(lambda: jobs.bound("train") == 3)


async def test_an_elastic_gang_is_released_with_as_few_workers_as_it_starts_with() -> None:
    async with Autoscaled(gpus={"a": 1}, provisioning="Release") as jobs:
        await jobs.create(workers=5, framework="PyTorch", elastic={"minReplicas": 2, "maxReplicas": 5})
        await jobs.until(lambda: len(jobs.pods("train")) == 2)
        await jobs.until(lambda: jobs.request_state() == ("True", "PodsReleased"))
        await jobs.add_node("b", gpus=1)
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.run("train")
        await jobs.until_state("Running")
        await jobs.add_node("c", gpus=3)
        await jobs.until(lambda: jobs.bound("train") == 5)
