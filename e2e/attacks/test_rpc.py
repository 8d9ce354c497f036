"""The ten calls of an intruder to the cache's master and a worker, from a pod of another namespace."""

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.attacks.conftest import CALLER, POLICY, SYSTEM, World, lines
from e2e.attacks.rpc_calls import CALLS, ROLES
from tdcs.api import names
from tdcs_local.kind.kubectl import Object


@pytest.fixture(scope="module")
def answers(world: World) -> Iterator[list[dict[str, Any]]]:
    """How every call ended: first as the network is, then with the cache's ports open to the pod."""
    if not world.trusted:
        pytest.skip("the release has no certificates: TDCS_HELM_VALUES has trust.enabled: false")
    kubectl, namespace = world.kubectl, world.tenant.namespace

    def log() -> list[dict[str, Any]]:
        return lines(kubectl("logs", CALLER, "-n", namespace))

    def closed() -> str | None:
        pod = kubectl.get("pods", CALLER, namespace=namespace) or {}
        if pod.get("status", {}).get("phase") == "Pending":
            return f"the pod is {pod['status']}"
        return None if {"phase": "wait"} in log() else "its calls have not ended"

    kubectl.wait(closed, what=f"pod {CALLER} did not call", seconds=120)
    kubectl.apply(opening(namespace))

    def ended() -> str | None:
        phase = (kubectl.get("pods", CALLER, namespace=namespace) or {}).get("status", {}).get("phase")
        assert phase != "Failed", kubectl("logs", CALLER, "-n", namespace)
        return None if phase == "Succeeded" else f"the pod is {phase}"

    kubectl.wait(ended, what=f"pod {CALLER} did not end", seconds=180)
    yield log()
    kubectl.delete("networkpolicies", POLICY, namespace=SYSTEM)


def opening(namespace: str) -> Object:
    """A policy that opens the cache's ports to the attacker's pod: a network that enforces none."""
    peer = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "podSelector": {"matchLabels": {"app": CALLER}},
    }
    ports = [{"port": port} for port in (names.MASTER_RPC_PORT, names.WORKER_RPC_PORT)]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": POLICY, "namespace": SYSTEM},
        "spec": {
            "podSelector": {"matchExpressions": [{"key": "tdcs.io/cache-cluster", "operator": "Exists"}]},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [peer], "ports": ports}],
        },
    }


def ends(answers: list[dict[str, Any]], phase: str, caller: str) -> dict[str, tuple[str, str]]:
    """Status and text of each call."""
    ends_by_call = {
        answer["call"]: (answer["code"], answer["text"])
        for answer in answers
        if (answer["phase"], answer.get("caller")) == (phase, caller)
    }
    assert ends_by_call.keys() == CALLS.keys()
    return ends_by_call


@pytest.mark.threat("alluxio-rpc")
def test_the_network_lets_no_call_of_another_namespace_through(answers: list[dict[str, Any]]) -> None:
    codes = {code for code, _ in ends(answers, "closed", ROLES[0]).values()}
    assert codes <= {"UNAVAILABLE", "DEADLINE_EXCEEDED"}


@pytest.mark.parametrize("caller", ["plain", "no certificate"])
@pytest.mark.threat("alluxio-rpc")
def test_without_a_certificate_no_call_is_answered_where_the_network_lets_it_through(
    answers: list[dict[str, Any]], caller: str
) -> None:
    codes = {code for code, _ in ends(answers, "open", caller).values()}
    assert codes == {"UNAVAILABLE"}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.threat("alluxio-rpc")
def test_with_the_certificate_of_another_role_a_call_is_refused_by_its_name(
    answers: list[dict[str, Any]], role: str
) -> None:
    ends_by_call = ends(answers, "open", role)
    for call, (code, text) in ends_by_call.items():
        _, service, method, _ = CALLS[call]
        assert code == "PERMISSION_DENIED", (call, code, text)
        assert f"the role {role} may not call {service}/{method}" in text
