"""Taking a Dataset off its source: it may not use it any more. Pods keep at most what they have open on their node."""

from tdcs.controllers.context import WorkKey
from tdcs.controllers.mounts.deletion.dataset import POLL, delete_volume, is_shared, unmounted
from tdcs.controllers.mounts.mount import Mount
from tdcs.controllers.mounts.snapshot import World
from tdcs.kube.api import Object


async def withdraw(*, world: World, key: WorkKey, obj: Object, mount: Mount | None) -> float | None:
    """One step: no new pod gets the volume, and where no other Dataset reads the mount nothing of it is left.

    The claim waits for pods that use it; the mount does not: what they read through the cache fails from then on.

    Args:
        world: what to work with.
        key: the Dataset.
        obj: it as it was read.
        mount: its mount; None when it has none.

    Returns:
        Seconds until the next look; None when all is done.
    """
    status = obj.get("status") or {}
    if not status.get("mountPath"):
        return None
    gone = await delete_volume(context=world.context, obj=obj)
    if mount is not None:
        mount.mounting.forget_user(key)
        shared = is_shared(context=world.context, obj=obj, mount=mount)
        if not shared and await unmounted(world=world, mount=mount) is not None:
            return POLL
    return None if gone else POLL
