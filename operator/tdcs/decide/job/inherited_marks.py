"""Labels and annotations of a TrainingJob that its children do not get: those that are about the job itself.

Tools that apply objects label them, and prune labelled objects that are no longer declared. A child with such a label
would be pruned. The label of Kueue's queue is left out too: each role's Job would be queued separately.
"""

from typing import Final

from tdcs.api import names

DOMAINS: Final = frozenset(
    {
        names.GROUP,
        "addonmanager.kubernetes.io",  # Kubernetes' add-on manager, which prunes by it
        "applyset.kubernetes.io",  # kubectl apply --prune
        "argoproj.io",
        "carvel.dev",
        "cattle.io",  # Rancher, Fleet, k3s
        "cli-utils.sigs.k8s.io",  # kpt, kustomize's inventories
        "cluster.x-k8s.io",
        "clusterconfig.azure.com",
        "config.k8s.io",
        "config.kubernetes.io",  # kustomize
        "configmanagement.gke.io",  # Config Sync
        "configsync.gke.io",
        "crossplane.io",
        "fluxcd.io",
        "garden.io",
        "gitops.weave.works",
        "harness.io",
        "helm.sh",
        "k0sproject.io",  # k0s' manifests
        "k14s.io",  # kapp
        "karmada.io",
        "kluctl.io",
        "kots.io",
        "kpt.dev",
        "ksonnet.io",  # kubecfg
        "kubectl.kubernetes.io",
        "kueue.x-k8s.io",
        "kustomize.config.k8s.io",
        "oam.dev",  # KubeVela
        "olm.operatorframework.io",
        "open-cluster-management.io",
        "operators.coreos.com",  # OLM
        "pulumi.com",
        "razee.io",
        "skaffold.dev",
        "spinnaker.io",
        "tanka.dev",
        "velero.io",
        "werf.io",
    }
)
"""Domains of such labels and annotations, with their subdomains."""

MARKS: Final = frozenset(
    {
        "app.kubernetes.io/instance",  # Argo CD, unless it is told otherwise
        "app.kubernetes.io/managed-by",
        *("olm.managed", "olm.owner", "olm.owner.kind", "olm.owner.namespace"),
    }
)
"""Such labels and annotations outside a tool's own domain."""


def is_about_itself(key: str) -> bool:
    """Whether a label or annotation is about the TrainingJob itself, and not about its pods."""
    domain = key.partition("/")[0] if "/" in key else ""
    steps = domain.split(".")
    return key in MARKS or any(".".join(steps[start:]) in DOMAINS for start in range(len(steps)))
