"""The kind cluster: one control plane and three workers with GPUs in name only, owned by the checkout that made it."""

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tdcs_local import docker, host, programs, shell
from tdcs_local.containers import node_image
from tdcs_local.containers.node_image import NodeImages
from tdcs_local.errors import LocalError
from tdcs_local.kind import audit, kubeconfig
from tdcs_local.kind.cluster_state import Answer, Node, State, certainly_gone, judge, well
from tdcs_local.kind.kubectl import Kubectl
from tdcs_local.paths import CHECKOUT, DEFAULT_NAME, KUBECONFIG, NAME_VARIABLE, STATE, log_file
from tdcs_local.progress import Reporter, Step

PORT_VARIABLE = "TDCS_API_PORT"
WORKERS = 3
GPU = "nvidia.com/gpu"
GPUS_PER_WORKER = 4
CLUSTER_LABEL = "io.x-k8s.kind.cluster"
TRANSFER = STATE / "transfer"
"""Files for the nodes: they see this folder read-only at ``NODE_TRANSFER``. It also tells who owns a cluster."""
NODE_TRANSFER = "/kind/transfer"
COMPLETE = "tdcs.io/local-cluster-complete"
"""Annotation of the namespace kube-system, set when all was done once: the control plane's image, by its key."""
ADMIN = "/etc/kubernetes/admin.conf"
JOINED = "/etc/kubernetes/kubelet.conf"
"""kubeadm leaves it on every node that has become one of the cluster."""

NODES_READY_SECONDS = 300.0
RESTART_SECONDS = 120.0


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


def make(target: str) -> str:
    """The command for a target of the Makefile, with the cluster's name where that is not the default."""
    chosen = name()
    return f"make {target}" if chosen == DEFAULT_NAME else f"{NAME_VARIABLE}={chosen} make {target}"


def node_names(cluster: str) -> list[str]:
    """The nodes of a cluster, as kind names them."""
    workers = [f"{cluster}-worker{'' if number == 1 else number}" for number in range(1, WORKERS + 1)]
    return [f"{cluster}-control-plane", *workers]


def configuration(*, cluster: str, images: NodeImages, transfer: Path, port: int | None) -> dict[str, Any]:
    """kind's configuration of a cluster."""

    def node(role: str, image: str) -> dict[str, Any]:
        mount = {"hostPath": str(transfer), "containerPath": NODE_TRANSFER, "readOnly": True}
        return {"role": role, "image": image, "extraMounts": [mount]}

    networking: dict[str, Any] = {"ipFamily": "ipv4"}
    if port is not None:
        networking["apiServerPort"] = port
    # the cluster is made again rather than recovered, so etcd need not wait for the disk
    etcd = {"local": {"extraArgs": {"unsafe-no-fsync": "true"}}}
    server = audit.api_server(node_folder=NODE_TRANSFER)
    # The only ones of their kind. With a Lease to lose they would end whenever the API server is away for 10 s, and
    # kubelet starts what ends again and again up to five minutes later.
    alone = {part: {"extraArgs": {"leader-elect": "false"}} for part in ("controllerManager", "scheduler")}
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": cluster,
        "networking": networking,
        "nodes": [
            node("control-plane", images.control_plane),
            *(node("worker", images.worker) for _ in range(WORKERS)),
        ],
        "kubeadmConfigPatches": [
            yaml.safe_dump({"kind": "ClusterConfiguration", "etcd": etcd, "apiServer": server, **alone})
        ],
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
    present = nodes(cluster)
    answer = Answer(ready=False)
    if (
        present
        and all(node.running for node in present)
        and all(node.owner == str(CHECKOUT) for node in present)
    ):
        answer = _ask(cluster)
    return judge(nodes=present, expected=node_names(cluster), owner=str(CHECKOUT), answer=answer)


def require_own(cluster: str) -> None:
    """Raises :class:`LocalError` unless the cluster runs and this checkout made it."""
    if not host.engine_answers():
        raise LocalError(
            what=f"the cluster {cluster} is not up: the container engine does not answer", remedy="make up"
        )
    state = look(cluster)
    if state is State.FOREIGN:
        raise foreign(cluster)
    if state not in {State.RUNNING, State.UNWELL}:
        raise LocalError(what=f"the cluster {cluster} is not up: {state.value}", remedy="make up")


def access() -> Kubectl:
    """kubectl for the cluster of this checkout.

    Raises :class:`LocalError` if its kubeconfig is not there: says which cluster there is, and how to use that.
    """
    if not KUBECONFIG.exists():
        require_own(name())
    return Kubectl()


def older(cluster: str) -> bool:
    """Whether the nodes were made of another image than this checkout's files make."""
    images = node_image.references()
    return any(node.image not in {images.control_plane, images.worker} for node in nodes(cluster))


