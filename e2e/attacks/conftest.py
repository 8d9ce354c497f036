"""What all attacks share, made once: the tenant, a victim, stores outside of the cluster, and a cache with a folder."""

import base64
import json
import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import eventually

from e2e.attacks import false_stores, outside, rpc_calls
from e2e.attacks.outside import Outside
from e2e.attacks.tenant import Tenant, rights
from e2e.chaos.nodes import Node
from e2e.conftest import FAILED, RESTRICTED, describe
from e2e.support.pods import NOBODY, UNPRIVILEGED
from tdcs.api import names
from tdcs_local import demo
from tdcs_local.kind import images, release
from tdcs_local.kind.kubectl import Kubectl, Object
from tdcs_local.progress import Reporter
from tdcs_local.store import datasets, operations
from tdcs_local.store.operations import Made

SYSTEM = release.NAMESPACE
CACHE = "attacks"
"""The cache that may read a folder of its one node."""
SHARED = "/var/lib/tdcs/attacks-shared"
FOLDER = f"{SHARED}/mine"
SECRETS = f"{SHARED}/secrets"
QUICK = {
    "operator.revokedKeysSeconds": "30",
    "admissionPolicies.nodeFolders": f"{{{FOLDER},{SECRETS}}}",
}
INSIDE, SECRET = "what the tenant may read", "what is outside of the folder"
BUCKET = "e2e-attacks"
VICTIM = "pictures"
HOST = "store.attacker.example"
METADATA_ADDRESS = "169.254.169.254"
KEYS = "outside"
CALLER = "caller"
"""The pod that makes the ten calls, and its label."""
POLICY = "e2e-attacks"
STOLEN_ROLES = rpc_calls.ROLES

MAKE_FOLDER = f"""
rm -rf {SHARED} && mkdir -p {FOLDER} {SECRETS}
printf '%s' '{INSIDE}' > {FOLDER}/a
printf '%s' '{SECRET}' > {SECRETS}/key
ln -s ../secrets/key {FOLDER}/link
ln -s ../secrets {FOLDER}/deep
ln -s . {FOLDER}/again
ln -s . {FOLDER}/and-again
chmod -R a+rX {SHARED}
"""
# The operator looks names up as its pod does, in this file first, and as absolute ones. It is changed in place, because
# the pod has it mounted.
SET_HOST = """
file=/var/lib/kubelet/pods/$1/etc-hosts
rest=$(grep -v " $2\\$" "$file")
printf '%s\\n' "$rest" > "$file"
if [ -n "$3" ]; then printf '%s %s. %s\\n' "$3" "$2" "$2" >> "$file"; fi
"""


@dataclass(frozen=True, kw_only=True)
class World:
    """What there is.

    Attributes:
        kubectl: of the administrator.
        tenant: who attacks.
        victim: the namespace of another tenant, with the Dataset `pictures`.
        outside: the stores outside of the cluster.
        node: with the cache of the folder.
        nodes: all workers; the master of that cache is on any of them.
        trusted: whether the release has certificates.
        volumes: PersistentVolumes that the tests made.
    """

    kubectl: Kubectl
    tenant: Tenant
    victim: str
    outside: Outside
    node: Node
    nodes: list[Node]
    trusted: bool
    volumes: list[str] = field(default_factory=list)

    def resolve(self, address: str) -> None:
        """Have the operator find the attacker's store at an address; empty: nowhere."""
        selector = "app.kubernetes.io/component=operator"
        for pod in self.kubectl.list("pods", namespace=SYSTEM, selector=selector):
            if not pod["metadata"].get("deletionTimestamp"):
                Node(pod["spec"]["nodeName"]).run(SET_HOST, pod["metadata"]["uid"], HOST, address)


def dataset(name: str, *, namespace: str, uri: str, port_or_endpoint: str = "", **spec: Any) -> Object:
    """A Dataset; of a bucket with an endpoint and the keys of the stores outside, or of a folder."""
    source: dict[str, Any] = {"uri": uri, **spec.pop("source", {})}
    if port_or_endpoint:
        source["options"] = {"endpoint": port_or_endpoint, "region": "us-east-1", "pathStyle": True}
        source["secretRef"] = {"name": KEYS}
    return {
        "apiVersion": "tdcs.io/v1alpha2",
        "kind": "Dataset",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"source": source, **spec},
    }


