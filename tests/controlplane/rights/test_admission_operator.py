"""What a stolen token of the operator cannot do: by its rights, and by the chart's policies where these go too far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pytest
from tests.controlplane.operator_command import install_rights, remove_cluster_wide
from tests.controlplane.operator_world import API_VERSION, World, world
from tests.support.kube import Kube, KubeRequestError, Object

__all__ = ["world"]

RIGHTS = ["operator-rbac", "operator"]


@pytest.fixture
def release(world: World) -> Iterator[str]:
    """The operator's account with its rights, and none of the policies."""
    name = f"tdcs-{world.cluster}"
    objects = install_rights(world.kube, release=name, namespace=world.namespace, templates=RIGHTS)
    yield name
    remove_cluster_wide(world.plane, objects)


@pytest.fixture
def thief(world: World, release: str) -> Kube:
    """A client with the operator's token."""
    return world.plane.client_as(service_account=f"{release}-operator", namespace=world.namespace)


@pytest.fixture
def policies(world: World, release: str) -> Iterator[Policies]:
    """The chart's policies, which the test puts in force."""
    made = Policies(world, release)
    yield made
    made.remove()


class Policies:
    """The chart's admission policies about the operator's account, in all namespaces."""

    def __init__(self, world: World, release: str) -> None:
        self._world = world
        self._release = release
        self._objects: list[Object] = []

    def enforce(self, probe: Object, *, by: Kube) -> None:
        """Install them, and wait until `probe` is refused."""
        self.install()
        self._world.wait(lambda: refusal(by, self._world.kube, probe))

    def install(self, values: Mapping[str, object] | None = None) -> None:
        """Install them with other values of the chart; they hold some time later."""
        self._objects = install_rights(
            self._world.kube,
            release=self._release,
            namespace=self._world.namespace,
            templates=["admission-operator"],
            values={"admissionPolicies.nodeFolders": ["/srv", "/srv/team"], **(values or {})},
            everywhere=True,
        )

    def remove(self) -> None:
        remove_cluster_wide(self._world.plane, self._objects)


def refusal(thief: Kube, admin: Kube, obj: Object) -> str:
    """Why an object is not taken; empty when it is, and then the administrator removes it."""
    try:
        thief.create(obj)
    except KubeRequestError as error:
        return str(error)
    admin.delete(obj["kind"], obj["metadata"]["name"], namespace=obj["metadata"].get("namespace"))
    return ""


def refused(call: Callable[[], object]) -> str:
    """Why a call is refused; empty when it is not."""
    try:
        call()
    except KubeRequestError as error:
        return str(error)
    return ""


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
    found = "Services and NetworkPolicies find"
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
        *((labelled(job(ours), part), found) for part in parts),
        (labelled(job(metadata(own, train)), parts[0]), found),
        *((labelled(workload(kind, ours), parts[0]), found) for kind in ("StatefulSet", "DaemonSet")),
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


def test_a_stolen_token_of_the_operator_makes_only_what_the_operator_makes(
    world: World, release: str, thief: Kube, policies: Policies
) -> None:
    attempts = thefts(world.namespace, release)
    # Its rights alone allow every one of these: without the policies this test is of nothing.
    assert [refusal(thief, world.kube, obj) for obj, _ in attempts] == [""] * len(attempts)
    policies.enforce(attempts[0][0], by=thief)
    answers = [(refusal(thief, world.kube, obj), words) for obj, words in attempts]
    assert [found for found in answers if found[1] not in found[0]] == []
    # What it makes is still to be made.
    ours = metadata(world.namespace, owner("CacheCluster"))
    allowed = [
        job(metadata("default", owner("TrainingJob"))),
        job(
            ours,
            **host_path("/var/lib/tdcs/cache/default"),
            initContainers=[adding("CHOWN", "DAC_OVERRIDE", "FOWNER", name="i")],
        ),
        volume({"csi": {"driver": "csi.tdcs.io", "volumeHandle": "x"}}),
        job(ours, **host_path("/srv"), containers=[container(volumeMounts=[{**WRITABLE, "readOnly": True}])]),
        job(metadata("default", owner("TrainingJob")), **secret_volume("keys")),
        labelled(job(ours), labels_of_part("another-release", "scheduler")),
        labelled(job(metadata("default", owner("TrainingJob"))), labels_of_part(release, "scheduler")),
        service(metadata("default", owner("TrainingJob")), clusterIP="None"),
        config_map(world.namespace, "stolen-properties", owner("CacheCluster")),
    ]
    assert [refusal(thief, world.kube, obj) for obj in allowed] == [""] * len(allowed)


