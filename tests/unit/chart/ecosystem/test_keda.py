"""What the chart serves for KEDA: nothing unless it is asked for."""

from tests.unit.chart.conftest import Helm, Rendered


def test_the_external_scaler_is_served_only_when_it_is_asked_for(helm: Helm, default: Rendered) -> None:
    assert not any("scaler" in service["metadata"]["name"] for service in default.all("Service"))
    assert not any("--scaler-port" in arg for arg in default.containers()["tdcs-operator/operator"]["args"])

    rendered = helm.template({"keda.enabled": "true"})
    operator = rendered.containers()["tdcs-operator/operator"]
    (port,) = (spec for spec in operator["ports"] if spec["name"] == "scaler")
    assert f"--scaler-port={port['containerPort']}" in operator["args"]
    service = rendered.one("Service", "tdcs-scaler")
    assert [(spec["port"], spec["targetPort"]) for spec in service["spec"]["ports"]] == [(8083, "scaler")]
    pods = rendered.one("Deployment", "tdcs-operator")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= pods.items()
    (policy,) = (
        spec for spec in rendered.all("NetworkPolicy") if spec["metadata"]["name"] == "tdcs-operator"
    )
    keda = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "keda"}}}
    assert {"from": [keda], "ports": [{"port": 8083, "protocol": "TCP"}]} in policy["spec"]["ingress"]
