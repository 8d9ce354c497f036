"""Pods a second that kube-scheduler places on KWOK nodes: with our extender, with one that answers a constant, with
none, and with preferred node affinity. Prints one line of JSON.

All in one control plane: the pods of all ways wait while their schedulers are held, and then one scheduler after the
other is let go for a slice of a second, in an order that is drawn again each time, until the first has placed its
pods. So what else the machine does, and how full the nodes are, is the same for all, and ratios hold where rates do
not. The constant extender reads a request and decodes nothing: it is what the protocol costs, one HTTP call a pod
with the names of all feasible nodes. The oracle decodes nothing either and has our replies ready: against the
constant it is what larger replies and pods on fewer nodes cost, and ours against the oracle is what our own work
costs. The floor names one node in a preferred term: what any preferred affinity costs kube-scheduler. The pods of the
ways that know the data read datasets that are partitioned over some of the nodes, as the placement policy does it.
Processor time is printed next to the rates. From the root of the checkout::

    PYTHONPATH=.:deploy/local:operator:scheduler_plugin python bench/control_plane/scheduling_rate.py
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import psutil
from tests.controlplane.extender_world import Extender, put_dataset, start_extender
from tests.support.controlplane import ControlPlane
from tests.support.controlplane.nodes import add_fake_nodes
from tests.support.kube import Object
from tests.support.kube.objects import gpu_pod
from tests.support.programs.ports import free_ports
from tests.support.programs.processes import Process
from tests.support.scheduler_configuration import scheduler_configuration
from tests.support.waiting import eventually

from tdcs.api import names
from tdcs.control.job.job_children import with_preferred
from tdcs.decide.place.dataset_copies import CopyOnNodes
from tdcs.decide.place.node_score import node_scores
from tdcs.decide.place.preferred_affinity import preferred_terms

GPUS = 8
NAMESPACE = "default"
WAY = "way"
PLAIN, FLOOR, AFFINITY = "plain", "floor", "affinity"
CONSTANT, ORACLE, TDCS = "constant", "oracle", "tdcs"
CONSTANT_EXTENDER = Path(__file__).with_name("constant_extender.py")
BAR = 0.95
GB = 10**9
SLICE_SECONDS = 1.0
"""For which a scheduler is let go at a time."""
QUIET = 0.4
"""Processors that the programs may use before a round begins."""
ATTEMPTS = "scheduler_schedule_attempts_total"


@dataclass(frozen=True, kw_only=True)
class Way:
    """How pods come to their nodes: the scheduler that places them, and what each dataset adds to its pods."""

    scheduler: str
    extender: str = ""
    annotations: Sequence[Mapping[str, str]] = ({},)
    specs: Sequence[Mapping[str, Any]] = ({},)


@dataclass(kw_only=True)
class Lap:
    """What one way has done in its slices of a round so far.

    Attributes:
        start: pods that its scheduler had bound before the round.
        placed, last: pods that it has bound since then, and in the last slice.
        seconds: how long it was let go.
        cpu: processor seconds by program.
    """

    way: Way
    start: int
    placed: int = 0
    last: int = 0
    seconds: float = 0.0
    cpu: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        """Pods a second."""
        return self.placed / self.seconds

    def cpu_ms(self) -> dict[str, float]:
        """Milliseconds of processor time for a pod, by program."""
        return {program: 1000 * seconds / self.placed for program, seconds in self.cpu.items()}


@click.command()
@click.option("--nodes", default=2000, show_default=True, type=click.IntRange(min=2))
@click.option(
    "--pods", default=1000, show_default=True, type=click.IntRange(min=1), help="Pods of each way in a round."
)
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(min=1), help="Rounds.")
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
        order = random.Random(2)  # noqa: S311  (a measurement, no secret)
        laps = [race(plane, ways, number=number, pods=pods, order=order) for number in range(rounds)]
        laps_by_way = {name: [lap[name] for lap in laps] for name in ways}
        result = {
            "benchmark": "scheduling_rate",
            "nodes": nodes,
            "pods": pods,
            "datasets": datasets,
            "holders": holders,
            "uneven": uneven,
            "nodes_ready_s": round(nodes_seconds, 1),
            **{f"{name}_pods_per_s": summary([lap.rate for lap in laps_by_way[name]]) for name in ways},
            "ms_per_pod": {
                name: round(1000 / statistics.median(lap.rate for lap in laps_by_way[name]), 2)
                for name in ways
            },
            "cpu_ms_per_pod": {
                name: {
                    program: round(statistics.median(lap.cpu_ms()[program] for lap in laps_by_way[name]), 2)
                    for program in laps_by_way[name][0].cpu
                }
                for name in ways
            },
            **verdict(laps_by_way),
            "cpus": os.cpu_count(),
            "load_1m": round(os.getloadavg()[0], 1),
        }
    click.echo(json.dumps(result))


def verdict(laps_by_way: Mapping[str, Sequence[Lap]]) -> dict[str, Any]:
    """The ratios, each of two ways in one round, in the median; and whether they meet the bars."""

    def ratios(over: str, under: str) -> list[float]:
        return [
            mine.rate / theirs.rate
            for mine, theirs in zip(laps_by_way[over], laps_by_way[under], strict=True)
        ]

    def ratio(over: str, under: str) -> float:
        return statistics.median(ratios(over, under))

    ours, affine = ratio(TDCS, CONSTANT), ratio(AFFINITY, PLAIN)
    return {
        "tdcs_over_constant": round(ours, 3),
        "tdcs_over_constant_all": [round(figure, 3) for figure in ratios(TDCS, CONSTANT)],
        "oracle_over_constant": round(ratio(ORACLE, CONSTANT), 3),
        "tdcs_over_oracle": round(ratio(TDCS, ORACLE), 3),
        "affinity_over_plain": round(affine, 3),
        "affinity_over_plain_all": [round(figure, 3) for figure in ratios(AFFINITY, PLAIN)],
        "floor_over_plain": round(ratio(FLOOR, PLAIN), 3),
        "affinity_over_floor": round(ratio(AFFINITY, FLOOR), 3),
        "constant_over_plain": round(ratio(CONSTANT, PLAIN), 3),
        "bar": {"tdcs_over_constant": BAR, "affinity_over_plain": BAR},
        "passed": ours >= BAR and affine >= BAR,
    }


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
                extender, plane.kube, namespace=NAMESPACE, held=holders_of, name=f"d{i}"
            )
        }
        for i, holders_of in enumerate(held)
    ]
    copies = {f"{NAMESPACE}/d{i}": copy_of(holders_of) for i, holders_of in enumerate(held)}
    replies = plane.folder / "replies.json"
    replies.write_text(json.dumps({name: node_scores([copy]) for name, copy in copies.items()}))
    urls = {
        CONSTANT: start_constant(plane, name=CONSTANT),
        ORACLE: start_constant(plane, name=ORACLE, options=[f"--replies={replies}"]),
        TDCS: extender.url,
    }
    affinities = [{"affinity": with_preferred(None, preferred(copy))} for copy in copies.values()]
    specs = {AFFINITY: affinities, FLOOR: [{"affinity": with_preferred(None, [one_node(held)])}]}
    # The shipped configuration for all: all nodes are scored, and only the extender differs.
    for name in (PLAIN, *specs, *urls):
        config = scheduler_configuration(scheduler_name=name, extender_url=urls.get(name, ""))
        plane.start_scheduler(name=name, config=config if name in urls else {**config, "extenders": []})
    extenders = {CONSTANT: f"{CONSTANT}-extender", ORACLE: f"{ORACLE}-extender", TDCS: extender.process.name}
    return {
        PLAIN: Way(scheduler=PLAIN),
        **{name: Way(scheduler=name, specs=way_specs) for name, way_specs in specs.items()},
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


def one_node(held: Sequence[Mapping[str, int]]) -> Object:
    """The least that a preferred term can say: the name of one node."""
    return preferred(copy_of({next(iter(held[0])): 1}))[0]


def copy_of(held: Mapping[str, int]) -> CopyOnNodes:
    """A dataset's one copy."""
    return CopyOnNodes(total_bytes=sum(held.values()), node_bytes=held)


