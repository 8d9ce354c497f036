"""Every expression of the dashboard, the alerts and the how-to page, asked of a real Prometheus.

It scrapes what they are about: an operator, the extender next to a kube-scheduler, a cache agent, a remote-read client
and a node plugin, each with something to do. The operator's own agents are those in memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
import urllib3
import yaml
from prometheus_client import start_http_server
from tests.controlplane.extender_world import SCHEDULER, start_extender, start_scheduler
from tests.controlplane.job_world import JobWorld, jobs
from tests.controlplane.operator_world import CHECKOUT
from tests.processes.csi.view_node import ViewNode
from tests.support.dataplane.agent_processes import AgentProcess
from tests.support.dataplane.agents import fill, folder_version
from tests.support.dataplane.node import cannot_mount, miniature_node, needs_fuse
from tests.support.dataplane.readers import Giver, holder_of, reader_node, small_version, table_of
from tests.support.generators.dashboard_picture import Line, draw, lines_of
from tests.support.kube import Object
from tests.support.programs.monitoring import Prometheus
from tests.support.programs.ports import free_ports
from tests.support.twins.engine import Operation
from tests.support.waiting import eventually

from tdcs.node.agent.disk.own_ids import enter_own_ids

__all__ = ["jobs"]

pytestmark = needs_fuse

CHART = CHECKOUT / "charts" / "tdcs"
ALERTS = CHART / "alerts" / "tdcs.yaml"
FAILED = "mistyped"
FILES = {f"{number:03}": b"x" * 10_000 for number in range(100)}
LOOK = "1m"
"""For Grafana's $__rate_interval: several scrapes."""


def dashboard() -> Object:
    return dict(json.loads((CHART / "dashboards" / "tdcs.json").read_text()))


def of_panels() -> set[str]:
    """The dashboard's expressions."""
    return {target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())}


def alerts() -> dict[str, str]:
    """The alerts' expressions, by name."""
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


def compared(expression: str) -> list[str]:
    """The sides of an alert's `or`, as expressions that have a series whether or not the alert fires: so it is only if
    the metrics are there, and if the labels of those that are compared fit each other.
    """
    bare = re.sub(r"\babsent\(([^()]*)\)", r"\1", expression)
    return re.sub(r" (==|<|>) ", r" \1 bool ", bare).split(" or ")


def of_page() -> list[str]:
    """The expressions of the how-to page's table of questions."""
    text = (CHECKOUT / "docs" / "how-to" / "monitoring.md").read_text()
    rows = re.findall(r"^\| [^|]+\? \| `(.+)` \|$", text, re.MULTILINE)
    return [row.replace("\\|", "|") for row in rows]


async def pace(operation: Operation) -> None:
    """Blocks come slowly, from the source and from other nodes, so that a load takes longer than a scrape."""
    if operation.name in {"put", "copy"} and operation.length:
        await asyncio.sleep(0.15)


def start_agent(jobs: JobWorld, folder: Path) -> tuple[int, Callable[[], None]]:
    """An agent's process; the port of its metrics, and what has it read files from a source."""
    version = folder_version(fill(folder / "source", FILES), store=folder / "manifests")
    control, blocks = free_ports(2)
    agent = AgentProcess(
        node="agent",
        tier=folder / "tier",
        log=folder / "agent.log",
        capacity=1 << 30,
        control_port=control,
        block_port=blocks,
    )
    enter_own_ids(agent.disk)
    manifest = version.folder.file(version.manifest.digest)
    (agent.disk.manifests / manifest.name).write_bytes(manifest.read_bytes())
    jobs.plane.run(name="agent", argv=agent.process.argv)
    body = msgspec.msgpack.encode([version.assignment()])

    def taken() -> bool:
        url = f"{agent.url}/v1/assignments"
        try:
            return urllib3.request("PUT", url, body=body, timeout=5, retries=False).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def load() -> None:
        eventually(taken, deadline=60)

    return control, load


def start_reader(stack: ExitStack) -> tuple[int, Callable[[], None]]:
    """A remote-read client of which a file was read that is elsewhere; the port of its metrics, and what reads the
    others."""
    node = stack.enter_context(reader_node())
    version = small_version(node.folder, FILES)
    giver = Giver(node.folder, "giver")
    stack.callback(giver.process.kill)
    giver.put(version.manifest, node.folder / "source")
    giver.process.start()
    root = node.register(version, tables=table_of(holder_of(giver)))
    node.start()

    def read(*names: str) -> None:
        assert [(root / name).read_bytes() for name in names] == [FILES[name] for name in names]

    read("000")
    return node.port, lambda: read(*FILES)


def start_plugin(stack: ExitStack) -> int:
    """A node plugin that has given a pod its volume; the port of its metrics."""
    if reason := cannot_mount():
        pytest.skip(f"no node plugin can be scraped: {reason}")
    node = stack.enter_context(miniature_node())
    view = ViewNode(node, here={"here"})
    view.mount_client()
    (port,) = free_ports(1)
    node.start_plugin(more=(f"--metrics-port={port}",))
    view.publish()
    return port


