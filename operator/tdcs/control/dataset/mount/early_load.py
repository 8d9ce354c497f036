"""Loads of what a first listing has so far, before it has ended: nobody reads it, and it counts nowhere."""

from collections.abc import Sequence
from dataclasses import replace

from tdcs.control.dataset.mount.mount_placer import MountPlacer
from tdcs.control.dataset.mount.mount_report import MountReport
from tdcs.decide.cache.early_step import EarlyStep, early_step
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
    """Have agents load what the first listing has so far, where nothing has to leave for it; or drop it."""
    world, mount = placer.world, placer.mount
    early = mount.manifests.early
    # A selection of paths takes all names: its files are chosen when the listing has ended.
    wants = [want for want in placer.wants() if not want.paths]
    step = early_step(
        files=early.totals.files if early is not None else 0,
        is_wanted=bool(wants),
        is_refused=mount.manifests.is_refused,
        lacks_room=bool(world.manager.lacking_room(mount.cluster) - {mount.path}),
        holders=[state.mounts[mount.path] for state in holders],
    )
    if step is EarlyStep.DROP:
        if holders or before.early is not None:
            world.drop_loads(mount)
        return replace(before, early=None, look_at=None)
    if early is None or step is EarlyStep.KEEP:
        # Others may come to need the room.
        again_at = world.clock() + world.context.settings.survey_seconds
        return replace(before, look_at=again_at) if holders else before
    needs = await placer.needs(before, early, wants, cache_nodes, holders)
    if needs is None or needs.hosts.waiting or placer.keys_awaited():
        return before
    grant, stands = await placer.granted(early, needs, only_free=True)
    work = placer.work(view, before, early, needs, grant, stands)
    assignments = await placer.assignments(early, needs, work, is_early=True)
    world.assigner(mount.cluster).put(path=mount.path, assignments=assignments)
    return replace(before, early=work.decision, look_at=None)
