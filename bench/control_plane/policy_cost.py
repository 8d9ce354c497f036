"""What the chart's MutatingAdmissionPolicy costs the API server for each new pod. Prints one JSON line.

A real API server with the policy, the claims of some Datasets in the list that the extender keeps, and pods that mount
one of them. Pods are created one after another, in rounds in turn without and with the policy, and the processor time
of the API server's process is counted; both kinds of pods get past all else that is on. The pods are held by a
scheduling gate, so that nothing else is done for them. From the root of the checkout::

    PYTHONPATH=.:deploy/local:operator:scheduler_plugin python -m bench.control_plane.policy_cost
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import psutil
from tests.controlplane.extender_world import SCHEDULER, put_dataset, start_extender
from tests.controlplane.pod_admission import admission, held_back
from tests.support.controlplane import ControlPlane, Options
from tests.support.controlplane.commands import API
from tests.support.kube import Kube, Object
from tests.support.kube.claimed_pods import volumes
from tests.support.kube.objects import gpu_pod
from tests.support.waiting import eventually

BAR_MILLISECONDS = 5.0
NAMESPACE = "default"
POLICIES_SERVED = {
    API: [
        "--feature-gates=MutatingAdmissionPolicy=true",
        "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
    ]
}
BINDING = "MutatingAdmissionPolicyBinding"


@dataclass(frozen=True, kw_only=True)
class Round:
    """A round of pods: whether the policy gave them their scheduler, and milliseconds of each pod."""

    placed: bool
    cpu: float
    elapsed: float


def pod(number: int, *, claim: str) -> Object:
    """A pod that mounts a claim and names no scheduler."""
    manifest = gpu_pod(
        name=f"p{number}",
        namespace=NAMESPACE,
        labels={"app": "policy-cost"},
        spec={"volumes": volumes(claim)},
    )
    del manifest["spec"]["schedulerName"]
    return held_back(manifest)


def seconds(process: psutil.Process) -> float:
    """Processor time of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


def measure(kube: Kube, server: psutil.Process, *, numbers: Iterator[int], count: int, claim: str) -> Round:
    """Create so many pods, one after another."""
    before, begun = seconds(server), time.monotonic()
    placed = [
        kube.create(pod(next(numbers), claim=claim))["spec"]["schedulerName"] == SCHEDULER
        for _ in range(count)
    ]
    cpu, elapsed = seconds(server) - before, time.monotonic() - begun
    if len(set(placed)) != 1:
        raise RuntimeError("the policy was switched on or off in the midst of a round")
    return Round(placed=placed[0], cpu=1000 * cpu / count, elapsed=1000 * elapsed / count)


def switch(kube: Kube, binding: Object, *, on: bool, numbers: Iterator[int], claim: str) -> None:
    """Bind the policy, or take its binding away, and wait until new pods show it."""
    if on:
        kube.apply(binding)
    else:
        kube.delete(BINDING, binding["metadata"]["name"])

    def holds() -> bool:
        created = kube.create(pod(next(numbers), claim=claim))
        return (created["spec"]["schedulerName"] == SCHEDULER) is on

    eventually(holds, deadline=60, interval=0.5)


def rounds(plane: ControlPlane, *, datasets: int, count: int, repeat: int) -> Iterator[Round]:
    """Rounds in turn without and with the policy."""
    kube = plane.kube
    extender = start_extender(plane, options=[f"--claim-list-namespace={NAMESPACE}"])
    objects = admission(kube, namespace=NAMESPACE, values=["placeByData=Policy"])
    (binding,) = (obj for obj in objects if obj["kind"] == BINDING)
    names = [f"d{number}" for number in range(datasets)]
    for name in names:
        put_dataset(extender, kube, namespace=NAMESPACE, held={"a": 1}, name=name)
    server = psutil.Process(plane.process(API).pid)
    numbers = iter(range(10**9))
    switch(kube, binding, on=True, numbers=numbers, claim=names[-1])
    measure(kube, server, numbers=numbers, count=count, claim=names[-1])  # warm
    for number in range(2 * repeat):
        switch(kube, binding, on=bool(number % 2), numbers=numbers, claim=names[-1])
        yield measure(kube, server, numbers=numbers, count=count, claim=names[-1])


@click.command()
@click.option("--datasets", default=20, show_default=True, type=click.IntRange(min=1))
@click.option("--pods", default=500, show_default=True, type=click.IntRange(min=1), help="Of a round.")
@click.option(
    "--repeat", default=5, show_default=True, type=click.IntRange(min=1), help="Rounds of each kind."
)
def main(datasets: int, pods: int, repeat: int) -> None:
    """Measure on a control plane of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="policy-cost-") as folder,
        ControlPlane(folder=Path(folder), options=Options(extra_args=POLICIES_SERVED)) as plane,
    ):
        laps = list(rounds(plane, datasets=datasets, count=pods, repeat=repeat))
    kinds = {
        "without": [lap for lap in laps if not lap.placed],
        "with": [lap for lap in laps if lap.placed],
    }
    cpu = {kind: statistics.median(lap.cpu for lap in of) for kind, of in kinds.items()}
    cost = cpu["with"] - cpu["without"]
    click.echo(
        json.dumps(
            {
                "bench": "policy_cost",
                "datasets": datasets,
                "podsOfARound": pods,
                "rounds": {kind: len(of) for kind, of in kinds.items()},
                "cpuMilliseconds": {kind: round(value, 2) for kind, value in cpu.items()},
                "cpuMillisecondsOfRounds": {
                    kind: [round(lap.cpu, 2) for lap in of] for kind, of in kinds.items()
                },
                "elapsedMilliseconds": {
                    kind: round(statistics.median(lap.elapsed for lap in of), 2) for kind, of in kinds.items()
                },
                "costMilliseconds": round(cost, 2),
                "bar": BAR_MILLISECONDS,
                "cpus": os.cpu_count(),
                "load1m": round(os.getloadavg()[0], 1),
                "passed": cost <= BAR_MILLISECONDS,
            }
        )
    )
    sys.exit(0 if cost <= BAR_MILLISECONDS else 1)


if __name__ == "__main__":
    main()