def test_a_stolen_token_deletes_changes_and_takes_over_nothing_of_others(
    world: World, thief: Kube, policies: Policies
) -> None:
    kube, namespace = world.kube, world.namespace
    world.create_cluster()
    world.create_dataset()
    theirs = metadata(namespace, labelled=False)
    foreign_volume = {**volume({"hostPath": {"path": "/srv"}}), "metadata": {"name": f"other-{namespace}"}}
    release = {"type": "helm.sh/release.v1", "metadata": {**theirs, "name": "sh.helm.release.v1.x.v1"}}
    helm = {"apiVersion": "v1", "kind": "Secret", **release}
    claims = config_map(namespace, "tdcs-claims")
    for name, ttl, ended in (("lasting", False, True), ("running", True, False), ("ended", True, True)):
        for obj in endings(name, namespace, ttl=ttl):
            kube.create(obj)
            if ended:
                status = {"status": {"completionTime": "2026-01-01T00:00:00Z"}}
                kube.patch(obj["kind"], name, status, namespace=namespace, subresource="status")
    for obj in (
        job(theirs),
        claim(namespace),
        service(theirs, clusterIP="None"),
        foreign_volume,
        helm,
        claims,
    ):
        kube.create(obj)
    certificate = {"labels": secret(namespace, "x", "worker")["metadata"]["labels"]}
    policies.enforce(job(metadata("kube-system")), by=thief)
    volume_name = foreign_volume["metadata"]["name"]
    mine = {"labels": metadata("x")["labels"], "ownerReferences": [owner("TrainingJob")]}
    calls: dict[str, Callable[[], object]] = {
        "delete a Job": lambda: thief.delete("Job", "stolen", namespace=namespace),
        "take over a Job": lambda: thief.patch("Job", "stolen", {"metadata": mine}, namespace=namespace),
        "delete a claim": lambda: thief.delete("PersistentVolumeClaim", "stolen", namespace=namespace),
        "label a Service": lambda: thief.patch(
            "Service", "stolen", {"metadata": {"labels": mine["labels"]}}, namespace=namespace
        ),
        "delete a volume": lambda: thief.delete("PersistentVolume", volume_name),
        "change what Helm installs": lambda: thief.patch(
            "Secret", "sh.helm.release.v1.x.v1", {"data": {"release": "eA=="}}, namespace=namespace
        ),
        "take over a Secret": lambda: thief.patch(
            "Secret", "sh.helm.release.v1.x.v1", {"metadata": certificate}, namespace=namespace
        ),
        "change a ConfigMap": lambda: thief.patch(
            "ConfigMap", "tdcs-claims", {"data": {"kube-system.x": ""}}, namespace=namespace
        ),
        "give itself folders": lambda: thief.patch(
            "CacheCluster", world.cluster, {"spec": {"sourceFolders": ["/etc"]}}, namespace=namespace
        ),
        "label a Dataset": lambda: thief.patch(
            "Dataset", "pictures", {"metadata": {"labels": {"a": "b"}}}, namespace=namespace
        ),
        "keep a Dataset for ever": lambda: thief.patch(
            "Dataset", "pictures", {"metadata": {"finalizers": ["example.com/other"]}}, namespace=namespace
        ),
        "annotate a Dataset": lambda: thief.patch(
            "Dataset",
            "pictures",
            {"metadata": {"annotations": {"tdcs.io/refresh": "now"}}},
            namespace=namespace,
        ),
        **{
            f"delete a {kind} {name}": partial(thief.delete, kind, name, namespace=namespace)
            for kind in ("TrainingJob", "Preload")
            for name in ("lasting", "running")
        },
        "have a Dataset read elsewhere": lambda: thief.patch(
            "Dataset", "pictures", {"spec": {"placement": {"nodeCount": 1}}}, namespace=namespace
        ),
    }
    try:
        answers = {name: refused(call) for name, call in calls.items()}
        assert [name for name, answer in answers.items() if "TDCS's operator" not in answer] == []
        # Of an API server that protects owners, as this one does: the operator has no right to delete these.
        for kind, name in (("Service", "stolen"), ("Dataset", "pictures")):
            taken = refused(partial(thief.patch, kind, name, {"metadata": mine}, namespace=namespace))
            assert "cannot set an ownerRef on a resource you can't delete" in taken
        # Finalizers are its own to write.
        for kind, name in (("CacheCluster", world.cluster), ("Dataset", "pictures")):
            thief.patch(kind, name, {"metadata": {"finalizers": ["tdcs.io/finalizer"]}}, namespace=namespace)
        # So is the end of what has ended, as its author has asked.
        for kind in ("TrainingJob", "Preload"):
            thief.delete(kind, "ended", namespace=namespace)
    finally:
        kube.delete("PersistentVolume", volume_name)


