"""`tdcs doctor` says what a user, a namespace and a cluster lack, and what to do."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.kube.api_stand_in import ApiStandIn

from tdcs.cli.checkup import IN_CLUSTER, IN_NAMESPACE, Checked, checkup
from tdcs.cli.main import main
from tdcs.cli.webhook_checkup import Webhooks

NOW = "2026-01-01T00:10:00Z"
KEYS = frozenset({"accessKeyId", "secretAccessKey"})
HOLDER_LABELS = {"app.kubernetes.io/component": "reader-holder"}
READY = {"type": "Ready", "status": "True", "message": "3 of 3 cache workers are registered"}


def node(name: str, *, gpus: int = 4, kernel: str = "6.8.0-40-generic", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": spec,
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}, "nodeInfo": {"kernelVersion": kernel}},
    }


def holder(on: str, **status: Any) -> dict[str, Any]:
    """The pod that holds a node's FUSE session."""
    status = status or {"state": {"running": {}}}
    return {
        "metadata": {"name": f"tdcs-reader-holder-{on}", "namespace": "tdcs-system", "labels": HOLDER_LABELS},
        "spec": {"nodeName": on},
        "status": {"containerStatuses": [{"name": "holder", **status}]},
    }


NO_FUSE = "[Errno 2] No such file or directory: '/dev/fuse'"
DATASET = {
    "metadata": {"name": "pictures", "namespace": "team"},
    "spec": {"source": {"uri": "s3://pictures", "secretRef": {"name": "keys"}}},
}
WELL = Checked(
    namespace="team",
    now=NOW,
    rights=dict.fromkeys((*IN_NAMESPACE, *IN_CLUSTER), True),
    home={"metadata": {"name": "team"}},
    datasets=[DATASET],
    secrets={"keys": KEYS},
    quotas=[],
    clusters=[{"metadata": {"name": "default"}, "status": {"conditions": [READY]}}],
    nodes=[node("a"), node("b")],
    drivers=frozenset("ab"),
    lease={"spec": {"renewTime": NOW}},
    plugins=[holder("a"), holder("b")],
    webhooks=Webhooks(configurations=[], services=[]),
)


def test_where_all_is_well_nothing_lacks() -> None:
    assert {remark.state for remark in checkup(WELL)} == {"ok"}


def quota(**used: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "team"},
        "status": {"hard": {"requests.nvidia.com/gpu": "8", "pods": "20"}, "used": used},
    }


def with_condition(obj: dict[str, Any], **condition: str) -> dict[str, Any]:
    return {**obj, "status": {"state": "Pending", "conditions": [READY, condition]}}


def refused_job(reason: str) -> dict[str, Any]:
    status = {"state": "Starting", "reason": reason, "message": "violates PodSecurity baseline: hostPath"}
    return {"metadata": {"name": "train"}, "status": status}


STUCK_PLUGIN = {
    "metadata": {"name": "tdcs-csi-b", "namespace": "tdcs-system"},
    "spec": {"nodeName": "b"},
    "status": {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "csi",
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}},
                "lastState": {
                    "terminated": {
                        "exitCode": 1,
                        "reason": "Error",
                        "message": "there is no /dev/fuse on this node",
                    }
                },
            }
        ],
    },
}

