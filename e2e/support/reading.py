"""Pods that read a Dataset again and again and compare it (`read_on.py` runs in them), what they have said, and what
runs in them and in TDCS's own pods on a node."""

import json
from pathlib import Path
from typing import Any

from e2e.conftest import describe
from e2e.support import read_on
from e2e.support.pods import pod
from tdcs_local import demo
from tdcs_local.kind import release
from tdcs_local.kind.kubectl import Kubectl, Object
from tdcs_local.store import operations

SYSTEM = release.NAMESPACE
CHECKS = "checks"


def checks(namespace: str, *, bucket: str, files: int | None = None) -> Object:
    """The program of the pods, and what the files of a bucket must be: all of them, or so many."""
    entries = sorted(operations.manifest(bucket)["files"], key=lambda entry: str(entry["path"]))[:files]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CHECKS, "namespace": namespace},
        "data": {
            "read_on.py": Path(read_on.__file__).read_text(),
            "expected.json": json.dumps({entry["path"]: entry["sha256"] for entry in entries}),
        },
    }


def reading_pod(
    name: str, *, namespace: str, claim: str, node: str, image: str, pause_seconds: float = 0
) -> Object:
    """A pod on a node that reads a claim on and compares; `image` has Python."""
    data = {"name": "data", "mountPath": "/data", "readOnly": True, "mountPropagation": "HostToContainer"}
    return pod(
        name,
        image=image,
        script=f"exec python3 /checks/read_on.py /checks/expected.json /data 0 {pause_seconds}",
        namespace=namespace,
        nodeSelector={"kubernetes.io/hostname": node},
        container={"volumeMounts": [data, {"name": CHECKS, "mountPath": "/checks"}]},
        volumes=[
            {"name": "data", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}},
            {"name": CHECKS, "configMap": {"name": CHECKS}},
        ],
    )


def rounds(kubectl: Kubectl, name: str, *, namespace: str) -> list[dict[str, Any]]:
    """What a pod has said: a line for each time that it has read everything."""
    pod = kubectl.get("pods", name, namespace=namespace) or {}
    if pod.get("status", {}).get("phase") not in {"Running", "Succeeded", "Failed"}:
        return []
    lines = kubectl("logs", name, "-n", namespace).splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def failures(records: list[dict[str, Any]]) -> list[str]:
    """What failed in these rounds."""
    return [text for record in records for text in record["failed"]]


def wait_rounds(kubectl: Kubectl, name: str, count: int, *, namespace: str, seconds: float = 180) -> None:
    """Wait until a pod has read everything so often."""

    def look() -> str | None:
        done = len(rounds(kubectl, name, namespace=namespace))
        return None if done >= count else f"it has read everything {done} times"

    kubectl.wait(
        look,
        what=f"pod {name} has not read everything {count} times",
        seconds=seconds,
        explain=lambda: describe(kubectl, namespace),
    )


def wait_whole_rounds(
    kubectl: Kubectl, name: str, count: int, *, namespace: str, seconds: float = 300
) -> None:
    """Wait until the last so many rounds of a pod, all begun after this moment, had no failure."""
    now = len(rounds(kubectl, name, namespace=namespace))

    def look() -> str | None:
        later = rounds(kubectl, name, namespace=namespace)[now + 1 :][-count:]
        bad = failures(later)
        return None if len(later) >= count and not bad else f"{len(later)} rounds, failed: {bad[:1]}"

    kubectl.wait(
        look,
        what=f"pod {name} does not read everything without a failure",
        seconds=seconds,
        explain=lambda: describe(kubectl, namespace),
    )


def run_reader(kubectl: Kubectl, readers: list[str], thing: dict[str, Any]) -> str:
    """Make the pod and wait until it runs; its name."""
    name: str = thing["metadata"]["name"]
    kubectl.delete("pod", name, namespace=demo.NAMESPACE)
    readers.append(name)
    kubectl.apply(thing)

    def look() -> str | None:
        phase = (kubectl.get("pod", name, namespace=demo.NAMESPACE) or {}).get("status", {}).get("phase")
        return None if phase == "Running" else f"pod {name} is {phase}"

    kubectl.wait(
        look,
        what=f"pod {name} does not run",
        seconds=120,
        explain=lambda: kubectl("describe", "pod", name, "-n", demo.NAMESPACE),
    )
    return name


def shell(kubectl: Kubectl, name: str, script: str, *, namespace: str = demo.NAMESPACE) -> str:
    """The output of a script in a pod; raises LocalError when it fails."""
    return kubectl("exec", name, "-n", namespace, "--", "sh", "-ec", script).strip()


def pod_on(kubectl: Kubectl, node: str, selector: str) -> dict[str, Any]:
    """The running system pod with these labels on a node."""
    (pod,) = (
        thing
        for thing in kubectl.list("pods", namespace=SYSTEM, selector=selector)
        if thing["spec"].get("nodeName") == node and not thing["metadata"].get("deletionTimestamp")
    )
    return pod
