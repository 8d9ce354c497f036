"""What the experiment applies to the cluster."""

from collections.abc import Mapping
from typing import Any

from tdcs.api import names
from tdcs.trust.identity import Identity
from tdcs_local.experiment.pictures import BUCKET
from tdcs_local.experiment.plan import Configuration, Run, Setting
from tdcs_local.experiment.stock_mount import Request
from tdcs_local.kind import release
from tdcs_local.kind.kubectl import Object
from tdcs_local.store import datasets, operations

NAMESPACE = "tdcs-experiment"
DATASET = "pictures"
SCRIPT = "read_batches.py"
STOCK_CLUSTER = "stock"
STOCK_POLICY = "tdcs-cache-stock-reads"
STOCK_PATH = "/pictures"
"""Where the bucket is mounted in stock Alluxio."""
LABEL = "tdcs.io/experiment"
"""On the nodes that run the jobs and hold the data: not on the store's own, within which no traffic is shaped."""
_REMOTE = {
    "RCLONE_CONFIG_STORE_TYPE": "s3",
    "RCLONE_CONFIG_STORE_PROVIDER": "Other",
    "RCLONE_CONFIG_STORE_ENDPOINT": operations.ENDPOINT,
}
_KEYS = {
    "RCLONE_CONFIG_STORE_ACCESS_KEY_ID": "accessKeyId",
    "RCLONE_CONFIG_STORE_SECRET_ACCESS_KEY": "secretAccessKey",
}
_MOUNT = (
    f"mkdir -p /data && rclone mount store:{BUCKET} /data --daemon --daemon-wait 60s --read-only "
    "--dir-cache-time 24h --attr-timeout 1h --vfs-fast-fingerprint --vfs-read-chunk-size 1M --no-modtime "
    "--vfs-cache-mode off && "
)


def namespace() -> Object:
    """The namespace of the jobs. A pod that mounts a bucket itself is privileged."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
    }


def script(text: str) -> Object:
    """The program of the jobs."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "read-batches", "namespace": NAMESPACE},
        "data": {SCRIPT: text},
    }


def stock_cluster(default: Object) -> Object:
    """A CacheCluster like the chart's own, with the profile Stock and a folder of its own."""
    spec: dict[str, Any] = {
        key: default["spec"][key] for key in ("storage", "sources") if key in default["spec"]
    }
    tiers = [{key: tier[key] for key in ("medium", "capacity")} for tier in spec["storage"]["tiers"]]
    spec["storage"] = {"tiers": tiers}
    return {
        "apiVersion": default["apiVersion"],
        "kind": "CacheCluster",
        "metadata": {"name": STOCK_CLUSTER, "namespace": default["metadata"]["namespace"]},
        "spec": {**spec, "profile": "Stock"},
    }


def stock_policy(default: Object) -> Object:
    """What no other cache needs: its master and workers read the store, and workers read from each other."""

    def pods(*components: str) -> Object:
        return {
            "matchLabels": {names.LABEL_CACHE_CLUSTER: STOCK_CLUSTER},
            "matchExpressions": [
                {"key": names.LABEL_COMPONENT, "operator": "In", "values": list(components)}
            ],
        }

    cache_pods = pods(names.COMPONENT_MASTER, names.COMPONENT_WORKER)
    ports = [{"port": names.WORKER_RPC_PORT, "protocol": "TCP"}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": STOCK_POLICY, "namespace": default["metadata"]["namespace"]},
        "spec": {
            "podSelector": cache_pods,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"podSelector": pods(names.COMPONENT_WORKER)}], "ports": ports}],
            "egress": [{}],
        },
    }


def stock_mount(keys: Mapping[str, str], *, identity: Identity | None) -> Request:
    """The bucket in stock Alluxio, which is filled by the reads of the jobs.

    Args:
        keys: of the store, as Secrets have them.
        identity: what the master is shown.
    """
    return Request(
        master=names.master_address(cluster=STOCK_CLUSTER, namespace=release.NAMESPACE),
        path=STOCK_PATH,
        uri=f"s3://{BUCKET}",
        properties={
            "alluxio.underfs.s3.endpoint": operations.ENDPOINT,
            "alluxio.underfs.s3.endpoint.region": "us-east-1",
            "alluxio.underfs.s3.disable.dns.buckets": "true",
            "alluxio.underfs.s3.inherit.acl": "false",
            "s3a.accessKeyId": keys["accessKeyId"],
            "s3a.secretKey": keys["secretAccessKey"],
        },
        identity=identity,
    )


def dataset() -> Object:
    """The bucket as a Dataset that is loaded on two nodes."""
    return datasets.dataset(
        DATASET,
        namespace=NAMESPACE,
        bucket=BUCKET,
        preload={"enabled": True},
        placement={"mode": "Replicate", "nodeCount": 2, "nodeSelector": {LABEL: "true"}},
    )


def jobs(run: Run, setting: Setting, *, name: str, image: str, begin: float) -> list[Object]:
    """The jobs of a run: they differ in the order in which they read only.

    Args:
        begin: when they begin to read, in seconds since 1970.
    """
    return [
        _job(
            run,
            setting,
            name=f"{name}-{number}",
            image=image,
            seed=number,
            begin=begin,
            volume=_volume(run.configuration),
        )
        for number in range(run.jobs)
    ]


def _volume(configuration: Configuration) -> Object | None:
    """Where a job finds the images; None: it mounts the bucket itself. With stock Alluxio it is the FUSE mount of its
    node."""
    match configuration:
        case Configuration.DIRECT:
            return None
        case Configuration.STOCK:
            folder = names.fuse_mount_point(cluster=STOCK_CLUSTER) + STOCK_PATH
            return {"name": "data", "hostPath": {"path": folder, "type": "Directory"}}
    return {"name": "data", "persistentVolumeClaim": {"claimName": DATASET, "readOnly": True}}


def _job(
    run: Run, setting: Setting, *, name: str, image: str, seed: int, begin: float, volume: Object | None
) -> Object:
    read = (
        f"exec python3 /script/{SCRIPT} --data /data --batch {setting.batch} "
        f"--batch-seconds {setting.batch_seconds} --epochs {setting.epochs} --readers {setting.readers} "
        f"--seed {seed} --begin {begin:.1f}"
    )
    keys = [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": datasets.KEYS, "key": key}}}
        for variable, key in _KEYS.items()
    ]
    remote = [{"name": variable, "value": value} for variable, value in _REMOTE.items()]
    volumes: list[Object] = [{"name": "script", "configMap": {"name": "read-batches"}}]
    mounts: list[Object] = [{"name": "script", "mountPath": "/script"}]
    if volume is not None:
        volumes.append(volume)
        mounts.append({"name": "data", "mountPath": "/data", "readOnly": True})
    container = {
        "name": "main",
        "image": image,
        "command": ["sh", "-c", read if volume else _MOUNT + read],
        "env": [] if volume else [*remote, *keys],
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"nvidia.com/gpu": "1"}},
        "volumeMounts": mounts,
        # mounts are made by whoever is privileged
        "securityContext": {"privileged": volume is None},
    }
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {LABEL: "true"},
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": volumes,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {LABEL: "job"}},
        "spec": {"backoffLimit": 0, "template": {"metadata": {"labels": {LABEL: "job"}}, "spec": pod}},
    }
