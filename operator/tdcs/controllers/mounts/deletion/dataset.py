"""Deleting a Dataset: first the claim, then, when no pod reads it any more, the blocks and the mount."""

from tdcs.api import names
from tdcs.controllers.context import Context, WorkKey
from tdcs.controllers.mounts import problem, readers
from tdcs.controllers.mounts.deletion import claim_users
from tdcs.controllers.mounts.mount import Mount
from tdcs.controllers.mounts.problem import RETRY_SOON, Problem
from tdcs.controllers.mounts.snapshot import World
from tdcs.engine.protocol import EngineError
from tdcs.kube.api import Object
from tdcs.kube.apply import belongs
from tdcs.kube.resources import DATASETS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS

POLL = 1.0
"""Seconds between looks at an object that is going away."""


async def delete(*, world: World, key: WorkKey, obj: Object, mount: Mount | None) -> float | Problem | None:
    """One step of the deletion of a Dataset; seconds until the next look, None when all is gone, or what holds it up.

    Args:
        world: what to work with.
        key: the Dataset.
        obj: it as it was read.
        mount: its mount; None when it has none.
    """
    context = world.context
    if names.FINALIZER not in obj["metadata"].get("finalizers", []):
        return None
    waiting = await _claim_gone(context=context, obj=obj)
    if waiting is not None:
        return waiting
    if mount is not None:
        mount.mounting.forget_user(key)
        if not is_shared(context=context, obj=obj, mount=mount):
            waiting = await unmounted(world=world, mount=mount)
            if waiting is not None:
                return waiting
    await _without_finalizer(context=context, obj=obj)
    return None


async def delete_unreadable(*, context: Context, obj: Object) -> float | Problem | None:
    """The deletion of a Dataset with a spec that does not parse: its claim goes, blocks that may exist stay."""
    waiting = await _claim_gone(context=context, obj=obj)
    if waiting is None and names.FINALIZER in obj["metadata"].get("finalizers", []):
        await _without_finalizer(context=context, obj=obj)
    return waiting


async def delete_volume(*, context: Context, obj: Object) -> bool:
    """One step towards no claim and no volume of a Dataset that stays itself; whether both are gone."""
    return await _claim_gone(context=context, obj=obj) is None


def is_shared(*, context: Context, obj: Object, mount: Mount) -> bool:
    """Whether another Dataset, which is not being deleted, reads the same mount."""
    mine = (obj["metadata"]["namespace"], obj["metadata"]["name"])
    return any(
        (key.namespace, key.name) != mine
        and not context.stores.datasets[key.namespace, key.name]["metadata"].get("deletionTimestamp")
        for key in readers.users_of(stores=context.stores, cluster=mount.cluster, path=mount.path)
    )


async def _claim_gone(*, context: Context, obj: Object) -> float | Problem | None:
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    claim = await context.api.get(PERSISTENT_VOLUME_CLAIMS, name=name, namespace=namespace)
    if claim is not None and belongs(claim, obj):
        if not claim["metadata"].get("deletionTimestamp"):
            uid = claim["metadata"]["uid"]
            await context.api.delete(PERSISTENT_VOLUME_CLAIMS, name=name, namespace=namespace, uid=uid)
            return POLL
        return Problem(
            reason="InUse",
            message=await _users(context=context, claim=claim),
            retry_after=RETRY_SOON,
            mounted=True,
        )
    context.applier.forget(PERSISTENT_VOLUME_CLAIMS, namespace=namespace, name=name)
    volume_name = names.volume_name(namespace=namespace, dataset=name)
    volume = await context.api.get(PERSISTENT_VOLUMES, name=volume_name)
    if volume is not None and belongs(volume, obj):
        if not volume["metadata"].get("deletionTimestamp"):
            await context.api.delete(PERSISTENT_VOLUMES, name=volume_name, uid=volume["metadata"]["uid"])
        return POLL
    context.applier.forget(PERSISTENT_VOLUMES, namespace="", name=volume_name)
    return None


async def _users(*, context: Context, claim: Object) -> str:
    """Who keeps a claim that is being deleted, and what to do."""
    namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
    pods = await context.api.list(
        PODS, namespace=namespace, fields=claim_users.ON_A_NODE, keep=claim_users.user_of
    )
    users = claim_users.in_words(pods.items, namespace=namespace, claim=name)
    if not users:
        kept = ", ".join(claim["metadata"].get("finalizers") or ()) or "none"
        return (
            f"the claim {namespace}/{name} is being deleted, no pod with a node names it, and it is still there "
            f"(finalizers: {kept}): if that lasts, see kubectl describe pvc -n {namespace} {name}"
        )
    return (
        f"the claim {namespace}/{name} is still used by {users}; the cached data is kept for them: delete these pods "
        "or their TrainingJobs, the ended ones too"
    )


async def unmounted(*, world: World, mount: Mount) -> float | Problem | None:
    """Drop the blocks and the mount, in the background; None when they are gone, else seconds until the next look, or
    what holds it up."""
    if world.context.stores.cache_cluster(mount.cluster) is None:
        await world.mounts.drop(mount)
        return None  # the cache is gone, and the blocks with it
    if mount.lock.locked():
        return POLL
    view = world.observer.view(mount.cluster)
    async with mount.lock:
        done = end_mount(world=world, mount=mount)
    if done is True:
        await world.mounts.drop(mount)
        return None
    error = view.failure if done is False else done
    if error is None:
        return POLL if view.answered else RETRY_SOON
    cause = problem.of_engine(error, mounted=True)
    return Problem(
        reason=cause.reason,
        message=f"the cached data cannot be dropped yet: {cause.message}",
        retry_after=RETRY_SOON,
        mounted=True,
    )


def end_mount(*, world: World, mount: Mount) -> EngineError | bool:
    """One step towards a mount that is gone with its blocks: whether it is, or why it could not be done just now."""
    view = world.observer.view(mount.cluster)
    assigner = world.mounts.assigner(mount.cluster)
    if not view.answered or view.failure is not None:
        return False

    async def before() -> None:
        assigner.forget(mount.path)
        await mount.manifests.close()

    return mount.mounting.unmount(mounts=view.mounts, before=before)


async def _without_finalizer(*, context: Context, obj: Object) -> None:
    metadata = obj["metadata"]
    left = [finalizer for finalizer in metadata["finalizers"] if finalizer != names.FINALIZER]
    await context.api.merge(
        DATASETS,
        name=metadata["name"],
        namespace=metadata["namespace"],
        patch={"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": left}},
    )
