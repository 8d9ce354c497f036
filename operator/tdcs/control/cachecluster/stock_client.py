"""Alluxio's own FUSE client, in cache clusters of the profile Stock alone, as the experiment's other way of reading.

A program reads the folder of its mount on the node; no volume of a Dataset leads there.
"""

from collections.abc import Mapping
from typing import Any, Final

from tdcs.alluxio import profile
from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.control.cachecluster import cache_certificates, cache_pods, pod_security
from tdcs.control.cachecluster.blueprint import Blueprint, labels_of, metadata_of
from tdcs.decide.worker_nodes import FuseView
from tdcs.model.kube_objects import Object
from tdcs.trust.roles import Role

MOUNT_OPTIONS: Final = "allow_other,ro"
"""Those without which no pod could read; Alluxio's own values for the others."""

_STOP_SECONDS: Final = 30


def is_wanted(spec: CacheClusterSpec) -> bool:
    return spec.profile == "Stock"


def has_export(spec: CacheClusterSpec) -> bool:
    """Whether Alluxio is told of what agents have cached."""
    return spec.engine != "Native" and not is_wanted(spec)


def view_of(live: Mapping[str, Any] | None) -> FuseView:
    """What is known of the clients that are wanted, by their DaemonSet."""
    status = (live or {}).get("status") or {}
    if not status.get("observedGeneration"):
        return FuseView(wanted=1, ready=0)  # the DaemonSet controller has not looked yet
    return FuseView(wanted=status.get("desiredNumberScheduled", 0), ready=status.get("numberReady", 0))


def daemon_set(plan: Blueprint) -> Object:
    """The DaemonSet of the FUSE clients: privileged, because only such a pod's mounts are seen by the node."""
    component = names.COMPONENT_FUSE
    labels = labels_of(cluster=plan.cluster, component=component)
    mount_point = names.fuse_mount_point(cluster=plan.cluster)
    container = cache_pods.container(
        plan,
        component=component,
        role=profile.AlluxioRole.FUSE,
        settings=plan.spec.fuse,
        host="$(POD_IP)",
        mounts=[
            {"name": "mounts", "mountPath": names.FUSE_ROOT, "mountPropagation": "Bidirectional"},
            # The same path as in the worker: blocks of this node are opened as files.
            {"name": "blocks", "mountPath": plan.tier_path},
            *cache_certificates.mounts(plan, role=Role.FUSE),
        ],
        more=[
            {"name": "FUSE_MOUNT_POINT", "value": mount_point},
            {"name": "FUSE_OPTIONS", "value": MOUNT_OPTIONS},
        ],
    )
    container["securityContext"] = pod_security.mounting()
    container["readinessProbe"] = {
        "exec": {"command": ["mountpoint", "-q", mount_point]},
        "periodSeconds": 3,
        "timeoutSeconds": 5,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata_of(plan, name=names.fuse_name(cluster=plan.cluster), component=component),
        "spec": {
            "selector": {"matchLabels": labels},
            "template": cache_pods.template(
                plan,
                labels=labels,
                pod={
                    "nodeSelector": dict(plan.spec.node_selector),
                    "terminationGracePeriodSeconds": _STOP_SECONDS,
                    "containers": [container],
                    "volumes": [
                        cache_pods.config_volume(plan),
                        pod_security.scratch_volume(),
                        cache_pods.host_folder("mounts", names.FUSE_ROOT),
                        cache_pods.host_folder("blocks", plan.tier_path),
                        *cache_certificates.volumes(plan, role=Role.FUSE, child=plan.cluster),
                    ],
                },
            ),
        },
    }
