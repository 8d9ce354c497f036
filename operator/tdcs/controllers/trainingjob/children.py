"""The Service and the Indexed Job of a TrainingJob. Pure."""

import json
from typing import Any

from tdcs.api import names
from tdcs.api.trainingjob import DatasetUse, TrainingJobSpec
from tdcs.kube.api import Object
from tdcs.kube.apply import owner_reference

TENSORFLOW_PORT = 2222
"""Port of TensorFlow's own servers, by its convention."""

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""The variable that the Job controller gives to pods; declared here first, so that others can refer to it."""

DEFAULT_SCHEDULER = "default-scheduler"
"""What the API server puts into pods that name no scheduler."""

COPY = "0"
"""The copy that jobs read: there is one."""


def labels_of(*, job: str) -> dict[str, str]:
    """The labels of all children and pods of a TrainingJob's workers."""
    return {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_TRAINING_JOB: job,
        names.LABEL_ROLE: names.ROLE_WORKER.lower(),
    }


def service(*, owner: Object) -> Object:
    """The headless Service that gives each pod a name, before it is ready too: peers look each other up."""
    name, namespace = owner["metadata"]["name"], owner["metadata"]["namespace"]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels_of(job=name),
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_TRAINING_JOB: name},
            "ports": [{"name": "rendezvous", "port": TENSORFLOW_PORT, "protocol": "TCP"}],
        },
    }


def job(
    *,
    owner: Object,
    spec: TrainingJobSpec,
    suspended: bool,
    scheduler_name: str = names.SCHEDULER_NAME,
) -> Object:
    """The Indexed Job of the workers."""
    name, namespace = owner["metadata"]["name"], owner["metadata"]["namespace"]
    policy, worker = spec.run_policy, spec.replica_specs.worker
    found: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": worker.replicas,
        "parallelism": worker.replicas,
        "suspend": suspended,
        "template": pod_template(owner=owner, spec=spec, scheduler_name=scheduler_name),
    }
    if policy.backoff_limit is not None:
        found["backoffLimit"] = policy.backoff_limit
    if policy.active_deadline_seconds is not None:
        found["activeDeadlineSeconds"] = policy.active_deadline_seconds
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.worker_job_name(job=name),
            "namespace": namespace,
            "labels": labels_of(job=name),
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": found,
    }


def scheduler_for(*, live: Object | None, configured: str) -> str:
    """The scheduler of a job's pods: a Job's template cannot change, so one that exists keeps what it has.

    Args:
        live: the Job as it is, None before it is made.
        configured: what new Jobs get; empty: the cluster's default scheduler, which the server fills in.
    """
    template: Object = (live or {}).get("spec", {}).get("template", {})
    present = str(template.get("spec", {}).get("schedulerName") or "")
    return configured if not present or (present == DEFAULT_SCHEDULER and not configured) else present


def pod_template(
    *, owner: Object, spec: TrainingJobSpec, scheduler_name: str = names.SCHEDULER_NAME
) -> Object:
    """The user's template with what TDCS adds: names, scheduler, volumes of the datasets, environment.

    Args:
        owner: the TrainingJob.
        spec: its parsed spec.
        scheduler_name: who places pods of a template that names nobody; empty: the cluster's default scheduler.
    """
    name, namespace = owner["metadata"]["name"], owner["metadata"]["namespace"]
    template = spec.replica_specs.worker.template
    metadata, pod = template.get("metadata") or {}, template["spec"]
    reads = [{"dataset": f"{namespace}/{use.name}", "copy": COPY} for use in spec.datasets]
    annotations = {**(metadata.get("annotations") or {})}
    if reads:
        annotations[names.ANNOTATION_DATASETS] = json.dumps(reads, separators=(",", ":"))
    environment = _environment(job=name, namespace=namespace, spec=spec)
    made: Object = {
        **({"schedulerName": scheduler_name} if scheduler_name else {}),
        "restartPolicy": "Never",
        **pod,
        "subdomain": name,
        "containers": [_container(given, spec.datasets, environment) for given in pod["containers"]],
    }
    if pod.get("initContainers"):
        made["initContainers"] = [
            _container(given, spec.datasets, environment) for given in pod["initContainers"]
        ]
    if spec.datasets:
        made["volumes"] = [*(pod.get("volumes") or ()), *(_volume(use) for use in spec.datasets)]
    labels = {**(metadata.get("labels") or {}), **labels_of(job=name)}
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": made}


def volume_name(use: DatasetUse) -> str:
    """Name of a dataset's volume inside the pod; at most 63 characters."""
    return names.dns_label(f"data-{use.name}")


def _volume(use: DatasetUse) -> Object:
    return {
        "name": volume_name(use),
        "persistentVolumeClaim": {"claimName": use.name, "readOnly": True},
    }


def _container(given: Object, datasets: list[DatasetUse], environment: list[Object]) -> Object:
    """A container with the datasets mounted; variables that the user sets win over ours."""
    made = dict(given)
    if datasets:
        # What the node mounts inside a volume later, a FUSE client that came back, must reach a pod that runs.
        mounts = [
            {
                "name": volume_name(use),
                "mountPath": use.mount_path,
                "readOnly": True,
                "mountPropagation": "HostToContainer",
            }
            for use in datasets
        ]
        made["volumeMounts"] = [*(given.get("volumeMounts") or ()), *mounts]
    if environment:
        own = given.get("env") or ()
        taken = {variable.get("name") for variable in own}
        ours = [variable for variable in environment if variable["name"] not in taken]
        made["env"] = [*ours, *own]
    return made


def _environment(*, job: str, namespace: str, spec: TrainingJobSpec) -> list[Object]:
    if spec.framework != "TensorFlow":
        return []
    index = {
        "name": INDEX_VARIABLE,
        "valueFrom": {
            "fieldRef": {"fieldPath": f"metadata.annotations['{names.ANNOTATION_COMPLETION_INDEX}']"}
        },
    }
    replicas = spec.replica_specs.worker.replicas
    return [index, {"name": "TF_CONFIG", "value": tf_config(job=job, namespace=namespace, replicas=replicas)}]


def tf_config(*, job: str, namespace: str, replicas: int) -> str:
    """TF_CONFIG as TensorFlow defines it, the same text for all pods.

    The pod's own index is written as ``$(JOB_COMPLETION_INDEX)``, which kubelet replaces; it stands bare, so
    that the result is a JSON number.
    """
    workers = [
        f"{names.worker_job_name(job=job)}-{index}.{job}.{namespace}.svc:{TENSORFLOW_PORT}"
        for index in range(replicas)
    ]
    cluster = json.dumps({"worker": workers}, separators=(",", ":"))
    return f'{{"cluster":{cluster},"task":{{"type":"worker","index":$({INDEX_VARIABLE})}}}}'
