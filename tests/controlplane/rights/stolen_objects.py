"""Objects that a thief of the operator's token would make, each with what the refusal names."""

from __future__ import annotations

from collections.abc import Mapping

from tests.controlplane.operator_world import API_VERSION
from tests.support.kube import Object


def owner(kind: str, name: str = "stolen") -> Object:
    """An owner that is none: whoever has the token can write any."""
    uid = "00000000-0000-0000-0000-000000000000"
    return {"apiVersion": API_VERSION, "kind": kind, "name": name, "uid": uid}


def metadata(namespace: str, *owners: Object, labelled: bool = True) -> Object:
    labels = {"app.kubernetes.io/managed-by": "tdcs", "tdcs.io/training-job": "stolen"}
    return {
        "name": "stolen",
        "namespace": namespace,
        "ownerReferences": list(owners),
        "labels": labels if labelled else {},
    }


def job(meta: Object, **pod: object) -> Object:
    """A Job that never starts."""
    spec = {"restartPolicy": "Never", "containers": [container()], **pod}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": {"suspend": True, "template": {"spec": spec}},
    }


def container(name: str = "c", **more: object) -> Object:
    return {"name": name, "image": "x", **more}


def workload(kind: str, meta: Object, **pod: object) -> Object:
    labels = {"app": "stolen"}
    spec: Object = {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [container()], "nodeSelector": {"no": "node"}, **pod},
        },
    }
    if kind == "StatefulSet":
        spec |= {"serviceName": "stolen", "replicas": 0}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec}


def endings(name: str, namespace: str, *, ttl: bool) -> list[Object]:
    """A TrainingJob and a Preload, which go some time after their end or stay."""
    lives = {"ttlSecondsAfterFinished": 0} if ttl else {}
    worker = {"name": "Worker", "template": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}
    specs: dict[str, Object] = {
        "TrainingJob": {"replicaSpecs": [worker], "runPolicy": lives},
        "Preload": {"datasetRef": {"name": "pictures"}, **lives},
    }
    meta = {"name": name, "namespace": namespace}
    return [
        {"apiVersion": API_VERSION, "kind": kind, "metadata": meta, "spec": spec}
        for kind, spec in specs.items()
    ]


def labelled(made: Object, labels: Mapping[str, str]) -> Object:
    """The Job or set, with these further labels of its pods."""
    template = made["spec"]["template"]
    template["metadata"] = {"labels": {**template.get("metadata", {}).get("labels", {}), **labels}}
    return made


def annotated(made: Object, annotations: Mapping[str, str]) -> Object:
    """The Job, with these annotations of its pods."""
    made["spec"]["template"]["metadata"] = {"annotations": dict(annotations)}
    return made


