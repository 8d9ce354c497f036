"""The installed chart proves itself: `helm test` runs a tiny job through operator, scheduler and kubelet."""

from tdcs_local import release
from tdcs_local.kubectl import Kubectl


def test_helm_test_runs_a_real_job_and_leaves_none_behind(tdcs: None, kubectl: Kubectl) -> None:
    told = release.helm_test(kubectl=kubectl)
    assert "succeeded on " in told
    assert kubectl.list("trainingjobs.tdcs.io", namespace=release.NAMESPACE) == []
