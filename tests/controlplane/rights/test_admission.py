"""What kubectl apply refuses: sources that no rule allows, and pods with another's rights."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from tests.controlplane.operator_command import install_rights, remove_cluster_wide
from tests.controlplane.operator_world import API_VERSION, World, world
from tests.support.kube import Kube, KubeRequestError, Object
from tests.support.waiting import eventually

from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.api.source_uri import endpoint_of
from tdcs.decide.source_rules import judge_source

__all__ = ["world"]

INSIDE = "http://store.tdcs-store.svc:7070"
FOLDERS = ["/nfs/a", "/nfs/shared", "/nfs/others", "/nfs/all"]


@pytest.fixture
def release(world: World) -> Iterator[str]:
    """The chart's policies for users, in all namespaces."""
    name = f"tdcs-{world.cluster}"
    objects = install_rights(
        world.kube,
        release=name,
        namespace=world.namespace,
        templates=["admission"],
        values={
            "admissionPolicies.nodeFolders": FOLDERS,
            "admissionPolicies.nodeAccessNamespaces": ["elsewhere"],
        },
        everywhere=True,
    )
    yield name
    remove_cluster_wide(world.plane, objects)


def refusal(kube: Kube, obj: Object) -> str:
    """Why an object is not taken, as the server says; empty when it is, and then it goes again."""
    try:
        kube.create(obj)
    except KubeRequestError as error:
        return str(error)
    kube.delete(obj["kind"], obj["metadata"]["name"], namespace=obj["metadata"]["namespace"])
    return ""


def dataset(world: World, uri: str, endpoint: str | None = None) -> Object:
    keys = {"secretRef": {"name": "keys"}} if uri.startswith("s3") else {}
    options = {"options": {"endpoint": endpoint}} if endpoint else {}
    return {
        "apiVersion": API_VERSION,
        "kind": "Dataset",
        "metadata": {"name": "probe", "namespace": world.namespace},
        "spec": {"source": {"uri": uri, **keys, **options}, "cacheClusterRef": {"name": world.cluster}},
    }


