"""What the operator writes while nothing happens, and how soon it answers to many jobs at once. Prints two JSON lines.

A real API server and scheduler, the operator's process with the rights of the chart, and an engine with agents on all
nodes in its memory. Half of the jobs are created at once: `answered_s` is when each of them was admitted, or waits in
the queue with a reason. Then the others follow, those that were admitted run, and the rest wait for GPUs: for some
minutes the API server's audit log counts what the operator's service account writes. Renewals of its lease are counted
apart. From the root of the checkout::

    PYTHONPATH=.:deploy/local:operator python bench/control_plane/idle_writes.py
"""

from __future__ import annotations

import datetime
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from tests.controlplane.job_world import held_node
from tests.controlplane.operator_command import allow_secrets, install_rights, start_operator
from tests.support.controlplane import ControlPlane
from tests.support.controlplane.audit import Call, service_account
from tests.support.kube import Kube, Object, condition
from tests.support.programs.processes import Process
from tests.support.waiting import eventually

NAMESPACE, RELEASE = "idle", "tdcs"
GPUS = 2
"""Of a node: with 200 nodes 400 of 500 jobs run, and the others wait."""
FILE_BYTES = 1_000_000
ANSWERED_BAR_SECONDS = 30.0
QUIET_SECONDS = 20.0
CRDS = Path(__file__).parents[2] / "crds"


