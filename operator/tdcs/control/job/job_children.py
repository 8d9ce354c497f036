"""The Service and the Indexed Jobs of a TrainingJob."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from tdcs.api import names
from tdcs.api.durations import time_after
from tdcs.api.trainingjob import READING_ROLES, DatasetUse, Role, TrainingJobSpec
from tdcs.control.job.framework_rendezvous import environment, port_of
from tdcs.decide.job.failure_policy import job_backoff_limit, pod_failure_policy
from tdcs.decide.job.inherited_marks import is_about_itself
from tdcs.decide.job.observed_job import BACKOFF_LIMIT, started
from tdcs.decide.kueue.kueue_nodes import PodSetPlacement, template_changes
from tdcs.decide.place.dataset_copies import FIRST_COPY
from tdcs.kube.apply import digest_of, owner_reference
from tdcs.model.kube_objects import Object

NOT_BACKED_UP = "velero.io/exclude-from-backup"
"""Label that keeps Velero from storing a child: restored, it would belong to nobody, and take GPUs until it is
collected. The operator creates it again."""

CONSUME = "autoscaling.x-k8s.io/consume-provisioning-request"
"""Annotation of pods: the ProvisioningRequest whose nodes they use, so that the autoscaler adds none for them."""

PROVISIONING_CLASS = "autoscaling.x-k8s.io/provisioning-class-name"
"""Annotation of pods: its class."""

LEAVE_SECONDS = 60.0
"""How long pods keep off the nodes that they leave to larger ones, from the moment in which they may exist. A pod that
is created again later finds other nodes empty."""


def passed_on(owner: Object, field: str) -> dict[str, str]:
    """The labels, or annotations, of a TrainingJob that its Jobs and pods get as well, for whoever selects, bills or
    mutates by them."""
    values = owner["metadata"].get(field) or {}
    return {key: str(value) for key, value in values.items() if not is_about_itself(key)}


def labels_of(*, job: str, role: Role) -> dict[str, str]:
    """The labels of the children and pods of one role of a TrainingJob."""
    return {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_TRAINING_JOB: job,
        names.LABEL_ROLE: role.lower(),
    }


def selector_of(*, job: str, role: Role) -> str:
    return f"{names.LABEL_TRAINING_JOB}={job},{names.LABEL_ROLE}={role.lower()}"


def service(*, owner: Object, spec: TrainingJobSpec) -> Object:
    """The headless Service that gives each pod a name, before it is ready too: peers look each other up."""
    name, namespace = owner["metadata"]["name"], owner["metadata"]["namespace"]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {
                NOT_BACKED_UP: "true",
                **passed_on(owner, "labels"),
                names.LABEL_MANAGED_BY: names.MANAGED_BY,
                names.LABEL_TRAINING_JOB: name,
            },
            "annotations": passed_on(owner, "annotations"),
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_TRAINING_JOB: name},
            "ports": [{"name": "rendezvous", "port": port_of(spec.framework), "protocol": "TCP"}],
        },
    }


def job(
    *,
    owner: Object,
    spec: TrainingJobSpec,
    role: Role,
    suspended: bool,
    replicas: int | None = None,
    scheduler_name: str = names.SCHEDULER_NAME,
    preferred: list[Object] | None = None,
    copies: Mapping[str, str] | None = None,
    attempt: int = 0,
) -> Object:
    """The Indexed Job of a role, as it is created; `changes` says what may follow.

    `replicas`: how many pods, where that is not what the spec says. `attempt`: how often all pods were restarted.
    """
    name, namespace = owner["metadata"]["name"], owner["metadata"]["namespace"]
    replicas = replicas or spec.by_role()[role].replicas
    template = pod_template(
        owner=owner, spec=spec, role=role, scheduler_name=scheduler_name, preferred=preferred, copies=copies
    )
    number = {names.ANNOTATION_RESTART_ATTEMPT: str(attempt)}
    template["metadata"]["annotations"] |= number
    marks = {
        **number,
        names.ANNOTATION_SPEC_DIGEST: spec_digest(spec, role),
        names.ANNOTATION_GANG: str(spec.scheduling.gang).lower(),
    }
    job_spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": replicas,
        "parallelism": replicas,
        "suspend": suspended,
        **_limits(spec, limit=job_backoff_limit(spec)),
        "template": template,
    }
    if (policy := pod_failure_policy(spec, template)) is not None:
        job_spec["podFailurePolicy"] = policy
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.role_job_name(job=name, role=role),
            "namespace": namespace,
            "labels": {NOT_BACKED_UP: "true", **passed_on(owner, "labels"), **labels_of(job=name, role=role)},
            "annotations": {**passed_on(owner, "annotations"), **marks},
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": job_spec,
    }


def spec_digest(spec: TrainingJobSpec, role: Role) -> str:
    """A digest of what a role's Job is made from and cannot follow later, as far as a waiting job may change it."""
    counts = {
        role_name: pods.replicas
        for role_name, pods in spec.by_role().items()
        if role_name != "Worker" or spec.elastic is None
    }
    policy = spec.run_policy.failure_policy
    return digest_of(
        {
            "template": spec.by_role()[role].template,
            "replicas": counts,
            "mode": spec.scheduling.mode,
            "gang": spec.scheduling.gang,
            "priority": spec.scheduling.priority_class_name,
            "failures": None if policy is None else policy.model_dump(mode="json", exclude={"max_restarts"}),
        }
    )