RULES: list[list[dict[str, Any]]] = [
    [],
    [
        {"name": "inside", "endpoints": [INSIDE + "/"], "buckets": ["images", "shared/team"]},
        {
            "name": "others",
            "namespaceSelector": {"matchLabels": {"team": "others"}},
            "endpoints": ["*"],
            "folders": ["/nfs/others"],
        },
        {
            "name": "folders",
            "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
            "folders": ["/nfs/all"],
        },
    ],
    [
        {
            "name": "any-store",
            "namespaceSelector": {
                "matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["others"]}]
            },
            "endpoints": ["*"],
            "buckets": ["images"],
        },
        {
            "name": "loopback",
            "endpoints": ["http://127.0.0.1:9000", "http://[::1]", "http://169.254.169.254"],
        },
        {
            "name": "in",
            "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["x"]}]},
            "endpoints": ["http://store"],
        },
    ],
    [{"name": "buckets", "buckets": ["shared/team/"]}],
    [
        {"name": "web", "endpoints": ["https://data.example"], "buckets": ["sets/a", "Data_2/"]},
        {"name": "hub", "endpoints": ["https://huggingface.co"], "buckets": ["datasets/team", "models/team"]},
        {"name": "google", "endpoints": ["https://storage.googleapis.com"], "buckets": ["images"]},
        {"name": "azure", "endpoints": ["https://account.blob.core.windows.net"]},
    ],
]
URIS = [
    "s3://images",
    "s3://images2",
    "s3://images/a",
    "s3://shared/team/x",
    "s3://shared/team2",
    "s3://shared//team",
]
ENDPOINTS = [
    None, INSIDE, "http://STORE.tdcs-store.svc.:7070/", "https://store.example", "https://store.example:443",
    "http://127.0.0.1:9000", "http://[::1]:80", "http://[0:0:0:0:0:0:0:1]", "http://store:80/", "http://store:9000",
    "https://kubernetes.default.SVC", "http://metadata.google.internal", "http://169.254.169.254",
    "http://169.254.169.254:80/", "http://[fe80::1]:80", "http://100.100.100.200", "http://0.0.0.0", "http://224.0.0.1",
    "http://250.0.0.1", "http://8.8.8.8", "http://s.cluster.local",
    "http://[::ffff:169.254.169.254]", "http://[::ffff:7f00:1]", "http://0x7f.1", "http://127.1",
    "http://[::ffff:8.8.8.8]", "http://[::ffff:0:0]", "http://minio.rack.12", "http://2130706433:9000",
]  # fmt: skip
OTHER_STORES: list[tuple[str, str | None]] = [
    ("https://data.example/sets/a", None), ("https://data.example/sets//a/b/", None),
    ("https://data.example/sets/ab", None),
    ("https://data.example", None), ("https://data.example/Data_2/x", None),
    ("http://data.example/sets/a", None), ("https://data.example:8443/sets/a", None),
    ("https://127.0.0.1/sets/a", None), ("http://169.254.169.254/latest", None),
    ("http://store.tdcs-store.svc/x", None),
    ("hf://datasets/team/images", None), ("hf://datasets/others/images", None), ("hf://team/model", None),
    ("hf://models/team/model", None), ("hf://spaces/team/app", None), ("hf://team/model", "https://hub.example"),
    ("gs://images", None), ("gs://images/a", None), ("gs://other", None), ("gs://images", "https://google.example"),
    ("az://account/images", None), ("az://another/images", None), ("az://account/images", "https://azure.example"),
    ("abfss://images@account.dfs.core.windows.net/a", None), ("abfs://images@another.blob.core.windows.net/a", None),
    ("pvc://claim", None), ("pvc://claim/a/b", None),
]  # fmt: skip
FILES = ["file:///etc", "file:///nfs/all", "file:///nfs//all/deep/", "file:///nfs/all2", "file:///nfs/others"]


@pytest.mark.threat("others-buckets")
def test_apply_refuses_exactly_the_sources_that_the_operators_rules_refuse(
    world: World, release: str
) -> None:
    kube, namespace = world.kube, world.namespace
    assert refusal(kube, dataset(world, "file:///etc")) == ""  # without its CacheCluster it waits
    world.create_cluster()
    sources = [(uri, endpoint) for uri, endpoint in itertools.product(URIS, ENDPOINTS)]
    sources += [*OTHER_STORES, *((uri, None) for uri in FILES)]
    for number, rules in enumerate(RULES):
        spec = {"sources": rules, "sourceFolders": ["/nfs/shared"] if number == 1 else []}
        kube.patch("CacheCluster", world.cluster, {"spec": spec}, namespace=namespace)
        first = "s3://images" if number == 0 else f"s3://of-no-rule-{number}"
        parsed = CacheClusterSpec.model_validate(spec)

        def judged(uri: str, endpoint: str | None, parsed: CacheClusterSpec = parsed) -> bool:
            verdict = judge_source(
                rules=parsed.sources,
                shared_folders=parsed.source_folders,
                namespace=namespace,
                labels={},
                uri=uri,
                endpoint=endpoint_of(uri, named=endpoint),
                path_style=None,
                cluster=world.cluster,
            )
            return verdict.refusal is not None

        # The API server learns of the rules a moment later.
        probes = [(first, None), ("s3://images", INSIDE), ("s3://images/x", "https://store.example")]
        world.wait(
            lambda probes=probes, judged=judged: all(  # type: ignore[misc]
                bool(refusal(kube, dataset(world, *probe))) == judged(*probe) for probe in probes
            )
        )
        answers = {source: refusal(kube, dataset(world, *source)) for source in sources}
        differing = [(source, words) for source, words in answers.items() if bool(words) != judged(*source)]
        assert not differing, (number, differing[:5])
        assert all("spec.source" in words for words in answers.values() if words)
        assert any(answers.values())
        odd = [
            words
            for (_, endpoint), words in answers.items()
            if endpoint in {"http://0x7f.1", "http://[::ffff:8.8.8.8]"}
        ]
        assert all(
            "is an address in an odd form: write an IPv4 address as four decimal numbers" in message
            for message in odd
        )


