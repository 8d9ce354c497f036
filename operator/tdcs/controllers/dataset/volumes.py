"""The PersistentVolume and the claim through which any pod of the namespace reads a Dataset. Pure."""

from tdcs.api import names
from tdcs.controllers.clock import seconds_between
from tdcs.kube.api import Object
from tdcs.kube.apply import owner_reference

SIZE = "1Gi"
"""Kubernetes wants a size of every volume. It has no meaning here: the volume is as large as the data, which
is not known when the claim is made, and it is read-only."""

UNSEEN_SECONDS = 5.0
UNSEEN_RETRY = 0.2


def labels_of(*, namespace: str, name: str) -> dict[str, str]:
    """The labels of what belongs to a Dataset."""
    return {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_DATASET_NAMESPACE: namespace,
        names.LABEL_DATASET_NAME: name,
    }


def volume(*, dataset: Object, cluster: str, path: str) -> Object:
    """The PersistentVolume: read-only for many, bound to the claim of the same Dataset from the start."""
    namespace, name = dataset["metadata"]["namespace"], dataset["metadata"]["name"]
    volume_name = names.volume_name(namespace=namespace, dataset=name)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume_name, "labels": labels_of(namespace=namespace, name=name)},
        "spec": {
            "capacity": {"storage": SIZE},
            "accessModes": ["ReadOnlyMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "volumeMode": "Filesystem",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": namespace,
                "name": name,
            },
            "csi": {
                "driver": names.CSI_DRIVER,
                "volumeHandle": volume_name,
                "readOnly": True,
                "volumeAttributes": {"cluster": cluster, "path": path},
            },
        },
    }


def claim(*, dataset: Object) -> Object:
    """The PersistentVolumeClaim of the same name as the Dataset, which owns it."""
    namespace, name = dataset["metadata"]["namespace"], dataset["metadata"]["name"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels_of(namespace=namespace, name=name),
            "ownerReferences": [owner_reference(dataset)],
        },
        "spec": {
            "accessModes": ["ReadOnlyMany"],
            "storageClassName": "",
            "volumeMode": "Filesystem",
            "volumeName": names.volume_name(namespace=namespace, dataset=name),
            "resources": {"requests": {"storage": SIZE}},
        },
    }


def mounted_path(volume: Object | None) -> str:
    """The engine path that a live PersistentVolume leads to; empty when there is none."""
    if volume is None:
        return ""
    attributes = volume["spec"].get("csi", {}).get("volumeAttributes", {})
    return str(attributes.get("path", ""))


def is_unseen(volume: Object, *, now: str) -> bool:
    """Whether the volume controller has not taken in a new volume yet.

    A claim that it meets before the volume waits for its next round, 15 seconds later; one that comes after
    the volume is bound at once. Where no such controller runs, the claim is made after a few seconds.
    """
    if volume.get("status", {}).get("phase") in {"Available", "Bound"}:
        return False
    created = volume["metadata"].get("creationTimestamp")
    return bool(created) and seconds_between(created, now) < UNSEEN_SECONDS


def is_spent(volume: Object) -> bool:
    """Whether the claim of a volume was deleted: such a volume never binds again and must be made anew."""
    return volume.get("status", {}).get("phase") in {"Released", "Failed"}
