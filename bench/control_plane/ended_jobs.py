"""What TrainingJobs that have ended cost an operator that starts: until its views are full, and until each had a pass.

The real operator on an API server in memory. Told are seconds of processor time, the number of requests about
TrainingJobs after the list, and the most memory of the process. From the root of the checkout::

    PYTHONPATH=.:operator python -m bench.control_plane.ended_jobs --ended 100000
"""

import asyncio
import json
import resource as process_resources
import time
from collections.abc import Callable
from typing import Any

import click
from bench.control_plane.queue_pass import job
from tests.support.caches import MemoryCaches
from tests.support.twins.engine import MemoryEngine
from tests.support.waiting import eventually_async
from tests.unit.kube.fake import ScriptedApi

from tdcs.control.context import Settings
from tdcs.control.operator.operator import Operator
from tdcs.kube.api import ObjectList
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import TRAINING_JOBS, Resource

BAR_SECONDS = 30.0


class EndedJobs(ScriptedApi):
    """An API server with so many TrainingJobs that have ended, made as they are listed."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count
        self.lookups = 0

    async def list(self, resource: Resource, **asked: Any) -> ObjectList:
        if resource is not TRAINING_JOBS:
            return await super().list(resource, **asked)
        keep: Callable[[Object], Object] = asked.get("keep") or (lambda obj: obj)
        made = (job(f"ended-{number}", "Admitted", "Succeeded") for number in range(self._count))
        return ObjectList(items=list(map(keep, made)), resource_version="1")

    async def get(self, resource: Resource, **asked: Any) -> Any:
        self.lookups += resource is TRAINING_JOBS
        return await super().get(resource, **asked)


async def measured(ended: int) -> dict[str, float]:
    api = EndedJobs(ended)
    caches = MemoryCaches(MemoryEngine(sources={}, workers={}))
    operator = Operator(api=api, caches=caches, settings=Settings())
    begin = time.process_time()
    await operator.start()
    ready = time.process_time() - begin
    await eventually_async(lambda: not len(operator.context.queue), deadline=600)
    passes = time.process_time() - begin
    await operator.stop()
    return {"ready_cpu_seconds": ready, "passes_cpu_seconds": passes, "requests": api.lookups}


@click.command()
@click.option("--ended", default=100_000, help="Jobs that have ended.")
def main(ended: int) -> None:
    found = asyncio.run(measured(ended))
    memory = process_resources.getrusage(process_resources.RUSAGE_SELF).ru_maxrss / 1024
    holds = found["passes_cpu_seconds"] < BAR_SECONDS and not found["requests"]
    rounded = {key: round(value, 1) for key, value in found.items()}
    told = {"bench": "ended_jobs", "ended": ended, **rounded, "memory_mib": round(memory), "holds": holds}
    click.echo(json.dumps(told))


if __name__ == "__main__":
    main()
