"""The PersistentVolume and the claim through which any pod of the namespace reads a Dataset."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.api.durations import seconds_between
from tdcs.controllers.context import Context, WorkKey
from tdcs.controllers.mounts.problem import RETRY_SOON, Problem
from tdcs.kube.api import Object
from tdcs.kube.apply import ForeignObjectError, belongs, foreign, owner_reference
from tdcs.kube.errors import InvalidError
from tdcs.kube.resources import DATASETS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, Resource

_MIB = 1 << 20

UNSEEN_SECONDS = 5.0
UNSEEN_RETRY = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """The PersistentVolume and the claim of a Dataset, as a pass has read them; None where there is none."""

    volume: Object | None
    claim: Object | None


async def find(*, context: Context, obj: Object) -> Volume | Problem:
    """The volume of a Dataset and its claim; a problem when a stranger has the name of one.

    The other object is left as it is. The volume of an earlier Dataset of that name, perhaps of another tenant, is
    deleted: it leads to what that one could read.
    """
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    volume_name = names.volume_name(namespace=namespace, dataset=name)
    live = await context.api.get(PERSISTENT_VOLUMES, name=volume_name)
    claimed = await context.api.get(PERSISTENT_VOLUME_CLAIMS, name=name, namespace=namespace)
    found: list[tuple[Resource, Object | None]] = [
        (PERSISTENT_VOLUMES, live),
        (PERSISTENT_VOLUME_CLAIMS, claimed),
    ]
    for resource, one in found:
        if one is not None and not belongs(one, obj):
            error = foreign(resource=resource, live=one, owner=obj)
            return Problem(reason="NameTaken", message=str(error))
    if live is None or is_own(volume=live, claim=claimed, dataset=obj):
        return Volume(volume=live, claim=claimed)
    uid = live["metadata"]["uid"]
    if not live["metadata"].get("deletionTimestamp"):
        await context.api.delete(PERSISTENT_VOLUMES, name=volume_name, uid=uid)
        context.applier.forget(PERSISTENT_VOLUMES, namespace="", name=volume_name)
    left = await context.api.get(PERSISTENT_VOLUMES, name=volume_name)
    if left is None:
        return Volume(volume=None, claim=claimed)
    text = f"the PersistentVolume {volume_name} of an earlier Dataset of this name is being deleted"
    return Problem(reason="NameTaken", message=text, retry_after=RETRY_SOON)


def is_own(*, volume: Object, claim: Object | None, dataset: Object) -> bool:
    """Whether a volume was made for this very Dataset: by its uid, which every volume carries; one that TDCS made
    before it wrote the uid by the claim that it is bound to, which the Dataset owns."""
    made_for = (volume["metadata"].get("labels") or {}).get(names.LABEL_DATASET_UID)
    if made_for is not None:
        return bool(made_for == dataset["metadata"].get("uid"))
    bound = (volume["spec"].get("claimRef") or {}).get("uid")
    return bound is None or (claim is not None and claim["metadata"].get("uid") == bound)


async def provide(
    *, context: Context, obj: Object, live: Volume, cluster: str, path: str, size: int
) -> bool | Problem:
    """See to the volume and the claim; whether pods can use the claim. Their size is that of the data when they were
    made: it cannot change later, and has no meaning for a read-only volume but to be shown.

    While the claim is not bound, which takes about a second, the Dataset is looked at again soon: a pod made now
    would be refused by the scheduler once and wait for its next round. A problem when a name is taken, or the server
    refused an object.
    """
    try:
        return await _provide(context, obj, live, cluster=cluster, path=path, size=size)
    except ForeignObjectError as error:
        return Problem(reason="NameTaken", message=str(error))
    except InvalidError as error:
        return Problem(reason="ChildRefused", message=str(error))


async def _provide(
    context: Context, obj: Object, found: Volume, *, cluster: str, path: str, size: int
) -> bool:
    metadata, live = obj["metadata"], found.volume
    namespace, name = metadata["namespace"], metadata["name"]
    volume_name = names.volume_name(namespace=namespace, dataset=name)
    if live is not None and is_spent(live):
        await context.api.delete(PERSISTENT_VOLUMES, name=volume_name, uid=live["metadata"]["uid"])
        context.applier.forget(PERSISTENT_VOLUMES, namespace="", name=volume_name)
        live = None
    storage = live["spec"]["capacity"]["storage"] if live is not None else storage_of(size)
    known = live["spec"].get("csi", {}).get("volumeAttributes") if live is not None else None
    wanted = volume(
        dataset=obj,
        storage=storage,
        # They cannot be changed; those of a volume that an earlier version made lack the tiers.
        attributes=known or attributes(cluster=cluster, path=path, tiers=_tiers(context, cluster)),
    )
    live = await context.applier.apply(PERSISTENT_VOLUMES, wanted=wanted, live=live, owner=obj)
    if is_unseen(live, now=context.now()):
        context.queue.add_after(WorkKey(DATASETS, namespace, name), UNSEEN_RETRY)
        return False
    bound = found.claim
    asked = bound["spec"]["resources"]["requests"]["storage"] if bound is not None else storage
    wanted = claim(dataset=obj, storage=asked, nudged=needs_nudge(claimed=bound, bound=live))
    made = await context.applier.apply(PERSISTENT_VOLUME_CLAIMS, wanted=wanted, live=bound, owner=obj)
    if is_unseen(made, now=context.now()):
        context.queue.add_after(WorkKey(DATASETS, namespace, name), UNSEEN_RETRY)
        return False
    return True


def storage_of(size: int) -> str:
    """A size as a Kubernetes quantity: whole mebibytes, rounded up."""
    return f"{max(-(-size // _MIB), 1)}Mi"


def labels_of(*, namespace: str, name: str) -> dict[str, str]:
    """The labels of what belongs to a Dataset."""
    return {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_DATASET_NAMESPACE: namespace,
        names.LABEL_DATASET_NAME: name,
    }


def attributes(*, cluster: str, path: str, tiers: Sequence[str] = ()) -> dict[str, str]:
    """What the node plugin needs of a volume: where the data is in the cache, and where its blocks are on the nodes.

    Tiers at the default place are left out.
    """
    found = {names.VOLUME_CLUSTER: cluster, names.VOLUME_PATH: path}
    if tiers and tuple(tiers) != (names.cache_path(cluster=cluster),):
        found[names.VOLUME_TIERS] = ",".join(tiers)
    return found


def _tiers(context: Context, cluster: str) -> list[str]:
    """Folders of a cluster's blocks, the largest tier's first: the views lie there, for most links lead there."""
    obj = context.stores.cache_cluster(cluster)
    if obj is None:
        return []
    tiers = CacheClusterSpec.model_validate(obj.get("spec") or {}).storage.tiers
    ordered = sorted(tiers, key=lambda tier: -tier.capacity_bytes)
    return [tier.path or names.cache_path(cluster=cluster) for tier in ordered]


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
    found = volume["spec"].get("csi", {}).get("volumeAttributes", {})
    return str(found.get(names.VOLUME_PATH, ""))


def is_unseen(made: Object, *, now: str) -> bool:
    """Whether the volume controller has not taken in a new volume, or has not bound a new claim yet.

    A claim that it meets before the volume waits for its next round, 15 seconds later; one that comes after
    the volume is bound at once. Where no such controller runs, it is waited for a few seconds only.
    """
    if made.get("status", {}).get("phase") in {"Available", "Bound"}:
        return False
    created = made["metadata"].get("creationTimestamp")
    return bool(created) and seconds_between(created, now) < UNSEEN_SECONDS


def is_spent(volume: Object) -> bool:
    """Whether the claim of a volume was deleted: such a volume never binds again and must be made anew."""
    return volume.get("status", {}).get("phase") in {"Released", "Failed"}
