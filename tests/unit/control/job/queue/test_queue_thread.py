"""A pass over the queue goes on next to everything else, and decides nothing of what has changed meanwhile."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.control.jobs import Jobs

from tdcs.control.context import WorkKey
from tdcs.control.job.queue.queue_entries import Collector, Entries
from tdcs.model.kube_resources import JOBS, NODES, TRAINING_JOBS


class Gate:
    """Passes over the queue stop here until they are let through."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.waiting = threading.Event()
        self.open.set()

    def stop(self) -> None:
        self.waiting.clear()
        self.open.clear()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate, collect = Gate(), Collector.collect

    def collect_slowly(self: Collector) -> Entries:
        entries = collect(self)
        if not gate.open.is_set():
            gate.waiting.set()
            gate.open.wait(timeout=60)
        return entries

    monkeypatch.setattr(Collector, "collect", collect_slowly)
    yield gate
    gate.open.set()


async def test_a_pass_that_takes_long_holds_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    collect = Collector.collect

    def slowly(self: Collector) -> Entries:
        end = time.thread_time() + 1.0
        while time.thread_time() < end:
            pass  # as a thread that computes, and not one that sleeps
        return collect(self)

    monkeypatch.setattr(Collector, "collect", slowly)
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create(workers=1)
        ticks = 0
        while not jobs.pods():
            await jobs.play()
            await asyncio.sleep(0.01)
            ticks += 1
            assert ticks < 6000
        assert ticks > 10


@pytest.mark.parametrize("change", ["suspended", "deleted"])
async def test_a_job_that_changes_during_a_pass_is_not_admitted_by_it(gate: Gate, change: str) -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        gate.stop()
        await jobs.create(workers=4)
        await jobs.create("other", workers=4)
        await jobs.until(gate.waiting.is_set)
        if change == "suspended":
            await jobs.change(runPolicy={"suspend": True})
            await jobs.until(lambda: jobs.status().get("state") == "Suspended")
        else:
            await jobs.server.delete(TRAINING_JOBS, name="train", namespace="n")
        gate.open.set()
        await jobs.until(lambda: jobs.bound("other") == 4)
        child = jobs.server.store(JOBS).get(("n", "train-worker"))
        assert child is None or child["spec"]["suspend"]


async def test_an_operator_that_loses_its_lease_during_a_pass_admits_nothing_more(gate: Gate) -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        gate.stop()
        await jobs.create(workers=1)
        await jobs.until(gate.waiting.is_set)
        jobs.gangs.close()
        gate.open.set()
        await asyncio.sleep(0.3)
        assert not jobs.condition("Admitted")
        assert jobs.job("train-worker")["spec"]["suspend"]


async def test_a_job_that_has_ended_costs_no_request_any_more() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create(workers=1, runPolicy={"ttlSecondsAfterFinished": 3600})
        await jobs.until_state("Succeeded", kubelet=True)
        await jobs.until(lambda: len(jobs.context.queue) == 0)
        calls: list[Any] = []
        get = jobs.server.get

        async def counted(*args: Any, **more: Any) -> Any:
            calls.append(args)
            return await get(*args, **more)

        jobs.server.get = counted  # type: ignore[method-assign]
        seconds = await jobs._reconcile(WorkKey(TRAINING_JOBS, "n", "train"))
        assert not calls
        assert seconds is not None
        assert 3000 < seconds <= 3600
        jobs.advance(3600)
        await jobs._reconcile(WorkKey(TRAINING_JOBS, "n", "train"))
        assert ("n", "train") not in jobs.server.store(TRAINING_JOBS)


async def test_a_node_that_comes_during_a_pass_is_seen_by_the_next(gate: Gate) -> None:
    async with Jobs(gpus={"a": 1}) as jobs:
        gate.stop()
        await jobs.create(workers=2)
        await jobs.until(gate.waiting.is_set)
        node = {
            "metadata": {"name": "b", "labels": {"kubernetes.io/hostname": "b"}},
            "status": {"allocatable": {"nvidia.com/gpu": "1", "cpu": "96", "pods": "110"}},
        }
        await jobs.server.create(NODES, obj=node)
        gate.open.set()
        await jobs.until(lambda: jobs.bound("train") == 2)