@pytest.fixture
def prometheus(jobs: JobWorld, tmp_path: Path) -> Iterator[Prometheus]:
    """It scrapes all processes, and nothing has happened yet in the cluster."""
    extender = start_extender(jobs.plane)
    start_scheduler(jobs.plane, extender.url)
    jobs.engine.before = pace
    jobs.create_cluster()
    with jobs.operator() as operator, ExitStack() as stack:
        jobs.wait(lambda: operator.registry is not None)
        assert operator.registry is not None
        (port,) = free_ports(1)
        server, thread = start_http_server(port, addr="127.0.0.1", registry=operator.registry)
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        agent, load = start_agent(jobs, tmp_path / "agent")
        reader, read = start_reader(stack)
        scraped = {
            "operator": port,
            "extender": int(extender.metrics_url.rpartition(":")[2]),
            "agent": agent,
            "reader": reader,
            "plugin": start_plugin(stack),
        }
        prometheus_server = Prometheus(
            plane=jobs.plane, scraped=scraped, namespace=jobs.namespace, folder=tmp_path, rules=[ALERTS]
        )
        prometheus_server.start()
        stack.callback(prometheus_server.stop)
        jobs.wait(prometheus_server.has_scraped)
        load()
        read()
        yield prometheus_server


def begin_work(jobs: JobWorld) -> None:
    """A Dataset that nodes load, from the source and from each other; a Dataset that fails; jobs that wait, for data
    and for room.

    Blocks come slowly: a load takes longer than some scrapes.
    """
    jobs.create_dataset(placement={"mode": "Replicate", "nodeCount": 2})
    jobs.create_dataset(FAILED, source={"uri": "s3://no-such/bucket"})
    role = jobs.role(1, gpus=1)
    role["template"]["spec"]["schedulerName"] = SCHEDULER
    jobs.create_job(framework="None", roles={"Worker": role})
    jobs.gpu_job("waits", pods=100)


def report_reads(jobs: JobWorld) -> None:
    """What nodes said of the job's reads to an operator before this one: it stays in the status."""
    waited = {"observedSeconds": 100, "sourceSeconds": 1, "peerSeconds": 1, "percent": 2}
    jobs.kube.patch(
        "TrainingJob",
        "train",
        {"status": {"dataStall": {**waited, "advice": "ComputeBound", "message": "They hardly wait."}}},
        namespace=jobs.namespace,
        subresource="status",
    )


def test_a_real_prometheus_has_series_for_every_expression_of_dashboard_alerts_and_docs(
    jobs: JobWorld, prometheus: Prometheus, tmp_path: Path
) -> None:
    began = time.monotonic()
    expressions = {
        *of_panels(),
        *of_page(),
        *(side for alert in alerts().values() for side in compared(alert)),
    }
    # The operator of this test has no certificates: their metric is asked for in tests/unit/control/test_metrics.py.
    expressions = {
        expression for expression in expressions if "tdcs_certificate_expiry_seconds" not in expression
    }
    assert len(expressions) > 40
    silent = {
        expression: expression.replace("$__rate_interval", LOOK).replace("$namespace", jobs.namespace)
        for expression in expressions
    }
    assert not [expression for expression in silent.values() if "$" in expression]

    def ask() -> None:
        for answered_query in [query for query, expression in silent.items() if prometheus.ask(expression)]:
            del silent[answered_query]

    def loaded() -> bool:
        ask()  # some have a series for as long as a load lasts
        return jobs.bound() == 1

    def all_have_answered() -> bool:
        ask()
        assert not silent, sorted(silent)
        return True

    begin_work(jobs)
    jobs.wait(loaded)
    jobs.run_pods(count=1)
    report_reads(jobs)
    jobs.wait(all_have_answered)

    def over_time(expression: str) -> list[Object]:
        return prometheus.ask_range(expression, seconds=time.monotonic() - began)

    variables = {"$__rate_interval": "16s", "$namespace": jobs.namespace}
    panels = [panel for panel in dashboard()["panels"] if panel["type"] == "timeseries"]
    drawn: dict[int, list[Line]] = {}

    def all_are_drawn() -> bool:
        drawn.update({panel["id"]: lines_of(panel, over_time, variables=variables) for panel in panels})
        empty = [
            panel["title"]
            for panel in panels
            if max((len(line.points) for line in drawn[panel["id"]]), default=0) < 2
        ]
        assert not empty, empty
        return True

    jobs.wait(all_are_drawn)
    picture = Path(os.environ.get("TDCS_DASHBOARD_PICTURE", tmp_path / "dashboard.svg"))
    svg = draw(dashboard(), drawn).replace(jobs.namespace, "team-a").replace(jobs.cluster, "default")
    picture.write_text(svg)

    (choice,) = [variable for variable in dashboard()["templating"]["list"] if variable["type"] == "query"]
    match = re.fullmatch(r"label_values\((\w+), (\w+)\)", choice["query"]["query"])
    assert match is not None
    assert prometheus.values_of(match[2], metric=match[1]) == {jobs.namespace}

    def waiting_to_fire() -> set[str]:
        rules = prometheus.alerts()
        assert rules.keys() == alerts().keys()
        assert {rule["health"] for rule in rules.values()} == {"ok"}
        return {name for name, rule in rules.items() if rule["state"] != "inactive"}

    jobs.wait(lambda: waiting_to_fire() == {"TDCSDatasetFailed"})
