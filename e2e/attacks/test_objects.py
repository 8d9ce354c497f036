"""Objects that a tenant forges: statuses, volumes, claims and pods. None of them opens another tenant's data."""

import json
from typing import Any

import pytest

from e2e.attacks.conftest import BUCKET, VICTIM, World
from e2e.support.pods import pod
from tdcs.api import names
from tdcs_local.kind import release
from tdcs_local.kind.kubectl import Object
from tdcs_local.store import datasets, operations

OPERATOR = f"system:serviceaccount:{release.NAMESPACE}:tdcs-operator"


@pytest.fixture(scope="module")
def victim(world: World) -> Object:
    """The Dataset of another tenant, ready."""
    datasets.wait_ready(world.kubectl, VICTIM, namespace=world.victim)
    return world.kubectl.get("datasets.tdcs.io", VICTIM, namespace=world.victim) or {}


@pytest.fixture(scope="module")
def volume(world: World, victim: Object) -> Object:
    """Its PersistentVolume."""
    name = names.volume_name(namespace=world.victim, dataset=VICTIM)
    obj = world.kubectl.get("persistentvolumes", name)
    assert obj is not None
    return obj


def claim(name: str, *, volume: str, namespace: str) -> Object:
    """A claim that names a volume."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadOnlyMany"],
            "storageClassName": "",
            "volumeName": volume,
            "resources": {"requests": {"storage": "1Ki"}},
        },
    }


def thief(name: str, *, namespace: str, image: str, volume: dict[str, Any]) -> Object:
    """A pod that prints what it is given at /data."""
    return pod(
        name,
        image=image,
        script="find /data -type f | head",
        namespace=namespace,
        container={"volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}]},
        volumes=[{"name": "data", **volume}],
    )


@pytest.mark.threat("forged-status")
def test_a_tenant_does_not_write_the_status_of_a_dataset(world: World, victim: Object) -> None:
    patch = json.dumps({"status": {"mountPath": victim["status"]["mountPath"]}})
    refusal = world.tenant.refused(
        *("patch", "datasets.tdcs.io", "squatter", "--subresource=status", "--type=merge", "--patch", patch)
    )
    assert "only TDCS's operator writes the status of its kinds" in refusal


@pytest.mark.threat("forged-status")
def test_a_status_that_comes_with_a_dataset_counts_for_nothing(world: World, victim: Object) -> None:
    tenant = world.tenant
    keys = operations.secret(
        namespace=tenant.namespace, name="guessed", keys={"accessKeyId": "a", "secretAccessKey": "b"}
    )
    forged = datasets.dataset("forged", namespace=tenant.namespace, bucket=BUCKET)
    forged["spec"]["source"]["secretRef"] = {"name": "guessed"}
    tenant.create(keys, {**forged, "status": victim["status"]})
    message = tenant.until("forged", reasons=("SourceRefused", "KeysDiffer"))
    assert f"s3://{BUCKET}" in message
    assert VICTIM not in message
    assert world.victim not in message
    name = names.volume_name(namespace=tenant.namespace, dataset="forged")
    assert world.kubectl.get("persistentvolumes", name) is None


@pytest.mark.threat("forged-volume")
def test_a_tenant_makes_no_volume_of_tdcs_and_takes_none_over(world: World, volume: Object) -> None:
    forged = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"forged-{world.tenant.namespace}"},
        "spec": {key: value for key, value in volume["spec"].items() if key != "claimRef"},
    }
    refusal = world.tenant.refused_object(forged)
    assert "create a Dataset, and mount the claim of its name" in refusal
    owner = json.dumps({"metadata": {"labels": {names.LABEL_DATASET_NAMESPACE: world.tenant.namespace}}})
    name = volume["metadata"]["name"]
    refusal = world.tenant.refused("patch", "persistentvolumes", name, "--type=merge", "--patch", owner)
    assert "create a Dataset, and mount the claim of its name" in refusal


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("spec", {"claimRef": {"namespace": "team-b", "uid": "x"}}),
        ("spec", {"claimRef": {"uid": "x"}}),
        ("spec", {"claimRef": None}),
        ("spec", {"mountOptions": ["exec"]}),
        ("spec", {"persistentVolumeReclaimPolicy": "Delete"}),
        (
            "metadata",
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "absent", "uid": "x"}]},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
@pytest.mark.threat("forged-volume", "claim-made-lost")
def test_a_tenant_changes_no_spec_and_no_owner_of_a_volume(
    world: World, volume: Object, part: str, change: dict[str, Any]
) -> None:
    name = volume["metadata"]["name"]
    patch = json.dumps({part: change})
    refusal = world.tenant.refused("patch", "persistentvolumes", name, "--type=merge", "--patch", patch)
    assert f"PersistentVolume {name}: {part}.{next(iter(change))}" in refusal
    live = world.kubectl.get("persistentvolumes", name)
    assert live is not None
    assert live["spec"] == volume["spec"]
    assert "ownerReferences" not in live["metadata"]


@pytest.mark.threat("claim-made-lost")
def test_a_claim_of_another_tenants_volume_is_not_bound(world: World, volume: Object) -> None:
    tenant = world.tenant
    tenant.create(claim("borrowed", volume=volume["metadata"]["name"], namespace=tenant.namespace))
    assert "already bound to a different claim" in tenant.event("borrowed", "already bound")


@pytest.mark.threat("dataset-of-another-namespace")
def test_a_pod_that_names_the_driver_itself_gets_no_volume(
    world: World, volume: Object, toolbox: str
) -> None:
    tenant = world.tenant
    attributes = volume["spec"]["csi"]["volumeAttributes"]
    inline = {"csi": {"driver": names.CSI_DRIVER, "readOnly": True, "volumeAttributes": attributes}}
    tenant.create(thief("inline", namespace=tenant.namespace, image=toolbox, volume=inline))
    message = tenant.event("inline", names.CSI_DRIVER, "phemeral")
    assert "not supported" in message


@pytest.mark.threat("forged-volume", "dataset-of-another-namespace")
def test_a_volume_that_was_forged_with_the_operators_token_is_for_no_pod_of_another_namespace(
    world: World, volume: Object, toolbox: str
) -> None:
    tenant = world.tenant
    name = f"stolen-{tenant.namespace}"
    forged = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {**volume["spec"], "claimRef": {"namespace": tenant.namespace, "name": "stolen"}},
    }
    world.volumes.append(name)
    tenant.create(forged, by=OPERATOR)
    tenant.create(
        claim("stolen", volume=name, namespace=tenant.namespace),
        thief(
            *("thief",),
            namespace=tenant.namespace,
            image=toolbox,
            volume={"persistentVolumeClaim": {"claimName": "stolen", "readOnly": True}},
        ),
    )
    message = tenant.event("thief", f"the volume is for pods of namespace {world.victim}")
    assert "create a Dataset in the pod's namespace, and mount the claim of its name" in message
