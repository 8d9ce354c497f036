"""The kind cluster: one control plane and three workers with GPUs in name only, owned by the checkout that made it."""

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from tdcs_local import access, docker, node_image, products, shell
from tdcs_local.errors import LocalError
from tdcs_local.kubectl import Kubectl
from tdcs_local.node_image import NodeImages
from tdcs_local.paths import CHECKOUT, DEFAULT_NAME, KUBECONFIG, NAME_VARIABLE, STATE, log_file
from tdcs_local.steps import Reporter, Step

PORT_VARIABLE = "TDCS_API_PORT"
WORKERS = 3
GPU = "nvidia.com/gpu"
GPUS_PER_WORKER = 4
CLUSTER_LABEL = "io.x-k8s.kind.cluster"
TRANSFER = STATE / "transfer"
"""Files for the nodes: they see this folder read-only at ``NODE_TRANSFER``. It also tells who owns a cluster."""
NODE_TRANSFER = "/kind/transfer"
COMPLETE = "tdcs.io/local-cluster-complete"
"""Annotation of the namespace kube-system: the value is the digest of the configuration it was made with."""

NODES_READY_SECONDS = 180.0
RESTART_SECONDS = 120.0


class State(Enum):
    """What there is under a cluster's name."""

    ABSENT = "there is none"
    FOREIGN = "another checkout made it"
    STOPPED = "its nodes do not run"
    BROKEN = "it was not completed, or it does not answer"
    UNFINISHED = "it runs, but the last steps of its making are missing"
    RUNNING = "it runs"


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node's container. ``owner`` is the checkout that made it, "" if that cannot be told."""

    name: str
    running: bool
    owner: str
    image: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the cluster's API said: whether it is ready, the registered nodes, the annotation of completeness."""

    ready: bool
    nodes: frozenset[str] = frozenset()
    complete: str = ""


def name() -> str:
    """The cluster's name: ``$TDCS_CLUSTER`` or ``tdcs``."""
    chosen = os.environ.get(NAME_VARIABLE) or DEFAULT_NAME
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", chosen):
        raise LocalError(
            what=f"{NAME_VARIABLE}={chosen} cannot name a cluster",
            why="names of nodes and hosts are made of it",
            remedy="use at most 40 lower-case letters, digits and dashes, such as tdcs-two",
        )
    return chosen


def node_names(cluster: str) -> list[str]:
    """The nodes of a cluster, as kind names them."""
    workers = [f"{cluster}-worker{'' if number == 1 else number}" for number in range(1, WORKERS + 1)]
    return [f"{cluster}-control-plane", *workers]


def judge(*, nodes: Sequence[Node], expected: Sequence[str], owner: str, answer: Answer) -> State:
    """What there is, seen from the checkout ``owner``."""
    if not nodes:
        return State.ABSENT
    if any(node.owner != owner for node in nodes):
        return State.FOREIGN
    if {node.name for node in nodes} != set(expected):
        return State.BROKEN
    if not all(node.running for node in nodes):
        return State.STOPPED
    if not answer.ready or answer.nodes != set(expected):
        return State.BROKEN
    return State.RUNNING if answer.complete else State.UNFINISHED


def configuration(*, cluster: str, images: NodeImages, transfer: Path, port: int | None) -> dict[str, Any]:
    """kind's configuration of a cluster."""

    def node(role: str, image: str) -> dict[str, Any]:
        mount = {"hostPath": str(transfer), "containerPath": NODE_TRANSFER, "readOnly": True}
        return {"role": role, "image": image, "extraMounts": [mount]}

    networking: dict[str, Any] = {"ipFamily": "ipv4"}
    if port is not None:
        networking["apiServerPort"] = port
    # the cluster is made anew rather than recovered, so etcd need not wait for the disk
    etcd = {"local": {"extraArgs": {"unsafe-no-fsync": "true"}}}
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": cluster,
        "networking": networking,
        "nodes": [
            node("control-plane", images.control_plane),
            *(node("worker", images.worker) for _ in range(WORKERS)),
        ],
        "kubeadmConfigPatches": [yaml.safe_dump({"kind": "ClusterConfiguration", "etcd": etcd})],
    }


