"""A tenant who attacks: what its account does with kubectl, and what it is answered."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from e2e.conftest import describe
from tdcs_local.errors import LocalError
from tdcs_local.kind.kubectl import Kubectl, Object, condition

ACCOUNT = "intruder"
KINDS = ("datasets", "preloads", "trainingjobs")


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """A namespace, and the account that may do in it what the role `edit` says, and with TDCS's kinds what it likes.

    Attributes:
        kubectl: of the cluster's administrator.
        namespace: of the tenant.
    """

    kubectl: Kubectl
    namespace: str

    @property
    def user(self) -> str:
        """The account, as the API server calls it."""
        return f"system:serviceaccount:{self.namespace}:{ACCOUNT}"

    def __call__(self, *words: str, stdin: str | None = None, by: str = "") -> str:
        """Run kubectl as the tenant, or as another user."""
        return self.kubectl(*words, "-n", self.namespace, f"--as={by or self.user}", stdin=stdin)

    def create(self, *objects: Object, by: str = "") -> None:
        """Create objects."""
        self("create", "-f", "-", stdin=yaml.safe_dump_all(objects, sort_keys=False), by=by)

    def refused(self, *words: str, stdin: str | None = None) -> str:
        """What the API server says to what it refuses. Fails when it does not."""
        try:
            done = self(*words, stdin=stdin)
        except LocalError as error:
            return " ".join(error.why.split())
        raise AssertionError(f"the tenant may do {words}: {done}")

    def refused_object(self, thing: Object) -> str:
        """The same of an object that is created."""
        return self.refused("create", "-f", "-", stdin=yaml.safe_dump(thing, sort_keys=False))

    def dataset(self, name: str) -> Object:
        """A Dataset of the tenant."""
        return self.kubectl.get("datasets.tdcs.io", name, namespace=self.namespace) or {}

    def ready(self, *names: str, seconds: float = 120) -> None:
        """Wait until Datasets are ready."""
        for name in names:
            self.until(name, status="True", seconds=seconds)

    def until(
        self,
        name: str,
        kind: str = "Ready",
        *,
        reasons: Sequence[str] = (),
        status: str = "False",
        seconds: float = 180,
    ) -> str:
        """Wait until a Dataset's condition has a status and one of these reasons, where some are given; its message."""
        obj: dict[str, Any] = {}

        def look() -> str | None:
            obj.clear()
            obj.update(condition(self.dataset(name), kind))
            fits = obj.get("status") == status and (not reasons or obj.get("reason") in reasons)
            return None if fits else f"{kind} is {obj}"

        self.kubectl.wait(
            look,
            what=f"Dataset {self.namespace}/{name} is not {kind}={status} ({', '.join(reasons)})",
            seconds=seconds,
            explain=lambda: describe(self.kubectl, self.namespace),
        )
        return str(obj["message"])

    def event(self, pod: str, *texts: str, seconds: float = 180) -> str:
        """Wait until an event of a pod or claim says all of this; what it says."""
        messages: list[str] = []

        def look() -> str | None:
            events = self.kubectl.list("events", namespace=self.namespace)
            all_messages = [
                event.get("message", "") for event in events if event["involvedObject"].get("name") == pod
            ]
            messages[:] = [message for message in all_messages if all(text in message for text in texts)]
            return None if messages else f"its events say {sorted(set(all_messages))}"

        self.kubectl.wait(look, what=f"no event of {self.namespace}/{pod} says {texts}", seconds=seconds)
        return messages[0]


def rights(tenant: Tenant) -> list[Object]:
    """The account and its rights: those of `edit`; all of TDCS's kinds, with their statuses; and, as some clusters give
    them to whoever installs charts, PersistentVolumes."""
    namespace = tenant.namespace
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    group, api = "rbac.authorization.k8s.io", "rbac.authorization.k8s.io/v1"
    resources = [*KINDS, *(f"{kind}/status" for kind in KINDS)]
    every = ["get", "list", "create", "update", "patch", "delete"]

    def bound(kind: str, role: str, **metadata: str) -> Object:
        return {
            "apiVersion": api,
            "kind": "RoleBinding" if "namespace" in metadata else "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": kind, "name": role},
            "subjects": [subject],
        }

    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": namespace}},
        {
            "apiVersion": api,
            "kind": "Role",
            "metadata": {"name": "tdcs", "namespace": namespace},
            "rules": [{"apiGroups": ["tdcs.io"], "resources": resources, "verbs": every}],
        },
        bound("Role", "tdcs", name="tdcs", namespace=namespace),
        bound("ClusterRole", "edit", name="edit", namespace=namespace),
        {
            "apiVersion": api,
            "kind": "ClusterRole",
            "metadata": {"name": namespace},
            "rules": [{"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": every}],
        },
        bound("ClusterRole", namespace, name=namespace),
    ]