LACKS: dict[str, tuple[dict[str, Any], str]] = {
    "a right": (
        {"rights": {**WELL.rights, ("create", "trainingjobs"): False}},
        (
            "you may not create trainingjobs in namespace team: an administrator runs kubectl create rolebinding NAME "
            "-n team --clusterrole=tdcs-edit"
        ),
    ),
    "the namespace": ({"is_there": False}, "there is no namespace team: kubectl create namespace team"),
    "a namespace that stays": (
        {"home": {"metadata": {"name": "team", "deletionTimestamp": NOW}}},
        "namespace team is being deleted",
    ),
    "a Secret": ({"secrets": {"keys": None}}, "there is no Secret keys, which Dataset pictures names"),
    "a key": (
        {"secrets": {"keys": frozenset({"accessKeyId"})}},
        "secretAccessKey is missing in Secret keys, which Dataset pictures names",
    ),
    "the right to read logs": (
        {"rights": {**WELL.rights, ("get", "pods/log"): False}},
        "you may not get pods/log in namespace team",
    ),
    "a webhook that is away": (
        {"pod_refusal": 'create pods: 500: failed calling webhook "pods.policy.io": connection refused'},
        "a webhook keeps pods from being made: create pods: 500: failed calling webhook",
    ),
    "/dev/fuse on a node": (
        {"drivers": frozenset("a"), "plugins": [STUCK_PLUGIN]},
        "so no pod there can mount a Dataset (on b: there is no /dev/fuse on this node): see kubectl",
    ),
    "FUSE where the driver works": (
        {
            "plugins": [
                holder("a"),
                holder("b", state={"waiting": {}}, lastState={"terminated": {"message": NO_FUSE}}),
            ]
        },
        "1 node (b) has no working file system of TDCS, so pods there read nothing from other nodes (on b: ",
    ),
    "a holder of FUSE sessions": (
        {"plugins": [holder("a")]},
        "1 node (b) has no working file system of TDCS",
    ),
    "a binding": (
        {
            "datasets": [
                with_condition(
                    DATASET,
                    type="SourceReachable",
                    status="False",
                    reason="SecretForbidden",
                    message="the operator may not read Secret keys: kubectl create rolebinding",
                )
            ]
        },
        "Dataset pictures: the operator may not read Secret keys: kubectl create rolebinding",
    ),
    "a Pod Security level that takes the pods": (
        {"jobs": [refused_job("FailedCreate"), refused_job("PodsStarting")]},
        "pods of TrainingJob train are refused: violates PodSecurity baseline: hostPath",
    ),
    "certificates": (
        {
            "clusters": [
                with_condition(
                    {"metadata": {"name": "default"}},
                    type="Trusted",
                    status="False",
                    reason="CertificatesNotReady",
                    message="the authority is away",
                )
            ]
        },
        "CacheCluster default: the authority is away",
    ),
    "quota": (
        {"quotas": [quota(**{"requests.nvidia.com/gpu": "8", "pods": "3"})]},
        "ResourceQuota team is used up: requests.nvidia.com/gpu",
    ),
    "TDCS": ({"installed": False}, "it does not know TrainingJobs: helm install"),
    "an operator": (
        {"lease": {"spec": {"renewTime": "2026-01-01T00:00:00Z"}}},
        "no operator works: none has renewed Lease tdcs-system/tdcs-operator for 10 min",
    ),
    "a CacheCluster": ({"clusters": []}, "there is no CacheCluster"),
    "a ready CacheCluster": (
        {"clusters": [{"metadata": {"name": "default"}, "status": {}}]},
        "CacheCluster default is not ready: the operator has not looked at it yet",
    ),
    "a node plugin": (
        {
            "nodes": [node("a", taints=[{"key": "gpu", "effect": "NoSchedule"}]), node("b")],
            "drivers": frozenset("b"),
        },
        (
            "1 node with GPUs (a) has no node plugin of TDCS, so no pod there can mount a Dataset; they have the "
            "taints gpu:NoSchedule"
        ),
    ),
}


@pytest.mark.parametrize("case", LACKS)
def test_what_lacks_is_named_with_what_to_do(case: str) -> None:
    changes, sentence = LACKS[case]
    texts = [remark.text for remark in checkup(replace(WELL, **changes)) if remark.state == "lacks"]
    assert len(texts) == 1
    assert sentence in texts[0]


NOTES: dict[str, tuple[dict[str, Any], str, str]] = {
    "what a plain pod would be refused for": (
        {"pod_refusal": "create pods: 403: violates PodSecurity restricted: runAsNonRoot"},
        "note",
        "a plain pod would be refused: create pods: 403: violates PodSecurity restricted: runAsNonRoot; write the",
    ),
    "pods of the node plugin that may not be listed": (
        {"plugins": None},
        "unknown",
        "which nodes have FUSE is unknown: you may not list pods in tdcs-system",
    ),
    "webhooks that may not be listed": (
        {"webhooks": Webhooks()},
        "unknown",
        "whether webhooks answer is unknown: you may not list mutatingwebhookconfigurations",
    ),
    "the cluster is not seen": (
        {"rights": {**WELL.rights, ("list", "nodes"): False}, "nodes": None, "drivers": None},
        "note",
        "you may not list nodes, so commands show less of the cluster",
    ),
    "an old kernel": (
        {"nodes": [node("a", kernel="5.15.0-1"), node("b")]},
        "note",
        "the kernel of a is older than 6.5",
    ),
    "no GPUs": ({"nodes": [node("a", gpus=0)]}, "note", "no node has GPUs"),
    "a strict level": (
        {"home": {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}},
        "note",
        "templates need runAsNonRoot",
    ),
    "Secrets that may not be made": (
        {"rights": {**WELL.rights, ("create", "secrets"): False}},
        "note",
        "you may not create secrets in namespace team: let somebody with this right create those that Datasets name",
    ),
    "Secrets that may not be read": (
        {"secrets": None},
        "unknown",
        "whether Secret keys has its keys is unknown: you may not read Secrets",
    ),
}


