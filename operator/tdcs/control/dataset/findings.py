"""Which conditions a Dataset has, by what the last pass over its mount found."""

from tdcs.api.conditions import Finding
from tdcs.control.context import Settings
from tdcs.control.dataset import dataset_conditions
from tdcs.control.dataset.mount.mount_readers import Reader
from tdcs.control.dataset.mount.mount_report import MountReport
from tdcs.decide.cache import wants
from tdcs.decide.place.holdings import WantProgress
from tdcs.model.problem import RETRY_SOON


def findings_of(
    me: Reader, found: MountReport, *, shared: bool, settings: Settings, clock: float, now: str
) -> tuple[list[Finding], float]:
    """The conditions of a Dataset, and the seconds until another look at it is due.

    Args:
        me: the Dataset.
        found: how it stands with its mount.
        shared: whether other Datasets read the mount, too.
        now: the time of day.
    """
    spec, uri = me.dataset.spec, me.dataset.spec.source.uri
    mine = found.placements.get(me.own_want)
    progress = found.progress.get(me.own_want, WantProgress())
    rest = settings.progress_seconds if found.busy or not found.settled else settings.resync_seconds
    if found.look_at is not None:
        rest = min(rest, max(found.look_at - clock, 0.0) + settings.progress_seconds / 4)
    if mine is None:
        return dataset_conditions.on_demand(held=found.holdings, uri=uri, shared=shared), rest
    if not mine.copies:
        selector = spec.placement.node_selector
        return dataset_conditions.unplaced(uri=uri, selector=selector), RETRY_SOON
    absent = sorted(found.absent.intersection(mine.nodes))
    reached = progress.placed_bytes or not mine.wanted_bytes
    if progress.missing_bytes == 0 and reached and not (progress.failed_bytes and found.away):
        done = dataset_conditions.loaded(
            held=found.holdings,
            uri=uri,
            placement=mine,
            progress=progress,
            failures=found.failures,
            absent=absent,
        )
        return done, rest
    if not mine.want.load:
        start = spec.preload.start_time or ""
        wait = min(rest, wants.seconds_until(start, now=now) + 1)
        return dataset_conditions.scheduled(progress=progress, uri=uri, placement=mine, start=start), wait
    cause = found.away
    if progress.failed_bytes and not progress.missing_bytes and not cause and found.failures.files:
        cause = found.failures.files[0].reason
    loading = dataset_conditions.loading(
        progress=progress, uri=uri, placement=mine, cause=cause, absent=absent
    )
    return loading, settings.progress_seconds
