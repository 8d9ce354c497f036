"""Which labels and annotations of a TrainingJob its children get."""

import pytest

from tdcs.api import names
from tdcs.decide.job.inherited_marks import is_about_itself


@pytest.mark.parametrize(
    "key",
    [
        "kubectl.kubernetes.io/last-applied-configuration",
        "argocd.argoproj.io/tracking-id",
        "kustomize.toolkit.fluxcd.io/name",
        "meta.helm.sh/release-name",
        "kueue.x-k8s.io/queue-name",
        "app.kubernetes.io/instance",
        "olm.owner",
        f"{names.GROUP}/ended",
    ],
)
def test_marks_by_which_tools_prune_stay_with_the_job(key: str) -> None:
    assert is_about_itself(key)


@pytest.mark.parametrize(
    "key",
    [
        "team",
        "app.kubernetes.io/name",
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
        "myhelm.sh/team",
        "prometheus.io/scrape",
        "sidecar.istio.io/inject",
        "helm.sh.example.com/team",
    ],
)
def test_labels_that_select_bill_or_mutate_reach_the_pods(key: str) -> None:
    assert not is_about_itself(key)
