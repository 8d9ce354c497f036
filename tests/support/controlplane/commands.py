"""The command lines of the control plane's programs, and the scheduler's configuration. Pure.

Everything listens on 127.0.0.1 only, or on ::1. What is switched off is off because the
cluster is thrown away after the run (fsync), has one copy of each part (leader
election) or gets bursts that no production cluster would allow (request limits).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.controlplane.binaries import Binaries
from tests.support.controlplane.pki import FRONT_PROXY_USER, SERVICE_IPS, SERVICE_IPS_OF_IPV6, Pki

from tdcs.listening import at as host_and_port

ETCD, API, MANAGER, SCHEDULER, KWOK = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
)
CLIENT_QPS = 1000
GO_ENVIRONMENT = {"GOGC": "300"}
"""Less garbage collection for more memory: a fifth of the processor time of a burst."""


@dataclass(frozen=True, kw_only=True)
class Ports:
    """TCP ports on loopback."""

    etcd: int
    etcd_peer: int
    api: int
    manager: int
    scheduler: int
    kwok: int


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a control plane differs from the default one.

    ``scheduler_config``: a KubeSchedulerConfiguration without its clientConnection and
    leaderElection, which are filled in. ``feature_gates`` go to API server, manager and
    scheduler. ``extra_args``: more flags by program name; a later flag wins over an
    earlier one of the same name. ``host``: the loopback address on which all listen;
    with ::1 Services and pods have addresses of IPv6, too.
    """

    scheduler_config: Mapping[str, Any] = field(default_factory=dict)
    kwok: bool = True
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    extra_args: Mapping[str, Sequence[str]] = field(default_factory=dict)
    host: str = "127.0.0.1"

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.host


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Everything that the command lines are made of."""

    folder: Path
    ports: Ports
    pki: Pki
    binaries: Binaries
    options: Options

    def address(self, port: int) -> str:
        """HOST:PORT, as URLs have it."""
        return host_and_port(self.options.host, port)

    @property
    def api_url(self) -> str:
        return f"https://{self.address(self.ports.api)}"

    @property
    def etcd_url(self) -> str:
        return f"http://{self.address(self.ports.etcd)}"

    @property
    def audit_policy(self) -> Path:
        return self.folder / "audit-policy.json"

    @property
    def audit_log(self) -> Path:
        return self.folder / "logs" / "audit.jsonl"

    @property
    def accounts(self) -> Path:
        """The folder with the kubeconfigs of service accounts."""
        return self.folder / "accounts"

    def kubeconfig(self, user: str) -> Path:
        """Path of the kubeconfig of a user of this control plane."""
        return self.folder / f"{user}.kubeconfig"

    def _more(self, program: str, *, gates: bool = True) -> list[str]:
        chosen = ",".join(f"{name}={str(on).lower()}" for name, on in self.options.feature_gates.items())
        feature_gates = [f"--feature-gates={chosen}"] if gates and chosen else []
        return [*feature_gates, *self.options.extra_args.get(program, ())]


def etcd(at: Layout) -> list[str]:
    """etcd: plain HTTP, loopback only."""
    peer = f"http://{at.address(at.ports.etcd_peer)}"
    return [
        str(at.binaries.etcd),
        "--name=test",
        f"--data-dir={at.folder / 'data' / 'etcd'}",
        f"--listen-client-urls={at.etcd_url}",
        f"--advertise-client-urls={at.etcd_url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=test={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        *at._more(ETCD, gates=False),
    ]


def kube_apiserver(at: Layout) -> list[str]:
    """kube-apiserver, with RBAC, service account tokens and the aggregation layer."""
    pki = at.pki
    return [
        str(at.binaries.kube_apiserver),
        f"--etcd-servers={at.etcd_url}",
        f"--bind-address={at.options.host}",
        f"--secure-port={at.ports.api}",
        # The Endpoints object of the service "kubernetes" may not hold a loopback address: write none.
        f"--advertise-address={at.options.host}",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={pki.server}",
        f"--tls-private-key-file={pki.server_key}",
        f"--client-ca-file={pki.ca}",
        "--authorization-mode=Node,RBAC",
        # On by default in OpenShift: who names an owner whose deletion waits needs a right to its finalizers.
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki.service_account_public}",
        f"--service-account-signing-key-file={pki.service_account_key}",
        f"--requestheader-client-ca-file={pki.front_proxy_ca}",
        f"--requestheader-allowed-names={FRONT_PROXY_USER}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki.front_proxy}",
        f"--proxy-client-key-file={pki.front_proxy_key}",
        f"--service-cluster-ip-range={SERVICE_IPS_OF_IPV6 if at.options.is_ipv6 else SERVICE_IPS}",
        "--allow-privileged=true",
        f"--audit-policy-file={at.audit_policy}",
        f"--audit-log-path={at.audit_log}",
        # With request limits a burst from the scheduler is answered 429, and the test measures those.
        "--enable-priority-and-fairness=false",
        "--max-requests-inflight=0",
        "--max-mutating-requests-inflight=0",
        *at._more(API),
    ]


def kube_controller_manager(at: Layout) -> list[str]:
    """kube-controller-manager with its default controllers."""
    kubeconfig = at.kubeconfig(MANAGER)
    pki = at.pki
    return [
        str(at.binaries.kube_controller_manager),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={at.options.host}",
        f"--secure-port={at.ports.manager}",
        f"--tls-cert-file={pki.server}",
        f"--tls-private-key-file={pki.server_key}",
        "--leader-elect=false",
        f"--root-ca-file={pki.ca}",
        f"--service-account-private-key-file={pki.service_account_key}",
        f"--cluster-signing-cert-file={pki.ca}",
        f"--cluster-signing-key-file={pki.ca_key}",
        "--use-service-account-credentials=true",
        f"--kube-api-qps={CLIENT_QPS}",
        f"--kube-api-burst={2 * CLIENT_QPS}",
        # Writes a hint for kubelets to every node, again and again while their number grows.
        "--controllers=*,-ttl-controller",
        # A busy machine must not turn nodes unreachable under a test.
        "--node-monitor-grace-period=1h",
        "--horizontal-pod-autoscaler-sync-period=2s",
        *at._more(MANAGER),
    ]


def kube_scheduler(at: Layout, *, config: Path, port: int) -> list[str]:
    """kube-scheduler with a configuration file written from ``scheduler_config``."""
    kubeconfig = at.kubeconfig(SCHEDULER)
    return [
        str(at.binaries.kube_scheduler),
        f"--config={config}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics",
        f"--bind-address={at.options.host}",
        f"--secure-port={port}",
        f"--tls-cert-file={at.pki.server}",
        f"--tls-private-key-file={at.pki.server_key}",
        *at._more(SCHEDULER),
    ]


def kwok(at: Layout, *, stages: Path) -> list[str]:
    """KWOK, playing the nodes that carry its annotation."""
    return [
        str(at.binaries.kwok),
        f"--kubeconfig={at.kubeconfig(KWOK)}",
        f"--config={stages}",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        # Renewals of a thousand leases are load that tells a test nothing.
        "--node-lease-duration-seconds=600",
        f"--cidr={'fd00:10::/64' if at.options.is_ipv6 else '10.0.0.0/16'}",
        f"--node-ip={'fd00:10::1' if at.options.is_ipv6 else '10.0.0.1'}",
        f"--server-address={at.address(at.ports.kwok)}",
        *at._more(KWOK, gates=False),
    ]


def scheduler_config(config: Mapping[str, Any], *, kubeconfig: Path) -> dict[str, Any]:
    """A complete KubeSchedulerConfiguration from one without connection and leader election."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        **config,
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": CLIENT_QPS, "burst": 2 * CLIENT_QPS},
        "leaderElection": {"leaderElect": False},
    }
