"""The queue of jobs does not stand still unnoticed, and an operator that stands by admits no job."""

import asyncio
from typing import Any

import pytest
from tests.support.caches import MemoryCaches
from tests.support.twins.engine import MemoryEngine
from tests.support.waiting import eventually_async
from tests.unit.control.jobs import Jobs, role
from tests.unit.control.test_operator import ScriptedLease, see
from tests.unit.kube.fake import ScriptedApi, error

from tdcs.control.context import Settings
from tdcs.control.job.queue import queue_entries as entries_module
from tdcs.control.job.queue import queue_passes
from tdcs.control.job.queue.pod_demand import PodDemands
from tdcs.control.operator import operator as module
from tdcs.control.operator.operator import Operator
from tdcs.control.operator.operator_health import StaleError
from tdcs.decide.queue import gang_turn as schedule_module
from tdcs.kube.errors import InvalidError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import TRAINING_JOBS


def ready_job(name: str = "train") -> Object:
    """A job whose data is ready, as the view of an operator has it; it asks for no node's room."""
    condition = {"type": "DataReady", "status": "True", "reason": "DatasetsReady"}
    containers = [{"name": "main", "image": "x"}]
    return {
        "metadata": {
            "name": name,
            "namespace": "n",
            "uid": name,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"replicaSpecs": [{"name": "Worker", "template": {"spec": {"containers": containers}}}]},
        "status": {"conditions": [condition]},
    }


def make_operator(**more: Any) -> Operator:
    engine = MemoryEngine(sources={}, workers={})
    return Operator(api=ScriptedApi(), caches=lambda _: MemoryCaches(engine), settings=Settings(), **more)


def samples(operator: Operator) -> dict[str, float]:
    """The operator's own metrics without labels."""
    return {
        sample.name: sample.value
        for family in operator.metrics.registry.collect()
        for sample in family.samples
        if not sample.labels
    }


@pytest.mark.failure_mode("operator-on-standby")
async def test_an_operator_that_stands_by_admits_no_job_and_the_leader_does() -> None:
    lease = ScriptedLease()
    operator = make_operator(lease=lease)
    async with asyncio.timeout(60):
        await operator.start()
        see(operator, TRAINING_JOBS, ready_job())
        await asyncio.sleep(4 * queue_passes.PAUSE)
        assert samples(operator)["tdcs_operator_schedule_seconds_count"] == 0
        assert operator.health()["standingBy"] is True
        lease.granted.set()
        await eventually_async(
            lambda: samples(operator)["tdcs_operator_schedule_seconds_count"] > 0, deadline=30
        )
        await operator.stop()


@pytest.mark.failure_mode("queue-pass-fails")
async def test_a_queue_that_stands_still_is_counted_unhealthy_and_goes_on_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_passes, "RETRY_FIRST", 0.01)
    monkeypatch.setattr(module, "SCHEDULE_LIMIT_SECONDS", 0.0)
    broken = True
    real = schedule_module.schedule

    def schedule(**more: Any) -> Any:
        if broken:
            raise RuntimeError("a defect")
        return real(**more)

    monkeypatch.setattr(f"{entries_module.__name__}.schedule", schedule)
    operator = make_operator()
    async with asyncio.timeout(60):
        await operator.start()
        see(operator, TRAINING_JOBS, ready_job())
        await eventually_async(
            lambda: samples(operator)["tdcs_operator_schedule_failures_total"] >= 3, deadline=30
        )
        with pytest.raises(StaleError, match="the queue of TrainingJobs has stood still"):
            operator.health()
        broken = False
        await eventually_async(
            lambda: samples(operator)["tdcs_operator_schedule_overdue_seconds"] == 0, deadline=30
        )
        operator.health()
        await operator.stop()


@pytest.mark.failure_mode("job-not-understood")
async def test_whatever_one_job_makes_the_queue_stumble_over_the_others_are_admitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = PodDemands.priority

    def priority(self: Any, name: str) -> int:
        if name == "trap":
            raise RuntimeError("a defect")
        return real(self, name)

    monkeypatch.setattr(PodDemands, "priority", priority)
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create("trapped", workers=1, scheduling={"priorityClassName": "trap"})
        await jobs.create("good", workers=4)
        await jobs.until(lambda: jobs.bound("good") == 4)
        await jobs.until(lambda: jobs.condition("Admitted", "trapped").get("reason") == "InvalidSpec")
        assert "a defect" in jobs.status("trapped")["message"]


async def test_a_bad_job_that_takes_no_status_is_reported_by_an_event() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        real = jobs.server.apply_status

        async def apply_status(resource: Any, *, obj: Object) -> Object:
            if obj["metadata"]["name"] == "bad":
                raise error(InvalidError)
            return await real(resource, obj=obj)

        jobs.server.apply_status = apply_status  # type: ignore[method-assign]
        bad = role(1)
        bad["template"]["spec"]["nodeSelector"] = ["gpu"]
        await jobs.create("bad", roles={"Worker": bad})
        await jobs.create("good", workers=4)
        await jobs.until(lambda: jobs.bound("good") == 4)
        await jobs.until(lambda: "InvalidSpec" in jobs.events())
