"""The operator as a process, on an engine in memory, with exactly the rights that the chart grants."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.chart import rendered, rules_of
from tests.support.controlplane import ControlPlane
from tests.support.kube import Kube, Object
from tests.support.programs.ports import free_ports
from tests.support.programs.processes import Process

from tdcs.listening import at

ROOT = Path(__file__).resolve().parents[2]
TDCS = Path(sys.executable).parent / "tdcs"

POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingWebhookConfiguration")


def install_rights(
    kube: Kube,
    *,
    release: str,
    namespace: str,
    templates: Sequence[str],
    values: Mapping[str, Any] | None = None,
    everywhere: bool = False,
) -> list[Object]:
    """Service accounts, rights and policies of some of the chart's templates, installed; no workload of theirs is.

    Policies hold in the namespaces `default` and `namespace` unless `everywhere` is set.
    """
    kinds = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", *POLICIES}
    rendered_objects = rendered(values or {}, release=release, namespace=namespace, templates=templates)
    objects = [obj for obj in rendered_objects if obj["kind"] in kinds]
    names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["default", namespace]}
    selector = {"matchExpressions": [names]}  # other tests have namespaces of their own
    for obj in objects:
        if obj["kind"] == "ValidatingAdmissionPolicyBinding" and not everywhere:
            obj["spec"]["matchResources"] = {"namespaceSelector": selector}
        for hook in obj.get("webhooks", ()):
            hook["namespaceSelector"] = selector
        kube.apply(obj)
    return objects


def remove_cluster_wide(plane: ControlPlane, objects: Sequence[Object]) -> None:
    """What does not go with the namespace; the programs that run with these rights end first."""
    plane.remove_limited()
    for obj in objects:
        if obj["kind"].startswith("ClusterRole") or obj["kind"] in POLICIES:
            plane.kube.delete(obj["kind"], obj["metadata"]["name"])


def granted(objects: Sequence[Object]) -> set[tuple[str, str, str]]:
    """(group, resource, verb) of everything that the roles allow."""
    return {rule for role in objects for rule in rules_of(role)}


def start_operator(
    plane: ControlPlane,
    *,
    release: str,
    namespace: str,
    engine: Mapping[str, Any],
    folder: Path,
    name: str = "operator",
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Process:
    """The operator's process, as its service account, once its health endpoint is green.

    Args:
        engine: describes the memory engine: its sources, workers and bytesPerSecond.
        options: further ones of the command.
        env: further variables of the process.
    """
    described = folder / "engine.json"
    described.write_text(json.dumps(engine))
    (port,) = free_ports(1)

    def healthy() -> bool:
        try:
            with urllib.request.urlopen(
                f"http://{at(plane.options.host, port)}/healthz", timeout=2
            ) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    return plane.run(
        name=name,
        argv=[
            *(sys.executable, "-m", "tests.support.twins.operator", str(described)),
            f"--namespace={namespace}",
            f"--health-port={port}",
            "--metrics-port=0",
            "--manifest-port=0",
            f"--lease={release}-operator",
            f"--secrets-role={release}-dataset-secrets",
            f"--service-account={release}-operator",
            *options,
        ],
        env={"PYTHONPATH": str(ROOT), **(env or {})},
        kubeconfig=plane.kubeconfig_as(service_account=f"{release}-operator", namespace=namespace),
        ready=healthy,
    )


def allow_secrets(kube: Kube, *, release: str, namespace: str) -> None:
    """What the owner of a namespace does, so that the operator may read its Secrets."""
    kube.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "secrets", "namespace": namespace},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": f"{release}-dataset-secrets",
            },
            "subjects": [{"kind": "ServiceAccount", "name": f"{release}-operator", "namespace": namespace}],
        }
    )