def preferred(copy: CopyOnNodes) -> list[Object]:
    """What the operator writes into the pods of a job in mode Affinity."""
    return preferred_terms(copies=[copy], hostnames={node: node for node in copy.node_bytes})


def race(
    plane: ControlPlane, ways: Mapping[str, Way], *, number: int, pods: int, order: random.Random
) -> dict[str, Lap]:
    """One round: create ``pods`` pods for each way while all are held, and let the ways go in slices."""
    schedulers = {name: plane.process(way.scheduler) for name, way in ways.items()}
    laps = {name: Lap(way=way, start=bound(plane, scheduler=schedulers[name])) for name, way in ways.items()}
    for process in schedulers.values():
        process.pause()
    try:
        for name, way in ways.items():
            create_pods(plane, name=f"{name}-{number}", way=way, pods=pods)
        settle(plane)
        # A slice in which there is nothing more to do would count for less than the others.
        while all(lap.placed + 1.5 * lap.last < pods for lap in laps.values()):
            # What a way leaves to the API server is done in the next slice: each has another before it each time.
            for name in order.sample(list(ways), len(ways)):
                let_go(plane, laps[name])
        # While they are held, or they would place the rest meanwhile.
        for way in ways.values():
            plane.kube.delete_all("Pod", namespace=NAMESPACE, labels={WAY: way.scheduler}, grace_seconds=0)
    finally:
        for process in schedulers.values():
            process.resume()
    deadline = 60 + len(ways) * pods
    eventually(lambda: not plane.kube.list("Pod", namespace=NAMESPACE), deadline=deadline, interval=0.5)
    return laps