def unconfined() -> list[Object]:
    """Pods without what the Pod Security Standard "baseline" asks for, as an API server takes them."""
    loose = {"type": "Unconfined"}
    return [
        {"containers": [container(securityContext={"seccompProfile": loose})]},
        {"containers": [container(securityContext={"appArmorProfile": loose})]},
        {"containers": [container(securityContext={"seLinuxOptions": {"type": "spc_t"}})]},
        {"securityContext": {"seccompProfile": loose}},
        {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
        {"containers": [container(livenessProbe={"httpGet": {"host": "127.0.0.1", "port": 10255}})]},
    ]


def labels_of_part(release: str, component: str) -> dict[str, str]:
    """The labels by which the chart's Services and NetworkPolicies find one part of a release."""
    prefix = "app.kubernetes.io"
    return {f"{prefix}/name": "tdcs", f"{prefix}/instance": release, f"{prefix}/component": component}


def host_path(path: str) -> Object:
    return {"volumes": [{"name": "h", "hostPath": {"path": path}}]}


def secret_volume(name: str) -> Object:
    return {"volumes": [{"name": "s", "secret": {"secretName": name}}]}


def secret_readers(name: str) -> list[Object]:
    """Pods that read a Secret, in each of the ways that need no driver."""
    reference = {"name": name, "key": "tls.key"}
    projected = {"sources": [{"secret": {"name": name}}]}
    variable = {"name": "KEY", "valueFrom": {"secretKeyRef": reference}}
    return [
        secret_volume(name),
        {"volumes": [{"name": "s", "projected": projected}]},
        {"containers": [container(env=[variable])]},
        {"containers": [container(envFrom=[{"secretRef": {"name": name}}])]},
    ]


def volume(source: Object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "tdcs.stolen.volume"},
        "spec": {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadOnlyMany"], **source},
    }


def claim(namespace: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "stolen", "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }


def service(meta: Object, **spec: object) -> Object:
    ports = [{"port": 443, "protocol": "TCP"}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": ports, **spec}}


def adding(*capabilities: str, name: str = "c") -> Object:
    return container(name, securityContext={"capabilities": {"drop": ["ALL"], "add": list(capabilities)}})


def secret(namespace: str, name: str, role: str, **more: object) -> Object:
    """A Secret as the operator makes it for a certificate, but for `more`."""
    labels = {"app.kubernetes.io/managed-by": "tdcs", "tdcs.io/certificate": role}
    meta = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta, **more}


def config_map(namespace: str, name: str, *owners: Object) -> Object:
    meta = {**metadata(namespace, *owners, labelled=False), "name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"key": "value"}}


def token_of(account: str, secret: Object) -> Object:
    """The Secret, which Kubernetes fills with a ServiceAccount's token."""
    annotations = {"kubernetes.io/service-account.name": account}
    meta = {**secret["metadata"], "annotations": annotations}
    return {**secret, "type": "kubernetes.io/service-account-token", "metadata": meta}


def release_of_helm(secret: Object) -> Object:
    """The Secret with labels by which Helm takes it for a release."""
    labels = {"owner": "helm", "name": "tdcs", "status": "deployed", "version": "99"}
    meta = {**secret["metadata"], "labels": {**secret["metadata"]["labels"], **labels}}
    return {**secret, "metadata": meta}


APP_ARMOR = {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}
WRITABLE = {"name": "h", "mountPath": "/h"}
HOST_PORT = container(ports=[{"containerPort": 80, "hostPort": 80}])
PRIVILEGED = {"containers": [container(securityContext={"privileged": True}, args=["fuse"])]}


def thefts(own: str, release: str) -> list[tuple[Object, str]]:
    """What the operator's rights allow, and the words with which its policies refuse it."""
    train, cache = owner("TrainingJob"), owner("CacheCluster")
    theirs, ours = metadata("default", train), metadata(own, cache)
    node = "may not use the node"
    denial = "Services and NetworkPolicies find"
    parts = [labels_of_part(release, part) for part in ("scheduler", "operator", "csi", "new")]
    takes = "take no port of their node, and add these capabilities only"
    secrets, config_maps = "Secrets of its own certificates only", "ConfigMaps of its caches only"
    return [
        (job(metadata("kube-system", train)), "namespaces of Kubernetes"),
        (job(metadata("default")), "Jobs of TrainingJobs and of its caches only"),
        (job(metadata("default", train, labelled=False)), "Jobs of TrainingJobs and of its caches only"),
        (job(metadata("default", cache)), "Jobs of TrainingJobs and of its caches only"),
        (job(theirs, **host_path("/")), node),
        (job(metadata("default", train, cache), **host_path("/var/lib/tdcs")), node),
        (job(theirs, hostPID=True), node),
        (job(theirs, hostNetwork=True), node),
        (job(theirs, **PRIVILEGED), node),
        (job(theirs, containers=[adding("SYS_ADMIN")]), node),
        (job(theirs, containers=[HOST_PORT]), node),
        (job(metadata(own, train), serviceAccountName="tdcs-scheduler"), "ServiceAccount default only"),
        (job(ours, **host_path("/etc")), "may mount these folders"),
        (job(ours, **host_path("/var/lib/tdcs-other")), "may mount these folders"),
        (
            job(ours, **host_path("/srv"), containers=[container(volumeMounts=[WRITABLE])]),
            "read-only in which",
        ),
        # Where whoever writes to the cache's folder has planted a link.
        (job(ours, **host_path("/var/lib/tdcs/cache/default/link")), "may mount these folders"),
        (job(ours, **host_path("/var/lib/tdcs")), "may mount these folders"),
        (job(ours, **host_path("/var/lib/tdcs/cache")), "may mount these folders"),
        (workload("StatefulSet", ours, **host_path("/")), "may mount these folders"),
        (workload("StatefulSet", metadata(own)), "of its caches only"),
        (workload("StatefulSet", ours, **PRIVILEGED), "only FUSE clients are privileged"),
        (workload("DaemonSet", ours, **PRIVILEGED), "only FUSE clients are privileged"),
        (job(ours, containers=[adding("SYS_ADMIN")]), takes),
        (job(ours, initContainers=[adding("CHOWN", "SYS_PTRACE", name="i")]), takes),
        (workload("StatefulSet", ours, containers=[adding("DAC_READ_SEARCH")]), takes),
        (workload("DaemonSet", ours, containers=[HOST_PORT]), takes),
        *((job(theirs, **pod), "confinement") for pod in unconfined()),
        *((workload("StatefulSet", ours, **pod), "confinement") for pod in unconfined()),
        (annotated(job(theirs), APP_ARMOR), "confinement"),
        (annotated(job(ours), APP_ARMOR), "confinement"),
        (workload("DaemonSet", ours, hostPID=True), "neither the network nor the processes"),
        *((labelled(job(ours), part), denial) for part in parts),
        (labelled(job(metadata(own, train)), parts[0]), denial),
        *((labelled(workload(kind, ours), parts[0]), denial) for kind in ("StatefulSet", "DaemonSet")),
        *(
            (workload("StatefulSet", ours, **pod), "any other Secret")
            for pod in secret_readers("tdcs-trust-ca")
        ),
        *((job(metadata(own, train), **pod), "any other Secret") for pod in secret_readers("a-worker-trust")),
        (job(ours, volumes=[{"name": "d", "csi": {"driver": "secrets.example"}}]), "any other Secret"),
        (volume({"hostPath": {"path": "/"}}), "PersistentVolumes of csi.tdcs.io only"),
        (claim("default"), "the claims of Datasets only"),
        (service(metadata("default"), clusterIP="None"), "headless Services"),
        (service(theirs, externalIPs=["10.96.0.1"]), "headless Services"),
        (service(metadata("kube-system", train), clusterIP="None"), "namespaces of Kubernetes"),
        (token_of("default", secret(own, "stolen-worker-trust", "worker")), secrets),
        (secret(own, "stolen", "worker"), secrets),
        (secret(own, "stolen-worker-trust", "agent"), secrets),
        (secret(own, "other-trust-authority", "authority"), secrets),
        (release_of_helm(secret(own, "stolen-worker-trust", "worker")), "its own labels"),
        (config_map(own, "stolen-properties"), config_maps),
        (config_map(own, "tdcs-claims", cache), config_maps),
    ]
