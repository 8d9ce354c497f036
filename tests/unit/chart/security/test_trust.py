"""The chart with certificates: what is started with which, and who may read them."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Literal

import pytest
from tests.support.certificates import LOCAL, TestAuthority
from tests.unit.chart.conftest import NAMESPACE, Helm, Object, RefusedError, Rendered

from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.control.cachecluster.stock_client import is_wanted
from tdcs.trust.given import given_problem
from tdcs.trust.roles import Role
from tdcs.trust.settings import TrustSettings

MOUNT = {"name": "trust", "mountPath": "/etc/tdcs/trust", "readOnly": True}


@pytest.fixture(scope="module")
def trusted(helm: Helm) -> Rendered:
    return helm.template({"podMonitor.enabled": "true"})


def secret_rights(rendered: Rendered) -> list[dict[str, object]]:
    rules = rendered.one("Role", "tdcs-operator")["rules"]
    return [rule for rule in rules if "secrets" in rule["resources"]]


def test_nothing_of_certificates_is_there_where_they_are_off(helm: Helm) -> None:
    rendered = helm.template({"trust.enabled": "false"})
    assert secret_rights(rendered) == []
    assert "trust" not in str(rendered.pod_specs())


def test_operator_and_readers_are_started_with_certificates(trusted: Rendered) -> None:
    containers = trusted.containers()
    arguments = containers["tdcs-operator/operator"]["args"]
    assert {"--trust=selfSigned", "--trust-prefix=tdcs-trust"} <= {*arguments}
    for container in ("tdcs-csi/csi", "tdcs-csi/reader", "tdcs-reader-holder/holder"):
        assert "--trust=/etc/tdcs/trust" in containers[container]["args"]
        assert MOUNT in containers[container]["volumeMounts"]
    for pod in ("tdcs-csi", "tdcs-reader-holder"):
        (volume,) = (
            volume_spec
            for volume_spec in trusted.pod_specs()[pod]["volumes"]
            if volume_spec["name"] == "trust"
        )
        assert volume["secret"]["secretName"] == "tdcs-trust-reader"


@pytest.mark.threat("token-secrets")
def test_the_operator_reads_and_writes_secrets_in_its_own_namespace_only(trusted: Rendered) -> None:
    assert secret_rights(trusted) == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "create", "patch", "delete"]}
    ]
    everywhere = trusted.one("ClusterRole", "tdcs-operator")["rules"]
    # Of the pods that serve claims it makes them, and can neither read nor change any.
    assert [rule["verbs"] for rule in everywhere if "secrets" in rule["resources"]] == [["create"]]


@pytest.mark.threat("token-secrets")
def test_given_secrets_are_read_by_name_and_never_written(helm: Helm) -> None:
    rendered = helm.template({"trust.provider": '"existing"'})
    (rule,) = secret_rights(rendered)
    assert rule["verbs"] == ["get"]
    roles = ("operator", "master", "worker", "agent", "reader", "fuse")
    assert rule["resourceNames"] == [f"tdcs-trust-{role}" for role in roles]


@pytest.mark.parametrize("profile", ["Tuned", "Stock"])
def test_the_notes_name_the_secrets_that_the_operator_asks_for(
    helm: Helm, tmp_path: Path, profile: Literal["Tuned", "Stock"]
) -> None:
    """The template and the operator decide apart from each other whether nodes run Alluxio's FUSE client."""
    values = {"trust.provider": '"existing"', "cacheCluster.spec.profile": f'"{profile}"'}
    notes = helm.notes(values, folder=tmp_path)
    left_out = set() if is_wanted(CacheClusterSpec(profile=profile)) else {Role.FUSE}
    assert set(re.findall(r"tdcs-trust-([a-z]+)", notes)) == {*Role} - left_out


@pytest.fixture(scope="module")
def by_cert_manager(helm: Helm) -> Rendered:
    values = {"trust.enabled": "true", "trust.provider": '"certManager"'}
    return helm.template({**values, "trust.certManager.cacheClusters": '["second"]'})


def certificate_of(rendered: Rendered, role: Role) -> Object:
    """What the chart asks cert-manager for, by the Secret that the operator reads."""
    name = TrustSettings(provider="certManager", prefix="tdcs-trust").secret(
        role=role, child="default-worker-a"
    )
    (spec,) = (
        certificate["spec"]
        for certificate in rendered.all("Certificate")
        if certificate["spec"]["secretName"] == name
    )
    return dict(spec)


