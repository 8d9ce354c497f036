"""A pass over an object goes through few rooms of the code: who follows one has few folders to open."""

import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from types import FrameType

from tests.unit.control.cluster import Cluster
from tests.unit.control.dataset.conftest import ZONES, engine_of
from tests.unit.control.jobs import Jobs

from tdcs.control.context import WorkKey
from tdcs.model.kube_resources import DATASETS, TRAINING_JOBS


async def rooms_of(work: Awaitable[object]) -> set[str]:
    """The packages of TDCS with a function that is called meanwhile."""
    found: set[str] = set()

    def called(frame: FrameType, event: str, _: object) -> None:
        name = str(frame.f_globals.get("__name__", ""))
        if event == "call" and name.startswith("tdcs."):
            found.add(name.rpartition(".")[0])

    sys.setprofile(called)
    try:
        await work
    finally:
        sys.setprofile(None)
    return found


@asynccontextmanager
async def ready_dataset() -> AsyncIterator[Cluster]:
    async with Cluster(engine=engine_of(), nodes={name: {} for name in ZONES}) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        await cluster.create_dataset()
        await cluster.until(lambda: cluster.condition("Ready").get("status") == "True")
        yield cluster


async def test_a_pass_over_a_dataset_enters_twelve_rooms_at_most() -> None:
    async with ready_dataset() as cluster:
        rooms = await rooms_of(cluster.datasets.reconcile(WorkKey(DATASETS, "n", "pictures")))
    assert "tdcs.control.dataset" in rooms
    assert len(rooms) <= 12, rooms


async def test_a_pass_over_a_training_job_enters_fifteen_rooms_at_most() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create()
        await jobs.until(lambda: jobs.bound("train") >= 1)
        rooms = await rooms_of(jobs._reconcile(WorkKey(TRAINING_JOBS, "n", "train")))
    assert "tdcs.control.job" in rooms
    assert len(rooms) <= 15, rooms
