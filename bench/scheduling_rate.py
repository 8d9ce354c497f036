"""Pods a second that kube-scheduler places on KWOK nodes: with our extender, with one that answers a constant, with
none, and with preferred node affinity. Prints one line of JSON.

All in one control plane, in turns whose order changes with each round. Each burst of pods waits until all of them
exist before its scheduler, held until then, is let go. The constant extender reads a request and decodes nothing: it
is what the protocol costs, one HTTP call a pod with the names of all feasible nodes. The oracle decodes nothing
either and has our replies ready: against the constant it is what larger replies and pods on fewer nodes cost, and
ours against the oracle is what our own work costs. The pods of the ways that know the data read datasets that are
partitioned over some of the nodes, as the placement policy does it. Processor time is told beside the rates: it
depends less on what else the machine does. From the root of the checkout::

    PYTHONPATH=.:deploy/local:operator:scheduler_plugin python bench/scheduling_rate.py
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import psutil
from tests.controlplane.extender_world import Extender, put_dataset, start_extender
from tests.support.controlplane import ControlPlane
from tests.support.controlplane.nodes import add_fake_nodes
from tests.support.kube import Object
from tests.support.objects import gpu_pod
from tests.support.ports import free_ports
from tests.support.processes import Process
from tests.support.waiting import eventually

from tdcs.api import names
from tdcs.controllers.trainingjob.affinity import preferred_terms
from tdcs.controllers.trainingjob.children import with_preferred
from tdcs.policy.scoring import CopyOnNodes, node_scores
from tdcs_scheduler.configuration import scheduler_configuration

GPUS = 8
NAMESPACE = "default"
PLAIN, AFFINITY, CONSTANT, ORACLE, TDCS = "plain", "affinity", "constant", "oracle", "tdcs"
CONSTANT_EXTENDER = Path(__file__).with_name("constant_extender.py")
BAR = 0.95
GB = 10**9
ATTEMPTS, ALGORITHM = (
    "scheduler_schedule_attempts_total",
    "scheduler_scheduling_algorithm_duration_seconds_sum",
)


@dataclass(frozen=True, kw_only=True)
class Way:
    """How pods come to their nodes: the scheduler that places them, and what each dataset adds to its pods."""

    scheduler: str
    extender: str = ""
    annotations: Sequence[Mapping[str, str]] = ({},)
    specs: Sequence[Mapping[str, Any]] = ({},)


@dataclass(frozen=True, kw_only=True)
class Burst:
    """What one burst took: pods a second, and milliseconds a pod.

    Attributes:
        algorithm_ms: inside the scheduler's own algorithm, with its calls of an extender.
        cpu_ms: processor time of the scheduler, of its extender, and of all programs together, this one included.
    """

    rate: float
    algorithm_ms: float
    cpu_ms: Mapping[str, float]


@click.command()
@click.option("--nodes", default=2000, show_default=True, type=click.IntRange(min=2))
@click.option("--pods", default=1000, show_default=True, type=click.IntRange(min=1), help="Pods in a burst.")
@click.option(
    "--rounds", default=5, show_default=True, type=click.IntRange(min=1), help="Bursts of each way."
)
@click.option("--datasets", default=20, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--holders", default=64, show_default=True, type=click.IntRange(min=1), help="Nodes that hold a dataset."
)
@click.option(
    "--uneven", is_flag=True, help="Nodes hold very different parts, instead of about the same as planned."
)
def main(nodes: int, pods: int, rounds: int, datasets: int, holders: int, uneven: bool) -> None:
    """Measure the ways side by side."""
    if pods > nodes * GPUS:
        raise click.UsageError(f"{pods} pods of 1 GPU do not fit on {nodes} nodes of {GPUS} GPUs")
    with (
        tempfile.TemporaryDirectory(prefix="scheduling-rate-") as folder,
        ControlPlane(folder=Path(folder)) as plane,
    ):
        fleet = [f"node-{i:05d}" for i in range(nodes)]
        begin = time.monotonic()
        add_fake_nodes(plane, names=fleet, gpus=GPUS, deadline=60 + nodes)
        nodes_seconds = time.monotonic() - begin
        held = holdings(nodes=fleet, datasets=datasets, holders=holders, uneven=uneven)
        extender = start_extender(plane, explain=False, scheduler_name=TDCS)
        ways = start_ways(plane, extender=extender, held=held)
        found: dict[str, list[Burst]] = {name: [] for name in ways}
        calls = dict.fromkeys(ways, 0.0)
        for number in range(rounds):
            for name in turns(list(ways), number=number):
                before = extender.all_answers()
                found[name].append(burst(plane, name=f"{name}-{number}", way=ways[name], pods=pods))
                calls[name] += extender.all_answers() - before
        result = {
            "benchmark": "scheduling_rate",
            "nodes": nodes,
            "pods": pods,
            "datasets": datasets,
            "holders": holders,
            "uneven": uneven,
            "nodes_ready_s": round(nodes_seconds, 1),
            **{f"{name}_pods_per_s": summary([one.rate for one in found[name]]) for name in ways},
            "ms_per_pod": {
                name: round(1000 / statistics.median(one.rate for one in found[name]), 2) for name in ways
            },
            "algorithm_ms_per_pod": {
                name: round(statistics.median(one.algorithm_ms for one in found[name]), 2) for name in ways
            },
            "cpu_ms_per_pod": {
                name: {
                    program: round(statistics.median(one.cpu_ms[program] for one in found[name]), 2)
                    for program in found[name][0].cpu_ms
                }
                for name in ways
            },
            **verdict(found, calls),
            "cpus": os.cpu_count(),
            "load_1m": round(os.getloadavg()[0], 1),
        }
    click.echo(json.dumps(result))


def verdict(found: Mapping[str, Sequence[Burst]], calls: Mapping[str, float]) -> dict[str, Any]:
    """The ratios, each of two bursts of one round, in the median; and whether they meet the bars."""

    def ratio(one: str, other: str) -> float:
        pairs = zip(found[one], found[other], strict=True)
        return statistics.median(mine.rate / theirs.rate for mine, theirs in pairs)

    ours, affine = ratio(TDCS, CONSTANT), ratio(AFFINITY, PLAIN)
    without = sum(count for name, count in calls.items() if name != TDCS)
    return {
        "tdcs_over_constant": round(ours, 3),
        "oracle_over_constant": round(ratio(ORACLE, CONSTANT), 3),
        "tdcs_over_oracle": round(ratio(TDCS, ORACLE), 3),
        "affinity_over_plain": round(affine, 3),
        "constant_over_plain": round(ratio(CONSTANT, PLAIN), 3),
        "calls": {name: int(count) for name, count in calls.items()},
        "bar": {"ratios": BAR, "calls_of_others": 0},
        "passed": ours >= BAR and affine >= BAR and without == 0,
    }


def turns(ways: Sequence[str], *, number: int) -> list[str]:
    """The order of a round: the ways come first in turn, and come after another one in every other round."""
    order = list(ways) if number % 2 == 0 else list(ways)[::-1]
    first = order.index(ways[number % len(ways)])
    return [*order[first:], *order[:first]]


def holdings(*, nodes: Sequence[str], datasets: int, holders: int, uneven: bool) -> list[Mapping[str, int]]:
    """The bytes of each dataset by node; as planned, the parts differ by a few percent."""
    draw = random.Random(1)  # noqa: S311  (a measurement, no secret)
    low = 1 if uneven else 950
    return [
        {node: draw.randint(low, 1000) * GB // 1000 for node in draw.sample(nodes, min(holders, len(nodes)))}
        for _ in range(datasets)
    ]


def start_ways(
    plane: ControlPlane, *, extender: Extender, held: Sequence[Mapping[str, int]]
) -> dict[str, Way]:
    """Start the schedulers and the other extenders, each a process of its own, and create the datasets."""
    annotations = [
        {
            names.ANNOTATION_DATASETS: put_dataset(
                extender, plane.kube, namespace=NAMESPACE, held=one, name=f"d{i}"
            )
        }
        for i, one in enumerate(held)
    ]
    copies = {f"{NAMESPACE}/d{i}": copy_of(one) for i, one in enumerate(held)}
    replies = plane.folder / "replies.json"
    replies.write_text(json.dumps({name: node_scores([copy]) for name, copy in copies.items()}))
    urls = {
        CONSTANT: start_constant(plane, name=CONSTANT),
        ORACLE: start_constant(plane, name=ORACLE, options=[f"--replies={replies}"]),
        TDCS: extender.url,
    }
    # The shipped configuration for all: all nodes are scored, and only the extender differs.
    for name in (PLAIN, *urls):
        config = scheduler_configuration(scheduler_name=name, extender_url=urls.get(name, ""))
        plane.start_scheduler(name=name, config=config if name in urls else {**config, "extenders": []})
    extenders = {CONSTANT: f"{CONSTANT}-extender", ORACLE: f"{ORACLE}-extender", TDCS: extender.process.name}
    affinities = [{"affinity": with_preferred(None, preferred(copy))} for copy in copies.values()]
    return {
        PLAIN: Way(scheduler=PLAIN),
        AFFINITY: Way(scheduler=PLAIN, specs=affinities),
        **{
            name: Way(scheduler=name, extender=program, annotations=annotations)
            for name, program in extenders.items()
        },
    }


def start_constant(plane: ControlPlane, *, name: str, options: Sequence[str] = ()) -> str:
    """Start an extender that decodes nothing; its address."""
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    plane.run(
        name=f"{name}-extender",
        argv=[sys.executable, str(CONSTANT_EXTENDER), f"--port={port}", *options],
        ready=plane.answers(address),
    )
    return address


def copy_of(held: Mapping[str, int]) -> CopyOnNodes:
    """A dataset's one copy."""
    return CopyOnNodes(total_bytes=sum(held.values()), node_bytes=held)


