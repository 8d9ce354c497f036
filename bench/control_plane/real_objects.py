"""Nodes, pods and ended TrainingJobs as an API server of a GPU cluster sends them, one JSON text each.

Their parts are those of real ones: a node names 50 images, carries the labels of the GPU operator's feature discovery
and five conditions; a pod has its environment, volumes and tolerations; all have the record of who wrote which field,
and what `kubectl apply` last saw.
"""

import json
from collections.abc import Callable
from typing import Any

MADE = "2026-01-01T00:00:00Z"
PODS_OF_A_JOB = 100
NODES = 5000

_NUMBER, _OTHER, _THIRD = "1000001", "2000002", "3000003"
"""Stand for the numbers of an object, of its owner, and of its node in the templates."""


def _fields(count: int) -> dict[str, Any]:
    fields: dict[str, Any] = {
        f'k:{{"name":"FIELD_{number}"}}': {".": {}, "f:name": {}, "f:value": {}} for number in range(count)
    }
    return {"f:metadata": {"f:annotations": {".": {}}, "f:labels": {".": {}}}, "f:spec": {"f:each": fields}}


def _managed(*managers: str, count: int) -> list[dict[str, Any]]:
    return [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": MADE,
            "fieldsType": "FieldsV1",
            "fieldsV1": _fields(count),
        }
        for manager in managers
    ]


def _conditions(*kinds: str) -> list[dict[str, Any]]:
    return [
        {
            "type": kind,
            "status": "True",
            "reason": f"{kind}AsItShall",
            "message": f"what is said of {kind} in a sentence of usual length, by whoever watches over it",
            "lastHeartbeatTime": MADE,
            "lastTransitionTime": MADE,
        }
        for kind in kinds
    ]


