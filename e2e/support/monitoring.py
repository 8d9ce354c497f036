"""A real Prometheus and a real prometheus-adapter in the cluster, with the chart's own rule.

Prometheus is that of Debian's package, and the adapter is built of its Go module. The nodes see copies of them.
"""

import shutil

import yaml
from tests.support.ecosystem.go_modules import manager_program
from tests.support.programs.monitoring import (
    ADAPTER,
    EXTERNAL_METRICS,
    PROMETHEUS,
    external_metrics_api,
    prometheus_program,
)

from e2e.support import metrics
from tdcs_local.errors import LocalError
from tdcs_local.kind import cluster, release
from tdcs_local.kind.kubectl import Kubectl, Object

NAME = "monitoring"
PORTS = {PROMETHEUS: 9090, ADAPTER: 6443}
COPIES = cluster.TRANSFER / NAME
SYSTEM = release.NAMESPACE

SCRAPED: dict[str, tuple[str, dict[str, str]]] = {
    "operator": (
        "monitoring",
        {"app.kubernetes.io/instance": release.RELEASE, "app.kubernetes.io/component": "operator"},
    ),
    "agent": ("agent", {"tdcs.io/component": "worker"}),
}
"""What Prometheus scrapes, by its role: the name of the port, and the pods' labels."""

PREFIX = "tdcs-e2e-"
"""Of the Services by which it finds the pods."""

CERTIFICATES = "/certificates"


def start(kubectl: Kubectl, *, namespace: str, image: str, rules: str) -> None:
    """Prometheus, which scrapes all pods of TDCS, and the adapter; returns when the API server knows its metrics.

    Args:
        kubectl: the cluster.
        namespace: one whose pods may see their node.
        image: any with a shell's libraries.
        rules: the configuration of the adapter.
    """
    COPIES.mkdir(parents=True, exist_ok=True)
    for program in (prometheus_program(), manager_program(ADAPTER)):
        shutil.copy(program, COPIES)
    kubectl.apply(*_services(), *_rights(namespace), _configuration(namespace, rules), _service(namespace))
    kubectl.apply(_certificate(namespace, metrics.certificate(kubectl)))
    kubectl.apply(_pod(namespace, image))
    kubectl("wait", f"pod/{NAME}", "-n", namespace, "--for=condition=Ready", "--timeout=100s")
    # Only now: what the API server sends to a Service that its node does not know yet leaves the cluster, and the
    # connection that some proxy out there has answered is kept.
    kubectl.apply(external_metrics_api(service=NAME, namespace=namespace, port=443))

    def look() -> str | None:
        try:
            served = kubectl.raw(f"/apis/{EXTERNAL_METRICS}/v1beta1")["resources"]
        except LocalError as error:
            return error.why
        return None if served else "it has no metric yet"

    kubectl.wait(
        look,
        what="the API server has no metrics of prometheus-adapter",
        seconds=120,
        explain=lambda: kubectl("describe", "pods", "-n", namespace),
    )


def stop(kubectl: Kubectl, *, namespace: str) -> None:
    """What is outside of the namespace is gone."""
    kubectl.delete("apiservices.apiregistration.k8s.io", f"v1beta1.{EXTERNAL_METRICS}")
    for thing in (*_services(), *_rights(namespace)):
        metadata = thing["metadata"]
        if metadata.get("namespace") != namespace:
            kubectl.delete(thing["kind"], metadata["name"], namespace=metadata.get("namespace"))
    shutil.rmtree(COPIES, ignore_errors=True)


def _services() -> list[Object]:
    """Headless: a name of each has all the pods, with the port that each has for its metrics."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"{PREFIX}{role}", "namespace": SYSTEM},
            "spec": {
                "clusterIP": "None",
                "selector": labels,
                "publishNotReadyAddresses": True,
                "ports": [{"name": port, "port": 80, "targetPort": port}],
            },
        }
        for role, (port, labels) in SCRAPED.items()
    ]


def _configuration(namespace: str, rules: str) -> Object:
    """As the chart's PodMonitors have it: the label namespace of what is scraped, unless it has one of its own."""
    jobs = [
        {
            "job_name": role,
            "honor_labels": True,
            "scheme": "https",
            "tls_config": {
                "server_name": f"{role}.tdcs.io",
                "ca_file": f"{CERTIFICATES}/ca.crt",
                "cert_file": f"{CERTIFICATES}/tls.crt",
                "key_file": f"{CERTIFICATES}/tls.key",
            },
            "dns_sd_configs": [
                {
                    "names": [f"_{port}._tcp.{PREFIX}{role}.{SYSTEM}.svc.cluster.local"],
                    "type": "SRV",
                    "refresh_interval": "2s",
                }
            ],
            "relabel_configs": [{"target_label": "namespace", "replacement": SYSTEM}],
        }
        for role, (port, _) in SCRAPED.items()
    ]
    configuration = {"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": namespace},
        "data": {"prometheus.yml": yaml.safe_dump(configuration), "adapter.yml": rules},
    }


