"""Workloads of Kueue start when their data is there: the operator with Kueue's own definitions, on a real API server.

Kueue's manager does not run here: the test reserves quota as it does, by a write to the Workload's status. The
definitions come with Kueue's Go module, from Go's module cache, and with TDCS_ECOSYSTEM=1 (`make ecosystem`) they are
fetched; without them the test is skipped.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.controlplane.operator_command import (
    allow_secrets,
    granted,
    install_rights,
    remove_cluster_wide,
    start_operator,
)
from tests.controlplane.operator_world import CHECKOUT, FILES, SOURCE, TOTAL, World, world
from tests.support.controlplane.audit import service_account
from tests.support.kube import Object, condition
from tests.support.waiting import eventually

__all__ = ["world"]

MODULE = CHECKOUT / "deploy" / "local" / "go" / "kueue"
API_VERSION = "kueue.x-k8s.io/v1beta2"


def definitions() -> Path:
    """The folder with the CustomResourceDefinitions of the Kueue that go.mod names."""
    fetches = bool(os.environ.get("TDCS_ECOSYSTEM"))
    if shutil.which("go") is None:
        pytest.skip("there is no go to ask for Kueue's module")
    asked = subprocess.run(
        ["go", "mod", "download", "-json", "sigs.k8s.io/kueue"],
        cwd=MODULE,
        env={
            **os.environ,
            "GOFLAGS": "-mod=mod",
            "GOTOOLCHAIN": "local",
            **({} if fetches else {"GOPROXY": "off"}),
        },
        check=False,
        capture_output=True,
        text=True,
    )
    found = json.loads(asked.stdout or "{}")
    if not found.get("Dir"):
        assert not fetches, f"Kueue's module cannot be fetched: {asked.stderr or found.get('Error')}"
        pytest.skip("Kueue's module is not in Go's cache: make ecosystem fetches it")
    return Path(found["Dir"]) / "config" / "components" / "crd" / "bases"


@pytest.fixture
def release(world: World) -> str:
    return f"tdcs-{world.cluster}"


@pytest.fixture
def rights(world: World, release: str) -> Iterator[list[Object]]:
    """Kueue's kinds, and what the chart grants the operator there, with its default policies."""
    world.kube.install_crds(definitions())
    objects = install_rights(
        world.kube,
        release=release,
        namespace=world.namespace,
        templates=["operator-rbac", "operator", "kueue", "admission", "admission-operator"],
        values={"kueue.enabled": True},
    )
    yield objects
    remove_cluster_wide(world.kube, objects)
    for kind, name in (("AdmissionCheck", world.cluster), ("DataCheck", world.cluster)):
        world.kube.delete(kind, name)


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def put_check(world: World, **spec: object) -> None:
    """An AdmissionCheck for data, with its DataCheck."""
    reference = {"apiGroup": "tdcs.io", "kind": "DataCheck", "name": world.cluster}
    world.kube.create(
        {
            "apiVersion": API_VERSION,
            "kind": "AdmissionCheck",
            "metadata": {"name": world.cluster},
            "spec": {"controllerName": "tdcs.io/data", "parameters": reference},
        }
    )
    world.wait(lambda: active(world) == "False")  # there are no parameters yet
    world.kube.create(
        {
            "apiVersion": "tdcs.io/v1alpha2",
            "kind": "DataCheck",
            "metadata": {"name": world.cluster},
            "spec": spec,
        }
    )
    world.wait(lambda: active(world) == "True")


def active(world: World) -> str | None:
    return condition(world.kube.get("AdmissionCheck", world.cluster), "Active")


def put_workload(world: World, name: str, *, claim: str) -> None:
    """A Workload as Kueue makes it for a Job that mounts a claim, and waits for quota."""
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "train"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}],
    }
    world.kube.create(
        {
            "apiVersion": API_VERSION,
            "kind": "Workload",
            "metadata": {"name": name, "namespace": world.namespace},
            "spec": {
                "queueName": "gpu",
                "podSets": [{"name": "main", "count": 1, "template": {"spec": pod}}],
            },
        }
    )
    wait = {"name": world.cluster, "state": "Pending", "message": "", "lastTransitionTime": now()}
    patch_status(world, name, {"admissionChecks": [wait]})


def reserve(world: World, name: str) -> None:
    """What Kueue's scheduler does: the Workload has quota, and its checks may answer."""
    reserved = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "QuotaReserved",
        "message": "",
        "lastTransitionTime": now(),
    }
    patch_status(world, name, {"conditions": [reserved]})


def patch_status(world: World, name: str, status: Object) -> None:
    world.kube.patch("Workload", name, {"status": status}, namespace=world.namespace, subresource="status")


def state(world: World, name: str) -> Object:
    status = world.kube.get("Workload", name, namespace=world.namespace)["status"]
    found: Object = next(each for each in status["admissionChecks"] if each["name"] == world.cluster)
    return found


def test_a_workload_starts_with_its_data_and_without_it_gives_its_quota_back(
    world: World, release: str, rights: list[Object], tmp_path: Path
) -> None:
    kube, namespace = world.kube, world.namespace
    allow_secrets(kube, release=release, namespace=namespace)
    world.create_cluster()
    engine = {
        "sources": {SOURCE: FILES, "s3://pictures/cold": FILES},
        "workers": dict.fromkeys(world.nodes, 10 * TOTAL),
    }
    operator = start_operator(
        world.plane,
        release=release,
        namespace=namespace,
        engine=engine,
        folder=tmp_path,
        name="operator-with-kueue",
        options=["--kueue"],
    )
    put_check(world, holdQuota="2s", lookAhead=2)
    world.create_dataset()
    later = "2035-01-01T00:00:00Z"
    world.create_dataset("cold", preload={"startTime": later}, source={"uri": "s3://pictures/cold"})
    world.wait_ready()
    world.wait(lambda: condition(world.dataset("cold"), "Mounted") == "True")

    put_workload(world, "warm", claim="pictures")
    reserve(world, "warm")
    world.wait(lambda: state(world, "warm")["state"] == "Ready")

    # It had quota at once, and never waited for it: nothing is loaded for it, and it gives its quota back.
    put_workload(world, "cold", claim="cold")
    reserve(world, "cold")
    world.wait(lambda: state(world, "cold")["state"] == "Retry")
    assert state(world, "cold")["requeueAfterSeconds"] >= 1
    assert "it gives its quota back" in state(world, "cold")["message"]

    # Waiting for quota, it has its data loaded ahead.
    put_workload(world, "next", claim="cold")
    world.wait(lambda: kube.find("Preload", "ahead-cold", namespace=namespace) is not None)
    world.wait(lambda: world.dataset("cold")["status"].get("loadedRatio") == 1.0)
    reserve(world, "next")
    world.wait(lambda: state(world, "next")["state"] == "Ready")

    user = service_account(f"{release}-operator", namespace=namespace)
    wanted = granted([one for one in rights if one["metadata"]["name"] == f"{release}-operator-kueue"])

    def unneeded() -> list[tuple[str, str, str]]:
        made = list(world.plane.audit.calls(user=user))
        refused = [call for call in made if call.code in {401, 403}]
        assert not refused, refused[:3]
        return sorted(wanted - {right for call in made for right in call.needed})

    eventually(lambda: not unneeded(), deadline=30, describe=lambda: f"{unneeded()}\n{operator.tail()}")
