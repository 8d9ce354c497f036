"""Deleting a Dataset: first the claim, then, when no pod reads it any more, the blocks and the mount."""

from collections.abc import Callable

from tdcs.api import names
from tdcs.api.dataset import Dataset
from tdcs.controllers.context import Context
from tdcs.controllers.dataset import using
from tdcs.controllers.dataset.background import Background
from tdcs.controllers.dataset.data import MountedData
from tdcs.controllers.dataset.source import RETRY_SOON, NotYetError, as_not_yet
from tdcs.engine.protocol import EngineError
from tdcs.kube.api import Object
from tdcs.kube.apply import belongs
from tdcs.kube.resources import DATASETS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS

POLL = 1.0
"""Seconds between looks at an object that is going away."""


async def tear_down(
    *,
    context: Context,
    obj: Object,
    dataset: Dataset,
    data: MountedData | None,
    on_done: Callable[[], None],
) -> float | None:
    """One step of the deletion; gives the seconds until the next look, None when all is gone.

    Args:
        context: the controller's world.
        obj: the Dataset as it was read.
        dataset: the same, parsed.
        data: its mount; None when it has none.
        on_done: called when the unmounting has ended.

    Raises:
        NotYetError: something holds the deletion up; it says what.
    """
    if names.FINALIZER not in obj["metadata"].get("finalizers", []):
        return None
    waiting = await _claim_gone(context=context, obj=obj)
    if waiting is not None:
        return waiting
    if data is not None and not is_shared(context=context, obj=obj, data=data):
        waiting = await _unmounted(context=context, dataset=dataset, data=data, on_done=on_done)
        if waiting is not None:
            return waiting
    await _without_finalizer(context=context, obj=obj)
    return None


async def unreadable(*, context: Context, obj: Object) -> float | None:
    """The deletion of a Dataset whose spec does not parse: its claim goes, blocks that may exist stay."""
    waiting = await _claim_gone(context=context, obj=obj)
    if waiting is None and names.FINALIZER in obj["metadata"].get("finalizers", []):
        await _without_finalizer(context=context, obj=obj)
    return waiting


def is_shared(*, context: Context, obj: Object, data: MountedData) -> bool:
    """Whether another Dataset, which is not being deleted, reads the same mount."""
    return bool(data.users) or any(
        other["metadata"].get("uid") != obj["metadata"].get("uid")
        and not other["metadata"].get("deletionTimestamp")
        and (other.get("status") or {}).get("mountPath") == data.path
        and other.get("spec", {}).get("cacheCluster", names.DEFAULT_CACHE_CLUSTER) == data.cluster
        for other in context.stores.datasets.values()
    )


async def _claim_gone(*, context: Context, obj: Object) -> float | None:
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    claim = await context.api.get(PERSISTENT_VOLUME_CLAIMS, name=name, namespace=namespace)
    if claim is not None and belongs(claim, obj):
        if not claim["metadata"].get("deletionTimestamp"):
            uid = claim["metadata"]["uid"]
            await context.api.delete(PERSISTENT_VOLUME_CLAIMS, name=name, namespace=namespace, uid=uid)
            return POLL
        raise NotYetError(
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
    pods = await context.api.list(PODS, namespace=namespace, fields=using.ON_A_NODE, keep=using.user_of)
    told = using.in_words(pods.items, namespace=namespace, claim=name)
    if not told:
        kept = ", ".join(claim["metadata"].get("finalizers") or ()) or "none"
        return (
            f"the claim {namespace}/{name} is being deleted, no pod with a node names it, and it is still there "
            f"(finalizers: {kept}): if that lasts, see kubectl describe pvc -n {namespace} {name}"
        )
    return (
        f"the claim {namespace}/{name} is still used by {told}; the cached data is kept for them: delete these pods or "
        "their TrainingJobs, the ended ones too"
    )


async def _unmounted(
    *, context: Context, dataset: Dataset, data: MountedData, on_done: Callable[[], None]
) -> float | None:
    """Drop the blocks and the mount, in the background; seconds until the next look, None when they are gone."""
    cluster = context.stores.cache_clusters.get(("", dataset.spec.cache_cluster))
    if cluster is None:
        return None  # the cache is gone, and the blocks with it
    if data.lock.locked():
        return POLL
    engine = context.engines.get(cluster=data.cluster)
    async with data.lock:
        try:
            work = data.unmounting
            if work is None:
                await data.close()
                if data.path in await engine.mounts():
                    data.unmounting = Background(
                        engine.unmount(path=data.path), name="unmount", on_done=on_done
                    )
                    return POLL
            elif work.running:
                return POLL
            else:
                data.unmounting = None
                work.result()
        except EngineError as error:
            cause = as_not_yet(error, mounted=True)
            raise NotYetError(
                reason=cause.reason,
                message=f"the cached data cannot be dropped yet: {cause.message}",
                retry_after=RETRY_SOON,
                mounted=True,
            ) from error
        data.forget()
    return None


async def _without_finalizer(*, context: Context, obj: Object) -> None:
    metadata = obj["metadata"]
    left = [finalizer for finalizer in metadata["finalizers"] if finalizer != names.FINALIZER]
    await context.api.merge(
        DATASETS,
        name=metadata["name"],
        namespace=metadata["namespace"],
        patch={"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": left}},
    )
