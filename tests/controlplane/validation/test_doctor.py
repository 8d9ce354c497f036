"""`tdcs doctor` asks a real API server what it would answer to a pod, before a job's pods are made."""

from click.testing import CliRunner
from tests.support.controlplane import ControlPlane
from tests.support.kube import Kube
from tests.support.waiting import eventually

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
    output = doctor()
    assert "note: a plain pod would be refused" in output
    assert "violates PodSecurity" in output
    assert not installed.list("Pod", namespace=namespace)


def test_the_operators_right_to_act_as_an_account_is_asked_before_a_dataset_is_read_as_it(
    installed: Kube, namespace: str, shared_control_plane: ControlPlane
) -> None:
    def doctor() -> str:
        argv = ["doctor", "-n", namespace, "--kubeconfig", str(shared_control_plane.kubeconfig)]
        return CliRunner().invoke(main, argv, catch_exceptions=False).output

    source = {"uri": "s3://pictures", "serviceAccountName": "reader"}
    installed.create(
        {
            "apiVersion": "tdcs.io/v1alpha2",
            "kind": "Dataset",
            "metadata": {"name": "pictures", "namespace": namespace},
            "spec": {"source": source},
        }
    )
    assert "lacks: there is no ServiceAccount reader, which Dataset pictures names" in doctor()

    place = {"name": "reader", "namespace": namespace}
    role = {"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/reader"}
    installed.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**place, "annotations": role}}
    )
    output = doctor()
    assert "lacks: the operator may not read and create tokens of ServiceAccount reader" in output

    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resourceNames": ["reader"], "resources": ["serviceaccounts"], "verbs": ["get"]},
        {
            "apiGroups": [""],
            "resourceNames": ["reader"],
            "resources": ["serviceaccounts/token"],
            "verbs": ["create"],
        },
    ]
    installed.create({"apiVersion": f"{group}/v1", "kind": "Role", "metadata": place, "rules": rules})
    installed.create(
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": place,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "tdcs-operator", "namespace": "tdcs-system"}],
        }
    )
    eventually(lambda: "ServiceAccount reader" not in doctor(), deadline=30)
    assert "each with its Secret or ServiceAccount" in doctor()
