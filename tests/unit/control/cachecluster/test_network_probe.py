"""A cache is tried from where no policy admits anybody, and its condition says what came of it."""

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import QUICK, Cluster
from tests.unit.kube.fake import error

from tdcs.api import names
from tdcs.control.cachecluster import isolation_probe
from tdcs.control.cachecluster.isolation_probe import ProbeReport, conclusion
from tdcs.kube.errors import ForbiddenError
from tdcs.model.kube_resources import CACHE_CLUSTERS, JOBS, PODS, Resource

NODES = "tdcs-nodes.tdcs-system.svc:9808"
SOME = ("default-master.tdcs-system.svc:19998",)


@pytest.mark.parametrize(
    ("report", "status", "reason", "says"),
    [
        (ProbeReport(control=True, closed=SOME), "True", "NotReachable", "none of 1 port"),
        (
            ProbeReport(control=True, reached=SOME),
            "False",
            "PortsReachable",
            "every pod of the cluster can read",
        ),
        (ProbeReport(control=False, reached=SOME), "False", "PortsReachable", SOME[0]),
        (
            ProbeReport(control=False, closed=SOME),
            "Unknown",
            "ProbeCutOff",
            "tdcs.io/component=network-probe",
        ),
        (ProbeReport(control=True, unnamed=SOME), "Unknown", "ProbeFailed", "no address was found"),
        (None, "Unknown", "ProbeFailed", "without a report"),
    ],
)
@pytest.mark.threat("no-network-policies")
def test_what_a_report_means(report: ProbeReport | None, status: str, reason: str, says: str) -> None:
    condition = conclusion(report, trusted=False)
    assert (condition.status, condition.reason) == (status, reason)
    assert says in condition.message


def test_with_certificates_a_reached_port_gives_nothing_away_and_is_said_all_the_same() -> None:
    condition = conclusion(ProbeReport(control=True, reached=SOME), trusted=True)
    assert condition.status == "False"
    assert "certificate" in condition.message
    assert "Set trust.enabled" not in condition.message


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    engine = MemoryEngine(sources={}, workers={"a": 10**9})
    settings = dataclasses.replace(QUICK, network_probe=True, probe_targets=(NODES,))
    async with Cluster(engine=engine, nodes={"a": {}}, settings=settings) as cluster:
        yield cluster


def isolated(cluster: Cluster) -> dict[str, Any]:
    return cluster.condition(names.NETWORK_ISOLATED, "default", resource=CACHE_CLUSTERS)


def pod_that_reports(report: ProbeReport) -> dict[str, Any]:
    ended = {"terminated": {"exitCode": 0, "message": report.render()}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "namespace": "tdcs-system"},
        "status": {"phase": "Succeeded", "containerStatuses": [{"state": ended}]},
    }


@pytest.mark.threat("no-network-policies")
async def test_a_ready_cache_is_tried_once_and_says_what_was_reached(cluster: Cluster) -> None:
    await cluster.server.create(PODS, obj=pod_that_reports(ProbeReport(control=True, reached=SOME)))
    await cluster.create_cache()
    await cluster.until(lambda: isolated(cluster).get("status") == "False")
    assert SOME[0] in isolated(cluster)["message"]
    (job,) = cluster.server.store(JOBS).values()
    (container,) = job["spec"]["template"]["spec"]["containers"]
    tried = {word.removeprefix("--target=") for word in container["args"] if word.startswith("--target=")}
    web = {"default-master.tdcs-system.svc:19999", "default-workers.tdcs-system.svc:30000"}
    assert tried >= {*SOME, *web, NODES}
    assert names.LABEL_CACHE_CLUSTER not in job["spec"]["template"]["metadata"]["labels"]
    assert {event["type"] for event in cluster.events("PortsReachable")} == {"Warning"}


async def test_a_probe_that_is_refused_harms_nothing_and_says_why(cluster: Cluster) -> None:
    def refuse(verb: str, resource: Resource) -> None:
        if (verb, resource) == ("create", JOBS):
            raise error(ForbiddenError)

    cluster.server.refuse = refuse
    await cluster.create_cache()
    await cluster.until(lambda: isolated(cluster).get("reason") == "ProbeRefused")
    assert cluster.condition("Ready", "default", resource=CACHE_CLUSTERS)["status"] == "True"
    assert not cluster.server.store(JOBS)


def test_each_hour_has_a_job_of_its_own_and_each_try_within_it_the_same() -> None:
    from tests.unit.chart.security.test_containers import blueprint

    first, again, later = (
        isolation_probe.job(blueprint(), window=window)["metadata"]["name"] for window in (1, 1, 2)
    )
    assert first == again != later
