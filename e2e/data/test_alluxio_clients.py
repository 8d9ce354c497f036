"""Alluxio's own clients, its FUSE and its Java client, list and read what agents hold below the path of each Dataset.

Nothing is read through: what no node holds they do not have.
"""

import base64
import datetime
import json
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import RESTRICTED
from e2e.support.jobs import expected_digest
from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.control.cachecluster import stock_client
from tdcs.control.cachecluster.blueprint import Blueprint
from tdcs.trust.certificates import KeyPair, Subject, make_certificate
from tdcs.trust.identity import AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE
from tdcs.trust.roles import Role
from tdcs.trust.settings import TrustSettings
from tdcs_local import programs
from tdcs_local.kind import images, release
from tdcs_local.kind.kubectl import Kubectl, Object
from tdcs_local.progress import Reporter
from tdcs_local.store import datasets, operations
from tdcs_local.store.operations import Made

CLIENT = "alluxio-client"
NAME = "exported"
BUCKET = "e2e-exported"
MADE = Made(files=60, size="4KiB-400KiB", seed="7")
SYSTEM = release.NAMESPACE
SUMS = "find . -type f | LC_ALL=C sort | cut -c3- | xargs -d '\\n' -r sha256sum | sha256sum"
JAVA = (
    "java $ALLUXIO_JAVA_OPTS -Dalluxio.site.conf.dir=/etc/alluxio -Dalluxio.conf.dir=/opt/alluxio/conf "
    "-Dlog4j.configuration=file:/opt/alluxio/conf/log4j.properties -Dalluxio.master.hostname=$ALLUXIO_MASTER_HOSTNAME "
    "-cp '/client:/opt/alluxio/lib/*:/opt/alluxio/names/*' ReadAll"
)


@dataclass(frozen=True)
class World:
    """A Dataset that is whole on two nodes, and a pod with Alluxio's clients."""

    kubectl: Kubectl
    namespace: str
    path: str

    def run(self, script: str) -> str:
        """What a script in the client's pod prints."""
        return self.kubectl("exec", CLIENT, "-n", SYSTEM, "--", "sh", "-ec", script, timeout=180)

    def read_by_fuse(self) -> str:
        """The checksum of all files' checksums."""
        folder = f"{names.fuse_mount_point(cluster=release.CACHE_CLUSTER)}{self.path}"
        return self.run(f"cd {folder} && {SUMS}").split()[0]

    def read_by_java(self) -> str:
        """The same, by Alluxio's Java client."""
        return self.run(
            f"{JAVA} {self.path} | grep -E '^[0-9a-f]{{64}}  ' | LC_ALL=C sort -k 2 | sha256sum"
        ).split()[0]

    def wait_equal(self, occasion: str) -> None:
        """Wait until both clients have all files, byte by byte: Alluxio learns of them afterwards."""
        expected = expected_digest(BUCKET)

        def look() -> str | None:
            digest = self.read_by_fuse()
            return None if digest == expected else f"FUSE reads {digest} in place of {expected}"

        self.kubectl.wait(look, what=f"Alluxio's clients lack files {occasion}", seconds=180)
        assert self.read_by_java() == expected

    def held(self) -> dict[str, int]:
        """Bytes of the Dataset by node."""
        copies = datasets.copies_of(self.kubectl, NAME, namespace=self.namespace).values()
        return {node: size for copy in copies for node, size in copy.items() if size}


@pytest.fixture(scope="module")
def world(
    tdcs: None,
    store_filled: None,
    kubectl: Kubectl,
    reporter: Reporter,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    """The Dataset is loaded, and the client's FUSE is mounted."""
    arguments = operator_arguments(kubectl)
    namespace = f"e2e-exported-{uuid.uuid4().hex[:8]}"
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": RESTRICTED}}
    kubectl.apply(space)
    operations.fill("small", bucket=BUCKET, seeded=MADE, reporter=reporter)
    datasets.grant_access(kubectl, namespace=namespace, reporter=reporter)
    placement = {"mode": "Replicate", "nodeCount": 2}
    kubectl.apply(datasets.dataset(NAME, namespace=namespace, bucket=BUCKET, placement=placement))
    cluster = kubectl.get("cacheclusters.tdcs.io", release.CACHE_CLUSTER, namespace=SYSTEM)
    assert cluster is not None
    plan = blueprint(
        cluster,
        image=f"tdcs/alluxio:{images.ensure(['alluxio'], reporter=reporter)['alluxio']}",
        trusted=any(argument.startswith("--trust=") for argument in arguments),
    )
    kubectl.delete("pod", CLIENT, namespace=SYSTEM)
    if plan.trust is not None:
        kubectl.apply(certificate(kubectl, plan.trust, cluster=plan.cluster))
    kubectl.apply(program(tmp_path_factory.mktemp("classes")), client(plan))
    datasets.wait_ready(kubectl, NAME, namespace=namespace)
    thing = kubectl.get("datasets.tdcs.io", NAME, namespace=namespace) or {}
    kubectl("wait", "pod", CLIENT, "-n", SYSTEM, "--for=condition=Ready", "--timeout=180s", timeout=200)
    yield World(kubectl, namespace, thing["status"]["mountPath"])
    kubectl.delete("pod", CLIENT, namespace=SYSTEM)
    kubectl.delete("configmap", CLIENT, namespace=SYSTEM)
    if plan.trust is not None:
        kubectl.delete("secret", plan.trust.secret(role=Role.FUSE, child=plan.cluster), namespace=SYSTEM)
    kubectl("delete", "datasets.tdcs.io", "--all", "-n", namespace, "--wait", timeout=180)
    kubectl.delete("namespace", namespace, timeout=300)


def operator_arguments(kubectl: Kubectl) -> list[str]:
    """What the operator was started with."""
    operator = kubectl.get("deployments", "tdcs-operator", namespace=SYSTEM) or {}
    return list(operator["spec"]["template"]["spec"]["containers"][0]["args"])


def blueprint(cluster: Object, *, image: str, trusted: bool) -> Blueprint:
    """What the operator makes a cache cluster's pods from, as it is installed on the local cluster."""
    return Blueprint(
        owner=cluster,
        spec=CacheClusterSpec.model_validate(cluster["spec"]),
        namespace=SYSTEM,
        image=image,
        agent_image="",
        trust=TrustSettings(provider="selfSigned", prefix="tdcs-trust") if trusted else None,
    )


def client(plan: Blueprint) -> Object:
    """A pod with Alluxio's FUSE client, as caches of the profile Stock have it, and the program of the other one."""
    template: dict[str, Any] = stock_client.daemon_set(plan)["spec"]["template"]
    spec = template["spec"]
    spec["volumes"].append({"name": "client", "configMap": {"name": CLIENT}})
    spec["containers"][0]["volumeMounts"].append({"name": "client", "mountPath": "/client"})
    spec["restartPolicy"] = "Never"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": CLIENT, "namespace": SYSTEM, "labels": template["metadata"]["labels"]},
        "spec": spec,
    }


