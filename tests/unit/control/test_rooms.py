"""A pass over an object goes through few rooms of the code: who follows one has few folders to open, and comes back
into none of them again and again."""

import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from itertools import groupby
from types import FrameType

from tests.unit.control.cluster import Cluster
from tests.unit.control.dataset.conftest import ZONES, engine_of
from tests.unit.control.jobs import Jobs

from tdcs.control.context import WorkKey
from tdcs.model.kube_resources import DATASETS, TRAINING_JOBS

Paths = dict[tuple[str, ...], str]
"""The rooms on the way down to a function, the first of them first, and that function."""


def room_of(frame: FrameType) -> str:
    """The package of a function of TDCS; empty for others, and for methods that dataclasses make."""
    name = str(frame.f_globals.get("__name__", ""))
    written = not frame.f_code.co_filename.startswith("<")
    return name.rpartition(".")[0] if written and name.startswith("tdcs.") else ""


async def paths_of(work: Awaitable[object]) -> Paths:
    """All ways down from a pass to functions that are called meanwhile, as the rooms that they enter."""
    functions: Paths = {}

    def called(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not room_of(frame):
            return
        stack, function = [], f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}"
        caller: FrameType | None = frame
        while caller is not None:
            stack.append(room_of(caller))
            caller = caller.f_back
        functions.setdefault(tuple(room for room, _ in groupby(filter(None, reversed(stack)))), function)

    sys.setprofile(called)
    try:
        await work
    finally:
        sys.setprofile(None)
    return functions


def rooms_of(paths: Paths) -> set[str]:
    return {path[-1] for path in paths}


def entered_often(paths: Paths) -> list[str]:
    """Functions to which a way leads that enters a room more than twice."""
    return [f"{paths[path]}: {' > '.join(path)}" for path in paths if max(Counter(path).values()) > 2]


@asynccontextmanager
async def ready_dataset() -> AsyncIterator[Cluster]:
    async with Cluster(engine=engine_of(), nodes={name: {} for name in ZONES}) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        await cluster.create_dataset()
        await cluster.until(lambda: cluster.condition("Ready").get("status") == "True")
        yield cluster


async def test_a_pass_over_a_dataset_enters_twelve_rooms_at_most_and_none_thrice_on_a_way() -> None:
    async with ready_dataset() as cluster:
        paths = await paths_of(cluster.datasets.reconcile(WorkKey(DATASETS, "n", "pictures")))
    rooms = rooms_of(paths)
    assert "tdcs.control.dataset.mount" in rooms
    assert len(rooms) <= 12, rooms
    assert not entered_often(paths)


async def test_a_pass_over_a_training_job_enters_fifteen_rooms_at_most_and_none_thrice_on_a_way() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create()
        await jobs.until(lambda: jobs.bound("train") >= 1)
        paths = await paths_of(jobs._reconcile(WorkKey(TRAINING_JOBS, "n", "train")))
    rooms = rooms_of(paths)
    assert "tdcs.control.job.queue" in rooms
    assert len(rooms) <= 15, rooms
    assert not entered_often(paths)