def changes(
    *,
    live: Object,
    spec: TrainingJobSpec,
    role: Role,
    suspended: bool,
    replicas: int | None = None,
    preferred: list[Object] | None = None,
    copies: Mapping[str, str] | None = None,
    place: PodSetPlacement | None = None,
    leave: Collection[str] = (),
    marks: Mapping[str, str] | None = None,
    now: str = "",
) -> dict[str, Any]:
    """What to merge into a Job that exists, so that it is as wanted; empty when it is.

    Only what the API lets change: its template stays what it was when it was made, but for the node affinity and
    the copies of a Job that has never started. So an operator of a newer version leaves the Jobs of an older one
    alone. `place`: where Kueue has the pods run. `leave`: nodes that its pods leave to larger ones for a while,
    beginning `now`. `marks`: annotations by which they use nodes that were asked for.
    """
    replicas = replicas or spec.by_role()[role].replicas
    live_spec: Mapping[str, Any] = live["spec"]
    limit = job_backoff_limit(spec) if _is_of_this_version(live) else spec.run_policy.backoff_limit
    wanted_fields: dict[str, Any] = {"suspend": suspended, **_limits(spec, limit=limit)}
    if spec.elastic is not None and role == "Worker":
        wanted_fields |= {"completions": replicas, "parallelism": replicas}
    differing = {field: value for field, value in wanted_fields.items() if live_spec.get(field) != value}
    # Nobody asks for a limit any more: the API's own default for the one, none for the other.
    if limit is None and live_spec.get("backoffLimit", BACKOFF_LIMIT) != BACKOFF_LIMIT:
        differing["backoffLimit"] = BACKOFF_LIMIT
    if spec.run_policy.active_deadline_seconds is None and live_spec.get("activeDeadlineSeconds") is not None:
        differing["activeDeadlineSeconds"] = None
    if live_spec.get("suspend") and not suspended and not started(live):
        role_template = spec.by_role()[role].template
        template: dict[str, Any] = template_changes(
            live_spec["template"], template=role_template, place=place
        )
        present = (live_spec["template"].get("metadata") or {}).get("annotations") or {}
        booked: dict[str, str | None] = dict.fromkeys({CONSUME, PROVISIONING_CLASS} & present.keys())
        booked |= marks or {}
        # A check of Kueue gives the same annotations, for its own ProvisioningRequest.
        booked |= {key: place.annotations[key] for key in booked if place and key in place.annotations}
        if any(present.get(key) != value for key, value in booked.items()):
            template.setdefault("metadata", {}).setdefault("annotations", {}).update(booked)
        if role in READING_ROLES:
            if preferred:
                affinity = with_preferred(role_template["spec"].get("affinity"), preferred)
                if affinity != live_spec["template"]["spec"].get("affinity"):
                    template.setdefault("spec", {})["affinity"] = affinity
            pod_annotations = reading(spec, namespace=live["metadata"]["namespace"], role=role, copies=copies)
            if pod_annotations and spec.scheduling.mode == "Extender":  # the extender sees no other pods
                pod_annotations |= leaving(leave, now=now)
            if {**present, **pod_annotations} != present:
                template.setdefault("metadata", {}).setdefault("annotations", {}).update(pod_annotations)
        if template:
            differing["template"] = template
    return {"spec": differing} if differing else {}


