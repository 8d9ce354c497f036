"""Deleting a Dataset: first the claim, then, when no pod reads it any more, the blocks and the mount."""

from tdcs.api import names
from tdcs.api.dataset import Dataset
from tdcs.controllers.context import Context
from tdcs.controllers.dataset.data import MountedData
from tdcs.controllers.dataset.source import RETRY_SOON, NotYetError, as_not_yet
from tdcs.engine.protocol import EngineError
from tdcs.kube.api import Object
from tdcs.kube.apply import belongs
from tdcs.kube.resources import DATASETS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES

POLL = 1.0
"""Seconds between looks at an object that is going away."""


async def tear_down(
    *, context: Context, obj: Object, dataset: Dataset, data: MountedData | None
) -> float | None:
    """One step of the deletion; gives the seconds until the next look, None when all is gone.

    Raises:
        NotYetError: something holds the deletion up; it says what.
    """
    if names.FINALIZER not in obj["metadata"].get("finalizers", []):
        return None
    waiting = await _claim_gone(context=context, obj=obj)
    if waiting is not None:
        return waiting
    if data is not None and not is_shared(context=context, obj=obj, data=data):
        await _unmounted(context=context, dataset=dataset, data=data)
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
            message=f"pods still use the claim {namespace}/{name}, and the cached data is kept for them: delete "
            "these pods or their TrainingJobs, the finished ones too",
            retry_after=POLL,
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


async def _unmounted(*, context: Context, dataset: Dataset, data: MountedData) -> None:
    cluster = context.stores.cache_clusters.get(("", dataset.spec.cache_cluster))
    if cluster is None:
        return  # the cache is gone, and the blocks with it
    engine = context.engines.get(cluster=data.cluster)
    async with data.lock:
        await data.close()
        data.runs = {}
        try:
            if data.path in await engine.mounts():
                await engine.unmount(path=data.path)
        except EngineError as error:
            cause = as_not_yet(error, mounted=True)
            raise NotYetError(
                reason=cause.reason,
                message=f"the cached data cannot be dropped yet: {cause.message}",
                retry_after=RETRY_SOON,
                mounted=True,
            ) from error
        data.forget()


async def _without_finalizer(*, context: Context, obj: Object) -> None:
    metadata = obj["metadata"]
    left = [finalizer for finalizer in metadata["finalizers"] if finalizer != names.FINALIZER]
    await context.api.merge(
        DATASETS,
        name=metadata["name"],
        namespace=metadata["namespace"],
        patch={"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": left}},
    )
