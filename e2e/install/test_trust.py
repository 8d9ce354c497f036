"""The cache's certificates by role, on the cluster: they are valid, and a caller without one gets no answer.

Data is loaded and read through them in all the other files. Skipped where the release is installed without: see
deploy/local/README.md, "TDCS with other values".
"""

import re

import pytest

from e2e.install.test_network import AGENT, BLOCKS, MASTER, OPERATOR, SYSTEM, WORKER
from e2e.support.metrics import metrics_of
from tdcs_local.kind import release
from tdcs_local.kind.kubectl import Kubectl, condition

OPERATOR_METRICS = 8081
DAY = 86_400


@pytest.fixture(scope="module")
def trusted(tdcs: None, kubectl: Kubectl) -> None:
    """The release has certificates."""
    operator = kubectl.get("deployments", "tdcs-operator", namespace=SYSTEM) or {}
    args = operator["spec"]["template"]["spec"]["containers"][0]["args"]
    if not any(argument.startswith("--trust=") for argument in args):
        pytest.skip("the release has no certificates: TDCS_HELM_VALUES has trust.enabled: false")


def test_the_caches_certificates_are_valid_and_their_end_is_a_metric(trusted: None, kubectl: Kubectl) -> None:
    cluster = kubectl.get("cacheclusters.tdcs.io", release.CACHE_CLUSTER, namespace=SYSTEM)
    state = condition(cluster, "Trusted")
    assert (state.get("status"), state.get("reason")) == ("True", "CertificatesValid"), state
    text = metrics_of(
        kubectl, "deploy/tdcs-operator", container="operator", port=OPERATOR_METRICS, host="operator.tdcs.io"
    )
    ends = re.findall(r"^tdcs_certificate_expiry_seconds\{(.*)\} (\S+)$", text, re.MULTILINE)
    roles = {role for labels, _ in ends for role in re.findall(r'role="(\w+)"', labels)}
    assert roles >= {"authority", "operator", "master", "worker", "agent", "reader"}
    assert min(float(seconds) for _, seconds in ends) > 29 * DAY


@pytest.mark.threat("alluxio-rpc", "agent-ports", "metrics-ports")
def test_a_pod_that_the_network_admits_gets_no_answer_without_a_certificate(
    trusted: None, kubectl: Kubectl, toolbox: str
) -> None:
    # The operator's labels, so that the network lets it in.
    answers = f"curl --silent --fail --insecure --max-time 10 --output /dev/null https://{AGENT}/healthz"
    # A moment passes until the nodes' rules know the address of a new pod.
    asks = [f"until {answers}; do sleep 0.2; done"]
    asks += [
        f"curl --silent --max-time 10 --output /dev/null --write-out '%{{http_code}}\\n' {url} || true"
        for url in (
            f"http://{AGENT}/v1/state",
            f"--insecure https://{AGENT}/v1/state",
            f"--insecure https://{AGENT}/healthz",
            f"--insecure --http2 https://{MASTER}/alluxio.grpc.file.FileSystemMasterClientService/GetMountTable",
            f"--insecure --http2 https://{WORKER}/alluxio.grpc.block.BlockWorker/ReadBlock",
            f"--insecure https://{BLOCKS}/",
        )
    ]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "without-a-certificate", "namespace": SYSTEM, "labels": OPERATOR},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {"name": "main", "image": toolbox, "command": ["sh", "-c", "\n".join(asks)]},
            ],
        },
    }
    name = "without-a-certificate"
    kubectl.delete("pod", name, namespace=SYSTEM)
    kubectl.apply(pod)

    def ended() -> str | None:
        phase = (kubectl.get("pod", name, namespace=SYSTEM) or {}).get("status", {}).get("phase", "absent")
        return None if phase in {"Succeeded", "Failed"} else f"pod {name} is {phase}"

    kubectl.wait(ended, what=f"pod {name} did not end", seconds=120)
    codes = kubectl("logs", name, "-n", SYSTEM).split()
    kubectl.delete("pod", name, namespace=SYSTEM)
    # 000: the connection was ended; 403: refused by its role; health is for everybody.
    plain, state, health, master, worker, blocks = codes
    assert (plain, health) == ("000", "200")
    assert state in {"000", "401", "403"}
    assert {master, worker, blocks} == {"000"}
