"""The end of a Dataset's part in its mount: first the claim, then, when no pod reads it any more, blocks and mount."""

from dataclasses import replace

from tdcs.api import names
from tdcs.control.context import WorkKey
from tdcs.control.dataset.access import claim_users, dataset_volume
from tdcs.control.dataset.access.dataset_volume import POLL
from tdcs.control.dataset.mount import mount_readers
from tdcs.control.dataset.mount.all_mounts import World
from tdcs.control.dataset.mount.shared_mount import Mount
from tdcs.decide.problem import RETRY_SOON, Problem, of_engine
from tdcs.model.kube_objects import Object, object_key, without_finalizer
from tdcs.model.kube_resources import DATASETS


async def delete(*, world: World, obj: Object, mount: Mount | None) -> float | Problem | None:
    """One step of the deletion of a Dataset; seconds until the next look, None when all is gone, or what holds it up.

    Args:
        world: what to work with.
        obj: the Dataset as it was read.
        mount: its mount; None when it has none, or its spec does not say which: then blocks that may exist stay.
    """
    finalizers = without_finalizer(obj, finalizer=names.FINALIZER)
    if finalizers is None:
        return None
    waiting = await release(world=world, obj=obj, mount=mount, patient=True)
    if waiting is not None:
        return waiting
    metadata = obj["metadata"]
    await world.context.api.merge(
        DATASETS,
        name=metadata["name"],
        namespace=metadata["namespace"],
        patch={"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": finalizers}},
    )
    return None


async def release(*, world: World, obj: Object, mount: Mount | None, patient: bool) -> float | Problem | None:
    """One step towards a Dataset without claim, volume and mount; where no other Dataset reads the mount nothing of it
    is left. No new pod gets the volume from the first step on.

    Args:
        world: what to work with.
        obj: the Dataset as it was read.
        mount: its mount; None when it has none.
        patient: whether the mount stays until no pod uses the claim any more; else what pods read through the cache
            fails from now on, unless another Dataset reads the mount, too: nothing ends their reading then.

    Returns:
        Seconds until the next look; None when all is done, or what holds it up.
    """
    shared = mount is not None and _is_shared(world, obj, mount)
    withdrawn = claim_users.READS_GO_ON if shared else claim_users.READS_FAIL
    meanwhile = claim_users.DATA_KEPT if patient else withdrawn
    waiting = await dataset_volume.delete(context=world.context, obj=obj, meanwhile=meanwhile)
    if mount is None or (patient and waiting is not None):
        return waiting
    mount.mounting.drop_user(WorkKey(DATASETS, *object_key(obj)), uid=str(obj["metadata"]["uid"]))
    if not shared:
        remaining = await _unmounted(world, mount)
        return remaining if remaining is not None else waiting
    return waiting


def _is_shared(world: World, obj: Object, mount: Mount) -> bool:
    """Whether another Dataset, which is not being deleted, reads the same mount."""
    stores, mine = world.context.stores, object_key(obj)
    readers = (
        (key.namespace, key.name)
        for key in mount_readers.users_of(stores=stores, cluster=mount.cluster, path=mount.path)
    )
    return any(
        key != mine and not stores.datasets[key]["metadata"].get("deletionTimestamp") for key in readers
    )


async def _unmounted(world: World, mount: Mount) -> float | Problem | None:
    """Drop the blocks and the mount, in the background; None when they are gone, else seconds until the next look, or
    what holds it up."""
    if world.context.stores.cache_cluster(mount.cluster) is None:
        await world.drop(mount)
        return None  # the cache is gone, and the blocks with it
    if mount.lock.locked():
        return POLL
    view = world.observer.view(mount.cluster)
    async with mount.lock:
        done = world.unmount(mount)
    if done is True:
        await world.drop(mount)
        return None
    error = view.failure if done is False else done
    if error is None:
        return POLL if view.answered else RETRY_SOON
    cause = of_engine(error, mounted=True)
    text = f"the cached data cannot be dropped yet: {cause.message}"
    return replace(cause, message=text, retry_after=RETRY_SOON, mounted=True)