def _node() -> dict[str, Any]:
    name = f"gpu-node-{_NUMBER}.cluster.example.com"
    features = {f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{number}": "true" for number in range(40)}
    gpus = {f"nvidia.com/gpu.property-{number}": f"value-{number}" for number in range(25)}
    sizes = {
        "cpu": "128",
        "memory": "1056463964Ki",
        "pods": "110",
        "nvidia.com/gpu": "8",
        "ephemeral-storage": "3650656984Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
    }
    return {
        "metadata": {
            "name": name,
            "uid": f"5d1f5bb4-0000-4000-8000-00000{_NUMBER}",
            "resourceVersion": _NUMBER,
            "creationTimestamp": MADE,
            "labels": {
                "kubernetes.io/hostname": name,
                "topology.kubernetes.io/zone": "zone-a",
                "kubernetes.io/arch": "amd64",
                **features,
                **gpus,
            },
            "annotations": {
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                "csi.volume.kubernetes.io/nodeid": json.dumps({"csi.tdcs.io": name}),
                "nfd.node.kubernetes.io/feature-labels": ",".join(features),
            },
            "managedFields": _managed("kubelet", "kube-controller-manager", "nfd-master", count=25),
        },
        "spec": {
            "podCIDR": "10.1.2.0/24",
            "podCIDRs": ["10.1.2.0/24"],
            "providerID": f"cloud:///zone-a/i-{_NUMBER}",
            "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
        },
        "status": {
            "capacity": sizes,
            "allocatable": sizes,
            "addresses": [
                {"type": "InternalIP", "address": f"10.2.{_NUMBER}"},
                {"type": "Hostname", "address": name},
            ],
            "conditions": _conditions(
                "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "Ready"
            ),
            "images": [
                {
                    "names": [
                        f"registry.example.com/team/image-{number}@sha256:{number:064x}",
                        f"registry.example.com/team/image-{number}:v1.{number}",
                    ],
                    "sizeBytes": 1_000_000_000 + number,
                }
                for number in range(50)
            ],
            "nodeInfo": {"kernelVersion": "6.8.0", "kubeletVersion": "v1.33.1", "machineID": "0" * 32},
            "volumesInUse": [f"kubernetes.io/csi/csi.tdcs.io^{number:064x}" for number in range(10)],
        },
    }


def _container(name: str) -> dict[str, Any]:
    sizes = {"cpu": "12", "memory": "120Gi", "nvidia.com/gpu": "1"}
    return {
        "name": name,
        "image": "registry.example.com/team/train:v1.2.3",
        "command": ["torchrun", "--nnodes=100", "train.py"],
        "env": [{"name": f"VARIABLE_{number}", "value": "x" * 60} for number in range(60)],
        "resources": {"limits": sizes, "requests": sizes},
        "volumeMounts": [{"name": f"volume-{number}", "mountPath": f"/data/{number}"} for number in range(8)],
    }


def _pod() -> dict[str, Any]:
    volumes = [{"name": f"volume-{number}", "configMap": {"name": f"config-{number}"}} for number in range(7)]
    owner = f"9c1f5bb4-0000-4000-8000-00000{_OTHER}"
    return {
        "metadata": {
            "name": f"train-{_OTHER}-worker-{_NUMBER}-abcde",
            "generateName": f"train-{_OTHER}-worker-",
            "namespace": "team-a",
            "uid": f"7d1f5bb4-0000-4000-8000-00000{_NUMBER}",
            "resourceVersion": _NUMBER,
            "creationTimestamp": MADE,
            "labels": {
                "tdcs.io/training-job": f"train-{_OTHER}",
                "tdcs.io/role": "worker",
                "batch.kubernetes.io/job-name": f"train-{_OTHER}-worker",
                "batch.kubernetes.io/controller-uid": owner,
            },
            "annotations": {
                "batch.kubernetes.io/job-completion-index": _NUMBER,
                "k8s.v1.cni.cncf.io/network-status": "x" * 600,
            },
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": f"train-{_OTHER}-worker",
                    "uid": owner,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": _managed("kube-controller-manager", "kubelet", count=75),
        },
        "spec": {
            "nodeName": f"gpu-node-{_THIRD}.cluster.example.com",
            "schedulerName": "tdcs-scheduler",
            "containers": [_container("main")],
            "volumes": [*volumes, {"name": "data", "persistentVolumeClaim": {"claimName": "imagenet"}}],
            "tolerations": [{"key": f"taint-{number}", "operator": "Exists"} for number in range(6)],
        },
        "status": {
            "phase": "Running",
            "podIP": f"10.3.{_NUMBER}",
            "podIPs": [{"ip": f"fd00::{_NUMBER}"}],
            "hostIP": "10.2.0.1",
            "startTime": MADE,
            "conditions": [
                {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": MADE}
                for kind in (
                    "PodReadyToStartContainers",
                    *("Initialized", "Ready", "ContainersReady", "PodScheduled"),
                )
            ],
            "containerStatuses": [
                {
                    "name": "main",
                    "image": "registry.example.com/team/train:v1.2.3",
                    "imageID": "registry.example.com/team/train@sha256:" + "0" * 64,
                    "containerID": f"containerd://{_NUMBER}" + "0" * 57,
                    "ready": True,
                    "state": {"running": {"startedAt": MADE}},
                }
            ],
        },
    }


def _ended_job() -> dict[str, Any]:
    spec = {
        "framework": "PyTorch",
        "workers": 8,
        "datasets": [{"name": "imagenet", "mountPath": "/data"}],
        "runPolicy": {"cleanPodPolicy": "Running"},
        "replicaSpecs": [{"name": "Worker", "template": {"spec": {"containers": [_container("main")]}}}],
    }
    return {
        "metadata": {
            "name": f"train-{_NUMBER}",
            "namespace": "team-a",
            "uid": f"3d1f5bb4-0000-4000-8000-00000{_NUMBER}",
            "resourceVersion": _NUMBER,
            "generation": 1,
            "creationTimestamp": MADE,
            "labels": {"app.kubernetes.io/name": "train", "team": "a", "run": _NUMBER},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(spec)},
            "managedFields": _managed("kubectl", "tdcs-operator", count=20),
        },
        "spec": spec,
        "status": {
            "state": "Succeeded",
            "reason": "Succeeded",
            "message": f"all 8 workers of train-{_NUMBER} have ended well",
            "conditions": _conditions("DataReady", "Admitted", "Succeeded"),
            "observedGeneration": 1,
            "startTime": MADE,
            "completionTime": f"2026-01-01T{_NUMBER}Z",
            "locality": 1.0,
            "restarts": 0,
            "copies": [{"dataset": "imagenet", "id": "0", "nodes": [f"n{number}" for number in range(4)]}],
            "placement": [{"pod": f"train-{_NUMBER}-worker-{rank}", "node": f"n{rank}"} for rank in range(8)],
            "dataStall": {
                "sourceSeconds": 1.5,
                "peerSeconds": 2.5,
                "diskSeconds": 3.5,
                "observedSeconds": 3600.5,
            },
        },
    }


def _texts(template: dict[str, Any]) -> Callable[[int], str]:
    text = json.dumps(template)
    has_owner = _OTHER in text

    def of(number: int) -> str:
        object_text = text.replace(_NUMBER, f"{number:07}")
        if not has_owner:
            return object_text
        of_owner, of_node = f"{number // PODS_OF_A_JOB:07}", f"{number % NODES:07}"
        return object_text.replace(_OTHER, of_owner).replace(_THIRD, of_node)

    return of


node_text = _texts(_node())
pod_text = _texts(_pod())
ended_job_text = _texts(_ended_job())
