"""Pods a second that kube-scheduler places on KWOK nodes, without an extender and with one that knows nothing.

The difference is what the extender protocol itself costs: one HTTP call a pod with the
names of all feasible nodes. Both schedulers run in the same control plane and score all
nodes; bursts of pods go to them in turn, each waiting until all pods exist before it
starts. Prints one line of JSON. From the root of the checkout::

    PYTHONPATH=.:deploy/local python bench/scheduling_rate.py --nodes 1000 --pods 1000
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
from tests.support.controlplane import ControlPlane
from tests.support.controlplane.nodes import add_fake_nodes
from tests.support.objects import gpu_pod
from tests.support.ports import free_ports
from tests.support.processes import Process
from tests.support.waiting import eventually

GPUS = 8
NAMESPACE = "default"
PLAIN, EXTENDED = "without-extender", "with-extender"


@click.command()
@click.option("--nodes", default=1000, show_default=True, type=click.IntRange(min=2))
@click.option("--pods", default=1000, show_default=True, type=click.IntRange(min=1), help="Pods in a burst.")
@click.option(
    "--bursts", default=3, show_default=True, type=click.IntRange(min=1), help="Bursts a scheduler."
)
@click.option("--serve", type=int, hidden=True, help="Be the extender, on this port.")
def main(nodes: int, pods: int, bursts: int, serve: int | None) -> None:
    """Measure scheduling with and without an extender, side by side."""
    if serve is not None:
        serve_extender(serve)
        return
    if pods > nodes * GPUS:
        raise click.UsageError(f"{pods} pods of 1 GPU do not fit on {nodes} nodes of {GPUS} GPUs")
    with (
        tempfile.TemporaryDirectory(prefix="scheduling-rate-") as folder,
        ControlPlane(folder=Path(folder)) as plane,
    ):
        names = [f"node-{i:05d}" for i in range(nodes)]
        begin = time.monotonic()
        add_fake_nodes(plane, names=names, gpus=GPUS, deadline=60 + nodes)
        nodes_seconds = time.monotonic() - begin
        start_schedulers(plane)
        rates: dict[str, list[float]] = {PLAIN: [], EXTENDED: []}
        for _ in range(bursts):
            for name, measured in rates.items():
                measured.append(burst(plane, scheduler=name, pods=pods))
        result = {
            "benchmark": "scheduling_rate",
            "nodes": nodes,
            "pods": pods,
            "start_s": round(plane.start_seconds, 1),
            "nodes_ready_s": round(nodes_seconds, 1),
            **{f"{name}_pods_per_s".replace("-", "_"): summary(rates[name]) for name in rates},
            "cpus": os.cpu_count(),
            "load_1m": round(os.getloadavg()[0], 1),
        }
    click.echo(json.dumps(result))


def start_schedulers(plane: ControlPlane) -> None:
    """Start the two schedulers and the extender, each a process of its own."""
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    plane.run(
        name="extender", argv=[sys.executable, __file__, "--serve", str(port)], ready=plane.answers(address)
    )
    extender = {
        "urlPrefix": address,
        "prioritizeVerb": "prioritize",
        "weight": 1,
        "nodeCacheCapable": True,
        "httpTimeout": "1s",
    }
    for name, extenders in ((PLAIN, []), (EXTENDED, [extender])):
        # All nodes in both: by default the sample's size, and so the work, depends on the number of nodes.
        profile = {"schedulerName": name, "percentageOfNodesToScore": 100}
        plane.start_scheduler(name=name, config={"profiles": [profile], "extenders": extenders})


def burst(plane: ControlPlane, *, scheduler: str, pods: int) -> float:
    """Create ``pods`` pods while the scheduler is held, let it go, and return the pods a second that it binds."""
    process = plane.process(scheduler)
    before = bound(plane, scheduler=process)
    process.pause()
    try:
        plane.kube.create_many(
            gpu_pod(name=f"{scheduler}-{i:05d}", namespace=NAMESPACE, scheduler=scheduler, cpus=1)
            for i in range(pods)
        )
    finally:
        process.resume()
    begin = time.monotonic()
    eventually(lambda: bound(plane, scheduler=process) - before >= pods, deadline=60 + pods, interval=0.05)
    rate = pods / (time.monotonic() - begin)
    plane.kube.delete_all("Pod", namespace=NAMESPACE, grace_seconds=0)
    eventually(lambda: not plane.kube.list("Pod", namespace=NAMESPACE), deadline=60 + pods)
    return rate


def bound(plane: ControlPlane, *, scheduler: Process) -> int:
    """Pods that the scheduler has bound since it started."""
    return int(
        plane.metric("scheduler_schedule_attempts_total", {"result": "scheduled"}, name=scheduler.name)
    )


def summary(rates: list[float]) -> Mapping[str, Any]:
    """Median, and every single rate."""
    return {"median": round(statistics.median(rates), 1), "all": [round(rate, 1) for rate in rates]}


def serve_extender(port: int) -> None:
    """Answer every call with "no opinion", reading the request but not decoding it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._answer(b"ok")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(b"[]")

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A line a call would be the larger part of the work."""

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
