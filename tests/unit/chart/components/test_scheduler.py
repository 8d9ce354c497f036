"""The scheduler and the extender next to it."""

import pytest
from tests.support.documents import document
from tests.support.scheduler_configuration import scheduler_configuration
from tests.unit.chart.conftest import CHART, Helm, Rendered

from tdcs.api import names


def test_the_schedulers_configuration_is_the_programs_own(default: Rendered) -> None:
    written = default.one("ConfigMap", "tdcs-scheduler")["data"]["scheduler.yaml"]

    assert document(written) == scheduler_configuration()


def test_the_extender_listens_where_its_scheduler_asks(default: Rendered) -> None:
    containers = default.containers()

    assert f"--port={names.EXTENDER_PORT}" in containers["tdcs-scheduler/extender"]["args"]
    # kubelet's probes come from outside of the pod and do not reach loopback.
    ports = {port["name"]: port["containerPort"] for port in containers["tdcs-scheduler/extender"]["ports"]}
    assert f"--health-port={ports['health']}" in containers["tdcs-scheduler/extender"]["args"]
    assert f"--metrics-port={ports['monitoring']}" in containers["tdcs-scheduler/extender"]["args"]


def test_the_extender_looks_at_the_pods_of_its_own_scheduler(helm: Helm) -> None:
    rendered = helm.template({"scheduler.name": '"mine"'})

    assert "--scheduler-name=mine" in rendered.containers()["tdcs-scheduler/extender"]["args"]


@pytest.mark.failure_mode("scheduler-and-extender-restart")
def test_the_scheduler_begins_after_its_extender_and_after_a_bounded_time_without_it(
    default: Rendered,
) -> None:
    spec = default.pod_specs()["tdcs-scheduler"]

    extender, waiting = spec["initContainers"]
    assert (extender["name"], extender["restartPolicy"]) == ("extender", "Always")
    # A probe that must succeed first would have no bound.
    assert "startupProbe" not in extender
    assert waiting["args"][0] == "await-extender"
    port = next(port_spec for port_spec in extender["ports"] if port_spec["name"] == "health")
    assert f"--url=http://127.0.0.1:{port['containerPort']}/healthz" in waiting["args"]
    assert "--at-most=30" in waiting["args"]
    assert "restartPolicy" not in waiting


def test_with_the_extender_off_the_scheduler_runs_alone_and_again(helm: Helm, default: Rendered) -> None:
    rendered = helm.template({"extender.enabled": "false"})

    assert "initContainers" not in rendered.pod_specs()["tdcs-scheduler"]
    assert [c["name"] for c in rendered.pod_specs()["tdcs-scheduler"]["containers"]] == ["kube-scheduler"]
    written = document(rendered.one("ConfigMap", "tdcs-scheduler")["data"]["scheduler.yaml"])
    assert "extenders" not in written

    def digest(of: Rendered) -> str:
        annotations = of.one("Deployment", "tdcs-scheduler")["spec"]["template"]["metadata"]["annotations"]
        return str(annotations["tdcs.io/config-hash"])

    assert digest(rendered) != digest(default)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, names.SCHEDULER_NAME),
        ({"scheduler.name": '"other"'}, "other"),
        ({"scheduler.enabled": "false"}, ""),
    ],
)
def test_jobs_ask_for_the_scheduler_that_is_there(helm: Helm, values: dict[str, str], name: str) -> None:
    operator = helm.template(values).containers()["tdcs-operator/operator"]
    assert f"--scheduler-name={name}" in operator["args"]


@pytest.mark.parametrize("version", ["v1.33.2", "v1.33.2+k3s1", "v1.33.2-eks-1a2b3c"])
def test_the_scheduler_has_the_version_of_the_cluster(helm: Helm, version: str) -> None:
    manifests = helm.run("template", "tdcs", CHART, "--kube-version", version)

    assert "image: registry.k8s.io/kube-scheduler:v1.33.2\n" in manifests


def test_the_scheduler_may_have_another_version(helm: Helm) -> None:
    rendered = helm.template({"scheduler.image.tag": '"v1.34.1"'})

    assert rendered.containers()["tdcs-scheduler/kube-scheduler"]["image"].endswith("kube-scheduler:v1.34.1")