def _certificate(namespace: str, files: dict[str, str]) -> Object:
    """A copy of Prometheus' certificate, for the namespace that it is in."""
    metadata = {"name": NAME, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": files}


def _rights(namespace: str) -> list[Object]:
    """What the adapter may ask the API server, and the autoscaler the adapter."""
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    name = f"tdcs-e2e-{NAME}"
    adapter = {"kind": "ServiceAccount", "name": NAME, "namespace": namespace}
    autoscaler = {
        "kind": "ServiceAccount",
        "name": "horizontal-pod-autoscaler",
        "namespace": "kube-system",
    }

    def binding(kind: str, suffix: str, role: tuple[str, str], subject: Object, **where: str) -> Object:
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role[0], "name": role[1]}
        metadata = {"name": f"{name}-{suffix}", **where}
        return {**rbac, "kind": kind, "metadata": metadata, "roleRef": reference, "subjects": [subject]}

    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": namespace}},
        {
            **rbac,
            "kind": "ClusterRole",
            "metadata": {"name": f"{name}-reader"},
            "rules": [{"apiGroups": [EXTERNAL_METRICS], "resources": ["*"], "verbs": ["get", "list"]}],
        },
        binding("ClusterRoleBinding", "reader", ("ClusterRole", f"{name}-reader"), autoscaler),
        binding("ClusterRoleBinding", "delegator", ("ClusterRole", "system:auth-delegator"), adapter),
        binding("ClusterRoleBinding", "view", ("ClusterRole", "view"), adapter),
        binding(
            "RoleBinding",
            "authentication",
            ("Role", "extension-apiserver-authentication-reader"),
            adapter,
            namespace="kube-system",
        ),
    ]


def _pod(namespace: str, image: str) -> Object:
    """Both programs; the metrics are gone with it."""
    arguments = {
        PROMETHEUS: [
            "--config.file=/configuration/prometheus.yml",
            "--storage.tsdb.path=/data/metrics",
            f"--web.listen-address=:{PORTS[PROMETHEUS]}",
        ],
        ADAPTER: [
            f"--prometheus-url=http://127.0.0.1:{PORTS[PROMETHEUS]}",
            "--config=/configuration/adapter.yml",
            f"--secure-port={PORTS[ADAPTER]}",
            "--cert-dir=/data/certificates",
            "--metrics-relist-interval=2s",
        ],
    }
    containers = [
        {
            "name": name,
            "image": image,
            "command": [f"/programs/{name}", *words],
            "ports": [{"containerPort": PORTS[name]}],
            "readinessProbe": {"tcpSocket": {"port": PORTS[name]}, "periodSeconds": 1},
            "volumeMounts": [
                {"name": "programs", "mountPath": "/programs", "readOnly": True},
                {"name": "configuration", "mountPath": "/configuration", "readOnly": True},
                {"name": "data", "mountPath": "/data"},
                {"name": "certificate", "mountPath": CERTIFICATES, "readOnly": True},
            ],
        }
        for name, words in arguments.items()
    ]
    programs = f"{cluster.NODE_TRANSFER}/{NAME}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "namespace": namespace, "labels": {"app": NAME}},
        "spec": {
            "serviceAccountName": NAME,
            "terminationGracePeriodSeconds": 1,
            "containers": containers,
            "volumes": [
                {"name": "programs", "hostPath": {"path": programs, "type": "Directory"}},
                {"name": "configuration", "configMap": {"name": NAME}},
                {"name": "data", "emptyDir": {}},
                {"name": "certificate", "secret": {"secretName": NAME}},
            ],
        },
    }


def _service(namespace: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {"selector": {"app": NAME}, "ports": [{"port": 443, "targetPort": PORTS[ADAPTER]}]},
    }