@pytest.fixture(scope="package")
def world(
    tdcs: None,
    kubectl: Kubectl,
    reporter: Reporter,
    toolbox: str,
    workers: list[str],
) -> Iterator[World]:
    """Everything, with the attacks that take a while under way."""
    tags = images.ensure(["store", *demo.SYSTEM_IMAGES], reporter=reporter)
    tail = uuid.uuid4().hex[:8]
    tenant = Tenant(kubectl=kubectl, namespace=f"e2e-attacker-{tail}")
    node, victim = Node(workers[0]), f"e2e-victim-{tail}"
    operator = kubectl.get("deployments", "tdcs-operator", namespace=SYSTEM) or {}
    args = operator["spec"]["template"]["spec"]["containers"][0]["args"]
    with ExitStack() as undo:
        stores = outside.begin(image=f"tdcs/store:{tags['store']}", node=node.name)
        undo.callback(stores.end)
        new_world = World(
            kubectl=kubectl,
            tenant=tenant,
            victim=victim,
            outside=stores,
            node=node,
            nodes=[Node(worker) for worker in workers],
            trusted=any(argument.startswith("--trust=") for argument in args),
        )
        undo.callback(_remove, new_world)
        for host in new_world.nodes:  # as an NFS mount would be: the same on all of them
            host.run(MAKE_FOLDER)
        undo.callback(release.install, reporter=reporter, kubectl=kubectl, tags=tags)
        release.install(reporter=reporter, kubectl=kubectl, tags=tags, settings=QUICK)
        operations.up(reporter=reporter)
        operations.fill("small", bucket=BUCKET, seeded=Made(files=4, size="10KiB"), reporter=reporter)
        kubectl.apply(
            *(_namespace(tenant_namespace) for tenant_namespace in (tenant.namespace, victim)),
            _cache(new_world),
        )
        for namespace in (tenant.namespace, victim):
            datasets.grant_access(kubectl, namespace=namespace, reporter=reporter)
        keys = {"accessKeyId": outside.ACCOUNT, "secretAccessKey": outside.KEY}
        secret = operations.secret(namespace=tenant.namespace, name=KEYS, keys=keys)
        kubectl.apply(*rights(tenant), secret)
        if new_world.trusted:
            kubectl.apply(*_caller(new_world, image=f"tdcs/tdcs:{tags['tdcs']}"))
        new_world.resolve(stores.address)
        eventually(lambda: _listens(stores.address, outside.TRUE_PORT), deadline=60)
        eventually(lambda: _listens(stores.address, false_stores.HONEST_PORT), deadline=60)
        tenant.create(*_datasets(new_world))
        tenant.ready("squatter", "changing", "revoked")
        new_world.resolve(METADATA_ADDRESS)
        stores.revoke()
        kubectl.apply(datasets.dataset(VICTIM, namespace=victim, bucket=BUCKET))
        yield new_world


@pytest.fixture(autouse=True)
def explained(world: World, request: pytest.FixtureRequest) -> Iterator[None]:
    """What explains a failure is printed."""
    yield
    if request.node.stash.get(FAILED, False):
        for namespace in (world.tenant.namespace, world.victim):
            print(describe(world.kubectl, namespace))


def _datasets(world: World) -> list[Object]:
    """The tenant's, created at once."""
    namespace, stores = world.tenant.namespace, world.outside
    honest = stores.endpoint(false_stores.HONEST_PORT)

    def dataset_of(name: str, uri: str, endpoint: str = "", **spec: Any) -> Object:
        return dataset(name, namespace=namespace, uri=uri, port_or_endpoint=endpoint, **spec)

    return [
        dataset_of("squatter", f"s3://{BUCKET}/", honest),
        dataset_of("changing", "s3://turncoat/", honest.replace(stores.address, HOST)),
        # Never listed for changes: its keys are asked about all the same.
        dataset_of(
            *("revoked", f"s3://{outside.BUCKET}/", stores.endpoint(outside.TRUE_PORT)),
            source={"checkInterval": "0s"},
        ),
        dataset_of("redirected", "s3://redirected/", stores.endpoint(false_stores.REDIRECTING_PORT)),
        dataset_of("many", "s3://many/train/", stores.endpoint(false_stores.COUNTLESS_PORT)),
        dataset_of("shared", f"file://{FOLDER}", cacheClusterRef={"name": CACHE}),
        dataset_of("linked", f"file://{FOLDER}/deep", cacheClusterRef={"name": CACHE}),
    ]


