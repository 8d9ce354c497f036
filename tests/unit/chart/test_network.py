"""What the chart's NetworkPolicies let through: by every component, to every port, in both directions."""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
from tests.unit.chart.conftest import NAMESPACE, Helm, RefusedError, Rendered
from tests.unit.chart.network import PORTS, Network, Pod

from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.control.cachecluster import cleaning, isolation_probe
from tdcs.control.cachecluster.blueprint import Blueprint, labels_of
from tdcs.decide.forbidden_addresses import METADATA

READERS: Final = ("tdcs-csi", "tdcs-reader-holder")
ADMITTED: Final[Mapping[tuple[str, int], set[str]]] = {
    ("tdcs-operator", names.MANIFEST_PORT): {"worker", *READERS},
    ("tdcs-operator", 8081): {"prometheus"},
    ("tdcs-operator", 8083): {"keda"},
    ("tdcs-scheduler", 8903): {"prometheus"},
    ("tdcs-csi", 9808): {"prometheus"},
    ("tdcs-csi", 9809): {"prometheus"},
    ("tdcs-reader-holder", 9808): {"prometheus"},
    ("tdcs-reader-holder", 9809): {"prometheus"},
    ("master", names.MASTER_RPC_PORT): {"tdcs-operator", "worker", "fuse"},
    ("worker", names.WORKER_RPC_PORT): {"fuse"},
    ("worker", names.AGENT_CONTROL_PORT): {"tdcs-operator", "worker", "prometheus", *READERS},
    ("worker", names.AGENT_BLOCK_PORT): {"worker", *READERS},
}
"""Who may call what. What is not here is refused to everybody."""

STRANGERS: Final[Mapping[str, Pod]] = {
    "stranger": (NAMESPACE, {"app": "stranger"}),
    "tenant": ("team-a", {"app.kubernetes.io/name": "tdcs", "app.kubernetes.io/component": "operator"}),
    "imitated-worker": ("team-a", labels_of(cluster="default", component="worker")),
}


def plan() -> Blueprint:
    metadata = {"name": "default", "uid": "u"}
    owner = {"apiVersion": names.API_VERSION, "kind": "CacheCluster", "metadata": metadata}
    return Blueprint(
        owner=owner, spec=CacheClusterSpec(), namespace=NAMESPACE, image="alluxio:1", agent_image="tdcs:1"
    )


def parts(rendered: Rendered) -> Iterator[tuple[str, Pod]]:
    """The pods of TDCS: of the chart by their workloads' names, of a cache by their components."""
    for kind in ("Deployment", "DaemonSet", "Job"):
        for obj in rendered.all(kind):
            yield obj["metadata"]["name"], (NAMESPACE, obj["spec"]["template"]["metadata"]["labels"])
    for pod in rendered.all("Pod"):
        yield pod["metadata"]["name"], (NAMESPACE, pod["metadata"]["labels"])
    for component in (names.COMPONENT_MASTER, names.COMPONENT_WORKER, names.COMPONENT_FUSE):
        yield component, (NAMESPACE, labels_of(cluster="default", component=component))
    cleaner = cleaning.job(
        plan(), worker_set={"metadata": {"uid": "u", "generation": 1}}, node="n", views_too=True
    )
    yield "clean", (NAMESPACE, cleaner["spec"]["template"]["metadata"]["labels"])


@pytest.fixture(scope="module")
def everything(helm: Helm) -> Rendered:
    """The chart with all its parts."""
    return helm.template({"keda.enabled": "true", "placeByData": '"Policy"'})


@pytest.fixture(scope="module")
def probe() -> Pod:
    return NAMESPACE, isolation_probe.job(plan(), window=1)["spec"]["template"]["metadata"]["labels"]


@pytest.mark.threat("ports-from-other-namespaces")
def test_each_component_is_called_by_those_that_need_it_and_by_no_one_else(
    everything: Rendered, probe: Pod
) -> None:
    network, targets = Network(everything), dict(parts(everything))
    outside = {
        "prometheus": ("monitoring", {"app": "prometheus"}),
        "keda": ("keda", {"app": "keda-operator"}),
    }
    callers = {**targets, **STRANGERS, **outside, "probe": probe}
    targets.pop("tdcs-network-test")  # it listens nowhere
    callers_by_port: dict[tuple[str, int], set[str]] = {}
    for target, pod in targets.items():
        for port in PORTS:
            for name, caller in callers.items():
                if network.allows(source=caller, target=pod, port=port):
                    callers_by_port.setdefault((target, port), set()).add(name)
    # The API server calls the webhook, from addresses that no selector names.
    assert len(callers_by_port.pop(("tdcs-scheduler", names.WEBHOOK_PORT))) > len(STRANGERS)
    assert callers_by_port == ADMITTED


@pytest.mark.threat("ports-outside-role")
def test_every_pod_is_isolated_in_both_directions_but_for_the_probes(
    everything: Rendered, probe: Pod
) -> None:
    network = Network(everything)
    for name, pod in parts(everything):
        for direction in ("ingress", "egress"):
            free = name == "tdcs-network-test"
            assert (network.rules(direction, pod) is None) is free, (name, direction)
    assert network.rules("egress", probe) is None