def reading(
    spec: TrainingJobSpec, *, namespace: str, role: Role, copies: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The annotation by which the extender knows what a pod reads; none for a job that reads nothing."""
    reads = [
        {
            "dataset": f"{namespace}/{use.name}",
            "copy": (copies or {}).get(use.name, FIRST_COPY),
            **({"readers": use.readers} if use.readers is not None and role == "Worker" else {}),
        }
        for use in spec.datasets
    ]
    return {names.ANNOTATION_DATASETS: json.dumps(reads, separators=(",", ":"))} if reads else {}


def leaving(nodes: Collection[str], *, now: str) -> dict[str, str]:
    """The annotation by which the extender knows which nodes a pod leaves to larger ones; none for no nodes."""
    if not nodes:
        return {}
    nodes_to_leave = {"nodes": sorted(nodes), "until": time_after(now, seconds=LEAVE_SECONDS)}
    return {names.ANNOTATION_LEAVE_NODES: json.dumps(nodes_to_leave, separators=(",", ":"))}


def _is_of_this_version(live: Object) -> bool:
    """Whether a Job was made by an operator that restarts jobs: others replace their pods one by one to the end."""
    return names.ANNOTATION_RESTART_ATTEMPT in (live["metadata"].get("annotations") or {})


def _limits(spec: TrainingJobSpec, *, limit: int | None) -> dict[str, Any]:
    limits = {"backoffLimit": limit, "activeDeadlineSeconds": spec.run_policy.active_deadline_seconds}
    return {field: value for field, value in limits.items() if value is not None}


def with_preferred(affinity: Mapping[str, Any] | None, preferred: list[Object]) -> Object:
    """An affinity with these terms behind those that the user prefers."""
    new_affinity = dict(affinity or {})
    node = dict(new_affinity.get("nodeAffinity") or {})
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    terms = [*(node.get(field) or ()), *preferred]
    return {**new_affinity, "nodeAffinity": {**node, field: terms}} if terms else new_affinity


def pod_template(
    *,
    owner: Object,
    spec: TrainingJobSpec,
    role: Role = "Worker",
    scheduler_name: str = names.SCHEDULER_NAME,
    preferred: list[Object] | None = None,
    copies: Mapping[str, str] | None = None,
) -> Object:
    """The user's template with what TDCS adds: names, scheduler, volumes of the datasets, environment.

    Args:
        owner: the TrainingJob.
        spec: its parsed spec.
        scheduler_name: who places pods that read data, of a template that names nobody; empty: the cluster's
            default scheduler, which also has all others: they would cost the extender a call for nothing.
        preferred: terms of preferred node affinity, in mode Affinity.
        copies: the chosen copy of each dataset by its name.
    """
    name, namespace = owner["metadata"]["name"], owner["metadata"]["namespace"]
    template = spec.by_role()[role].template
    metadata, pod = template.get("metadata") or {}, template["spec"]
    reads = reading(spec, namespace=namespace, role=role, copies=copies) if role in READING_ROLES else {}
    annotations = {**passed_on(owner, "annotations"), **(metadata.get("annotations") or {}), **reads}
    variables = environment(job=name, namespace=namespace, spec=spec, role=role)
    placed_by = scheduler_name if reads and spec.scheduling.mode == "Extender" else ""
    priority = spec.scheduling.priority_class_name
    pod_spec: Object = {
        **({"schedulerName": placed_by} if placed_by else {}),
        **({"priorityClassName": priority} if priority else {}),
        "restartPolicy": "Never",
        **pod,
        "subdomain": name,
        "containers": [_container(container, spec.datasets, variables) for container in pod["containers"]],
    }
    if pod.get("initContainers"):
        pod_spec["initContainers"] = [
            _container(container, spec.datasets, variables) for container in pod["initContainers"]
        ]
    if spec.datasets:
        pod_spec["volumes"] = [*(pod.get("volumes") or ()), *(_volume(use) for use in spec.datasets)]
    if preferred and role in READING_ROLES:
        pod_spec["affinity"] = with_preferred(pod.get("affinity"), preferred)
    own_labels = {NOT_BACKED_UP: "true", **passed_on(owner, "labels"), **(metadata.get("labels") or {})}
    # They mount the datasets too, and read nothing of them.
    opted_out = {names.LABEL_PLACE_BY_DATA: "false"} if role not in READING_ROLES and spec.datasets else {}
    labels = {**own_labels, **opted_out, **labels_of(job=name, role=role)}
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod_spec}


def volume_name(use: DatasetUse) -> str:
    """Name of a dataset's volume inside the pod; at most 63 characters."""
    return names.dns_label(f"data-{use.name}")


def _volume(use: DatasetUse) -> Object:
    return {
        "name": volume_name(use),
        "persistentVolumeClaim": {"claimName": use.name, "readOnly": True},
    }


def _container(container: Object, datasets: list[DatasetUse], variables: list[Object]) -> Object:
    """A container with the datasets mounted; variables that the user sets win over ours."""
    new_container = dict(container)
    if datasets:
        # What the node mounts over a volume later, a remote-read client that came back, must reach a pod that runs.
        mounts = [
            {
                "name": volume_name(use),
                "mountPath": use.mount_path,
                "readOnly": True,
                "mountPropagation": "HostToContainer",
            }
            for use in datasets
        ]
        new_container["volumeMounts"] = [*(container.get("volumeMounts") or ()), *mounts]
    if variables:
        own_variables = container.get("env") or ()
        own_names = {variable.get("name") for variable in own_variables}
        ours = [variable for variable in variables if variable["name"] not in own_names]
        new_container["env"] = [*ours, *own_variables]
    return new_container