def preferred(copy: CopyOnNodes) -> list[Object]:
    """What the operator writes into the pods of a job in mode Affinity."""
    return preferred_terms(copies=[copy], hostnames={node: node for node in copy.node_bytes})


def burst(plane: ControlPlane, *, name: str, way: Way, pods: int) -> Burst:
    """Create ``pods`` pods while the scheduler is held, let it go, and see how fast it binds them."""
    process = plane.process(way.scheduler)
    before, spent = bound(plane, scheduler=process), plane.metric(ALGORITHM, {}, name=process.name)
    process.pause()
    try:
        plane.kube.create_many(
            gpu_pod(
                name=f"{name}-{i:05d}",
                namespace=NAMESPACE,
                scheduler=way.scheduler,
                cpus=1,
                annotations=way.annotations[i % len(way.annotations)],
                spec=way.specs[i % len(way.specs)],
            )
            for i in range(pods)
        )
    finally:
        used = cpu_seconds(plane, way=way)
        process.resume()
    begin = time.monotonic()
    eventually(lambda: bound(plane, scheduler=process) - before >= pods, deadline=60 + pods, interval=0.1)
    seconds = time.monotonic() - begin
    cpu = {name: value - used[name] for name, value in cpu_seconds(plane, way=way).items()}
    algorithm = plane.metric(ALGORITHM, {}, name=process.name) - spent
    plane.kube.delete_all("Pod", namespace=NAMESPACE, grace_seconds=0)
    eventually(lambda: not plane.kube.list("Pod", namespace=NAMESPACE), deadline=60 + pods, interval=0.5)
    return Burst(
        rate=pods / seconds,
        algorithm_ms=1000 * algorithm / pods,
        cpu_ms={name: 1000 * value / pods for name, value in cpu.items()},
    )


def cpu_seconds(plane: ControlPlane, *, way: Way) -> dict[str, float]:
    """Processor time that the programs of a way have used, and all programs together."""

    def of(pid: int) -> float:
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)

    used = {name: of(process.pid) for name, process in plane.processes.items()}
    return {
        "scheduler": used[way.scheduler],
        **({"extender": used[way.extender]} if way.extender else {}),
        "all": sum(used.values()) + of(os.getpid()),
    }


def bound(plane: ControlPlane, *, scheduler: Process) -> int:
    """Pods that the scheduler has bound since it started."""
    return int(plane.metric(ATTEMPTS, {"result": "scheduled"}, name=scheduler.name))


def summary(rates: list[float]) -> Mapping[str, Any]:
    """Median, and every single rate."""
    return {"median": round(statistics.median(rates), 1), "all": [round(rate, 1) for rate in rates]}


if __name__ == "__main__":
    main()
