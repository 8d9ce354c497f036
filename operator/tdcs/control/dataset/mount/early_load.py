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
    mount, assigner = placer.mount, placer.world.assigner(placer.mount.cluster)
    early = mount.manifests.early
    # A selection of paths takes all names: its files are chosen when the listing has ended.
    wants = [want for want in placer.wants() if not want.paths]
    step = early_step(
        files=early.totals.files if early is not None else 0,
        is_wanted=bool(wants),
        is_refused=mount.manifests.is_refused,
        holders=[state.mounts[mount.path] for state in holders],
    )
    if step is EarlyStep.DROP:
        if holders or before.early is not None:
            placer.world.drop_loads(mount)
        return replace(before, early=None)
    if early is None or step is EarlyStep.KEEP:
        return before
    needs = await placer.needs(before, early, wants, cache_nodes, holders)
    if needs is None or needs.hosts.waiting or placer.keys_awaited():
        return before
    grant, stands = await placer.granted(early, needs, only_free=True)
    work = placer.work(view, before, early, needs, grant, stands)
    assigner.put(path=mount.path, assignments=await placer.assignments(early, needs, work, is_early=True))
    return replace(before, early=work.decision)
