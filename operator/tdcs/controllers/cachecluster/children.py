"""The objects of a cache cluster: configuration, master, one worker a node, FUSE clients. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec, Component
from tdcs.engine.alluxio import profile
from tdcs.kube.api import Object
from tdcs.kube.apply import digest_of, owner_reference

FUSE_STOP_SECONDS = 30
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """Everything the children are made from.

    Attributes:
        owner: the CacheCluster object.
        spec: its parsed spec.
        namespace: where the children live.
        image: the image when the spec names none.
        pull_secrets: Secrets of `namespace` with which it is pulled.
    """

    owner: Object
    spec: CacheClusterSpec
    namespace: str
    image: str
    pull_secrets: tuple[str, ...] = ()

    @property
    def cluster(self) -> str:
        """The cache cluster's name."""
        return str(self.owner["metadata"]["name"])

    @property
    def tier_path(self) -> str:
        """The folder of the blocks, on the nodes and in the pods alike."""
        return self.spec.storage.tiers[0].path or names.cache_path(cluster=self.cluster)

    @property
    def master_host(self) -> str:
        """DNS name of the master's pod."""
        master = names.master_name(cluster=self.cluster)
        return f"{master}-0.{master}.{self.namespace}.svc"


def master_address(*, cluster: str, namespace: str) -> str:
    """Where the master's RPC service is: host and port."""
    return names.master_address(cluster=cluster, namespace=namespace)


def labels_of(*, cluster: str, component: str) -> dict[str, str]:
    """The labels of the pods of one component."""
    return {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_CACHE_CLUSTER: cluster,
        names.LABEL_COMPONENT: component,
    }


def config_map(plan: Blueprint) -> Object:
    """The properties file of all processes of the cluster."""
    tier = plan.spec.storage.tiers[0]
    properties = profile.site_properties(
        tier=profile.Tier(medium=tier.medium, path=plan.tier_path, capacity_bytes=tier.capacity_bytes),
        overrides=plan.spec.properties,
        profile=profile.Profile(plan.spec.profile),
    )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(plan, name=names.config_name(cluster=plan.cluster), component="config"),
        "data": {PurePosixPath(profile.PROPERTIES_FILE).name: profile.render_properties(properties)},
    }


def services(plan: Blueprint) -> list[Object]:
    """The headless Services behind the stable DNS names of master and workers."""
    return [
        _service(
            plan,
            name=names.master_name(cluster=plan.cluster),
            component=names.COMPONENT_MASTER,
            port=profile.MASTER_RPC_PORT,
        ),
        _service(
            plan,
            name=names.workers_service_name(cluster=plan.cluster),
            component=names.COMPONENT_WORKER,
            port=profile.WORKER_RPC_PORT,
        ),
    ]


def master(plan: Blueprint) -> Object:
    """The StatefulSet of the master; its journal lies on a claim. It lists file sources, so where there are some, it
    runs on a cache node, which sees them."""
    component, journal = names.COMPONENT_MASTER, plan.spec.journal
    storage_class = journal.storage_class_name
    name = names.master_name(cluster=plan.cluster)
    container = _container(
        plan,
        component=component,
        role=profile.Role.MASTER,
        settings=plan.spec.master,
        host=plan.master_host,
        mounts=[{"name": "journal", "mountPath": profile.DATA_FOLDER}, *_source_mounts(plan)],
    )
    container["ports"] = [{"name": "rpc", "containerPort": profile.MASTER_RPC_PORT, "protocol": "TCP"}]
    container["readinessProbe"] = {"tcpSocket": {"port": profile.MASTER_RPC_PORT}, "periodSeconds": 2}
    return _stateful_set(
        plan,
        name=name,
        service=name,
        component=component,
        labels=labels_of(cluster=plan.cluster, component=component),
        pod={
            "containers": [container],
            "volumes": [_config_volume(plan), *_source_volumes(plan)],
            **({"nodeSelector": dict(plan.spec.node_selector)} if plan.spec.source_folders else {}),
        },
        claims=[
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "journal"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": str(journal.size)}},
                    **({"storageClassName": storage_class} if storage_class else {}),
                },
            }
        ],
    )


def worker(plan: Blueprint, *, node: str) -> Object:
    """The StatefulSet of the one worker of a node."""
    component = names.COMPONENT_WORKER
    service = names.workers_service_name(cluster=plan.cluster)
    labels = {**labels_of(cluster=plan.cluster, component=component), names.LABEL_NODE: names.node_slug(node)}
    container = _container(
        plan,
        component=component,
        role=profile.Role.WORKER,
        settings=plan.spec.worker,
        host=f"$(POD_NAME).{service}.{plan.namespace}.svc",
        mounts=[{"name": "blocks", "mountPath": plan.tier_path}, *_source_mounts(plan)],
    )
    container["ports"] = [{"name": "rpc", "containerPort": profile.WORKER_RPC_PORT, "protocol": "TCP"}]
    container["readinessProbe"] = {"tcpSocket": {"port": profile.WORKER_RPC_PORT}, "periodSeconds": 2}
    return _stateful_set(
        plan,
        name=names.worker_set_name(cluster=plan.cluster, node=node),
        service=service,
        component=component,
        labels=labels,
        pod={
            "affinity": pinned_to(node),
            "containers": [container],
            "volumes": [
                _config_volume(plan),
                _host_folder("blocks", plan.tier_path),
                *_source_volumes(plan),
            ],
        },
        annotations={names.ANNOTATION_NODE: node},
    )