@pytest.mark.threat("ports-outside-role")
def test_outside_are_only_names_the_api_server_and_stores(everything: Rendered) -> None:
    network = Network(everything)
    outside: dict[str, set[str]] = {}
    for name, pod in parts(everything):
        for rule in network.rules("egress", pod) or ():
            blocks = [peer["ipBlock"] for peer in rule.get("to", ()) if "ipBlock" in peer]
            if not rule.get("to"):
                outside.setdefault(name, set()).add(
                    f"any:{[port_rule['port'] for port_rule in rule['ports']]}"
                )
            elif any(block["cidr"] == "0.0.0.0/0" for block in blocks):
                outside.setdefault(name, set()).add("stores")
    api = "any:[443, 6443]"
    assert outside == {
        "tdcs-operator": {api, "stores"},
        "tdcs-scheduler": {api},
        "tdcs-crd-upgrade": {api},
        "tdcs-uninstall": {api},
        "tdcs-smoke-test": {api},
        "worker": {"stores"},
    }


@pytest.mark.threat("ports-outside-role")
def test_no_store_is_where_clouds_answer_their_machines(everything: Rendered) -> None:
    forbidden = [*METADATA, *map(ipaddress.ip_network, ("169.254.0.0/16", "fe80::/10"))]
    network, pods = Network(everything), dict(parts(everything))
    for name in ("tdcs-operator", "worker"):
        wide = [
            peer["ipBlock"]
            for rule in network.rules("egress", pods[name]) or ()
            for peer in rule.get("to", ())
            if peer.get("ipBlock", {}).get("cidr") in {"0.0.0.0/0", "::/0"}
        ]
        assert len(wide) == 2
        excepted = {ipaddress.ip_network(network) for block in wide for network in block["except"]}
        assert excepted == set(forbidden), name


def test_the_webhook_answers_the_api_server_from_any_address(helm: Helm) -> None:
    rendered = helm.template({"placeByData": '"Webhook"'})
    scheduler = dict(parts(rendered))["tdcs-scheduler"]
    assert Network(rendered).allows(source=STRANGERS["tenant"], target=scheduler, port=names.WEBHOOK_PORT)


@pytest.mark.threat("metrics-ports")
def test_metrics_are_for_those_that_are_named(helm: Helm) -> None:
    rendered = helm.template({"networkPolicy.monitoring": "[]"})
    prometheus: Pod = ("monitoring", {})
    for name, pod in parts(rendered):
        for port in (8081, 8903, 9808, 9809, names.AGENT_CONTROL_PORT):
            if name != "tdcs-network-test":
                assert not Network(rendered).allows(source=prometheus, target=pod, port=port), (name, port)


@pytest.mark.threat("keda-port")
def test_the_scaler_is_for_those_that_are_named_and_only_where_there_is_one(helm: Helm) -> None:
    def asks(namespace: str, values: Mapping[str, Any]) -> bool:
        rendered = helm.template(values)
        operator = dict(parts(rendered))["tdcs-operator"]
        return Network(rendered).allows(source=(namespace, {}), target=operator, port=8083)

    elsewhere = '[{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "scaling"}}}]'
    assert asks("keda", {"keda.enabled": "true"})
    assert not asks("keda", {})
    assert not asks("keda", {"keda.enabled": "true", "networkPolicy.keda": "[]"})
    assert asks("scaling", {"keda.enabled": "true", "networkPolicy.keda": elsewhere})
    assert not asks("keda", {"keda.enabled": "true", "networkPolicy.keda": elsewhere})


@pytest.mark.parametrize(
    ("value", "value_text"),
    [
        ("keda", '["keda"]'),
        ("stores", '[{"from": []}]'),
        ("dns", '[{"to": [{"ipBlock": {}}]}]'),
        ("monitoring", '["prometheus"]'),
        ("apiServerPorts", "[]"),
        ("apiServerPorts", "[70000]"),
    ],
)
def test_a_rule_that_kubernetes_would_not_take_is_refused_at_once(
    helm: Helm, value: str, value_text: str
) -> None:
    with pytest.raises(RefusedError, match=value):
        helm.template({f"networkPolicy.{value}": value_text})


def test_the_probe_is_asked_for_where_there_are_policies_only(helm: Helm) -> None:
    def asked(values: Mapping[str, Any]) -> bool:
        return "--network-probe" in helm.template(values).containers()["tdcs-operator/operator"]["args"]

    assert asked({})
    assert not asked({"networkPolicy.probe": "false"})
    assert not asked({"networkPolicy.enabled": "false"})


def test_the_test_pod_tries_the_ports_that_the_operators_probe_tries(everything: Rendered) -> None:
    (container,) = everything.pod_specs()["tdcs-network-test"]["containers"]
    tried = {word.removeprefix("--target=") for word in container["args"] if word.startswith("--target=")}
    arguments = everything.containers()["tdcs-operator/operator"]["args"]
    also = {word.removeprefix("--probe-target=") for word in arguments if word.startswith("--probe-target=")}
    assert also == {
        f"tdcs-manifests.{NAMESPACE}.svc:{names.MANIFEST_PORT}",
        f"tdcs-nodes.{NAMESPACE}.svc:9808",
        f"tdcs-nodes.{NAMESPACE}.svc:9809",
    }
    assert tried == {*isolation_probe.targets(plan()), *also}
    assert f"--control={isolation_probe.CONTROL}" in container["args"]


def test_the_probe_finds_the_pods_of_the_nodes_by_a_name_and_tries_no_port_that_is_not_there(
    helm: Helm,
) -> None:
    rendered = helm.template({})
    service = rendered.one("Service", "tdcs-nodes")
    pods = rendered.one("DaemonSet", "tdcs-csi")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= pods.items()
    assert service["spec"]["clusterIP"] == "None"
    without = helm.template({"csi.enabled": "false"})
    assert not any(
        word.endswith((":9808", ":9809")) for word in without.containers()["tdcs-operator/operator"]["args"]
    )
