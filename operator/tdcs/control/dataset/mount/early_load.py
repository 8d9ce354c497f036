"""Loads of what a first listing has so far, before it has ended: nobody reads it, and it counts nowhere."""

from collections.abc import Sequence
from dataclasses import replace

from tdcs.control.dataset.mount.mount_placer import MountPlacer
from tdcs.control.dataset.mount.mount_report import MountReport
from tdcs.control.dataset.mount.source_versions import manifest_of
from tdcs.decide.place.placement_input import CacheNodes
from tdcs.model.agent_state import AgentState
from tdcs.model.cache_view import CacheView


async def load_early(
    placer: MountPlacer,
    *,
    view: CacheView,
    before: MountReport,
    cache_nodes: CacheNodes,
    holders: Sequence[AgentState],
) -> MountReport:
    """Have agents load what the first listing has so far, where nothing has to leave for it."""
    world, mount = placer.world, placer.mount
    assigner, early = world.assigner(mount.cluster), mount.manifests.early
    if early is None:
        if before.early is not None:
            # The source was refused in the end. What another operator has loaded of it stays: it may be a version.
            assigner.drop_mount(mount.path)
            world.manager.drop_mount(cluster=mount.cluster, path=mount.path)
        return replace(before, early=None)
    manifests = {manifest_of(state, mount.path) for state in holders} - {""}
    if not all(map(mount.manifests.has_offered, manifests)):
        return (
            before  # agents may have more by what an operator before this one gave them: they go on with that
        )
    needs = await placer.needs(before, early, placer.wants(), cache_nodes, holders)
    if needs is None or not needs.wants or needs.hosts.waiting or placer.keys_awaited():
        return before
    grant, stands = await placer.granted(early, needs, only_free=True)
    work = placer.work(view, before, early, needs, grant, stands)
    assigner.put(path=mount.path, assignments=await placer.assignments(early, needs, work))
    return replace(before, early=work.decision)
