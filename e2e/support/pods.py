"""Pods of a test's own, as any user may make them, and how they end."""

from typing import Any

from tdcs_local.kind.kubectl import Kubectl

UNPRIVILEGED: dict[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

NOBODY: dict[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod(name: str, *, image: str, script: str, namespace: str, **spec: Any) -> dict[str, Any]:
    """A pod that runs a shell script once as an unprivileged user."""
    resources = spec.pop("resources", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "securityContext": NOBODY,
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "command": ["sh", "-ec", script],
                    "resources": resources,
                    "securityContext": UNPRIVILEGED,
                    **spec.pop("container", {}),
                }
            ],
            **spec,
        },
    }


def finished(kubectl: Kubectl, name: str, namespace: str, *, seconds: float = 180) -> str:
    """Wait until a pod has succeeded and return its log."""

    def look() -> str | None:
        pod = kubectl.get("pod", name, namespace=namespace) or {}
        phase = pod.get("status", {}).get("phase", "absent")
        assert phase != "Failed", kubectl("logs", name, "-n", namespace)
        return None if phase == "Succeeded" else f"pod {name} is {phase}"

    kubectl.wait(look, what=f"pod {name} did not succeed", seconds=seconds)
    return kubectl("logs", name, "-n", namespace)
