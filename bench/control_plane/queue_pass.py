"""What a pass over the queue of TrainingJobs costs the operator, and for how long its event loop stands still.

The real queue on 5,000 nodes of eight GPUs: 500 jobs run, 2,000 wait of distinct demands, eight of them elastic with up
to 1,000 workers, and many have ended. The loop ticks every 10 ms. Told are the processor time of a pass (the first one
reads all specs), the most processor time that the loop's own thread took between two ticks, and the longest time
between two ticks, in which the machine may have done something else. From the root of the checkout::

    PYTHONPATH=.:operator python -m bench.control_plane.queue_pass --ended 100000
"""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from tdcs.control.context import Stores, WorkKey
from tdcs.control.job.queue.gang_queue import GangQueue
from tdcs.control.job_index import JobIndex
from tdcs.control.kept_job import kept_job
from tdcs.control.operator.operator_command import spare_lasting_objects
from tdcs.control.operator_metrics import OperatorMetrics
from tdcs.kube.queue import KeyedQueue

GPU = "nvidia.com/gpu"
BAR_CPU_SECONDS = 0.5
BAR_STILL_SECONDS = 0.05
NOW = "2026-01-01T00:00:00Z"
TICK = 0.01


def node(number: int) -> Any:
    name = f"node-{number:05}"
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "pool": "gpu"}},
        "status": {"allocatable": {GPU: "8", "cpu": "128", "memory": "1Ti", "pods": "110"}},
    }


def job(
    name: str, *conditions: str, workers: int = 1, gpus: int = 8, cpu: int = 8000, elastic: int = 0
) -> Any:
    limits = {GPU: str(gpus), "cpu": f"{cpu}m", "memory": "64Gi"}
    env = [{"name": f"V{number}", "value": "x"} for number in range(12)]
    container = {
        "name": "main",
        "image": "train",
        "command": ["torchrun"],
        "env": env,
        "resources": {"limits": limits},
    }
    spec: Any = {
        "framework": "PyTorch",
        "workers": elastic or workers,
        "replicaSpecs": [
            {
                "name": "Worker",
                "template": {"spec": {"containers": [container], "nodeSelector": {"pool": "gpu"}}},
            }
        ],
    }
    if elastic:
        spec["elastic"] = {"minReplicas": 1, "maxReplicas": elastic}
    status_conditions = [
        {"type": kind, "status": "True", "reason": "x", "message": "m", "lastTransitionTime": NOW}
        for kind in conditions
    ]
    return {
        "metadata": {
            "name": name,
            "namespace": f"team-{hash(name) % 20}",
            "uid": name,
            "generation": 1,
            "creationTimestamp": NOW,
        },
        "spec": spec,
        "status": {"conditions": status_conditions, "observedGeneration": 1},
    }


def world(*, nodes: int, waiting: int, running: int, elastic: int, ended: int) -> Stores:
    jobs = [job(f"runs-{i}", "DataReady", "Admitted", workers=1 + i % 8) for i in range(running)]
    jobs += [
        job(f"waits-{i}", "DataReady", workers=1 + i % 64, gpus=1 + i % 8, cpu=4000 + i)
        for i in range(waiting)
    ]
    jobs += [job(f"elastic-{i}", "DataReady", elastic=1000) for i in range(elastic)]
    jobs += [kept_job(job(f"ended-{i}", "Admitted", "Succeeded")) for i in range(ended)]
    return Stores(
        training_jobs=JobIndex(
            {(job["metadata"]["namespace"], job["metadata"]["name"]): job for job in jobs}
        ),
        nodes={("", node_object["metadata"]["name"]): node_object for node_object in map(node, range(nodes))},
    )


async def measured(stores: Stores, *, passes: int) -> dict[str, float]:
    costs: list[float] = []
    still, last = 0.0, time.perf_counter()
    loop_seconds, own_last = 0.0, time.thread_time()

    class Timed(OperatorMetrics):
        @contextmanager
        def timed_schedule(self) -> Iterator[None]:
            begin = time.process_time()
            yield
            costs.append(time.process_time() - begin)

    queue: KeyedQueue[WorkKey] = KeyedQueue()
    gangs = GangQueue(stores=stores, queue=queue, metrics=Timed())
    gangs.start()
    while len(costs) < passes:
        await asyncio.sleep(TICK)
        now = time.perf_counter()
        still, last = max(still, now - last - TICK), now
        loop_seconds, own_last = max(loop_seconds, time.thread_time() - own_last), time.thread_time()
        if len(costs) and gangs.overdue_seconds() == 0:
            gangs.touch()
    gangs.close()
    return {
        "first_cpu_seconds": costs[0],
        "cpu_seconds": max(costs[1:]),
        "loop_cpu_seconds": loop_seconds,
        "still_seconds": still,
    }


@click.command()
@click.option("--nodes", default=5000)
@click.option("--waiting", default=2000)
@click.option("--running", default=500)
@click.option("--elastic", default=8)
@click.option("--ended", default=0, help="Jobs that have ended.")
@click.option("--passes", default=5)
def main(passes: int, **sizes: int) -> None:
    stores = world(**sizes)
    spare_lasting_objects()  # as the operator does once it knows the cluster
    figures = asyncio.run(measured(stores, passes=passes))
    holds = figures["cpu_seconds"] < BAR_CPU_SECONDS and figures["loop_cpu_seconds"] < BAR_STILL_SECONDS
    click.echo(
        json.dumps(
            {
                "bench": "queue_pass",
                **sizes,
                **{key: round(figure, 3) for key, figure in figures.items()},
                "holds": holds,
            }
        )
    )


if __name__ == "__main__":
    main()