def create_pods(plane: ControlPlane, *, name: str, way: Way, pods: int) -> None:
    """Create pods for the scheduler of a way."""
    plane.kube.create_many(
        gpu_pod(
            name=f"{name}-{i:05d}",
            namespace=NAMESPACE,
            scheduler=way.scheduler,
            cpus=1,
            labels={WAY: way.scheduler},
            annotations=way.annotations[i % len(way.annotations)],
            spec=way.specs[i % len(way.specs)],
        )
        for i in range(pods)
    )


def let_go(plane: ControlPlane, lap: Lap) -> None:
    """Let a way's scheduler go for one slice, and note what it has done."""
    process = plane.process(lap.way.scheduler)
    used = Counter(cpu_seconds(plane, way=lap.way))
    begin = time.monotonic()
    process.resume()
    time.sleep(SLICE_SECONDS)  # what is measured: the pods of so long a time
    placed = bound(plane, scheduler=process) - lap.start
    process.pause()
    lap.seconds += time.monotonic() - begin
    lap.last, lap.placed = placed - lap.placed, placed
    lap.cpu += Counter(cpu_seconds(plane, way=lap.way)) - used


def settle(plane: ControlPlane) -> None:
    """Wait until the programs have digested what was created, or deleted before it: it is no part of the placing."""

    def used() -> float:
        return sum(cpu_times(process.pid) for process in plane.processes.values())

    def busy() -> float:
        before = used()
        time.sleep(
            1
        )  # the second that is looked at: how busy they are is no condition to wait for but a difference
        return used() - before

    eventually(lambda: busy() < QUIET, deadline=120, interval=0.1)


def cpu_times(pid: int) -> float:
    """Processor time that a program has used, in seconds."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def cpu_seconds(plane: ControlPlane, *, way: Way) -> dict[str, float]:
    """Processor time that the programs of a way have used, and all programs together."""
    used = {name: cpu_times(process.pid) for name, process in plane.processes.items()}
    return {
        "scheduler": used[way.scheduler],
        **({"extender": used[way.extender]} if way.extender else {}),
        "all": sum(used.values()) + cpu_times(os.getpid()),
    }


def bound(plane: ControlPlane, *, scheduler: Process) -> int:
    """Pods that the scheduler has bound since it started."""
    return int(plane.metric(ATTEMPTS, {"result": "scheduled"}, name=scheduler.name))


def summary(rates: list[float]) -> Mapping[str, Any]:
    """Median, and every single rate."""
    return {"median": round(statistics.median(rates), 1), "all": [round(rate, 1) for rate in rates]}


if __name__ == "__main__":
    main()
