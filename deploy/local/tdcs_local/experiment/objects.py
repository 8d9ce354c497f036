"""What the experiment applies to the cluster."""

from typing import Any

from tdcs.api import names
from tdcs_local.experiment.pictures import BUCKET
from tdcs_local.experiment.plan import Configuration, Run, Setting
from tdcs_local.kind.kubectl import Object
from tdcs_local.store import datasets, operations

NAMESPACE = "tdcs-experiment"
SCRIPT = "read_batches.py"
STOCK_CLUSTER = "stock"
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


def dataset(configuration: Configuration) -> Object:
    """The bucket as a Dataset: loaded on two nodes, or filled by the reads of the jobs."""
    stock = configuration is Configuration.STOCK
    more = {"cacheClusterRef": {"name": STOCK_CLUSTER}} if stock else {}
    return datasets.dataset(
        claim_of(configuration),
        namespace=NAMESPACE,
        bucket=BUCKET,
        preload={"enabled": not stock},
        placement={"mode": "Replicate", "nodeCount": 2, "nodeSelector": {LABEL: "true"}},
        **more,
    )


def claim_of(configuration: Configuration) -> str:
    """The Dataset that a configuration reads; none when the jobs read the bucket."""
    if configuration is Configuration.DIRECT:
        return ""
    return "pictures-stock" if configuration is Configuration.STOCK else "pictures"


def jobs(
    run: Run, setting: Setting, *, name: str, image: str, begin: float, stock_path: str = ""
) -> list[Object]:
    """The jobs of a run: they differ in the order in which they read only.

    Args:
        begin: when they begin to read, in seconds since 1970.
        stock_path: of the Dataset in stock Alluxio.
    """
    return [
        _job(
            run,
            setting,
            name=f"{name}-{number}",
            image=image,
            seed=number,
            begin=begin,
            volume=_volume(run.configuration, stock_path=stock_path),
        )
        for number in range(run.jobs)
    ]


def _volume(configuration: Configuration, *, stock_path: str) -> Object | None:
    """Where a job finds the images; None: it mounts the bucket itself.

    With stock Alluxio it is the FUSE mount of its node: the claim of a Dataset is read by TDCS's own client.
    """
    match configuration:
        case Configuration.DIRECT:
            return None
        case Configuration.STOCK:
            folder = names.fuse_mount_point(cluster=STOCK_CLUSTER) + stock_path
            return {"name": "data", "hostPath": {"path": folder, "type": "Directory"}}
    return {"name": "data", "persistentVolumeClaim": {"claimName": claim_of(configuration), "readOnly": True}}


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