def test_a_cluster_with_folders_that_its_pods_could_not_mount_is_refused(world: World, release: str) -> None:
    def cluster(**spec: object) -> Object:
        return {
            "apiVersion": API_VERSION,
            "kind": "CacheCluster",
            "metadata": {"name": world.cluster, "namespace": world.namespace},
            "spec": spec,
        }

    rule = {"name": "a", "folders": ["/nfs/a", "/srv"]}
    alongside = {"name": "b", "folders": ["/nfs"]}
    for spec in (
        {"sourceFolders": ["/etc"]},
        {"storage": {"tiers": [{"path": "/root/x"}]}},
        {"sources": [rule]},
        # Who writes to a folder could have planted a link there.
        {"sourceFolders": ["/nfs/a/below"]},
        {"storage": {"tiers": [{"path": "/var/lib/tdcs/cache/x/below"}]}},
        {"storage": {"tiers": [{"path": "/var/lib/tdcs/cache"}]}},
        {"sourceFolders": ["/nfs/a"], "sources": [alongside]},
    ):
        world.wait(lambda spec=spec: "nodeFolders" in refusal(world.kube, cluster(**spec)))  # type: ignore[misc]
    allowed = {"sourceFolders": ["/nfs/a"], "storage": {"tiers": [{"path": "/var/lib/tdcs/cache/x"}]}}
    assert refusal(world.kube, cluster(**allowed)) == ""
    # Not mounted, for it is in one that is.
    inside = {"name": "inside", "folders": ["/nfs/a/team"]}
    assert refusal(world.kube, cluster(sourceFolders=["/nfs/a"], sources=[inside])) == ""


def job(world: World, **pod: object) -> Object:
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}], **pod}
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingJob",
        "metadata": {"name": "probe", "namespace": world.namespace},
        "spec": {"replicaSpecs": [{"name": "Worker", "template": {"spec": spec}}]},
    }


def account(world: World, name: str, *rules: Object) -> Kube:
    """A client of a new ServiceAccount that may write TrainingJobs, and what else the rules say."""
    group, meta = "rbac.authorization.k8s.io", {"name": name, "namespace": world.namespace}
    jobs = {"apiGroups": ["tdcs.io"], "resources": ["trainingjobs"], "verbs": ["create", "delete", "patch"]}
    world.kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    world.kube.create(
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": [jobs, *rules]}
    )
    world.kube.create(
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", **meta}],
        }
    )
    return world.plane.client_as(service_account=name, namespace=world.namespace)


def roles(world: World, *accounts: str) -> Object:
    """A job of which each role names an account."""
    obj = job(world)
    (spec,) = obj["spec"]["replicaSpecs"]
    names = ("Worker", "Chief", "Evaluator")
    obj["spec"]["replicaSpecs"] = [
        {
            **spec,
            "name": role,
            "template": {"spec": {**spec["template"]["spec"], "serviceAccountName": name}},
        }
        for role, name in zip(names, accounts, strict=False)
    ]
    return obj


