"""The PersistentVolume and the claim through which any pod of the namespace reads a Dataset."""

from tdcs.api import names
from tdcs.controllers.clock import seconds_between
from tdcs.controllers.context import Context, WorkKey
from tdcs.controllers.dataset.source import RETRY_LATER, NotYetError
from tdcs.kube.api import Object
from tdcs.kube.apply import ForeignObjectError, belongs, owner_reference
from tdcs.kube.errors import InvalidError
from tdcs.kube.resources import DATASETS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, Resource

_MIB = 1 << 20

UNSEEN_SECONDS = 5.0
UNSEEN_RETRY = 0.2


async def check(*, context: Context, obj: Object) -> Object | None:
    """Make sure that no stranger has the names of volume and claim; gives the volume, None when there is none.

    Raises:
        NotYetError: a name is taken. The other object is left as it is.
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
            place = one["metadata"].get("namespace", "")
            error = ForeignObjectError(
                resource=resource, namespace=place, name=one["metadata"]["name"], owner=f"Dataset {name}"
            )
            raise NotYetError(reason="NameTaken", message=str(error), retry_after=RETRY_LATER)
    return live


async def provide(*, context: Context, obj: Object, cluster: str, path: str, size: int) -> None:
    """See to the volume and the claim. Their size is that of the data when they were made: it cannot change later,
    and has no meaning for a read-only volume but to be shown.

    Raises:
        NotYetError: a name is taken, or the server refused an object.
    """
    metadata = obj["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    volume_name = names.volume_name(namespace=namespace, dataset=name)
    live = await check(context=context, obj=obj)
    try:
        if live is not None and is_spent(live):
            await context.api.delete(PERSISTENT_VOLUMES, name=volume_name, uid=live["metadata"]["uid"])
            context.applier.forget(PERSISTENT_VOLUMES, namespace="", name=volume_name)
            live = None
        storage = live["spec"]["capacity"]["storage"] if live is not None else storage_of(size)
        wanted = volume(dataset=obj, cluster=cluster, path=path, storage=storage)
        live = await context.applier.apply(PERSISTENT_VOLUMES, wanted=wanted, live=live, owner=obj)
        if is_unseen(live, now=context.now()):
            context.queue.add_after(WorkKey(DATASETS, namespace, name), UNSEEN_RETRY)
            return
        found = await context.api.get(PERSISTENT_VOLUME_CLAIMS, name=name, namespace=namespace)
        asked = found["spec"]["resources"]["requests"]["storage"] if found is not None else storage
        await context.applier.apply(
            PERSISTENT_VOLUME_CLAIMS, wanted=claim(dataset=obj, storage=asked), live=found, owner=obj
        )
    except ForeignObjectError as error:
        raise NotYetError(reason="NameTaken", message=str(error)) from error
    except InvalidError as error:
        raise NotYetError(reason="ChildRefused", message=str(error)) from error


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


def volume(*, dataset: Object, cluster: str, path: str, storage: str) -> Object:
    """The PersistentVolume: read-only for many, bound to the claim of the same Dataset from the start."""
    namespace, name = dataset["metadata"]["namespace"], dataset["metadata"]["name"]
    volume_name = names.volume_name(namespace=namespace, dataset=name)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume_name, "labels": labels_of(namespace=namespace, name=name)},
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
                "volumeAttributes": {"cluster": cluster, "path": path},
            },
        },
    }


def claim(*, dataset: Object, storage: str) -> Object:
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
            "resources": {"requests": {"storage": storage}},
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
