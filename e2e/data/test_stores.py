"""Stores of every kind, each a real server outside of the cluster: a thousand files of each, and no byte wrong.

A public bucket without keys, one that is read as a ServiceAccount, Google Cloud Storage, Azure, and a web
server; one Dataset of each, one cache, and one pod that reads them all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest
from tests.support.programs.azure_store import ACCOUNT, KEY, azure_store
from tests.support.programs.gateway_store import gateway_store
from tests.support.programs.google_store import google_store, key_file
from tests.support.programs.session_store import session_store
from tests.support.programs.token_service import AMAZON, ROLE, token_service
from tests.support.programs.web_server import WebServer, web_server

from e2e.conftest import FAILED, describe
from e2e.support.host import host_of, signer
from e2e.support.pods import finished, pod
from tdcs.api import names
from tdcs_local.kind import release
from tdcs_local.kind.kubectl import Kubectl, Object, unmet
from tdcs_local.store import operations

SYSTEM = release.NAMESPACE
CACHE = NAMESPACE = "e2e-stores"
READER = "reader"
FILES = {
    f"{number // 100:02}/{number:04}.txt": f"{number} of a thousand\n".encode() * (number % 50 + 1)
    for number in range(1000)
}
KINDS = ("public", "identity", "google", "azure", "web")
CHECKSUMS = """
for name in $(ls /data); do
  cd /data/$name
  echo $name $(find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum)
done
"""


def expected() -> str:
    """What CHECKSUMS prints of each."""
    lines = (f"{hashlib.sha256(content).hexdigest()}  ./{name}\n" for name, content in sorted(FILES.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def account() -> list[Object]:
    """A ServiceAccount for the role, and the right of the operator to its tokens."""
    group, api = "rbac.authorization.k8s.io", "rbac.authorization.k8s.io/v1"
    place = {"name": READER, "namespace": NAMESPACE}
    reader_rule = {"apiGroups": [""], "resourceNames": [READER]}
    operator = {"kind": "ServiceAccount", "name": names.OPERATOR_ACCOUNT, "namespace": SYSTEM}
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {**place, "annotations": {"eks.amazonaws.com/role-arn": ROLE}},
        },
        {
            "apiVersion": api,
            "kind": "Role",
            "metadata": place,
            "rules": [
                {**reader_rule, "resources": ["serviceaccounts"], "verbs": ["get"]},
                {**reader_rule, "resources": ["serviceaccounts/token"], "verbs": ["create"]},
            ],
        },
        {
            "apiVersion": api,
            "kind": "RoleBinding",
            "metadata": place,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": READER},
            "subjects": [operator],
        },
    ]


def secrets_right() -> Object:
    """The right of the operator to the Secrets of the namespace."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": names.SECRETS_ROLE, "namespace": NAMESPACE},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": names.SECRETS_ROLE,
        },
        "subjects": [{"kind": "ServiceAccount", "name": names.OPERATOR_ACCOUNT, "namespace": SYSTEM}],
    }


def cache(node: str, rules: list[Object]) -> Object:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "CacheCluster",
        "metadata": {"name": CACHE, "namespace": SYSTEM},
        "spec": {
            "engine": "Native",
            "nodeSelector": {"kubernetes.io/hostname": node},
            "storage": {"tiers": [{"medium": "SSD", "capacity": "1Gi"}]},
            "sources": rules,
        },
    }


def dataset(name: str, source: Object) -> Object:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Dataset",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "cacheClusterRef": {"name": CACHE},
            "source": source,
            "placement": {"mode": "Replicate", "nodeCount": 1},
        },
    }