@pytest.mark.threat("foreign-service-account")
def test_a_job_runs_as_no_account_that_its_author_could_not_use(world: World, release: str) -> None:
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
    rule = {
        "apiGroups": [""],
        "resources": ["serviceaccounts"],
        "resourceNames": ["powerful"],
        "verbs": ["use"],
    }
    author, runner, user = (
        account(world, "author"),
        account(world, "runner", pods),
        account(world, "user", rule),
    )
    words = "may not run pods as ServiceAccount powerful"
    world.wait(lambda: words in refusal(author, job(world, serviceAccountName="powerful")), deadline=30)
    assert words in refusal(author, job(world, serviceAccount="powerful"))
    assert refusal(author, job(world)) == refusal(author, job(world, serviceAccountName="default")) == ""
    assert refusal(user, job(world, serviceAccountName="powerful")) == ""
    assert "as ServiceAccount other" in refusal(user, job(world, serviceAccountName="other"))
    assert refusal(runner, job(world, serviceAccountName="powerful")) == ""
    # Roles of one job name the same account, or two.
    account_of_both = account(world, "both", {**rule, "resourceNames": ["powerful", "strong"]})
    world.wait(lambda: refusal(account_of_both, roles(world, "powerful", "strong")) == "", deadline=30)
    assert refusal(account_of_both, roles(world, "powerful", "powerful")) == ""
    assert words in refusal(author, roles(world, "powerful", "powerful"))
    assert "may not run pods as ServiceAccount powerful, strong" in refusal(
        user, roles(world, "powerful", "strong")
    )
    # Of a job that another made, with that account, only what is no template can be changed, also while it waits.
    runner.create(job(world, serviceAccountName="powerful"))
    specs = job(world, serviceAccountName="powerful")["spec"]["replicaSpecs"]
    specs[0]["template"]["spec"]["containers"][0]["image"] = "evil"
    with pytest.raises(KubeRequestError, match="may not run pods as ServiceAccount powerful"):
        author.patch("TrainingJob", "probe", {"spec": {"replicaSpecs": specs}}, namespace=world.namespace)
    author.patch("TrainingJob", "probe", {"metadata": {"labels": {"a": "b"}}}, namespace=world.namespace)
    world.kube.delete("TrainingJob", "probe", namespace=world.namespace)


def confined(**context: object) -> Object:
    """A pod with one container that has this security context."""
    return {"containers": [{"name": "main", "image": "x", "securityContext": context}]}


def asking(field: str, **request: object) -> Object:
    """A pod with a probe or a hook; kubelet makes the request from the node."""
    action: Object = {"port": 80, **request}
    container_part = (
        {field: {"httpGet": action}}
        if field.endswith("Probe")
        else {"lifecycle": {field: {"tcpSocket": action}}}
    )
    return {"containers": [{"name": "main", "image": "x", **container_part}]}


