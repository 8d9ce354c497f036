"""The objects that a run creates: its Datasets, Preloads, TrainingJobs and pods. Pure, but for the program's text."""

import json
from pathlib import Path
from typing import Any

from e2e.chaos import read_version
from e2e.chaos.nodes import RESULTS
from e2e.support import read_on
from e2e.support.jobs import reading_job
from e2e.support.pods import pod
from tdcs_local.kind.kubectl import Object
from tdcs_local.store import datasets

NAMESPACE = "tdcs-chaos"
CHECKS, RESULTS_CLAIM = "checks", "results"
PAUSE_SECONDS = 0.05
"""Of a reading thread after each file: pods that read all the time would leave nothing else a processor."""
JOB_ROUNDS = 3
READS, VERSIONS = ".jsonl", ".versions"
"""Suffixes of files of results: of what `read_on.py` and `read_version.py` have written."""
VERSION_ROUNDS = 60
VERSION_PAUSE_SECONDS = 2.0
"""A pod reads a version for a few steps of the run, in which the source may get another one."""
BACKOFF_LIMIT = 50
"""Pods of a job that a killed node or client has failed are replaced: each job must succeed in the end."""
_OWN_TIME = {"name": "LD_PRELOAD", "value": ""}
"""Users' pods run without libfaketime, so that their timestamps can be compared with the run's."""
_DATA = {"name": "data", "mountPath": "/data", "readOnly": True, "mountPropagation": "HostToContainer"}
_MOUNTS = [{"name": CHECKS, "mountPath": "/checks"}, {"name": RESULTS_CLAIM, "mountPath": "/results"}]
_VOLUMES = [
    {"name": CHECKS, "configMap": {"name": CHECKS}},
    {"name": RESULTS_CLAIM, "persistentVolumeClaim": {"claimName": RESULTS_CLAIM}},
]


def reading_script(rounds: int) -> str:
    """Read and compare the files of a Dataset, and write down what was found, and what the program dies of;
    0: without end."""
    program = "python3 /checks/read_on.py /checks/expected.json /data"
    return f"{program} {rounds} {PAUSE_SECONDS} >> /results/$HOSTNAME{READS} 2>&1"


def checks(sums: dict[str, str]) -> Object:
    """The programs of the pods that read, and what the files of the Dataset must be that does not change."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CHECKS, "namespace": NAMESPACE},
        "data": {
            "read_on.py": Path(read_on.__file__).read_text(),
            "read_version.py": Path(read_version.__file__).read_text(),
            "expected.json": json.dumps(sums),
        },
    }


def results() -> list[Object]:
    """A claim of the folder, on whatever node a pod is, where it writes down what it has read."""
    shared: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = f"{NAMESPACE}-results"
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                **shared,
                "capacity": {"storage": "1Gi"},
                "hostPath": {"path": RESULTS, "type": "Directory"},
                "persistentVolumeReclaimPolicy": "Retain",
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": RESULTS_CLAIM, "namespace": NAMESPACE},
            "spec": {**shared, "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}},
        },
    ]


def made_dataset(name: str, *, endpoint: str, bucket: str, **spec: Any) -> Object:
    """A Dataset of a bucket behind the run's proxy."""
    obj = datasets.dataset(name, namespace=NAMESPACE, bucket=bucket, **spec)
    obj["spec"]["source"]["options"]["endpoint"] = endpoint
    return obj


def reader(*, name: str, node: str, claim: str, image: str) -> Object:
    """A pod that reads on and compares, also after its node was away."""
    return pod(
        name,
        image=image,
        script=f"exec {reading_script(0)}",
        namespace=NAMESPACE,
        restartPolicy="Always",
        nodeSelector={"kubernetes.io/hostname": node},
        container={"volumeMounts": [_DATA, *_MOUNTS], "env": [_OWN_TIME]},
        volumes=[
            {"name": "data", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}},
            *_VOLUMES,
        ],
    )


def version_reader(*, name: str, claim: str, image: str) -> Object:
    """A pod that writes down for a while which bytes a Dataset has."""
    rounds = f"{VERSION_ROUNDS} {VERSION_PAUSE_SECONDS}"
    return pod(
        name,
        image=image,
        script=f"exec python3 /checks/read_version.py /data {rounds} >> /results/$HOSTNAME{VERSIONS}",
        namespace=NAMESPACE,
        container={"volumeMounts": [_DATA, *_MOUNTS], "env": [_OWN_TIME]},
        volumes=[
            {"name": "data", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}},
            *_VOLUMES,
        ],
    )


def checksums(*, name: str, claim: str, image: str, script: str) -> Object:
    """A pod that reads all of a Dataset once."""
    return pod(
        name,
        image=image,
        script=script,
        namespace=NAMESPACE,
        container={"volumeMounts": [_DATA]},
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}],
    )


def job(name: str, *, workers: int, dataset: str, image: str) -> Object:
    """A TrainingJob whose workers read and compare."""
    obj = reading_job(
        name,
        image=image,
        workers=workers,
        script=reading_script(JOB_ROUNDS),
        namespace=NAMESPACE,
        dataset=dataset,
    )
    spec = obj["spec"]["replicaSpecs"][0]["template"]["spec"]
    (container,) = spec["containers"]
    container["volumeMounts"] = list(_MOUNTS)
    container["env"] = [_OWN_TIME]
    container["resources"]["requests"] = {"cpu": "50m", "memory": "64Mi"}
    spec["volumes"] = list(_VOLUMES)
    obj["spec"]["runPolicy"] = {"backoffLimit": BACKOFF_LIMIT}
    return obj


def preload(name: str, *, dataset: str, percent: int) -> Object:
    """A Preload of a part of a Dataset."""
    return {
        "apiVersion": "tdcs.io/v1alpha2",
        "kind": "Preload",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"datasetRef": {"name": dataset}, "percent": percent, "verify": "Sampled"},
    }
