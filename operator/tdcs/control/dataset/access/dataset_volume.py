"""Keeping the volume and the claim of a Dataset, and their end."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.api.conditions import CLAIM_LOST, CLAIM_REFUSED
from tdcs.api.quantities import to_bytes
from tdcs.control.context import Context, WorkKey
from tdcs.control.dataset.access import claim_users, volume_objects
from tdcs.decide.problem import RETRY_SOON, Problem
from tdcs.kube.apply import ForeignObjectError, belongs, foreign
from tdcs.kube.errors import KubeError
from tdcs.model.kube_objects import Object, object_key
from tdcs.model.kube_resources import DATASETS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS

_audit = logging.getLogger(names.AUDIT_LOG)
"""Which Dataset gives pods which path of a cache, and from when on it does not. Several Datasets may have one path."""

PVC_PROTECTION = "kubernetes.io/pvc-protection"
"""The finalizer by which Kubernetes keeps a claim for as long as a pod names it, ended or not."""

POLL = 1.0
"""Seconds between looks at an object that is going away."""

QUICK_RETRY: Final = 0.2
"""Seconds between looks at what the volume controller does within about a second."""

QUICK_SECONDS: Final = 5.0
"""So long it is looked for so often; then the controller is away."""

SLOW_RETRY: Final = 10.0
"""Seconds between looks while the volume controller is away, and between the claims of a Dataset that loses them again
and again: each costs the operator a whole pass, a volume and a claim."""

RECENT_SECONDS: Final = 60.0
"""A Dataset that had two claims made within this time loses them again and again."""


class ClaimTimes:
    """When the claims of Datasets were lost and made: how soon a Dataset without its claim is looked at again."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        self._lost: Final[dict[WorkKey, float]] = {}
        self._claim_times: Final[dict[WorkKey, deque[float]]] = {}

    def until_released(self, key: WorkKey, *, lost: bool) -> float:
        """Seconds until the next look at a volume that has lost its claim and is not released yet; 0 when it has not:
        then the next loss is looked at quickly again.
        """
        if not lost:
            self._lost.pop(key, None)
            return 0.0
        now = self._clock()
        return QUICK_RETRY if now - self._lost.setdefault(key, now) < QUICK_SECONDS else SLOW_RETRY

    def until_next(self, key: WorkKey) -> float:
        """Seconds until another claim may be made; 0 for now. The first one that is lost is made again at once."""
        times, now = self._claim_times.get(key), self._clock()
        if times is None or len(times) < 2 or now - times[0] > RECENT_SECONDS:
            return 0.0
        return max(times[-1] + SLOW_RETRY - now, 0.0)

    def made(self, key: WorkKey) -> None:
        self._claim_times.setdefault(key, deque(maxlen=2)).append(self._clock())

    def drop(self, key: WorkKey) -> None:
        self._lost.pop(key, None)
        self._claim_times.pop(key, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeAndClaim:
    """The PersistentVolume and the claim of a Dataset, as a pass has read them; None where there is none."""

    volume: Object | None
    claim: Object | None

    @property
    def lost(self) -> bool:
        """Whether the claim has lost its volume, so that no new pod can mount it."""
        return self.claim is not None and volume_objects.is_lost(self.claim)


async def find(*, context: Context, obj: Object) -> VolumeAndClaim | Problem:
    """The volume of a Dataset and its claim; a problem when a stranger has the name of one.

    The other object is left as it is. The volume of an earlier Dataset of that name, perhaps of another tenant, is
    deleted: it leads to what that one could read.
    """
    pair = await _read(context, obj)
    live, claimed = pair.volume, pair.claim
    for resource, live_object in ((PERSISTENT_VOLUMES, live), (PERSISTENT_VOLUME_CLAIMS, claimed)):
        if live_object is not None and not belongs(live_object, obj):
            return Problem(
                reason="NameTaken", message=str(foreign(resource=resource, live=live_object, owner=obj))
            )
    if live is None or volume_objects.is_own(volume=live, claim=claimed, dataset=obj):
        return pair
    await _delete_volume(context, live)
    name = live["metadata"]["name"]
    if await context.api.get(PERSISTENT_VOLUMES, name=name) is None:
        return VolumeAndClaim(volume=None, claim=claimed)
    text = f"the PersistentVolume {name} of an earlier Dataset of this name is being deleted"
    return Problem(reason="NameTaken", message=text, retry_after=RETRY_SOON)


async def provide(
    *,
    context: Context,
    obj: Object,
    live: VolumeAndClaim,
    times: ClaimTimes,
    cluster: str,
    path: str,
    size: int,
    claim_size: int | str | None = None,
) -> bool | Problem:
    """See to the volume and the claim; whether pods can use the claim. Their size is `claim_size`, or that of the data
    when they were made: it cannot change later, and has no meaning for a read-only volume but to be shown and to be
    counted by quotas.

    While the claim is not bound, which takes about a second, the Dataset is looked at again soon: a pod made now
    would be refused by the scheduler once and wait for its next round. How soon a claim that was deleted is made again
    depends on `times`. A problem when a name is taken, the server refused an object (with the server's sentence), or
    the claim has lost its volume: that is made again for this very claim, which pods may use, and the problem lasts
    until Kubernetes has bound the two again. None of them concerns the data.
    """
    try:
        wait = await _provide(
            context,
            obj,
            live,
            times,
            cluster=cluster,
            path=path,
            storage=volume_objects.storage_of(size if claim_size is None else to_bytes(claim_size)),
        )
    except ForeignObjectError as error:
        return Problem(reason="NameTaken", message=str(error), mounted=True)
    except KubeError as error:
        if not _is_refusal(error, claimed=live.claim is not None):
            raise
        return Problem(
            reason=CLAIM_REFUSED,
            message=_refused(error, obj),
            retry_after=SLOW_RETRY,
            mounted=True,
        )
    if wait:
        context.queue.add_after(WorkKey(DATASETS, *object_key(obj)), wait)
    if live.lost:
        namespace, name = object_key(obj)
        text = (
            f"the PersistentVolumeClaim {namespace}/{name} has lost its PersistentVolume, which somebody has changed "
            "or deleted: that is made again by itself. Pods that run read on; new ones can use the claim when "
            f"Kubernetes has bound the two again. If that lasts, see kubectl describe pvc -n {namespace} {name}"
        )
        return Problem(reason=CLAIM_LOST, message=text, retry_after=wait or POLL, mounted=True)
    return not wait


_TRANSIENT: Final = frozenset({0, 404, 409, 410, 429})
"""HTTP statuses that say nothing about the object: no answer, gone, changed meanwhile, too many requests."""


def _is_refusal(error: KubeError, *, claimed: bool) -> bool:
    """Whether the API server refuses what it was sent, rather than being unable to answer. An admission webhook that
    cannot be called is a 500: it keeps a first claim from being made, and does not concern one that is there."""
    return error.code not in _TRANSIENT and not (claimed and error.code >= 500)


def _refused(error: KubeError, obj: Object) -> str:
    namespace, name = object_key(obj)
    where = "" if error.resource is PERSISTENT_VOLUMES else f"{namespace}/"
    return (
        f"the API server refuses the {error.resource.kind} {where}{error.name or name}: {error.detail}. The data is "
        "loaded all the same, and no new pod can mount it yet. Where a ResourceQuota or a LimitRange is the cause, set "
        "spec.claimSize to a size that it allows (the size means nothing for reading), or have it changed; it is "
        f"tried again every {SLOW_RETRY:.0f} seconds"
    )


async def _provide(
    context: Context,
    obj: Object,
    pair: VolumeAndClaim,
    times: ClaimTimes,
    *,
    cluster: str,
    path: str,
    storage: str,
) -> float:
    """One step; gives the seconds until the next look is due, 0 when pods can use the claim."""
    live, bound, key = pair.volume, pair.claim, WorkKey(DATASETS, *object_key(obj))
    lost = live is not None and volume_objects.has_deleted_claim(volume=live, claim=bound)
    if wait := times.until_released(key, lost=lost):
        return wait
    if bound is None and (wait := times.until_next(key)):
        return wait
    if live is not None and volume_objects.is_spent(live):
        await _delete_volume(context, live)
        live = None
    if live is not None and bound is not None:
        storage = live["spec"]["capacity"]["storage"]
    attributes = live["spec"].get("csi", {}).get("volumeAttributes") if live is not None else None
    volume = volume_objects.volume(
        dataset=obj,
        storage=storage,
        # They cannot be changed, and the cache's tiers can.
        attributes=attributes
        or volume_objects.attributes(cluster=cluster, path=path, tiers=_tiers(context, cluster)),
    )
    new = live is None
    live = await context.applier.apply(PERSISTENT_VOLUMES, wanted=volume, live=live, owner=obj)
    if new:
        _audit.info("%s has a volume of %s in CacheCluster %s", key, path, cluster)
    if bound is not None and volume_objects.is_lost(bound):
        return await _restore(context, obj, volume=live, claim=bound)
    if volume_objects.is_unseen(live, now=context.now()):
        return QUICK_RETRY
    size = bound["spec"]["resources"]["requests"]["storage"] if bound is not None else storage
    nudged = volume_objects.needs_nudge(claimed=bound, bound=live)
    claim = volume_objects.claim(dataset=obj, storage=size, nudged=nudged)
    live_claim = await context.applier.apply(PERSISTENT_VOLUME_CLAIMS, wanted=claim, live=bound, owner=obj)
    if bound is None:
        times.made(key)
    return QUICK_RETRY if volume_objects.is_unseen(live_claim, now=context.now()) else 0.0


async def _restore(context: Context, obj: Object, *, volume: Object, claim: Object) -> float:
    """Reserve the volume for a claim that has lost it, and that pods may use; gives the seconds until the next look.

    By a patch, as Kubernetes does it: a field that is applied would have to be applied in each pass.
    """
    if volume_objects.is_reserved(volume=volume, claim=claim):
        return SLOW_RETRY
    reserved = {"spec": {"claimRef": {"uid": claim["metadata"]["uid"]}}}
    await context.api.merge(PERSISTENT_VOLUMES, name=volume["metadata"]["name"], patch=reserved)
    # A change of the claim has the volume controller look at it at once.
    size = claim["spec"]["resources"]["requests"]["storage"]
    nudged_claim = volume_objects.claim(dataset=obj, storage=size, nudged=True)
    await context.applier.apply(PERSISTENT_VOLUME_CLAIMS, wanted=nudged_claim, live=claim, owner=obj)
    return POLL


async def delete(
    *, context: Context, obj: Object, meanwhile: str = claim_users.DATA_KEPT
) -> float | Problem | None:
    """One step towards no claim and no volume of a Dataset: seconds until the next look, None when both are gone, or
    who still uses the claim. `meanwhile`: what becomes of these."""
    pair, (namespace, name) = await _read(context, obj), object_key(obj)
    if pair.claim is not None and belongs(pair.claim, obj):
        metadata = pair.claim["metadata"]
        if not metadata.get("deletionTimestamp"):
            await context.api.delete(
                PERSISTENT_VOLUME_CLAIMS, name=name, namespace=namespace, uid=metadata["uid"]
            )
            return POLL
        pods = await context.api.list(
            PODS, namespace=namespace, fields=claim_users.ON_A_NODE, keep=claim_users.user_of
        )
        if claim_users.only_ended(pods.items, namespace=namespace, claim=name):
            await _let_go(context, pair.claim)
            return POLL
        users = claim_users.in_words(pods.items, namespace=namespace, claim=name)
        message = claim_users.why_kept(pair.claim, users=users, meanwhile=meanwhile)
        return Problem(
            reason="InUse", message=message, retry_after=RETRY_SOON, mounted=True, used=bool(users)
        )
    context.applier.drop_applied(PERSISTENT_VOLUME_CLAIMS, namespace=namespace, name=name)
    if pair.volume is not None and belongs(pair.volume, obj):
        await _delete_volume(context, pair.volume)
        return POLL
    volume_name = names.volume_name(namespace=namespace, dataset=name)
    context.applier.drop_applied(PERSISTENT_VOLUMES, namespace="", name=volume_name)
    return None


async def _let_go(context: Context, claim: Object) -> None:
    """Take Kubernetes' protection from a claim that only ended pods name: it would wait until somebody deletes them,
    and nothing of them runs, or will again."""
    metadata = claim["metadata"]
    finalizers = [finalizer for finalizer in metadata.get("finalizers") or () if finalizer != PVC_PROTECTION]
    patch = {"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": finalizers}}
    await context.api.merge(
        PERSISTENT_VOLUME_CLAIMS, name=metadata["name"], namespace=metadata["namespace"], patch=patch
    )