PROBES = ("livenessProbe", "readinessProbe", "startupProbe", "postStart", "preStop")
UNCONFINED: list[Object] = [
    *(asking(field, host="169.254.169.254") for field in PROBES),
    confined(procMount="Unmasked"),
    confined(seccompProfile={"type": "Unconfined"}),
    confined(appArmorProfile={"type": "Unconfined"}),
    confined(seLinuxOptions={"type": "spc_t"}),
    confined(seLinuxOptions={"user": "system_u"}),
    confined(windowsOptions={"hostProcess": True}),
    {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
    {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
    {"securityContext": {"seLinuxOptions": {"role": "system_r"}}},
    {"securityContext": {"windowsOptions": {"hostProcess": True}}},
    {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
]
"""Pods without what the Pod Security Standard "baseline" asks for."""

CONFINEMENTS = ("seccompProfile", "appArmorProfile", "seLinuxOptions", "windowsOptions", "procMount")
APP_ARMOR = {"container.apparmor.security.beta.kubernetes.io/main": "unconfined"}


@pytest.mark.threat("node-by-job")
def test_no_annotation_takes_app_armor_from_the_pods_of_a_job(world: World, release: str) -> None:
    by_template = job(world)
    by_template["spec"]["replicaSpecs"][0]["template"]["metadata"] = {"annotations": APP_ARMOR}
    by_job = job(world)
    by_job["metadata"]["annotations"] = APP_ARMOR
    for obj in (by_template, by_job):
        world.wait(lambda obj=obj: "AppArmor" in refusal(world.kube, obj))  # type: ignore[misc]
    by_job["metadata"]["annotations"] = {next(iter(APP_ARMOR)): "runtime/default"}
    by_template["spec"]["replicaSpecs"][0]["template"]["metadata"] = {"annotations": None}
    assert refusal(world.kube, by_job) == refusal(world.kube, by_template) == ""


def test_a_target_on_a_job_and_not_on_its_pods_is_refused(world: World, release: str) -> None:
    for field in ("annotations", "labels"):
        obj = job(world)
        obj["metadata"][field] = {"tdcs.io/target": "x86-64-v3"}
        world.wait(lambda obj=obj: "tdcs.io/target belongs to the pods" in refusal(world.kube, obj))  # type: ignore[misc]
    obj = job(world)
    obj["spec"]["replicaSpecs"][0]["template"]["metadata"] = {"annotations": {"tdcs.io/target": "x86-64-v3"}}
    assert refusal(world.kube, obj) == ""


@pytest.mark.threat("secrets-by-job")
def test_a_job_reads_no_secret_that_its_author_could_not_read(world: World, release: str) -> None:
    main = {"name": "main", "image": "x"}
    variable = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "key"}}}
    driver = {"driver": "keys.example", "nodePublishSecretRef": {"name": "keys"}}
    readers: list[Object] = [
        {"volumes": [{"name": "s", "secret": {"secretName": "keys"}}]},
        {"volumes": [{"name": "s", "projected": {"sources": [{"secret": {"name": "keys"}}]}}]},
        {"volumes": [{"name": "s", "csi": driver}]},
        {"containers": [{**main, "env": [variable]}]},
        {"initContainers": [{**main, "name": "i", "envFrom": [{"secretRef": {"name": "keys"}}]}]},
    ]
    author = account(world, "author")
    runner = account(world, "runner", {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]})
    reader = account(world, "reader", {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]})
    words = "may not have pods read the Secrets"
    for pod in readers:
        world.wait(lambda pod=pod: words in refusal(author, job(world, **pod)))  # type: ignore[misc]
        assert refusal(runner, job(world, **pod)) == refusal(reader, job(world, **pod)) == ""
    without: list[Object] = [
        {"volumes": [{"name": "c", "configMap": {"name": "c"}}], "imagePullSecrets": [{"name": "pull"}]},
        {"volumes": [{"name": "s", "secret": None, "projected": None, "csi": None, "emptyDir": {}}]},
        {"containers": [{**main, "env": [{"name": "A", "valueFrom": None}], "envFrom": None}]},
    ]
    for plain in without:
        assert refusal(author, job(world, **plain)) == "", plain


