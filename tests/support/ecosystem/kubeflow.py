"""The real JobSet and the real Kubeflow Trainer next to a control plane: a TrainJob ends in the pods of a JobSet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from tests.support.ecosystem.manager import Manager
from tests.support.kube import Object


class JobSetManager(Manager):
    """JobSet's manager. Its webhooks for pods serve JobSets with an exclusive topology, and are left out."""

    program: ClassVar[str] = "jobset"
    module: ClassVar[str] = "sigs.k8s.io/jobset"
    definitions: ClassVar[str] = "config/components/crd/bases"
    webhooks: ClassVar[str] = "config/components/webhook/manifests.yaml"
    groups: ClassVar[frozenset[str]] = frozenset({"jobset.x-k8s.io"})

    def settings(self, *, health: str, port: int, certificates: Path) -> Object:
        """Its own defaults, but for what needs no cluster."""
        return {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": health},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(certificates)},
            "internalCertManagement": {"enable": False},
            "leaderElection": {"leaderElect": False},
        }


class TrainerManager(Manager):
    """The manager of Kubeflow Trainer, which needs JobSet's."""

    program: ClassVar[str] = "trainer"
    module: ClassVar[str] = "github.com/kubeflow/trainer/v2"
    definitions: ClassVar[str] = "manifests/base/crds"
    webhooks: ClassVar[str] = "manifests/base/webhook/manifests.yaml"
    groups: ClassVar[frozenset[str]] = frozenset({"trainer.kubeflow.org"})

    def settings(self, *, health: str, port: int, certificates: Path) -> Object:
        """Its own defaults, but for what needs no cluster."""
        del certificates  # it has no setting for them, see `environment`
        return {
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": health},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": port},
            "certManagement": {"enable": False},
        }

    def environment(self, *, certificates: Path) -> Mapping[str, str]:
        """It looks for its certificate in k8s-webhook-server/serving-certs of the folder for temporary files."""
        return {"TMPDIR": str(certificates.parents[1])}