def program(folder: Path) -> Object:
    """The Java client, compiled: the image has no compiler."""
    lib = programs.ensure("alluxio") / "lib"
    source = Path(__file__).with_name("ReadAll.java")
    subprocess.run(["javac", "--release", "17", "-cp", f"{lib}/*", "-d", folder, source], check=True)
    content = base64.b64encode((folder / "ReadAll.class").read_bytes()).decode()
    metadata = {"name": CLIENT, "namespace": SYSTEM}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "binaryData": {"ReadAll.class": content},
    }


def certificate(kubectl: Kubectl, trust: TrustSettings, *, cluster: str) -> Object:
    """A certificate of a FUSE client, as an administrator would issue it who gives one to Alluxio's clients."""
    secret = kubectl.get("secrets", trust.authority, namespace=SYSTEM)
    assert secret is not None
    files = {name: base64.b64decode(content) for name, content in secret["data"].items()}
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    authority = KeyPair(certificate=files[CERTIFICATE_FILE], key=files[KEY_FILE])
    signed = make_certificate(subject=Subject(role=Role.FUSE), authority=authority, until=until)
    content = {
        CERTIFICATE_FILE: signed.certificate,
        KEY_FILE: signed.key,
        AUTHORITIES_FILE: files[CERTIFICATE_FILE],
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": trust.secret(role=Role.FUSE, child=cluster), "namespace": SYSTEM},
        "data": {
            name: base64.b64encode(content_of_file).decode() for name, content_of_file in content.items()
        },
    }


def test_alluxios_clients_list_and_read_each_file_of_a_cached_dataset(world: World) -> None:
    assert len(world.held()) == 2
    world.wait_equal("of a Dataset that is loaded")


@pytest.mark.failure_mode("alluxio-export-blocks-leave")
def test_alluxios_clients_read_what_is_left_after_blocks_have_left_a_node(world: World) -> None:
    patch = json.dumps({"spec": {"placement": {"nodeCount": 1}}})
    thing = ("datasets.tdcs.io", NAME, "-n", world.namespace)
    world.kubectl("patch", *thing, "--type=merge", "--patch", patch)

    def look() -> str | None:
        held = world.held()
        return None if len(held) == 1 else f"it is on {held}"

    world.kubectl.wait(look, what="no node has given the Dataset up", seconds=180)
    world.wait_equal("after blocks have left a node")


@pytest.mark.failure_mode("alluxio-export-blocks-leave")
def test_alluxios_clients_read_on_after_the_cache_worker_of_a_node_was_drained(world: World) -> None:
    cluster = ("cacheclusters.tdcs.io", release.CACHE_CLUSTER, "-n", SYSTEM)

    def workers() -> list[str]:
        cache = world.kubectl.get("cacheclusters.tdcs.io", release.CACHE_CLUSTER, namespace=SYSTEM) or {}
        states = cache.get("status", {}).get("workers", ())
        return sorted(worker["node"] for worker in states if worker["state"] == "Ready")

    before = len(workers())

    def until(count: int) -> None:
        def look() -> str | None:
            ready = workers()
            return None if len(ready) == count else f"workers are ready on {ready}"

        world.kubectl.wait(look, what=f"the cache does not have {count} workers", seconds=240)

    try:
        world.kubectl("scale", *cluster, "--replicas=1")
        until(1)
        world.wait_equal("after a drain")
    finally:
        world.kubectl("scale", *cluster, f"--replicas={before}")
        until(before)
    world.wait_equal("with all workers back")
