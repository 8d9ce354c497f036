"""The cache agent in a worker's pod: a sidecar of Alluxio's worker, or with engine Native all there is, and the init
container that makes its disk ready."""

from typing import Any

from tdcs.api import names
from tdcs.control.cachecluster import cache_certificates, cache_pods, pod_security
from tdcs.control.cachecluster.blueprint import Blueprint
from tdcs.model.kube_objects import Object
from tdcs.trust.roles import Role
from tdcs.trust.settings import MOUNT_PATH

_MIB = 1 << 20
_MEMORY_MIB = 192
REQUESTS: Object = {"cpu": "50m", "memory": f"{_MEMORY_MIB}Mi"}
"""What an agent asks for where the CacheCluster says nothing: buffers of 64 MiB, and columns over its blocks."""


def sidecar(plan: Blueprint) -> Object:
    tier = plan.spec.storage.tiers[0]
    container = _container(
        plan,
        name=names.COMPONENT_AGENT,
        arguments=["agent", "run"],
        environment=[
            {"name": "TDCS_CAPACITY", "value": str(tier.capacity_bytes)},
            *_of_alluxio(plan, name="TDCS_WORKER", value=f"127.0.0.1:{names.WORKER_RPC_PORT}"),
            *_of_alluxio(plan, name="TDCS_MASTER", value=f"{plan.master_host}:{names.MASTER_RPC_PORT}"),
            *([{"name": "TDCS_TRUST", "value": MOUNT_PATH}] if plan.trust is not None else ()),
        ],
    )
    container["ports"] = [
        {"name": "agent", "containerPort": names.AGENT_CONTROL_PORT, "protocol": "TCP"},
        {"name": "blocks", "containerPort": names.AGENT_BLOCK_PORT, "protocol": "TCP"},
    ]
    probe = {"path": "/healthz", "port": "agent", **({"scheme": "HTTPS"} if plan.trust is not None else {})}
    container["readinessProbe"] = {"httpGet": probe, "periodSeconds": 5, "timeoutSeconds": 5}
    container["livenessProbe"] = {
        "tcpSocket": {"port": "agent"},
        "periodSeconds": 20,
        "timeoutSeconds": 10,
        "failureThreshold": 6,
    }
    container["resources"] = dict(plan.spec.agent.resources) or {"requests": _requests(plan)}
    certificates = cache_certificates.mounts(plan, role=Role.AGENT)
    container["volumeMounts"] = [*container["volumeMounts"], *certificates, *cache_pods.source_mounts(plan)]
    # The worker's user: they link and rename each other's files.
    container["securityContext"] = pod_security.restricted(plan)
    return container


def _of_alluxio(plan: Blueprint, *, name: str, value: str) -> list[Object]:
    """A variable that names a process of Alluxio; none where there is none."""
    return [] if plan.native else [{"name": name, "value": value}]


def _requests(plan: Blueprint) -> Object:
    tier = plan.spec.storage.tiers[0]
    if not plan.native or tier.medium != "MEM":
        return dict(REQUESTS)
    # Files of a tmpfs are memory of whoever writes them: with engine Alluxio its worker asks for that.
    return {**REQUESTS, "memory": f"{_MEMORY_MIB + -(-tier.capacity_bytes // _MIB)}Mi"}


def preparation(plan: Blueprint) -> Object:
    """The init container: the disk is made ready before the worker and the agent look at it, and becomes their user's.
    It asks nobody, and has no certificate."""
    container = _container(
        plan,
        name=f"{names.COMPONENT_AGENT}-prepare",
        arguments=["agent", "prepare"],
        environment=[{"name": "TDCS_USER", "value": str(pod_security.user_of(plan))}],
    )
    container["securityContext"] = pod_security.preparing()
    container["resources"] = {"requests": {"cpu": "20m", "memory": "64Mi"}}
    return container


def _container(
    plan: Blueprint, *, name: str, arguments: list[str], environment: list[dict[str, Any]]
) -> Object:
    return {
        "name": name,
        "image": plan.agent_image,
        "imagePullPolicy": "IfNotPresent",
        "args": arguments,
        "env": [
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "TDCS_TIER", "value": plan.tier_path},
            *environment,
        ],
        "volumeMounts": [{"name": "blocks", "mountPath": plan.tier_path}],
    }
