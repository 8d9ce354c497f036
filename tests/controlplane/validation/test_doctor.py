"""`tdcs doctor` asks a real API server what it would answer to a pod, before a job's pods are made."""

from click.testing import CliRunner
from tests.support.controlplane import ControlPlane
from tests.support.kube import Kube

from tdcs.cli.main import main


def test_a_level_of_pod_security_that_refuses_a_plain_pod_is_told_before_pods_are_made(
    installed: Kube, namespace: str, shared_control_plane: ControlPlane
) -> None:
    def doctor() -> str:
        argv = ["doctor", "-n", namespace, "--kubeconfig", str(shared_control_plane.kubeconfig)]
        return CliRunner().invoke(main, argv, catch_exceptions=False).output

    assert "a plain pod would be refused" not in doctor()
    enforced = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    installed.patch("Namespace", namespace, enforced)
    told = doctor()
    assert "note: a plain pod would be refused" in told
    assert "violates PodSecurity" in told
    assert not installed.list("Pod", namespace=namespace)