def pinned_to(node: str) -> Object:
    """The affinity of a pod that runs on this node or nowhere."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    required = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def fuse(plan: Blueprint) -> Object:
    """The DaemonSet of the FUSE clients: privileged, because only such a pod's mounts are seen by the node."""
    component = names.COMPONENT_FUSE
    labels = labels_of(cluster=plan.cluster, component=component)
    mount_point = names.fuse_mount_point(cluster=plan.cluster)
    container = _container(
        plan,
        component=component,
        role=profile.Role.FUSE,
        settings=plan.spec.fuse,
        host="$(POD_IP)",
        mounts=[
            {"name": "mounts", "mountPath": names.FUSE_ROOT, "mountPropagation": "Bidirectional"},
            # The same path as in the worker: blocks of this node are opened as files.
            {"name": "blocks", "mountPath": plan.tier_path},
        ],
        more=[
            {"name": "FUSE_MOUNT_POINT", "value": mount_point},
            {
                "name": "FUSE_OPTIONS",
                "value": profile.fuse_mount_options(profile=profile.Profile(plan.spec.profile)),
            },
        ],
    )
    container["securityContext"] = {"privileged": True}
    container["readinessProbe"] = {
        "exec": {"command": ["mountpoint", "-q", mount_point]},
        "periodSeconds": 3,
        "timeoutSeconds": 5,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": _metadata(plan, name=names.fuse_name(cluster=plan.cluster), component=component),
        "spec": {
            "selector": {"matchLabels": labels},
            "template": _template(
                plan,
                labels=labels,
                pod={
                    "nodeSelector": dict(plan.spec.node_selector),
                    "terminationGracePeriodSeconds": FUSE_STOP_SECONDS,
                    "containers": [container],
                    "volumes": [
                        _config_volume(plan),
                        _host_folder("mounts", names.FUSE_ROOT),
                        _host_folder("blocks", plan.tier_path),
                    ],
                },
            ),
        },
    }


def _metadata(plan: Blueprint, *, name: str, component: str) -> Object:
    return {
        "name": name,
        "namespace": plan.namespace,
        "labels": labels_of(cluster=plan.cluster, component=component),
        "ownerReferences": [owner_reference(plan.owner)],
    }


def _service(plan: Blueprint, *, name: str, component: str, port: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(plan, name=name, component=component),
        "spec": {
            "clusterIP": "None",
            # Workers register under their names before they are ready.
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_CACHE_CLUSTER: plan.cluster, names.LABEL_COMPONENT: component},
            "ports": [{"name": "rpc", "port": port, "protocol": "TCP"}],
        },
    }


def _stateful_set(
    plan: Blueprint,
    *,
    name: str,
    service: str,
    component: str,
    labels: dict[str, str],
    pod: Object,
    claims: list[Object] | None = None,
    annotations: dict[str, str] | None = None,
) -> Object:
    metadata = _metadata(plan, name=name, component=component)
    if annotations:
        metadata["annotations"] = annotations
    spec: Object = {
        "replicas": 1,
        "serviceName": service,
        "selector": {"matchLabels": labels},
        "template": _template(plan, labels=labels, pod=pod),
    }
    if claims:
        spec["volumeClaimTemplates"] = claims
        # The journal describes blocks on the nodes: it goes with the cluster.
        spec["persistentVolumeClaimRetentionPolicy"] = {"whenDeleted": "Delete", "whenScaled": "Retain"}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}


def _template(plan: Blueprint, *, labels: dict[str, str], pod: Object) -> Object:
    made: Object = {"automountServiceAccountToken": False, "enableServiceLinks": False, **pod}
    if plan.spec.tolerations:
        made["tolerations"] = [
            toleration.model_dump(by_alias=True, exclude_none=True) for toleration in plan.spec.tolerations
        ]
    if plan.pull_secrets:
        made["imagePullSecrets"] = [{"name": secret} for secret in plan.pull_secrets]
    annotations = {names.ANNOTATION_CONFIG_HASH: digest_of(config_map(plan)["data"])}
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": made}


def _container(
    plan: Blueprint,
    *,
    component: str,
    role: profile.Role,
    settings: Component,
    host: str,
    mounts: list[Object],
    more: list[Object] | None = None,
) -> Object:
    options = [*profile.java_options(role=role), *settings.jvm_options]
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
        "volumeMounts": [{"name": "config", "mountPath": folder, "readOnly": True}, *mounts],
    }


def requests_of(plan: Blueprint, *, role: profile.Role, options: Sequence[str]) -> Object:
    """What a pod asks for when the CacheCluster names no resources: what its JVM may really take."""
    memory = profile.memory_bytes(options)
    tier = plan.spec.storage.tiers[0]
    if role is profile.Role.WORKER and tier.medium == "MEM":
        memory += tier.capacity_bytes  # files of a tmpfs are memory of whoever writes them
    return {"requests": {"cpu": "100m", "memory": f"{-(-memory // _MIB)}Mi"}}


def _source_mounts(plan: Blueprint) -> list[Object]:
    return [
        {
            "name": f"source-{number}",
            "mountPath": folder,
            "readOnly": True,
            # A share that is mounted on the node later is seen, too.
            "mountPropagation": "HostToContainer",
        }
        for number, folder in enumerate(plan.spec.source_folders)
    ]


def _source_volumes(plan: Blueprint) -> list[Object]:
    return [
        {"name": f"source-{number}", "hostPath": {"path": folder, "type": "Directory"}}
        for number, folder in enumerate(plan.spec.source_folders)
    ]


def _field(path: str) -> Object:
    return {"fieldRef": {"fieldPath": path}}


def _config_volume(plan: Blueprint) -> Object:
    return {"name": "config", "configMap": {"name": names.config_name(cluster=plan.cluster)}}


def _host_folder(name: str, path: str) -> Object:
    return {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
