"""The pods of a cache cluster: containers, environment, volumes, and what they ask of a node."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from tdcs.alluxio import profile
from tdcs.api import names
from tdcs.api.cachecluster_parts import Component
from tdcs.control.cachecluster import pod_security
from tdcs.control.cachecluster.blueprint import Blueprint, metadata_of
from tdcs.kube.apply import digest_of
from tdcs.model.kube_objects import Object

_MIB = 1 << 20


def config_map(plan: Blueprint) -> Object:
    tier = plan.spec.storage.tiers[0]
    properties = profile.site_properties(
        tier=profile.ProfileTier(medium=tier.medium, path=plan.tier_path, capacity_bytes=tier.capacity_bytes),
        overrides=plan.spec.properties,
        profile=profile.Profile(plan.spec.profile),
        trusted=plan.trust is not None,
    )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata_of(plan, name=names.config_name(cluster=plan.cluster), component="config"),
        "data": {PurePosixPath(profile.PROPERTIES_FILE).name: profile.render_properties(properties)},
    }


_OF_NODES: Final = ("nodeSelector", "tolerations")
"""What of a pod's spec says on which nodes it may run, apart from an affinity."""


def template(plan: Blueprint, *, labels: dict[str, str], pod: Object) -> Object:
    """A pod template with what all of the cache's pods have; it changes with the configuration."""
    pod_spec: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **pod,
        **plan.pulls,
    }
    if plan.spec.tolerations:
        pod_spec["tolerations"] = [
            toleration.model_dump(by_alias=True, exclude_none=True) for toleration in plan.spec.tolerations
        ]
    if plan.spec.priority_class_name:
        pod_spec["priorityClassName"] = plan.spec.priority_class_name
    annotations = {} if plan.native else {names.ANNOTATION_CONFIG_HASH: digest_of(config_map(plan)["data"])}
    metadata = {"labels": labels, **({"annotations": annotations} if annotations else {})}
    return {"metadata": metadata, "spec": pod_spec}


def in_place_of(live: Object | None, child: Object) -> Object:
    """A StatefulSet or DaemonSet with the node selector and tolerations of the live one, so that its pods stay on their
    nodes; unchanged where there is none."""
    if live is None:
        return child
    live_pod, template = live["spec"]["template"]["spec"], child["spec"]["template"]
    pod = {key: value for key, value in template["spec"].items() if key not in _OF_NODES}
    pod |= {key: live_pod[key] for key in _OF_NODES if key in live_pod}
    return {**child, "spec": {**child["spec"], "template": {**template, "spec": pod}}}


def container(
    plan: Blueprint,
    *,
    component: str,
    role: profile.AlluxioRole,
    settings: Component,
    host: str,
    mounts: list[Object],
    more: list[Object] | None = None,
) -> Object:
    # Rights of processes that read sources themselves (`tdcs/trust/alluxio_rights.toml`).
    stock = ["-Dtdcs.stock=true"] if plan.spec.profile == "Stock" else []
    options = [*profile.java_options(role=role), *stock, *settings.jvm_options]
    environment: list[dict[str, Any]] = [
        {"name": "POD_NAME", "valueFrom": _field("metadata.name")},
        {"name": "POD_IP", "valueFrom": _field("status.podIP")},
        {"name": "NODE_NAME", "valueFrom": _field("spec.nodeName")},
        {"name": "ALLUXIO_MASTER_HOSTNAME", "value": plan.master_host},
        {"name": "ALLUXIO_HOSTNAME", "value": host},
        {"name": "ALLUXIO_JAVA_OPTS", "value": " ".join(options)},
        {"name": "ALLUXIO_PROPERTIES_FILE", "value": profile.PROPERTIES_FILE},
        *(more or ()),
    ]
    folder = str(PurePosixPath(profile.PROPERTIES_FILE).parent)
    return {
        "name": component,
        "image": plan.spec.image or plan.image,
        "imagePullPolicy": "IfNotPresent",
        "args": [role.value],
        "env": environment,
        "resources": dict(settings.resources) or requests_of(plan, role=role, options=options),
        "securityContext": pod_security.restricted(plan),
        "volumeMounts": [
            {"name": "config", "mountPath": folder, "readOnly": True},
            pod_security.scratch_mount(),
            *mounts,
        ],
    }


def requests_of(plan: Blueprint, *, role: profile.AlluxioRole, options: Sequence[str]) -> Object:
    """What a pod asks for when the CacheCluster names no resources: what its JVM may really take."""
    memory = profile.memory_bytes(options)
    tier = plan.spec.storage.tiers[0]
    if role is profile.AlluxioRole.WORKER and tier.medium == "MEM":
        memory += tier.capacity_bytes  # files of a tmpfs are memory of whoever writes them
    return {"requests": {"cpu": "100m", "memory": f"{-(-memory // _MIB)}Mi"}}


def source_mounts(plan: Blueprint) -> list[Object]:
    return [
        {
            "name": f"source-{number}",
            "mountPath": folder,
            "readOnly": True,
            # A share that is mounted on the node later is seen, too.
            "mountPropagation": "HostToContainer",
        }
        for number, folder in enumerate(plan.spec.all_folders)
    ]


def source_volumes(plan: Blueprint) -> list[Object]:
    return [
        {"name": f"source-{number}", "hostPath": {"path": folder, "type": "Directory"}}
        for number, folder in enumerate(plan.spec.all_folders)
    ]


def _field(path: str) -> Object:
    return {"fieldRef": {"fieldPath": path}}


def config_volume(plan: Blueprint) -> Object:
    return {"name": "config", "configMap": {"name": names.config_name(cluster=plan.cluster)}}


def host_folder(name: str, path: str) -> Object:
    return {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
