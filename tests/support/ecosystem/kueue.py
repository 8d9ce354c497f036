"""The real Kueue next to a control plane."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from tests.support.controlplane import ControlPlane
from tests.support.ecosystem.go_modules import module_folder
from tests.support.ecosystem.manager import Manager
from tests.support.kube import Object

from tdcs.trust.roles import Role

KUEUE_API = "kueue.x-k8s.io/v1beta2"

METRICS_CERTIFICATES = "kueue/metrics/certs"
"""Below /etc, where its manager wants a certificate, also when it serves no metrics."""


def with_files_in_etc(layer: Path) -> list[str]:
    """What runs a program that sees the files of a folder in /etc, and no other process does."""
    mount = 'mount -t overlay overlay -o "lowerdir=$1:/etc" /etc && shift && exec "$@"'
    root = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *root, "--mount", "sh", "-c", mount, "sh", str(layer)]


def kueue_definitions() -> Path:
    """The folder with the CustomResourceDefinitions of the Kueue that go.mod names; a test without it is skipped."""
    return module_folder(KueueManager.program, module=KueueManager.module) / KueueManager.definitions


class KueueManager(Manager):
    """Kueue's manager, for the Jobs of some namespaces and the TrainingJobs.

    Args:
        plane: next to which it runs.
        folder: for its configuration and its certificate.
    """

    program: ClassVar[str] = "kueue"
    module: ClassVar[str] = "sigs.k8s.io/kueue"
    definitions: ClassVar[str] = "config/components/crd/bases"
    webhooks: ClassVar[str] = "config/components/webhook/manifests.yaml"
    groups: ClassVar[frozenset[str]] = frozenset({"kueue.x-k8s.io", "batch"})

    def __init__(self, plane: ControlPlane, *, folder: Path) -> None:
        super().__init__(plane, folder=folder)
        self._etc = folder / "etc"

    def settings(self, *, health: str, port: int, certificates: Path) -> Object:
        """Its own defaults, but for what needs no cluster; and it follows TAS by the nodes that pods prefer."""
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": "kueue-system",
            "health": {"healthProbeBindAddress": health},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(certificates)},
            "internalCertManagement": {"enable": False},
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"qps": 300, "burst": 500},
            "featureGates": {"VisibilityOnDemand": False, "TASRespectNodeAffinityPreferred": True},
            "integrations": {
                "frameworks": ["batch/job"],
                "externalFrameworks": ["TrainingJob.v1alpha2.tdcs.io"],
            },
        }

    def command(self, config: Path) -> list[str]:
        """It sees a certificate for its metrics in /etc."""
        self._authority.folder(self._etc / METRICS_CERTIFICATES, Role.OPERATOR)
        return [*with_files_in_etc(self._etc), *super().command(config)]
