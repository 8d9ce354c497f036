"""The volume and the claim of a Dataset as objects: what they shall be, and what live ones say."""

from collections.abc import Mapping, Sequence

from tdcs.api import names
from tdcs.api.durations import seconds_since
from tdcs.kube.apply import owner_reference
from tdcs.model.kube_objects import Object

_MIB = 1 << 20

UNSEEN_SECONDS = 5.0


def is_own(*, volume: Object, claim: Object | None, dataset: Object) -> bool:
    """Whether a volume was made for this very Dataset: by its uid, which every volume carries; one that TDCS made
    before it wrote the uid by the claim that it is bound to, which the Dataset owns. One with neither is another's."""
    made_for = (volume["metadata"].get("labels") or {}).get(names.LABEL_DATASET_UID)
    if made_for is not None:
        return bool(made_for == dataset["metadata"].get("uid"))
    bound = (volume["spec"].get("claimRef") or {}).get("uid")
    return bound is not None and claim is not None and bool(claim["metadata"].get("uid") == bound)


def kept_claim(claim: Object) -> Object:
    """A claim as it is followed: whether it is there, and has its volume, is all that counts."""
    metadata = claim["metadata"]
    return {
        "metadata": {field: metadata.get(field, "") for field in ("name", "namespace", "resourceVersion")},
        "phase": (claim.get("status") or {}).get("phase", ""),
    }


def is_lost(claim: Object) -> bool:
    """Whether a claim of a Dataset has lost its volume: Kubernetes binds it again only to one that is reserved for this
    very claim. One that is being deleted is made again when its pods have ended."""
    metadata = claim["metadata"]
    volume_name = names.volume_name(namespace=metadata["namespace"], dataset=metadata["name"])
    lost = (claim.get("status") or {}).get("phase") == "Lost" and not metadata.get("deletionTimestamp")
    return bool(lost and claim["spec"].get("volumeName") == volume_name)


def is_reserved(*, volume: Object, claim: Object) -> bool:
    """Whether a volume is for this very claim, and not only for one of its name."""
    reserved = (volume["spec"].get("claimRef") or {}).get("uid")
    return bool(reserved == claim["metadata"]["uid"])


def has_deleted_claim(*, volume: Object, claim: Object | None) -> bool:
    """Whether the claim that a volume is bound to was deleted a moment ago: the volume controller is about to release
    it, and a claim that is made before that waits for its next round, up to 15 seconds later."""
    bound = (volume["spec"].get("claimRef") or {}).get("uid")
    return claim is None and bool(bound) and volume.get("status", {}).get("phase") == "Bound"


def storage_of(size: int) -> str:
    """A size as a Kubernetes quantity: whole mebibytes, rounded up."""
    return f"{max(-(-size // _MIB), 1)}Mi"


def labels_of(*, namespace: str, name: str) -> dict[str, str]:
    return {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_DATASET_NAMESPACE: namespace,
        names.LABEL_DATASET_NAME: name,
    }


def attributes(*, cluster: str, path: str, tiers: Sequence[str] = ()) -> dict[str, str]:
    """What the node plugin needs of a volume: where the data is in the cache, and where its blocks are on the nodes.

    Tiers at the default place are left out.
    """
    attributes = {names.VOLUME_CLUSTER: cluster, names.VOLUME_PATH: path}
    if tiers and tuple(tiers) != (names.cache_path(cluster=cluster),):
        attributes[names.VOLUME_TIERS] = ",".join(tiers)
    return attributes


def volume(*, dataset: Object, storage: str, attributes: Mapping[str, str]) -> Object:
    """The PersistentVolume: read-only for many, bound to the claim of the same Dataset from the start."""
    namespace, name = dataset["metadata"]["namespace"], dataset["metadata"]["name"]
    volume_name = names.volume_name(namespace=namespace, dataset=name)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": volume_name,
            "labels": {
                **labels_of(namespace=namespace, name=name),
                names.LABEL_DATASET_UID: dataset["metadata"]["uid"],
            },
        },
        "spec": {
            "capacity": {"storage": storage},
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
                "volumeAttributes": dict(attributes),
            },
        },
    }


def claim(*, dataset: Object, storage: str, nudged: bool = False) -> Object:
    """The PersistentVolumeClaim of the same name as the Dataset, which owns it; `nudged`: see `needs_nudge`."""
    namespace, name = dataset["metadata"]["namespace"], dataset["metadata"]["name"]
    annotations = {"annotations": {names.ANNOTATION_VOLUME_BOUND: "true"}} if nudged else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels_of(namespace=namespace, name=name),
            **annotations,
            "ownerReferences": [owner_reference(dataset)],
        },
        "spec": {
            "accessModes": ["ReadOnlyMany"],
            "storageClassName": "",
            "volumeMode": "Filesystem",
            "volumeName": names.volume_name(namespace=namespace, dataset=name),
            "resources": {"requests": {"storage": storage}},
        },
    }


def needs_nudge(*, claimed: Object | None, bound: Object) -> bool:
    """Whether the claim is to be changed, so that it is looked at once more; for good, as a change back is one too.

    The volume controller binds the volume first, and where its two workers meet in that the claim waits for its next
    round, up to 15 seconds later, unless something changes on it.
    """
    if claimed is None:
        return False
    if names.ANNOTATION_VOLUME_BOUND in claimed["metadata"].get("annotations", {}):
        return True
    phases = [obj.get("status", {}).get("phase") for obj in (claimed, bound)]
    return phases == ["Pending", "Bound"]


def mounted_path(volume: Object | None) -> str:
    """The engine path that a live PersistentVolume leads to; empty when there is none."""
    if volume is None:
        return ""
    attributes = volume["spec"].get("csi", {}).get("volumeAttributes", {})
    return str(attributes.get(names.VOLUME_PATH, ""))


def is_unseen(live: Object, *, now: str) -> bool:
    """Whether the volume controller has not taken in a new volume, or has not bound a new claim yet.

    A claim that it meets before the volume waits for its next round, 15 seconds later; one that comes after
    the volume is bound at once. Where no such controller runs, it is waited for a few seconds only.
    """
    if live.get("status", {}).get("phase") in {"Available", "Bound"}:
        return False
    created = live["metadata"].get("creationTimestamp")
    return bool(created) and seconds_since(created, now=now) < UNSEEN_SECONDS


def is_spent(volume: Object) -> bool:
    """Whether the claim of a volume was deleted: such a volume never binds again and must be made again."""
    return volume.get("status", {}).get("phase") in {"Released", "Failed"}