async def _read(context: Context, obj: Object) -> VolumeAndClaim:
    namespace, name = object_key(obj)
    volume_name = names.volume_name(namespace=namespace, dataset=name)
    return VolumeAndClaim(
        volume=await context.api.get(PERSISTENT_VOLUMES, name=volume_name),
        claim=await context.api.get(PERSISTENT_VOLUME_CLAIMS, name=name, namespace=namespace),
    )


async def _delete_volume(context: Context, volume: Object) -> None:
    metadata = volume["metadata"]
    context.applier.drop_applied(PERSISTENT_VOLUMES, namespace="", name=metadata["name"])
    if not metadata.get("deletionTimestamp"):
        await context.api.delete(PERSISTENT_VOLUMES, name=metadata["name"], uid=metadata["uid"])
        owner = "/".join(names.volume_owner(metadata["name"]) or ())
        _audit.info("Dataset %s has no volume of %s any more", owner, volume_objects.mounted_path(volume))


def _tiers(context: Context, cluster: str) -> list[str]:
    """Folders of a cluster's blocks, the largest tier's first: the views are there, for most links lead there."""
    obj = context.stores.cache_cluster(cluster)
    if obj is None:
        return []
    tiers = CacheClusterSpec.model_validate(obj.get("spec") or {}).storage.tiers
    ordered = sorted(tiers, key=lambda tier: -tier.capacity_bytes)
    return [tier.path or names.cache_path(cluster=cluster) for tier in ordered]