@pytest.mark.threat("node-by-job")
def test_pods_of_jobs_use_no_node_unless_their_namespace_may(world: World, release: str) -> None:
    main = {"name": "main", "image": "x"}
    for pod in (
        {"volumes": [{"name": "h", "hostPath": {"path": "/"}}]},
        {"hostNetwork": True},
        {"hostPID": True},
        {"hostIPC": True},
        {"containers": [{**main, "securityContext": {"privileged": True}}]},
        {"containers": [{**main, "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}}]},
        {"initContainers": [{**main, "name": "i", "ports": [{"containerPort": 1, "hostPort": 1}]}]},
        *UNCONFINED,
    ):
        world.wait(lambda pod=pod: "nodeAccessNamespaces" in refusal(world.kube, job(world, **pod)))  # type: ignore[misc]
    safe = {
        "seccompProfile": {"type": "RuntimeDefault"},
        "appArmorProfile": {"type": "Localhost", "localhostProfile": "p"},
        "seLinuxOptions": {"type": "container_t", "level": "s0:c1,c2"},
    }
    shared = {**safe, "sysctls": [{"name": "net.ipv4.tcp_fin_timeout", "value": "9"}]}
    pod_spec = {**confined(**safe, procMount="Default"), "securityContext": shared}
    assert refusal(world.kube, job(world, **pod_spec)) == ""
    for field in PROBES:
        assert refusal(world.kube, job(world, **asking(field, host=None))) == ""
    pinned = {"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}  # as RDMA takes it
    assert refusal(world.kube, job(world, containers=[{**main, **pinned}])) == ""
    allowed = {**job(world, hostNetwork=True), "metadata": {"name": "probe", "namespace": "elsewhere"}}
    world.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})
    try:
        assert refusal(world.kube, allowed) == ""
    finally:
        world.kube.delete("Namespace", "elsewhere")


def test_fields_without_a_value_are_taken_as_a_job_takes_them(world: World, release: str) -> None:
    main = {"name": "main", "image": "x"}
    privileged = {"containers": [{**main, "securityContext": {"privileged": True}}]}
    probe = {"exec": {"command": ["true"]}}
    world.wait(lambda: "nodeAccessNamespaces" in refusal(world.kube, job(world, **privileged)))
    author = account(world, "author")
    pod_specs: list[Object] = [
        {"volumes": None, "initContainers": None},
        {"hostNetwork": None, "hostPID": None, "hostIPC": None},
        {"serviceAccountName": None, "serviceAccount": None},
        {"volumes": [{"name": "h", "hostPath": None, "emptyDir": {}}]},
        {"containers": [{**main, "ports": None, "securityContext": None}]},
        {"containers": [{**main, "securityContext": {"privileged": None, "capabilities": None}}]},
        {"containers": [{**main, "securityContext": {"capabilities": {"add": None}}}]},
        {
            **confined(**dict.fromkeys(CONFINEMENTS)),
            "securityContext": {**dict.fromkeys(CONFINEMENTS), "sysctls": None},
        },
        confined(seLinuxOptions={"type": None, "user": None, "role": None}, seccompProfile={"type": None}),
        {"containers": [{**main, "ports": [{"containerPort": 1, "hostPort": None}]}]},
        {"containers": [{**main, "livenessProbe": None, "lifecycle": None}]},
        {
            "containers": [
                {**main, "startupProbe": {**probe, "httpGet": None}, "lifecycle": {"preStop": None}}
            ]
        },
    ]
    for pod in pod_specs:
        assert refusal(author, job(world, **pod)) == "", pod
    for hidden in (
        {**privileged, "volumes": None},
        {"hostNetwork": True, "initContainers": None},
        {"volumes": [{"name": "h", "hostPath": {"path": "/"}}], "containers": [{**main, "ports": None}]},
    ):
        assert "may not use the node" in refusal(author, job(world, **hidden)), hidden


def written(world: World, found: Object, **status: Any) -> None:
    """An object of that status, made if need be."""
    kind, name = found["kind"], found["metadata"]["name"]
    namespace = found["metadata"]["namespace"]
    if world.kube.find(kind, name, namespace=namespace) is None:
        world.kube.create(found)
    patch = {"status": {"conditions": [], **status}}
    world.kube.patch(kind, name, patch, namespace=namespace, subresource="status")


def refused_deletion(world: World, found: Object) -> str:
    """Why an object is not deleted, as the server says; empty when it is."""
    metadata = found["metadata"]
    try:
        world.kube.delete(found["kind"], metadata["name"], namespace=metadata["namespace"])
    except KubeRequestError as error:
        return str(error)
    return ""


def test_a_dataset_that_other_pods_read_is_deleted_on_request_only(world: World, release: str) -> None:
    kube, obj = world.kube, dataset(world, "file:///nfs/all")
    name, namespace = obj["metadata"]["name"], world.namespace

    def told(**status: Any) -> str:
        written(world, obj, **status)
        return refused_deletion(world, obj)

    # The server takes a moment to know the policy.
    world.wait(lambda: bool(told(usedBy=["web-1", "web-2"])))
    message = told(usedBy=["web-1", "web-2"])
    assert "is read by pods that would not start again without it (web-1, web-2):" in message
    assert f"kubectl annotate dataset {name} -n {namespace} tdcs.io/delete-in-use=true" in message
    written(world, obj, usedBy=None, usedElsewhere=2)
    message = refused_deletion(world, obj)
    assert "is read by pods of 2 other namespaces with which it is shared (spec.sharedWith)" in message
    assert "tdcs.io/delete-in-use=true" in message
    written(world, obj, usedElsewhere=None)
    assert refused_deletion(world, obj) == ""
    assert "web-1" in told(usedBy=["web-1"])
    forced = {"metadata": {"annotations": {"tdcs.io/delete-in-use": "yes"}}}
    kube.patch("Dataset", name, forced, namespace=namespace)
    assert refused_deletion(world, obj) == ""


def test_a_namespace_is_deleted_with_a_dataset_in_use(world: World, release: str) -> None:
    namespace = f"{world.namespace}-gone"
    world.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    obj = dataset(world, "file:///nfs/all")
    obj["metadata"]["namespace"] = namespace

    def told() -> str:
        written(world, obj, usedBy=["web-1"])
        return refused_deletion(world, obj)

    world.wait(lambda: bool(told()))
    world.kube.delete("Namespace", namespace)
    world.wait(lambda: world.kube.find("Namespace", namespace) is None)


def test_what_cannot_be_taken_back_or_comes_to_nothing_is_a_warning(world: World, release: str) -> None:
    """As kubectl prints it, of deletions that wait and of changes of what is being deleted."""
    kube, dataset_object = world.kube, dataset(world, "file:///nfs/all")
    name, namespace = dataset_object["metadata"]["name"], world.namespace
    cluster: Object = {
        "apiVersion": API_VERSION,
        "kind": "CacheCluster",
        "metadata": {"name": world.cluster, "namespace": namespace},
        "spec": {},
    }

    def warned(obj: Object, **status: Any) -> str:
        written(world, obj, **status)
        kube.warnings.clear()
        assert refused_deletion(world, obj) == ""
        return " | ".join(kube.warnings)

    world.wait(
        lambda: bool(warned(dataset_object, activeJobs=2))
    )  # the server takes a moment to know the policy
    warning = warned(dataset_object, activeJobs=2)
    assert (
        f"Dataset {namespace}/{name} is read by 2 TrainingJobs: its deletion cannot be taken back" in warning
    )
    assert f"kubectl get trainingjobs -n {namespace}" in warning
    assert warned(dataset_object, activeJobs=0) == ""
    warning = warned(cluster, datasets=1)
    assert (
        f"CacheCluster {namespace}/{world.cluster} is the cache of 1 Dataset: its deletion cannot" in warning
    )
    assert warned(cluster) == ""

    dataset_object["metadata"]["finalizers"] = ["tdcs.io/finalizer"]
    assert warned(dataset_object) == ""
    kube.warnings.clear()
    kube.patch("Dataset", name, {"metadata": {"labels": {"team": "a"}}}, namespace=namespace)
    assert kube.warnings == []
    kube.patch("Dataset", name, {"spec": {"placement": {"copies": 2}}}, namespace=namespace)
    assert "is being deleted, so this change of its spec comes to nothing: wait until" in kube.warnings[0]
    kube.patch("Dataset", name, {"metadata": {"finalizers": None}}, namespace=namespace)


@pytest.mark.parametrize(
    ("container", "is_warned"),
    [
        ({"command": ["/data/bin/train"]}, True),
        ({"command": ["python", "/data/app/train.py"]}, True),
        ({"args": ["/data/start.sh"]}, True),
        ({"command": ["python", "train.py"], "workingDir": "/data/app"}, True),
        ({"command": ["python", "train.py"], "workingDir": "/app"}, False),
        ({"command": ["/app/train", "/data/train"], "args": ["--labels=/data/labels.py"]}, False),
        ({"command": ["python", "/database/train.py"], "workingDir": "/data"}, False),
        ({}, False),
    ],
)
def test_a_volume_over_the_program_of_the_image_is_a_warning(
    world: World, release: str, container: Object, is_warned: bool
) -> None:
    del release

    def warnings(words: Object) -> list[str]:
        obj = job(world)
        obj["spec"]["datasets"] = [{"name": "pictures", "mountPath": "/data"}]
        obj["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0] |= words
        world.kube.warnings.clear()
        world.kube.create(obj, dry_run=True)
        return [text for text in world.kube.warnings if "hide those of the image" in text]

    world.wait(
        lambda: bool(warnings({"command": ["/data/x"]}))
    )  # the server takes a moment to know the policy
    given = warnings(container)
    assert bool(given) is is_warned
    assert all("a program of the role Worker" in text for text in given)


@pytest.mark.parametrize("kind", ["CacheCluster", "Dataset", "TrainingJob"])
def test_what_is_being_deleted_is_not_scaled(world: World, release: str, kind: str) -> None:
    del release
    kube, namespace = world.kube, world.namespace
    obj = dataset(world, "file:///nfs/all")
    if kind == "CacheCluster":
        obj |= {"kind": kind, "spec": {}}
    if kind == "TrainingJob":
        obj = job(world)
        obj["spec"] |= {"framework": "PyTorch", "elastic": {"minReplicas": 1, "maxReplicas": 5}}
    name = obj["metadata"]["name"]
    finalizers = ["tdcs.io/finalizer"]
    kube.create({**obj, "metadata": {**obj["metadata"], "finalizers": finalizers}})
    # Another one that is being deleted is no reason.
    other = {**obj["metadata"], "name": "other", "finalizers": finalizers}
    kube.create({**obj, "metadata": other})
    kube.delete(kind, "other", namespace=namespace)

    def scaled(name: str, count: int) -> str:
        try:
            patch = {"spec": {"replicas": count}}
            kube.patch(kind, name, patch, namespace=namespace, subresource="scale")
        except KubeRequestError as error:
            return str(error)
        return ""

    counts = itertools.cycle([2, 3])
    # The server takes a moment to know the policy.
    world.wait(lambda: "is being deleted" in scaled("other", next(counts)))
    assert scaled(name, 2) == ""
    kube.delete(kind, name, namespace=namespace)
    world.wait(lambda: bool(scaled(name, next(counts))))
    assert f"{kind} {namespace}/{name} is being deleted, so scaling it comes to nothing" in scaled(name, 1)
    for gone in (name, "other"):
        kube.patch(kind, gone, {"metadata": {"finalizers": None}}, namespace=namespace)


@pytest.mark.parametrize(
    ("annotation", "wrong", "right"),
    [
        ("tdcs.io/share-weight", ["two", "-1", "inf", ""], ["2", "0.5", "0"]),
        ("tdcs.io/queue-stop-policy", ["hold", "Stop", ""], ["Hold", "HoldAndDrain", "None"]),
    ],
)
def test_a_namespace_takes_no_annotation_of_the_queue_that_does_not_count(
    world: World, release: str, annotation: str, wrong: list[str], right: list[str]
) -> None:
    del release

    def annotate(value: str | None) -> str:
        """Why the value is not taken, in place of none; empty when it is."""
        try:
            for annotation_value in (None, value):
                world.kube.patch(
                    "Namespace",
                    world.namespace,
                    {"metadata": {"annotations": {annotation: annotation_value}}},
                )
        except KubeRequestError as error:
            return str(error)
        return ""

    field = f"metadata.annotations[{annotation}]"
    for value in wrong:
        eventually(lambda value=value: field in annotate(value), deadline=60)  # type: ignore[misc]
    for good in (*right, None):
        assert annotate(good) == ""
