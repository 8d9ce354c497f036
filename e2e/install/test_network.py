"""NetworkPolicies on a network that enforces them: what the cache's ports answer to whom."""

from typing import Any

import pytest

from e2e.support.pods import NOBODY, UNPRIVILEGED
from tdcs_local import demo
from tdcs_local.kind import images, release
from tdcs_local.kind.kubectl import Kubectl, condition
from tdcs_local.progress import Reporter

SYSTEM = release.NAMESPACE
CLUSTER = release.CACHE_CLUSTER
MASTER = f"{CLUSTER}-master.{SYSTEM}.svc:19998"
WORKER, AGENT, BLOCKS = (f"{CLUSTER}-workers.{SYSTEM}.svc:{port}" for port in (29999, 29990, 29991))
MANIFESTS = f"tdcs-manifests.{SYSTEM}.svc:8082"
NODES, READERS = (f"tdcs-nodes.{SYSTEM}.svc:{port}" for port in (9808, 9809))
WEB = (f"{CLUSTER}-master.{SYSTEM}.svc:19999", f"{CLUSTER}-workers.{SYSTEM}.svc:30000")
TARGETS = (MASTER, WORKER, AGENT, BLOCKS, MANIFESTS, NODES, READERS, *WEB)
OPERATOR = {
    "app.kubernetes.io/name": "tdcs",
    "app.kubernetes.io/instance": release.RELEASE,
    "app.kubernetes.io/component": "operator",
}


@pytest.fixture(scope="module")
def image(tdcs: None, reporter: Reporter) -> str:
    """The image with the program `tdcs`."""
    return f"tdcs/tdcs:{images.ensure(demo.SYSTEM_IMAGES, reporter=reporter)['tdcs']}"


def probe(name: str, *, image: str, namespace: str, labels: dict[str, str]) -> dict[str, Any]:
    """A pod that tries all ports, and prints which took a connection."""
    args = [
        "network-probe",
        "--control=kubernetes.default.svc:443",
        *(f"--target={target}" for target in TARGETS),
    ]
    container = {"name": "main", "image": image, "args": args, "securityContext": UNPRIVILEGED}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"restartPolicy": "Never", "securityContext": NOBODY, "containers": [container]},
    }


def answers(kubectl: Kubectl, pod: dict[str, Any]) -> dict[str, str]:
    """What became of each target: reached or closed."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    kubectl.delete("pod", name, namespace=namespace)
    kubectl.apply(pod)

    def ended() -> str | None:
        pod = kubectl.get("pod", name, namespace=namespace) or {}
        phase = pod.get("status", {}).get("phase", "absent")
        return None if phase in {"Succeeded", "Failed"} else f"pod {name} is {phase}"

    kubectl.wait(ended, what=f"pod {name} did not end", seconds=120)
    log = kubectl("logs", name, "-n", namespace)
    kubectl.delete("pod", name, namespace=namespace)
    outcomes: dict[str, str] = {}
    for line in log.splitlines():
        outcome, _, target = line.partition(": ")
        if target in TARGETS:
            outcomes[target] = outcome
    assert set(outcomes) == set(TARGETS), log
    return outcomes


@pytest.mark.threat("ports-from-other-namespaces", "operator-port")
def test_a_pod_of_another_namespace_reaches_no_port_whatever_labels_it_has(
    image: str, kubectl: Kubectl, namespace: str
) -> None:
    for name, labels in (
        ("stranger", {"app": "stranger"}),
        ("imitated-operator", OPERATOR),
        ("imitated-worker", {"tdcs.io/cache-cluster": CLUSTER, "tdcs.io/component": "worker"}),
    ):
        outcomes = answers(kubectl, probe(name, image=image, namespace=namespace, labels=labels))
        assert outcomes == dict.fromkeys(TARGETS, "closed"), name


@pytest.mark.parametrize(
    ("labels", "reached"),
    [
        # So that what is closed above is known to listen. The operator has no business with Alluxio's workers.
        pytest.param(OPERATOR, {MASTER, AGENT}, id="operator"),
        pytest.param(
            {"tdcs.io/cache-cluster": CLUSTER, "tdcs.io/component": "fuse"},
            {MASTER, WORKER},
            id="alluxio-client-of-the-cache",
        ),
        pytest.param(
            {"tdcs.io/cache-cluster": "other", "tdcs.io/component": "worker"},
            {MANIFESTS},
            id="worker-of-another-cache",
        ),
    ],
)
@pytest.mark.threat("other-cache-ports")
def test_a_component_reaches_the_ports_of_its_role_and_no_others(
    image: str, kubectl: Kubectl, labels: dict[str, str], reached: set[str]
) -> None:
    # A network lets a new pod through some moments after it began, and the one that connects is tried once; what must
    # be closed is so at every try.
    pod = probe("as-a-component", image=image, namespace=SYSTEM, labels=labels)
    closed = set(TARGETS) - reached

    def admitted() -> str | None:
        outcomes = answers(kubectl, pod)
        assert {outcomes[target] for target in closed} == {"closed"}
        return (
            None
            if {outcomes[target] for target in reached} == {"reached"}
            else f"the ports answer {outcomes}"
        )

    kubectl.wait(admitted, what="the component's labels open no port", seconds=120)


def test_the_operators_own_probe_says_that_the_cache_is_isolated(tdcs: None, kubectl: Kubectl) -> None:
    def concluded() -> str | None:
        cluster = kubectl.get("cacheclusters.tdcs.io", CLUSTER, namespace=SYSTEM) or {}
        isolated = condition(cluster, "NetworkIsolated")
        return None if isolated.get("status") == "True" else f"NetworkIsolated is {isolated}"

    kubectl.wait(concluded, what="the cache's probe did not succeed", seconds=180)
