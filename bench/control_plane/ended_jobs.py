"""What TrainingJobs that have ended cost an operator that starts, next to pods and nodes of real shape.

The real operator on an API server in memory. Told are seconds until it is ready, its views being full, and until each
job had a pass: by the clock, and of processor time (to decode the JSON counts, to make it does not); the number of
requests about TrainingJobs after the list; and the memory of the process, at most and at rest. From the root of the
checkout::

    PYTHONPATH=.:operator python -m bench.control_plane.ended_jobs --ended 100000
"""

import asyncio
import json
import resource as process_resources
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from bench.control_plane.real_objects import ended_job_text, node_text, pod_text
from tests.support.caches import MemoryCaches
from tests.support.twins.engine import MemoryEngine
from tests.support.waiting import eventually_async
from tests.unit.kube.fake import ScriptedApi

from tdcs.control.context import Settings
from tdcs.control.node_usage import OF_NO_JOB
from tdcs.control.operator.operator import Operator
from tdcs.control.operator.operator_command import spare_lasting_objects
from tdcs.kube.api import ObjectList
from tdcs.kube.client import LIST_CHUNK, item_of, page_of
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import NODES, PODS, TRAINING_JOBS, Resource

BAR_SECONDS = 30.0
"""Of processor time: by the clock it is as much on a machine that does nothing else."""

BAR_MIB = 400

REST_SECONDS = 2.0
"""After the last pass, until the memory at rest is read."""

TEXTS: Mapping[Resource, Callable[[int], str]] = {
    TRAINING_JOBS: ended_job_text,
    PODS: pod_text,
    NODES: node_text,
}


class EndedJobs(ScriptedApi):
    """An API server with so many objects: its lists come in pages of JSON, which are decoded as by the client.

    Args:
        counts: how many objects there are of a resource.
    """

    def __init__(self, counts: Mapping[Resource, int]) -> None:
        super().__init__()
        self._counts = counts
        self.lookups = 0
        self.making = 0.0

    async def list(self, resource: Resource, **options: Any) -> ObjectList:
        keep: Callable[[Object], Object] = options.get("keep") or (lambda obj: obj)
        items: list[Object] = []
        count = 0 if options.get("labels") == OF_NO_JOB else self._counts.get(resource, 0)
        for first in range(0, count, LIST_CHUNK):
            begin = time.process_time()
            texts = map(TEXTS[resource], range(first, min(first + LIST_CHUNK, count)))
            content = ('{"metadata":{},"items":[' + ",".join(texts) + "]}").encode()
            self.making += time.process_time() - begin
            page = page_of(content)
            await asyncio.sleep(0)  # other lists have pages on their way meanwhile
            items += (keep(item_of(content, resource=resource)) for content in page.items or ())
        return ObjectList(items=items, resource_version="1")

    async def get(self, resource: Resource, **options: Any) -> Any:
        self.lookups += resource is TRAINING_JOBS
        return await super().get(resource, **options)


async def measured(counts: Mapping[Resource, int]) -> dict[str, float]:
    spare_lasting_objects()  # as the operator's command does
    api = EndedJobs(counts)
    caches = MemoryCaches(MemoryEngine(sources={}, workers={}))
    operator = Operator(api=api, caches=lambda _: caches, settings=Settings())
    begin, begun_at = time.process_time(), time.perf_counter()
    await operator.start()
    ready, ready_at = time.process_time(), time.perf_counter()
    await eventually_async(lambda: not len(operator.context.queue), deadline=600)
    passes = time.process_time()
    await asyncio.sleep(REST_SECONDS)
    figures = {
        "ready_seconds": ready_at - begun_at,
        "ready_cpu_seconds": ready - begin - api.making,
        "passes_cpu_seconds": passes - begin - api.making,
        "requests": api.lookups,
        "rest_mib": resident_mib(),
    }
    await operator.stop()
    return figures


def resident_mib() -> float:
    """The memory that this process has now."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


@click.command()
@click.option("--ended", default=100_000, help="TrainingJobs that have ended.")
@click.option("--pods", default=50_000, help="Pods of TrainingJobs, all of them with a node.")
@click.option("--nodes", default=5_000)
def main(ended: int, pods: int, nodes: int) -> None:
    figures = asyncio.run(measured({TRAINING_JOBS: ended, PODS: pods, NODES: nodes}))
    memory = process_resources.getrusage(process_resources.RUSAGE_SELF).ru_maxrss / 1024
    holds = {
        "holds": figures["ready_cpu_seconds"] < BAR_SECONDS and not figures["requests"],
        "memory_holds": memory < BAR_MIB,
    }
    rounded = {key: round(value, 1) for key, value in figures.items()}
    sizes = {"ended": ended, "pods": pods, "nodes": nodes}
    click.echo(json.dumps({"bench": "ended_jobs", **sizes, **rounded, "memory_mib": round(memory), **holds}))


if __name__ == "__main__":
    main()