def abandoned(cluster: str) -> bool:
    """Whether the checkout that made the cluster is certainly gone, and the cluster of no use to anybody.

    Nodes that run and answer may belong to a folder that this process cannot see, so they stay.
    """
    present = nodes(cluster)
    if not all(node.owner and certainly_gone(Path(node.owner)) for node in present):
        return False
    return not any(node.running for node in present) or not _answers_inside(cluster)


def foreign(cluster: str) -> LocalError:
    """The error of a cluster that is not this checkout's."""
    made_by = {node.owner for node in nodes(cluster)}
    owners = ", ".join(sorted(owner or "something other than this tool" for owner in made_by))
    own_name = f"for one of your own give it another name ({NAME_VARIABLE}=tdcs-two make up), or run `make down` there"
    use = ""
    if len(made_by) == 1 and (owner := next(iter(made_by))):
        theirs = Path(owner) / KUBECONFIG.relative_to(CHECKOUT)
        use = (
            f"to use it, run this command in {owner}; kubectl and tdcs reach it from anywhere with "
            f"export KUBECONFIG={theirs}; "
        )
    return LocalError(
        what=f"the cluster {cluster} is not this checkout's",
        why=f"it was made by {owners}, and these commands work on their own checkout's cluster only, whatever "
        "KUBECONFIG says; nothing was changed",
        remedy=f"{use}{own_name} first; if that checkout is no more, remove its cluster: PYTHONPATH=deploy/local "
        ".venv/bin/python -m tdcs_local down --force",
    )


def create(*, cluster: str, images: NodeImages, reporter: Reporter) -> None:
    """Creates the containers and Kubernetes in them. Nothing of that name may exist."""
    kind = programs.ensure("kind", reporter=reporter) / "kind"
    TRANSFER.mkdir(parents=True, exist_ok=True)
    audit.write_policy(TRANSFER)
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
    names = [node.name for node in nodes(cluster)]
    if not names:
        return
    with reporter.step(f"remove the kind cluster {cluster}"):
        shell.run(
            ["docker", "rm", "--force", "--volumes", *names],
            what=f"removing the nodes {', '.join(names)} failed",
            log=log_file("kind-delete"),
        )


def reconnect(*, cluster: str, reporter: Reporter) -> None:
    """Writes the access to a cluster with running nodes, and waits for its API: it may be slow, or just starting."""
    with reporter.step(f"wait for {cluster} to answer") as step:
        kubeconfig.write(cluster)
        _wait_for_api(Kubectl(), step)


def restart(*, cluster: str, reporter: Reporter) -> None:
    """Starts the nodes of a cluster that stopped, as by a reboot of the machine, or that answers no more."""
    verb = "restart" if all(node.running for node in nodes(cluster)) else "start"
    with reporter.step(f"{verb} the nodes of {cluster}") as step:
        shell.run(
            ["docker", verb, *node_names(cluster)],
            what=f"starting the nodes of {cluster} failed",
            log=log_file("kind-create"),
        )
        kubeconfig.write(cluster)
        _wait_for_api(Kubectl(), step)


def finish(*, cluster: str, reporter: Reporter) -> None:
    """Waits until all of a created cluster works, gives its workers their GPUs, and marks it complete."""
    kubeconfig.write(cluster)
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
            kubectl("rollout", "status", f"deployment/{deployment}", f"--namespace={namespace}", "--timeout=280s",
                    timeout=300)  # fmt: skip
    image = nodes(cluster)[0].image  # sorted by name: the control plane's
    kubectl("annotate", "namespace", "kube-system", f"{COMPLETE}={image}", "--overwrite")


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


def _ask(cluster: str) -> Answer:
    if not KUBECONFIG.exists():
        return Answer(ready=False, joined=_joined(cluster))
    kubectl = Kubectl()
    try:
        kubectl("get", "--raw", "/readyz", timeout=10)
        registered = kubectl.list("nodes")
        system = kubectl.get("namespace", "kube-system") or {}
    except LocalError:
        return Answer(ready=False, joined=_joined(cluster))
    return Answer(
        ready=True,
        nodes=frozenset(node["metadata"]["name"] for node in registered),
        well=well(registered, workers=node_names(cluster)[1:], resource=GPU, amount=GPUS_PER_WORKER),
        complete=system.get("metadata", {}).get("annotations", {}).get(COMPLETE, ""),
    )


def _joined(cluster: str) -> bool:
    """Whether all nodes once joined; a node that cannot be asked counts as one that did."""
    script = f"test -e {JOINED} || echo lacking"
    for node in node_names(cluster):
        try:
            if shell.capture(["docker", "exec", node, "sh", "-c", script], timeout=20):
                return False
        except LocalError:
            continue
    return True


def _answers_inside(cluster: str) -> bool:
    """Whether the API answers on its own node, for a cluster to which this checkout has no access."""
    ask = ["kubectl", f"--kubeconfig={ADMIN}", "get", "--raw", "/readyz"]
    return shell.succeeds(["docker", "exec", node_names(cluster)[0], *ask])


def _nodes_missing(kubectl: Kubectl, expected: Sequence[str]) -> str | None:
    ready = well(kubectl.list("nodes"))
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