@pytest.fixture(scope="module")
def sources(
    kubectl: Kubectl, workers: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dict[str, Object], list[Object]]]:
    """The servers: the source of each Dataset, and the rules that allow them."""
    host, folder = host_of(workers[0]), tmp_path_factory.mktemp("stores")
    below = {f"data/{name}": content for name, content in FILES.items()}
    with ExitStack() as stack:
        objects = {f"pictures/{name}": content for name, content in below.items()}
        google = stack.enter_context(google_store(folder / "google", files=objects, host=host))
        azure = stack.enter_context(azure_store(folder / "azure", host=host))
        azure.make_container("pictures")
        for name, content in below.items():
            azure.put("pictures", name, content)
        web = stack.enter_context(web_server(WebServer(files=below, host=host)))
        gateway = stack.enter_context(gateway_store(folder / "gateway", host=host))
        gateway.client.create_bucket(Bucket="public")
        gateway.put_files("public", below)
        gateway.make_public("public")
        sessions = stack.enter_context(session_store(below, host=host))
        trusts = {ROLE: (f"{NAMESPACE}:{READER}", AMAZON)}
        service = stack.enter_context(token_service(signer(kubectl), trusts=trusts, address=host))

        def accept_keys(_role: str, keys: Mapping[str, str]) -> None:
            sessions.begin(keys, seconds=service.seconds)

        service.on_keys = accept_keys
        endpoints = [google.endpoint, azure.endpoint, web.origin, gateway.endpoint]
        identity = {"endpoint": service.endpoint}
        yield (
            {
                "public": {"uri": "s3://public/data", "options": {"endpoint": gateway.endpoint}},
                "identity": {
                    "uri": "s3://bucket/data",
                    "options": {"endpoint": sessions.endpoint},
                    "serviceAccountName": READER,
                },
                "google": {
                    "uri": "gs://pictures/data",
                    "options": {"endpoint": google.endpoint},
                    "secretRef": {"name": "google"},
                },
                "azure": {
                    "uri": f"az://{ACCOUNT}/pictures/data",
                    "options": {"endpoint": azure.endpoint},
                    "secretRef": {"name": "azure"},
                },
                "web": {"uri": f"{web.origin}/data"},
            },
            [
                {"name": "stores", "endpoints": endpoints},
                {"name": "sessions", "endpoints": [sessions.endpoint], "identity": identity},
            ],
        )


@pytest.fixture(scope="module")
def loaded(
    tdcs: None, kubectl: Kubectl, workers: list[str], sources: tuple[dict[str, Object], list[Object]]
) -> Iterator[None]:
    """The Datasets, made at once."""
    datasets, rules = sources
    try:
        kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        kubectl.apply(
            *account(),
            secrets_right(),
            operations.secret(namespace=NAMESPACE, name="google", keys={"key.json": key_file()}),
            operations.secret(namespace=NAMESPACE, name="azure", keys={"accountKey": KEY}),
            cache(workers[0], rules),
            *(dataset(name, datasets[name]) for name in KINDS),
        )
        yield
    finally:
        kubectl("delete", "pods,datasets.tdcs.io", "--all", "-n", NAMESPACE, "--wait", timeout=300)
        kubectl.delete("cacheclusters.tdcs.io", CACHE, namespace=SYSTEM)
        kubectl.delete("namespaces", NAMESPACE)


@pytest.fixture(scope="module")
def sums(loaded: None, kubectl: Kubectl, toolbox: str) -> dict[str, str]:
    """What a pod reads of the Datasets that are there: the digest of all names and checksums."""
    ready = [name for name in KINDS if _is_ready(kubectl, name)]
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ready]
    mounts = [{"name": name, "mountPath": f"/data/{name}", "readOnly": True} for name in ready]
    container = {"volumeMounts": mounts}
    kubectl.apply(
        pod(
            "checksums",
            image=toolbox,
            script=CHECKSUMS,
            namespace=NAMESPACE,
            container=container,
            volumes=volumes,
        )
    )
    printed = finished(kubectl, "checksums", NAMESPACE, seconds=300).splitlines()
    return {name: digest for name, digest, *_ in map(str.split, printed)}


@pytest.fixture(autouse=True)
def explained(kubectl: Kubectl, request: pytest.FixtureRequest) -> Iterator[None]:
    """What explains a failure is printed."""
    yield
    if request.node.stash.get(FAILED, False):
        print(describe(kubectl, NAMESPACE))


def _live_dataset(kubectl: Kubectl, name: str) -> Object:
    return kubectl.get("datasets.tdcs.io", name, namespace=NAMESPACE) or {}


def _is_ready(kubectl: Kubectl, name: str) -> bool:
    return unmet(_live_dataset(kubectl, name), "Ready") is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_files_of_a_store_are_loaded(loaded: None, kubectl: Kubectl, kind: str) -> None:
    def unready() -> str | None:
        status = _live_dataset(kubectl, kind).get("status") or {}
        is_loaded = _is_ready(kubectl, kind) and status.get("cachedRatio") == 1
        return None if is_loaded else json.dumps(status.get("conditions"))

    kubectl.wait(unready, what=f"Dataset {kind} is not loaded", seconds=300)
    status = _live_dataset(kubectl, kind)["status"]
    assert status["totalFiles"] == len(FILES)
    assert status["totalBytes"] == sum(map(len, FILES.values()))


@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_of_a_store_is_right_in_a_pod(sums: dict[str, str], kind: str) -> None:
    assert sums.get(kind) == expected()