def api_port() -> int | None:
    """The port on 127.0.0.1 that the user wants for the API server; None: any free one."""
    text = os.environ.get(PORT_VARIABLE, "")
    if not text:
        return None
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise LocalError(what=f"{PORT_VARIABLE}={text} is no port", remedy="use a number from 1024 to 65535")
    return int(text)


def nodes(cluster: str) -> list[Node]:
    """The containers of a cluster, running or not."""
    names = docker.containers(labels=[f"{CLUSTER_LABEL}={cluster}"])
    if not names:
        return []
    inspected = json.loads(shell.capture(["docker", "inspect", *names]))
    return sorted((_node(container) for container in inspected), key=lambda node: node.name)


def look(cluster: str) -> State:
    """What there is under this name."""
    found = nodes(cluster)
    answer = Answer(ready=False)
    if found and all(node.running for node in found) and all(node.owner == str(CHECKOUT) for node in found):
        answer = _ask()
    return judge(nodes=found, expected=node_names(cluster), owner=str(CHECKOUT), answer=answer)


def require_own(cluster: str) -> None:
    """Raises :class:`LocalError` unless the cluster runs and this checkout made it."""
    state = look(cluster)
    if state is State.FOREIGN:
        raise foreign(cluster)
    if state is not State.RUNNING:
        raise LocalError(what=f"the cluster {cluster} is not up: {state.value}", remedy="make up")


def abandoned(cluster: str) -> bool:
    """Whether this tool made the cluster from a checkout that is there no more."""
    owners = {node.owner for node in nodes(cluster)}
    return all(owner and not Path(owner).is_dir() for owner in owners)


def foreign(cluster: str) -> LocalError:
    """The error of a cluster that is not this checkout's."""
    owners = sorted({node.owner or "something other than this tool" for node in nodes(cluster)})
    return LocalError(
        what=f"the cluster {cluster} is not this checkout's",
        why=f"it was made by {', '.join(owners)}; nothing was changed",
        remedy=f"use a name of your own ({NAME_VARIABLE}=tdcs-two make up), or run `make down` there first",
    )


def create(*, cluster: str, images: NodeImages, reporter: Reporter) -> None:
    """Creates the containers and Kubernetes in them. Nothing of that name may exist."""
    kind = products.ensure("kind", reporter=reporter) / "kind"
    TRANSFER.mkdir(parents=True, exist_ok=True)
    log = log_file("kind-create")
    log.unlink(missing_ok=True)
    config = configuration(cluster=cluster, images=images, transfer=TRANSFER, port=api_port())
    with (
        reporter.step(f"create the kind cluster {cluster}") as step,
        tempfile.TemporaryDirectory(prefix="tdcs-kind-") as scratch,
    ):
        file = Path(scratch) / "kind.yaml"
        file.write_text(yaml.safe_dump(config, sort_keys=False))
        step.detail = lambda: _last_action(shell.tail(log, lines=30))
        shell.run(
            [
                kind,
                "create",
                "cluster",
                "--config",
                file,
                "--kubeconfig",
                Path(scratch) / "kubeconfig",
                "--retain",
            ],
            what=f"creating the kind cluster {cluster} failed",
            log=log,
            contained=True,  # kind's own docker commands must not go on without it
            remedy=f"unset {node_image.VARIABLE} to have the nodes built here, without a registry"
            if node_image.stock()
            else f"read the log and a node's own (`docker logs {cluster}-control-plane`), then run again",
        )


def delete(*, cluster: str, reporter: Reporter) -> None:
    """Removes the containers of a cluster and their volumes."""
    left = [node.name for node in nodes(cluster)]
    if not left:
        return
    with reporter.step(f"remove the kind cluster {cluster}"):
        shell.run(
            ["docker", "rm", "--force", "--volumes", *left],
            what=f"removing the nodes {', '.join(left)} failed",
            log=log_file("kind-delete"),
        )