@click.command()
@click.option("--jobs", default=500, show_default=True, type=click.IntRange(min=2))
@click.option("--datasets", default=100, show_default=True, type=click.IntRange(min=1))
@click.option("--nodes", "count", default=200, show_default=True, type=click.IntRange(min=1))
@click.option("--minutes", default=10.0, show_default=True, type=click.FloatRange(min=0.1))
def main(jobs: int, datasets: int, count: int, minutes: float) -> None:
    """Measure both on one control plane."""
    with (
        tempfile.TemporaryDirectory(prefix="idle-writes-") as folder,
        ControlPlane(folder=Path(folder)) as plane,
    ):
        nodes = prepare(plane, count=count)
        sources = {f"s3://bucket/d{number:03d}": {"a.jpg": FILE_BYTES} for number in range(datasets)}
        engine = {"sources": sources, "workers": dict.fromkeys(nodes, 10**12)}
        operator = start_operator(
            plane, release=RELEASE, namespace=NAMESPACE, engine=engine, folder=Path(folder)
        )
        create_datasets(plane.kube, list(sources), operator=operator)
        names = [f"job-{number:04d}" for number in range(jobs)]
        size = {"jobs": jobs, "datasets": datasets, "nodes": count}
        click.echo(json.dumps(burst(plane, names=names[: jobs // 2], size=size)))
        numbered = list(enumerate(names))[jobs // 2 :]
        plane.kube.create_many(job(name, number, datasets) for number, name in numbered)
        settle(plane, running=min(count * GPUS, jobs))
        click.echo(json.dumps(idle(plane, operator, seconds=60 * minutes, size=size)))


def prepare(plane: ControlPlane, *, count: int) -> list[str]:
    """The definitions, nodes whose kubelet is this program, and the operator's rights."""
    kube = plane.kube
    kube.install_crds(CRDS)
    kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    plane.wait_for_namespace(NAMESPACE)
    nodes = [f"node-{number:03d}" for number in range(count)]
    kube.create_many(held_node(name=name, gpus=GPUS, namespace=NAMESPACE) for name in nodes)
    eventually(
        lambda: not any(node["spec"].get("taints") for node in kube.list("Node")), deadline=60, interval=0.5
    )
    install_rights(kube, release=RELEASE, namespace=NAMESPACE, templates=["operator-rbac", "operator"])
    allow_secrets(kube, release=RELEASE, namespace=NAMESPACE)
    return nodes


def create_datasets(kube: Kube, sources: Sequence[str], *, operator: Process) -> None:
    """A cache cluster and a Dataset of each source; returns when all are Ready."""
    kube.create(
        {
            "apiVersion": "tdcs.io/v1alpha2",
            "kind": "CacheCluster",
            "metadata": {"name": "default", "namespace": NAMESPACE},
            "spec": {},
        }
    )
    kube.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "keys", "namespace": NAMESPACE},
            "stringData": {"accessKeyId": "me", "secretAccessKey": "s3cr3t"},
        }
    )
    kube.create_many(
        {
            "apiVersion": "tdcs.io/v1alpha2",
            "kind": "Dataset",
            "metadata": {"name": uri.rpartition("/")[2], "namespace": NAMESPACE},
            "spec": {"source": {"uri": uri, "secretRef": {"name": "keys"}}},
        }
        for uri in sources
    )

    def ready() -> bool:
        # An operator that is starved of CPU loses its lease and ends: then nothing can be measured.
        assert operator.alive, operator.tail()
        return all(condition(dataset, "Ready") == "True" for dataset in kube.list("Dataset"))

    eventually(ready, deadline=300, describe=operator.tail, interval=1)


def job(name: str, number: int, datasets: int) -> Object:
    """A job of one worker with one GPU that reads one of the datasets."""
    container = {
        "name": "main",
        "image": "train:test",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    pod = {"schedulerName": "default-scheduler", "containers": [container]}
    return {
        "apiVersion": "tdcs.io/v1alpha2",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicaSpecs": [{"name": "Worker", "template": {"spec": pod}}],
            "datasets": [{"name": f"d{number % datasets:03d}", "mountPath": "/data"}],
        },
    }


def burst(plane: ControlPlane, *, names: Sequence[str], size: Mapping[str, int]) -> dict[str, Any]:
    """Create jobs at once, and wait until each is admitted or knows why not."""
    begin = time.monotonic()
    plane.kube.create_many(job(name, number, size["datasets"]) for number, name in enumerate(names))
    created = time.monotonic() - begin

    def unanswered() -> list[str]:
        return [
            job["metadata"]["name"]
            for job in plane.kube.list("TrainingJob", namespace=NAMESPACE)
            if not _is_answered(job)
        ]

    eventually(lambda: not unanswered(), deadline=300, describe=lambda: str(unanswered()[:5]), interval=2)
    seconds = time.monotonic() - begin
    states = Counter(job["status"]["state"] for job in plane.kube.list("TrainingJob", namespace=NAMESPACE))
    return {
        "benchmark": "idle_writes",
        "part": "burst",
        **size,
        "created": len(names),
        "created_s": round(created, 1),
        "answered_s": round(seconds, 1),
        "states": dict(states),
        "bar": {"answered_s": ANSWERED_BAR_SECONDS},
        "passed": seconds <= ANSWERED_BAR_SECONDS,
        "cpus": os.cpu_count(),
        "load_1m": round(os.getloadavg()[0], 1),
    }


def _is_answered(job: Object) -> bool:
    """Whether a job was admitted, or is in the queue with a reason."""
    status = job.get("status") or {}
    queued = condition(job, "Queued") == "True" and bool(status.get("message"))
    return condition(job, "Admitted") == "True" or queued


def settle(plane: ControlPlane, *, running: int) -> None:
    """Let the pods that have a node run, those of `running` jobs too, and wait until the operator has nothing more to
    say.
    """
    kube = plane.kube

    def places_taken() -> bool:
        pods = kube.list("Pod", namespace=NAMESPACE)
        waiting = [
            pod for pod in pods if pod["status"].get("phase") == "Pending" and pod["spec"].get("nodeName")
        ]
        for pod in waiting:
            run(kube, pod)
        of_jobs = [pod for pod in pods if "tdcs.io/training-job" in pod["metadata"].get("labels", {})]
        return not waiting and sum(bool(pod["spec"].get("nodeName")) for pod in of_jobs) >= running

    eventually(places_taken, deadline=300, interval=1)
    eventually(
        lambda: all(_is_answered(job) for job in kube.list("TrainingJob", namespace=NAMESPACE)),
        deadline=300,
        interval=2,
    )
    heard: list[tuple[float, int]] = []

    def quiet() -> bool:
        now, count = time.monotonic(), sum(call.writes and call.resource != "leases" for call in calls(plane))
        if not heard or heard[-1][1] != count:
            heard.append((now, count))
        return now - heard[-1][0] > QUIET_SECONDS

    eventually(quiet, deadline=300, interval=2)


def run(kube: Kube, pod: Object) -> None:
    """Play the kubelet of a pod."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
    status = {"phase": "Running", "conditions": [*pod["status"]["conditions"], ready]}
    kube.patch("Pod", pod["metadata"]["name"], {"status": status}, namespace=NAMESPACE, subresource="status")


def calls(plane: ControlPlane, *, since: int = 0) -> list[Call]:
    """What the operator asked of the API server."""
    user = service_account(f"{RELEASE}-operator", namespace=NAMESPACE)
    return list(plane.audit.calls(user=user, since=since))


def idle(
    plane: ControlPlane, operator: Process, *, seconds: float, size: Mapping[str, int]
) -> Mapping[str, Any]:
    """Let the time pass, and count what was written in it."""
    states = Counter(job["status"]["state"] for job in plane.kube.list("TrainingJob", namespace=NAMESPACE))
    start, spent = plane.audit.size, cpu_seconds(operator)
    begin = time.monotonic()
    eventually(lambda: time.monotonic() - begin >= seconds, deadline=seconds + 60, interval=5)
    made_calls = calls(plane, since=start)
    written = Counter(f"{call.verb} {call.resource}" for call in made_calls if call.writes)
    leases = sum(
        count for verb_and_resource, count in written.items() if verb_and_resource.endswith(" leases")
    )
    writes = {
        verb_and_resource: count
        for verb_and_resource, count in written.items()
        if not verb_and_resource.endswith(" leases")
    }
    return {
        "benchmark": "idle_writes",
        "part": "idle",
        **size,
        "states": dict(states),
        "minutes": round(seconds / 60, 1),
        "writes": sum(writes.values()),
        "written": writes,
        "lease_renewals": leases,
        "reads": dict(Counter(f"{call.verb} {call.resource}" for call in made_calls if not call.writes)),
        "operator_cpu_s": round(cpu_seconds(operator) - spent, 1),
        "bar": {"writes": 0},
        "passed": not writes,
        "cpus": os.cpu_count(),
        "load_1m": round(os.getloadavg()[0], 1),
    }


def cpu_seconds(process: Process) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