@pytest.mark.parametrize("role", Role)
def test_cert_manager_is_asked_for_certificates_that_the_operator_takes(
    by_cert_manager: Rendered, role: Role
) -> None:
    spec = certificate_of(by_cert_manager, role)
    (organization,) = spec["subject"]["organizations"]
    assert f"{spec['commonName']}.{organization}" == role.host
    assert role.host in spec["dnsNames"]
    assert {"client auth", "server auth"} <= {*spec["usages"]}
    identity = TestAuthority().identity(role, hosts=(*spec["dnsNames"], *spec.get("ipAddresses", ())))
    assert given_problem(identity, role=role, now=datetime.datetime.now(datetime.UTC)) == ""
    worker = {"node": "gpu-7", "namespace": NAMESPACE}
    hosts = {
        Role.MASTER: [
            names.master_address(cluster=cache, namespace=NAMESPACE) for cache in ("default", "second")
        ],
        Role.WORKER: [names.worker_host(cluster=cache, **worker) for cache in ("default", "second")],
    }
    hosts[Role.AGENT] = hosts[Role.WORKER]
    for host in (address.partition(":")[0] for address in hosts.get(role, ())):
        wildcard = f"*.{host.partition('.')[2]}"  # it stands for one label
        assert {host, wildcard} & {*spec["dnsNames"]}, host
        assert {*LOCAL} <= {*spec["dnsNames"], *spec["ipAddresses"]}


def test_the_authority_by_cert_manager_outlives_what_it_signs_and_the_operator_cannot_read_it(
    by_cert_manager: Rendered,
) -> None:
    authority = by_cert_manager.one("Certificate", "tdcs-trust-authority")["spec"]
    assert authority["isCA"]
    assert authority["privateKey"]["rotationPolicy"] == "Never"
    issuer = by_cert_manager.one("Issuer", "tdcs-trust")["spec"]
    assert issuer["ca"]["secretName"] == authority["secretName"]
    leaves = [
        certificate["spec"]
        for certificate in by_cert_manager.all("Certificate")
        if not certificate["spec"].get("isCA")
    ]
    assert {leaf["issuerRef"]["name"] for leaf in leaves} == {"tdcs-trust"}
    longest = max(hours(leaf["duration"]) for leaf in leaves)
    assert hours(authority["renewBefore"]) > 2 * longest
    (rule,) = secret_rights(by_cert_manager)
    assert rule["verbs"] == ["get"]
    assert authority["secretName"] not in rule["resourceNames"]  # type: ignore[operator]
    own_secret = TrustSettings(provider="selfSigned", prefix="tdcs-trust").authority
    assert authority["secretName"] != own_secret, (
        "cert-manager and the operator would each replace the other's authority"
    )


def hours(duration: str) -> int:
    return int(duration.removesuffix("h"))


def test_an_issuer_of_the_users_signs_when_it_is_named(helm: Helm) -> None:
    values = {"trust.enabled": "true", "trust.provider": '"certManager"'}
    rendered = helm.template(
        {**values, "trust.certManager.issuer": '{"name": "ours", "kind": "ClusterIssuer"}'}
    )
    assert rendered.all("Issuer") == []
    issuer = {"name": "ours", "kind": "ClusterIssuer", "group": "cert-manager.io"}
    assert [certificate["spec"]["issuerRef"] for certificate in rendered.all("Certificate")] == [
        issuer
    ] * len(Role)
    assert "--trust=certManager" in rendered.containers()["tdcs-operator/operator"]["args"]
    with pytest.raises(RefusedError, match="certManager"):
        helm.template({"trust.certManager.isuer": '"ours"'})


@pytest.mark.parametrize(
    ("monitor", "container", "role"),
    [
        ("tdcs-operator", "tdcs-operator/operator", Role.OPERATOR),
        ("tdcs-scheduler", "tdcs-scheduler/extender", Role.MONITOR),
        ("tdcs-csi", "tdcs-csi/csi", Role.READER),
        ("tdcs-csi", "tdcs-csi/reader", Role.READER),
        ("tdcs-agents", "", Role.AGENT),
    ],
)
@pytest.mark.threat("metrics-ports")
def test_prometheus_reads_all_metrics_with_a_certificate_of_its_own(
    trusted: Rendered, monitor: str, container: str, role: Role
) -> None:
    for endpoint in trusted.one("PodMonitor", monitor)["spec"]["podMetricsEndpoints"]:
        assert endpoint["scheme"] == "https"
        assert endpoint["tlsConfig"]["serverName"] == role.host
        assert endpoint["tlsConfig"]["keySecret"] == {"name": "tdcs-trust-monitor", "key": "tls.key"}
    if container:
        container_spec = trusted.containers()[container]
        assert any(word.startswith("--trust=") for word in container_spec["args"])
        assert any(word.startswith("--metrics-port=") for word in container_spec["args"])


def test_the_extender_has_the_certificate_of_a_reader_of_metrics_alone(trusted: Rendered) -> None:
    spec = trusted.pod_specs()["tdcs-scheduler"]
    (volume,) = [volume_spec for volume_spec in spec["volumes"] if volume_spec["name"] == "trust"]
    # Optional: without an operator pods are placed, too.
    assert (volume["secret"]["secretName"], volume["secret"]["optional"]) == ("tdcs-trust-monitor", True)
    mounting = [
        container_spec["name"]
        for container_spec in (*spec["initContainers"], *spec["containers"])
        if any(mount["name"] == "trust" for mount in container_spec.get("volumeMounts", ()))
    ]
    assert mounting == ["extender"]