def restart(*, cluster: str, reporter: Reporter) -> None:
    """Starts the nodes of a cluster that was stopped, as by a reboot of the machine, and waits for its API."""
    with reporter.step(f"start the nodes of {cluster} again") as step:
        shell.run(
            ["docker", "start", *node_names(cluster)],
            what=f"starting the nodes of {cluster} failed",
            log=log_file("kind-create"),
        )
        access.write(cluster)
        _wait_for_api(Kubectl(), step)


def finish(*, cluster: str, reporter: Reporter) -> None:
    """Waits until all of a created cluster works, gives its workers their GPUs, and marks it complete."""
    access.write(cluster)
    kubectl = Kubectl()
    with reporter.step("nodes ready") as step:
        kubectl.wait(
            lambda: _nodes_missing(kubectl, node_names(cluster)),
            what=f"the nodes of {cluster} did not become ready",
            seconds=NODES_READY_SECONDS,
            step=step,
            explain=lambda: kubectl("get", "pods", "-A", "-o", "wide"),
        )
    with reporter.step(f"{GPUS_PER_WORKER} GPUs on each worker"):
        patch = json.dumps(
            {"status": {kind: {GPU: str(GPUS_PER_WORKER)} for kind in ("capacity", "allocatable")}}
        )
        for node in node_names(cluster)[1:]:
            kubectl("patch", "node", node, "--subresource=status", "--type=merge", "--patch", patch)
    for title, namespace, deployment in (
        ("cluster DNS ready", "kube-system", "coredns"),
        ("default storage ready", "local-path-storage", "local-path-provisioner"),
    ):
        with reporter.step(title):
            kubectl("rollout", "status", f"deployment/{deployment}", f"--namespace={namespace}", "--timeout=170s",
                    timeout=180)  # fmt: skip
    version = kubectl("version", "-o", "json")
    served = json.loads(version)["serverVersion"]["gitVersion"]
    kubectl("annotate", "namespace", "kube-system", f"{COMPLETE}={served}", "--overwrite")


def _node(container: Mapping[str, Any]) -> Node:
    sources = [
        m.get("Source", "") for m in container.get("Mounts", []) if m.get("Destination") == NODE_TRANSFER
    ]
    owner = Path(sources[0]).parents[1] if sources else ""
    return Node(
        name=container["Name"].removeprefix("/"),
        running=bool(container["State"]["Running"]),
        owner=str(owner),
        image=container["Config"]["Image"],
    )


def _ask() -> Answer:
    if not KUBECONFIG.exists():
        return Answer(ready=False)
    kubectl = Kubectl()
    try:
        kubectl("get", "--raw", "/readyz", timeout=10)
        registered = kubectl("get", "nodes", "-o", "name", timeout=10)
        system = kubectl.get("namespace", "kube-system") or {}
    except LocalError:
        return Answer(ready=False)
    return Answer(
        ready=True,
        nodes=frozenset(line.removeprefix("node/") for line in registered.split()),
        complete=system.get("metadata", {}).get("annotations", {}).get(COMPLETE, ""),
    )


def _nodes_missing(kubectl: Kubectl, expected: Sequence[str]) -> str | None:
    ready = {
        node["metadata"]["name"]
        for node in kubectl.list("nodes")
        if any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
    }
    missing = [node for node in expected if node not in ready]
    return f"waiting for {', '.join(missing)}" if missing else None


def _wait_for_api(kubectl: Kubectl, step: Step) -> None:
    def look() -> str | None:
        try:
            kubectl("get", "--raw", "/readyz", timeout=10)
        except LocalError as error:
            return error.why.strip().splitlines()[-1][:200] if error.why else "no answer"
        return None

    kubectl.wait(look, what="the API server does not answer", seconds=RESTART_SECONDS, step=step)


def _last_action(text: str) -> str:
    actions = re.findall(r"[•✓✗] +(.+?)(?:\s*\.\.\.|\s*$)", text, re.MULTILINE)
    return re.sub(r"[^ -~]", "", actions[-1]).strip() if actions else ""