@pytest.mark.parametrize("case", NOTES)
def test_what_cannot_be_seen_or_works_otherwise_is_no_fault(case: str) -> None:
    changes, state, sentence = NOTES[case]
    remarks = checkup(replace(WELL, **changes))
    assert [remark for remark in remarks if remark.state == state and sentence in remark.text]
    assert not [remark for remark in remarks if remark.state == "lacks"]


def test_what_the_operator_says_of_a_secret_is_known_to_who_may_not_read_it() -> None:
    message = "Secret keys has no usable value under the key accessKeyId: add it"
    lacking = with_condition(
        DATASET, type="SourceReachable", status="False", reason="SecretIncomplete", message=message
    )
    lacking["status"] |= {"state": "Failed", "message": message}
    remarks = checkup(replace(WELL, secrets=None, datasets=[lacking]))
    assert [remark for remark in remarks if remark.state == "lacks" and "accessKeyId" in remark.text]
    assert not [remark for remark in remarks if remark.state == "unknown"]
    serving = with_condition(DATASET, type="SourceReachable", status="True", reason="Reachable")
    assert {remark.state for remark in checkup(replace(WELL, secrets=None, datasets=[serving]))} == {"ok"}


def test_the_command_ends_with_1_where_something_lacks_and_reads_with_the_users_rights(
    tmp_path: Path,
) -> None:
    with ApiStandIn(
        {"datasets": [DATASET], "secrets": [], "cacheclusters": []},
        forbidden=frozenset({"nodes", "csinodes", "resourcequotas"}),
    ) as api:
        result = CliRunner().invoke(
            main, ["doctor", "-n", "team", "--kubeconfig", str(api.kubeconfig(tmp_path))]
        )
    assert result.exit_code == 1, result.output
    assert "lacks: there is no CacheCluster" in result.output
    assert "lacks: there is no Secret keys, which Dataset pictures names" in result.output
    assert "note: you may not list nodes, so commands show less of the cluster" in result.output
    assert "unknown: nodes may not be listed" in result.output


@pytest.mark.parametrize(
    ("user", "option"),
    [
        ("system:serviceaccount:default:alice", "--serviceaccount=default:alice"),
        ("alice@example.com", "--user=alice@example.com"),
        ("Alice of the lab", "--user='Alice of the lab'"),
        ("", "--user=YOU"),
    ],
)
def test_the_commands_for_an_administrator_name_who_asks(user: str, option: str, tmp_path: Path) -> None:
    with ApiStandIn(
        {"datasets": [], "cacheclusters": []}, forbidden=frozenset({"secrets", "nodes"}), user=user
    ) as api:
        argv = ["doctor", "-n", "team", "--kubeconfig", str(api.kubeconfig(tmp_path))]
        output = CliRunner().invoke(main, argv).output
    assert f"kubectl create rolebinding NAME -n team --clusterrole=edit {option}\n" in output
    assert f"kubectl create clusterrolebinding NAME --clusterrole=tdcs-cluster-view {option}\n" in output


def test_a_job_is_explained_to_who_may_not_list_pods(tmp_path: Path) -> None:
    job = {
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {
            "replicaSpecs": [
                {"name": "Worker", "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
            ]
        },
        "status": {"state": "Running", "message": "1 of 1 pods runs"},
    }
    with ApiStandIn({"trainingjobs": [job]}, forbidden=frozenset({"pods", "nodes"})) as api:
        result = CliRunner().invoke(
            main, ["explain", "job", "train", "-n", "team", "--kubeconfig", str(api.kubeconfig(tmp_path))]
        )
    assert result.exit_code == 0, result.output
    assert "you may not list pods in its namespace" in result.output
