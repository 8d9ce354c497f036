"""The ground itself: GPUs, DNS, and FUSE mounts that cross from a privileged pod to an unprivileged one."""

from typing import Any

import pytest

from e2e.support.pods import finished, pod
from tdcs_local.kind.kubectl import Kubectl

GPU = "nvidia.com/gpu"


def test_a_pod_that_asks_for_gpus_runs_on_each_worker(
    kubectl: Kubectl, workers: list[str], namespace: str, toolbox: str
) -> None:
    assert len(workers) == 3
    for node in workers:
        kubectl.apply(
            pod(
                f"gpu-{node}",
                image=toolbox,
                script="echo ran",
                namespace=namespace,
                nodeSelector={"kubernetes.io/hostname": node},
                resources={"limits": {GPU: "3"}},
            )
        )
    for node in workers:
        assert finished(kubectl, f"gpu-{node}", namespace) == "ran"


def test_a_pod_that_asks_for_more_gpus_than_a_node_has_stays_pending(
    kubectl: Kubectl, namespace: str, toolbox: str
) -> None:
    kubectl.apply(
        pod("greedy", image=toolbox, script="true", namespace=namespace, resources={"limits": {GPU: "100"}})
    )

    def look() -> str | None:
        pod = kubectl.get("pod", "greedy", namespace=namespace) or {}
        conditions = pod.get("status", {}).get("conditions", [])
        messages = " ".join(condition.get("message", "") for condition in conditions)
        return None if f"Insufficient {GPU}" in messages else "the scheduler has not refused the pod yet"

    kubectl.wait(look, what="the pod was not refused for want of GPUs", seconds=180)


def test_cluster_dns_resolves_services(kubectl: Kubectl, namespace: str, toolbox: str) -> None:
    script = "getent hosts kubernetes.default.svc.cluster.local && getent hosts kube-dns.kube-system.svc"
    kubectl.apply(pod("dns", image=toolbox, script=script, namespace=namespace))
    assert "kubernetes.default.svc.cluster.local" in finished(kubectl, "dns", namespace)


@pytest.fixture
def shared_folder(privileged_namespace: str) -> dict[str, Any]:
    """A host folder in which one pod mounts and another reads, gone with the node's /run."""
    path = f"/run/tdcs-e2e/{privileged_namespace}"
    return {"name": "shared", "hostPath": {"path": path, "type": "DirectoryOrCreate"}}


@pytest.mark.deep(
    "the remote-read client's mount, in every pod that reads through it: e2e/data/test_remote_reads.py"
)
def test_a_fuse_mount_made_by_a_privileged_pod_is_readable_by_an_unprivileged_one(
    kubectl: Kubectl,
    workers: list[str],
    privileged_namespace: str,
    shared_folder: dict[str, Any],
    toolbox: str,
) -> None:
    """bindfs is the FUSE file system; the reader runs as uid 1000 without any capability."""
    namespace, node = privileged_namespace, {"kubernetes.io/hostname": workers[0]}
    mounter = pod(
        "mounter",
        image=toolbox,
        namespace=namespace,
        script=(
            "mkdir -p /source /shared/fuse; head -c 8388608 /dev/urandom > /source/block; chmod 644 /source/block\n"
            "trap 'fusermount3 -u /shared/fuse; exit 0' TERM\n"
            "bindfs -o allow_other /source /shared/fuse\n"
            "sha256sum < /source/block; touch /tmp/ready; sleep infinity & wait"
        ),
        nodeSelector=node,
        volumes=[shared_folder],
        securityContext={},
        container={
            "securityContext": {"privileged": True},
            "readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1},
            "volumeMounts": [{"name": "shared", "mountPath": "/shared", "mountPropagation": "Bidirectional"}],
        },
    )
    mounter["spec"]["terminationGracePeriodSeconds"] = 10
    kubectl.apply(mounter)
    kubectl("wait", "pod/mounter", "-n", namespace, "--for=condition=Ready", "--timeout=110s")
    reader = pod(
        "reader",
        image=toolbox,
        namespace=namespace,
        script="grep ' /data/fuse fuse' /proc/mounts >&2; id -u >&2; sha256sum < /data/fuse/block",
        nodeSelector=node,
        volumes=[shared_folder],
        container={
            "volumeMounts": [
                {
                    "name": "shared",
                    "mountPath": "/data",
                    "mountPropagation": "HostToContainer",
                    "readOnly": True,
                }
            ]
        },
    )
    kubectl.apply(reader)
    read = finished(kubectl, "reader", namespace)
    wrote = kubectl("logs", "mounter", "-n", namespace)
    assert wrote.split()[0] in read
    assert "fuse" in read