def _namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": RESTRICTED}}


def _cache(world: World) -> Object:
    def rule(namespace: str, folder: str) -> Object:
        selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        return {"name": namespace, "namespaceSelector": selector, "folders": [folder]}

    return {
        "apiVersion": "tdcs.io/v1alpha2",
        "kind": "CacheCluster",
        "metadata": {"name": CACHE, "namespace": SYSTEM},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": world.node.name},
            "storage": {"tiers": [{"medium": "SSD", "capacity": "64Mi"}]},
            # The containers of the cache see both folders.
            "sources": [rule(world.tenant.namespace, FOLDER), rule(world.victim, SECRETS)],
        },
    }


def _caller(world: World, *, image: str) -> list[Object]:
    """The pod of the ten calls, with stolen certificates; the default cache is called."""
    namespace, cluster = world.tenant.namespace, release.CACHE_CLUSTER
    stolen = [
        operations.secret(
            namespace=namespace,
            name=f"stolen-{role}",
            keys={
                key: base64.b64decode(value).decode()
                for key, value in (
                    world.kubectl.get("secrets", f"tdcs-trust-{role}", namespace=SYSTEM) or {}
                )["data"].items()
            },
        )
        for role in STOLEN_ROLES
    ]
    master = names.master_name(cluster=cluster)
    worker = names.worker_host(cluster=cluster, node=world.node.name, namespace=SYSTEM)
    targets = (
        f"{master}-0.{master}.{SYSTEM}.svc:{names.MASTER_RPC_PORT}",
        f"{worker}:{names.WORKER_RPC_PORT}",
    )
    program = Path(rpc_calls.__file__)
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", f"/program/{program.name}", *targets],
        "securityContext": UNPRIVILEGED,
        "volumeMounts": [
            {"name": "program", "mountPath": "/program"},
            *({"name": role, "mountPath": f"{rpc_calls.CERTIFICATES}/{role}"} for role in STOLEN_ROLES),
        ],
    }
    return [
        *stolen,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "program", "namespace": namespace},
            "data": {program.name: program.read_text()},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": CALLER, "namespace": namespace, "labels": {"app": CALLER}},
            "spec": {
                "restartPolicy": "Never",
                "securityContext": NOBODY,
                "containers": [container],
                "volumes": [
                    {"name": "program", "configMap": {"name": "program"}},
                    *({"name": role, "secret": {"secretName": f"stolen-{role}"}} for role in STOLEN_ROLES),
                ],
            },
        },
    ]


def _listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def _remove(world: World) -> None:
    """Everything that is no container."""
    kubectl = world.kubectl
    kubectl.delete("networkpolicies", POLICY, namespace=SYSTEM)
    for namespace in (world.tenant.namespace, world.victim):
        if kubectl.get("namespaces", namespace) is not None:
            kubectl("delete", "pods,datasets.tdcs.io", "--all", "-n", namespace, "--wait", timeout=180)
    kubectl.delete("cacheclusters.tdcs.io", CACHE, namespace=SYSTEM, timeout=180)
    for kind in ("clusterrolebindings", "clusterroles"):
        kubectl.delete(kind, world.tenant.namespace)
    for namespace in (world.tenant.namespace, world.victim):
        kubectl.delete("namespaces", namespace, timeout=180)
    for volume in world.volumes:  # which their claims keep
        kubectl.delete("persistentvolumes", volume)
    world.resolve("")
    for node in world.nodes:
        node.run(f"rm -rf {SHARED}")


def lines(text: str) -> list[dict[str, Any]]:
    """The JSON objects of a log, one a line."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