def test_a_stolen_token_runs_no_pod_and_reads_no_secret_outside_of_its_namespaces(
    world: World, thief: Kube
) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "stolen", "namespace": "kube-system"},
        "spec": {"containers": [container()]},
    }
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs", "namespace": "default"}}
    world.kube.create(secret)
    try:
        calls: list[Callable[[], object]] = [
            lambda: thief.create(pod),
            lambda: thief.create({**pod, "metadata": {"name": "stolen", "namespace": world.namespace}}),
            lambda: thief.get("Secret", "theirs", namespace="default"),
            lambda: thief.list("Secret", namespace="kube-system"),
            lambda: thief.create_under(
                "ServiceAccount", "default", "token", {"spec": {}}, namespace="kube-system"
            ),
        ]
        for call in calls:
            with pytest.raises(KubeRequestError) as error:
                call()
            assert error.value.code == 403
    finally:
        world.kube.delete("Secret", "theirs", namespace="default")


def test_with_given_certificates_no_pod_mounts_the_key_of_their_authority(
    world: World, release: str, thief: Kube, policies: Policies
) -> None:
    ours = metadata(world.namespace, owner("CacheCluster"))
    policies.install({"trust.provider": "certManager"})
    authority, another, own = (
        workload("StatefulSet", ours, **secret_volume(name))
        for name in (f"{release}-trust-ca", "another-worker-trust", f"{release}-trust-worker")
    )
    world.wait(lambda: refusal(thief, world.kube, authority))
    assert "any other Secret" in refusal(thief, world.kube, another)
    assert refusal(thief, world.kube, own) == ""


def test_nobody_forges_a_volume_or_a_status_in_the_operators_place(
    world: World, thief: Kube, policies: Policies
) -> None:
    kube = world.kube
    world.create_dataset()
    forged = volume(
        {
            "csi": {
                "driver": "csi.tdcs.io",
                "volumeHandle": "x",
                "volumeAttributes": {"cluster": world.cluster, "path": "/datasets/0123456789abcdef"},
            }
        }
    )
    status = {"status": {"mountPath": "/datasets/0123456789abcdef"}}

    def write(client: Kube) -> str:
        return refused(
            lambda: client.patch(
                "Dataset", "pictures", status, namespace=world.namespace, subresource="status"
            )
        )

    assert write(kube) == refusal(kube, kube, forged) == ""
    policies.enforce(job(metadata("kube-system")), by=thief)
    assert "only TDCS's operator writes the status" in write(kube)
    assert "are made by TDCS's operator" in refusal(kube, kube, forged)
    # The name of another tenant's Dataset to come, which could have no volume then.
    taken = volume({"hostPath": {"path": "/srv"}})
    assert "are made by TDCS's operator" in refusal(kube, kube, taken)
    taken["metadata"]["name"] = "of-another-driver"
    assert refusal(kube, kube, taken) == ""
    assert write(thief) == ""
    thief.create(forged)
    name = forged["metadata"]["name"]
    # As the controllers of Kubernetes do; but not to another tenant's.
    kube.patch("PersistentVolume", name, {"metadata": {"annotations": {"a": "b"}}})
    stolen = {"metadata": {"labels": {"tdcs.io/dataset-uid": "another"}}}
    assert "are made by TDCS's operator" in refused(lambda: kube.patch("PersistentVolume", name, stolen))
    kube.delete("PersistentVolume", name)


def test_with_kueue_the_operator_creates_preloads_of_workloads_and_no_others(
    world: World, release: str, thief: Kube, policies: Policies
) -> None:
    kube, namespace = world.kube, world.namespace
    workload_of_kueue = {**owner("Workload", "job-x"), "apiVersion": "kueue.x-k8s.io/v1beta2"}

    def preload(*owners: Object) -> Object:
        return {
            "apiVersion": API_VERSION,
            "kind": "Preload",
            "metadata": {"name": "ahead-pictures", "namespace": namespace, "ownerReferences": list(owners)},
            "spec": {"datasetRef": {"name": "pictures"}},
        }

    ahead = preload(workload_of_kueue)
    others = [preload(), preload(owner("Workload")), preload(owner("TrainingJob"))]
    enabled = {"kueue.enabled": True}
    rights = install_rights(kube, release=release, namespace=namespace, templates=["kueue"], values=enabled)
    try:
        assert [refusal(thief, kube, obj) for obj in (ahead, *others)] == [""] * 4
        policies.enforce(ahead, by=thief)  # those of a chart without Kueue
        policies.install(enabled)
        world.wait(lambda: not refusal(thief, kube, ahead))
        words = "creates none of them but Preloads that Workloads of Kueue own"
        assert [answer for obj in others if words not in (answer := refusal(thief, kube, obj))] == []
    finally:
        remove_cluster_wide(world.plane, rights)
