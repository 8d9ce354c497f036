"""The objects of a cache cluster: configuration, master, one worker a node. With engine Native there are workers
alone, and an agent is all that is in their pods."""

from tdcs.alluxio import profile
from tdcs.api import names
from tdcs.control.cachecluster import agent_pods, cache_certificates, cache_pods, pod_security
from tdcs.control.cachecluster.blueprint import Blueprint, labels_of, metadata_of
from tdcs.model.kube_objects import Object
from tdcs.trust.roles import Role


def services(plan: Blueprint) -> list[Object]:
    """The headless Services behind the stable DNS names of master and workers."""
    agents = {"agent": names.AGENT_CONTROL_PORT, "blocks": names.AGENT_BLOCK_PORT}
    rpc = {"rpc": names.WORKER_RPC_PORT} if not plan.native else {}
    workers = _service(
        plan,
        name=names.workers_service_name(cluster=plan.cluster),
        component=names.COMPONENT_WORKER,
        ports={**rpc, **agents},
    )
    if plan.native:
        return [workers]
    master = _service(
        plan,
        name=names.master_name(cluster=plan.cluster),
        component=names.COMPONENT_MASTER,
        ports={"rpc": names.MASTER_RPC_PORT},
    )
    return [master, workers]


def master(plan: Blueprint) -> Object:
    """The StatefulSet of the master; its journal is on a claim. It sees no source, and runs on any node."""
    component, journal = names.COMPONENT_MASTER, plan.spec.journal
    storage_class = journal.storage_class_name
    name = names.master_name(cluster=plan.cluster)
    container = cache_pods.container(
        plan,
        component=component,
        role=profile.AlluxioRole.MASTER,
        settings=plan.spec.master,
        host=plan.master_host,
        mounts=[
            {"name": "journal", "mountPath": profile.DATA_FOLDER},
            *cache_certificates.mounts(plan, role=Role.MASTER),
        ],
    )
    container["ports"] = [{"name": "rpc", "containerPort": names.MASTER_RPC_PORT, "protocol": "TCP"}]
    container["readinessProbe"] = {"tcpSocket": {"port": names.MASTER_RPC_PORT}, "periodSeconds": 2}
    return _stateful_set(
        plan,
        name=name,
        service=name,
        component=component,
        labels=labels_of(cluster=plan.cluster, component=component),
        pod={
            "securityContext": pod_security.of_pod(plan),
            "initContainers": [_journal_owner(plan)],
            "containers": [container],
            "volumes": [
                cache_pods.config_volume(plan),
                pod_security.scratch_volume(),
                *cache_certificates.volumes(plan, role=Role.MASTER, child=plan.cluster),
            ],
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
    component = names.COMPONENT_WORKER
    service = names.workers_service_name(cluster=plan.cluster)
    name = names.worker_set_name(cluster=plan.cluster, node=node)
    labels = {**labels_of(cluster=plan.cluster, component=component), names.LABEL_NODE: names.node_slug(node)}
    of_alluxio = [] if plan.native else [_alluxio_worker(plan, service=service)]
    volumes = [
        cache_pods.host_folder("blocks", plan.tier_path),
        *cache_certificates.volumes(plan, role=Role.AGENT, child=name),
        *cache_pods.source_volumes(plan),
    ]
    if not plan.native:
        volumes = [
            cache_pods.config_volume(plan),
            pod_security.scratch_volume(),
            *cache_certificates.volumes(plan, role=Role.WORKER, child=name),
            *volumes,
        ]
    return _stateful_set(
        plan,
        name=name,
        service=service,
        component=component,
        labels=labels,
        pod={
            "securityContext": pod_security.of_pod(plan),
            "affinity": pinned_to(node),
            "initContainers": [agent_pods.preparation(plan)],
            "containers": [*of_alluxio, agent_pods.sidecar(plan)],
            "volumes": volumes,
        },
        annotations={names.ANNOTATION_NODE: node},
    )


def _alluxio_worker(plan: Blueprint, *, service: str) -> Object:
    component = names.COMPONENT_WORKER
    container = cache_pods.container(
        plan,
        component=component,
        role=profile.AlluxioRole.WORKER,
        settings=plan.spec.worker,
        host=f"$(POD_NAME).{service}.{plan.namespace}.svc",
        mounts=[
            {"name": "blocks", "mountPath": plan.tier_path},
            *cache_certificates.mounts(plan, role=Role.WORKER),
        ],
    )
    container["ports"] = [{"name": "rpc", "containerPort": names.WORKER_RPC_PORT, "protocol": "TCP"}]
    container["readinessProbe"] = {"tcpSocket": {"port": names.WORKER_RPC_PORT}, "periodSeconds": 2}
    return container


def _journal_owner(plan: Blueprint) -> Object:
    """The init container that gives the journal to the master's user, also one that it wrote as another."""
    user = pod_security.user_of(plan)
    return {
        "name": "journal-owner",
        "image": plan.spec.image or plan.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/chown", "-R", "-h", f"{user}:{user}", profile.DATA_FOLDER],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "securityContext": pod_security.preparing(),
        "volumeMounts": [{"name": "journal", "mountPath": profile.DATA_FOLDER}],
    }


def pinned_to(node: str) -> Object:
    """The affinity of a pod that runs on this node or nowhere."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    required = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _service(plan: Blueprint, *, name: str, component: str, ports: dict[str, int]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata_of(plan, name=name, component=component),
        "spec": {
            "clusterIP": "None",
            # Workers register under their names before they are ready.
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_CACHE_CLUSTER: plan.cluster, names.LABEL_COMPONENT: component},
            "ports": [{"name": name, "port": number, "protocol": "TCP"} for name, number in ports.items()],
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
    metadata = metadata_of(plan, name=name, component=component)
    if annotations:
        metadata["annotations"] = annotations
    spec: Object = {
        "replicas": 1,
        "serviceName": service,
        "selector": {"matchLabels": labels},
        "template": cache_pods.template(plan, labels=labels, pod=pod),
    }
    if claims:
        spec["volumeClaimTemplates"] = claims
        # The journal describes blocks on the nodes: it goes with the cluster.
        spec["persistentVolumeClaimRetentionPolicy"] = {"whenDeleted": "Delete", "whenScaled": "Retain"}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}
