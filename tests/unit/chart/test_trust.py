"""The chart with certificates: what is started with which, and who may read them."""

from __future__ import annotations

import pytest
from tests.unit.chart.conftest import Helm, Rendered

READER = {"reader.enabled": "true"}
MOUNT = {"name": "trust", "mountPath": "/etc/tdcs/trust", "readOnly": True}


@pytest.fixture(scope="module")
def trusted(helm: Helm) -> Rendered:
    return helm.template({**READER, "trust.enabled": "true", "podMonitor.enabled": "true"})


def secret_rights(made: Rendered) -> list[dict[str, object]]:
    rules = made.one("Role", "tdcs-operator")["rules"]
    return [rule for rule in rules if "secrets" in rule["resources"]]


def test_nothing_of_certificates_is_there_until_asked_for(helm: Helm) -> None:
    made = helm.template(READER)
    assert secret_rights(made) == []
    assert "trust" not in str(made.pod_specs())


def test_operator_and_readers_are_started_with_certificates(trusted: Rendered) -> None:
    containers = trusted.containers()
    arguments = containers["tdcs-operator/operator"]["args"]
    assert {"--trust=selfSigned", "--trust-prefix=tdcs-trust"} <= {*arguments}
    for container in ("tdcs-csi/csi", "tdcs-csi/reader", "tdcs-reader-holder/holder"):
        assert "--trust=/etc/tdcs/trust" in containers[container]["args"]
        assert MOUNT in containers[container]["volumeMounts"]
    for pod in ("tdcs-csi", "tdcs-reader-holder"):
        (volume,) = (one for one in trusted.pod_specs()[pod]["volumes"] if one["name"] == "trust")
        assert volume["secret"]["secretName"] == "tdcs-trust-reader"


def test_the_operator_reads_and_writes_secrets_in_its_own_namespace_only(trusted: Rendered) -> None:
    assert secret_rights(trusted) == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "create", "patch"]}
    ]
    everywhere = trusted.one("ClusterRole", "tdcs-operator")["rules"]
    assert all("secrets" not in rule["resources"] for rule in everywhere)


def test_given_secrets_are_read_by_name_and_never_written(helm: Helm) -> None:
    made = helm.template({**READER, "trust.enabled": "true", "trust.provider": '"existing"'})
    (rule,) = secret_rights(made)
    assert rule["verbs"] == ["get"]
    roles = ("operator", "master", "worker", "agent", "reader", "fuse")
    assert rule["resourceNames"] == [f"tdcs-trust-{role}" for role in roles]


def test_prometheus_reads_the_agents_metrics_with_a_certificate_of_its_own(trusted: Rendered) -> None:
    (endpoint,) = trusted.one("PodMonitor", "tdcs-agents")["spec"]["podMetricsEndpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"]["serverName"] == "agent.tdcs.io"
    assert endpoint["tlsConfig"]["keySecret"] == {"name": "tdcs-trust-monitor", "key": "tls.key"}
