"""The conditions of a Dataset, in words that say what to do. Pure."""

from tdcs.api import names
from tdcs.api.conditions import Finding, finding
from tdcs.api.dataset import DatasetState
from tdcs.controllers.dataset.plan import WantPlan
from tdcs.controllers.dataset.report import Holdings, Progress, Trouble, extent
from tdcs.controllers.sizes import counted, human

ROOM = "Add cache capacity or nodes (spec.storage, spec.replicas of the CacheCluster), or ask for less"


def mounted(uri: str) -> Finding:
    """The source can be read."""
    return finding(names.MOUNTED, True, "Mounted", f"{uri} can be read through the cache")


def mounting(uri: str) -> list[Finding]:
    """The source is about to be mounted."""
    text = f"{uri} is being mounted"
    return [
        finding(names.MOUNTED, False, "Mounting", text),
        finding(names.LOADED, None, "Mounting", "cannot be known until the source is mounted"),
        finding(names.READY, False, "Mounting", text),
    ]


def blocked(*, reason: str, message: str, mounted_too: bool = False) -> list[Finding]:
    """Nothing can be done until a cause is gone. `mounted_too`: the cause came after the mount."""
    found = [finding(names.READY, False, reason, message)]
    if mounted_too:
        return [finding(names.LOADED, False, reason, message), *found]
    return [
        finding(names.MOUNTED, False, reason, message),
        finding(names.LOADED, None, reason, "cannot be known until the source is mounted"),
        *found,
    ]


def reachable(trouble: tuple[str, str] | None = None) -> Finding:
    """Whether the source and its keys could be used when last looked at; with reason and message if not."""
    if trouble is None:
        text = "the source could be listed when it was last looked at"
        return finding(names.SOURCE_REACHABLE, True, "Reachable", text)
    reason, message = trouble
    return finding(
        names.SOURCE_REACHABLE,
        False,
        reason,
        f"{message} (what is cached stays readable meanwhile; the rest, and changes, need the source)",
    )


def on_demand(*, held: Holdings, uri: str) -> list[Finding]:
    """Preload is off: the data can be used, and jobs fill the cache."""
    text = "the cache is filled by what jobs read"
    return [
        mounted(uri),
        finding(names.PLACED, None, "PreloadDisabled", text),
        finding(names.LOADED, False, "PreloadDisabled", text),
        finding(names.READY, True, "Mounted", f"{extent(held)}; more is cached as jobs read"),
    ]


def scheduled(*, progress: Progress, uri: str, plan: WantPlan, start: str) -> list[Finding]:
    """The preload begins later; the data can be read meanwhile."""
    text = f"loading begins at {start} (spec.preload.startTime); until then it is {progress}"
    return [
        mounted(uri),
        placed(plan),
        finding(names.LOADED, False, "Scheduled", text),
        finding(names.READY, False, "Scheduled", text),
    ]


def loading(*, progress: Progress, uri: str, plan: WantPlan, trouble: Trouble | None) -> list[Finding]:
    """Blocks are on their way, or the last load has left some out."""
    reason, text = "Loading", str(progress)
    if trouble is not None:
        reason = "LoadFailed"
        blocks = counted(trouble.failed_blocks, "block")
        text = f"{text}; {blocks} could not be loaded and will be tried again: {trouble.cause}"
    return [
        mounted(uri),
        placed(plan),
        finding(names.LOADED, False, reason, text),
        finding(names.READY, False, reason, text),
    ]


def loaded(*, held: Holdings, uri: str, plan: WantPlan) -> list[Finding]:
    """The listing shows everything that was to be cached on its nodes."""
    where = placed(plan)
    reason, text = "Loaded", f"{extent(held)}{manner(plan)}"
    if where.status != "True":
        reason, text = where.reason, f"{text}; {where.message}"
    return [
        mounted(uri),
        where,
        finding(names.LOADED, True, reason, text),
        finding(names.READY, True, reason, text),
    ]


def placed(plan: WantPlan) -> Finding:
    """Whether the placement is as it was asked for: files, room for them, and as many nodes."""
    if plan.unknown_paths:
        told = ", ".join(repr(path) for path in plan.unknown_paths[:3])
        text = f"the source has no file under {told} of paths: correct the paths, or put the files there"
        return finding(names.PLACED, False, "PathNotFound", text)
    if plan.asked_bytes and not plan.subset_bytes:
        text = (
            f"{human(plan.asked_bytes)} (fraction or amount) is less than the first file that would be taken, so "
            "nothing is loaded: ask for more"
        )
        return finding(names.PLACED, False, "AmountTooSmall", text)
    if plan.unplaced_bytes:
        return finding(names.PLACED, False, "NotAllFits", _partial(plan))
    text = _too_few(plan)
    if text:
        return finding(names.PLACED, False, "TooFewNodes", text)
    return finding(names.PLACED, True, "Placed", f"on {counted(len(set(plan.nodes)), 'node')}{manner(plan)}")


def manner(plan: WantPlan) -> str:
    """Such as `` (Replicate)`` or `` (Partition, 2 copies)``."""
    if not plan.copies:
        return ""
    copies = f", {len(plan.copies)} copies" if len(plan.copies) > 1 else ""
    return f" ({plan.copies[0].mode.value}{copies})"


def state_of(findings: list[Finding]) -> DatasetState:
    """The conditions in one word."""
    by_type = {found.type: found for found in findings}
    ready, source = by_type.get(names.READY), by_type.get(names.SOURCE_REACHABLE)
    if ready is not None and ready.status == "True":
        reached = source is None or source.status != "False"
        return "Ready" if ready.reason in {"Loaded", "Mounted"} and reached else "Degraded"
    early: dict[str, DatasetState] = {
        "Mounting": "Mounting",
        "Scheduled": "Scheduled",
        "Loading": "Loading",
        "CacheClusterNotFound": "Pending",
        "CacheUnavailable": "Pending",
    }
    return early.get(ready.reason if ready is not None else "", "Failed")


def _partial(plan: WantPlan) -> str:
    asked = plan.wanted_bytes + plan.unplaced_bytes
    if plan.wanted_bytes == 0:
        return (
            f"not one block of it fits on {', '.join(sorted(set(plan.nodes))[:5])}: the cache there is full, or "
            f"smaller than a block; all is read from the source. {ROOM}"
        )
    return (
        f"{human(plan.wanted_bytes)} of {human(asked)} is all that the chosen nodes have room for: these files are "
        f"kept, and the rest is read from the source without being cached. {ROOM}"
    )


def _too_few(plan: WantPlan) -> str:
    want, got = plan.want, len(set(plan.nodes))
    if want.nodes:
        away = sorted(set(want.nodes) - set(plan.nodes))
        if not away:
            return ""
        verb = "is no live cache node" if len(away) == 1 else "are no live cache nodes"
        return f"{', '.join(away[:5])} of spec.nodes {verb}: see status.workers of the CacheCluster"
    if got >= plan.asked_nodes and len(plan.copies) >= want.copies:
        return ""
    each = counted(want.node_count or 1, "node")
    asked = each if want.copies == 1 else f"{want.copies} copies of {each} each"
    own = want.key.startswith(names.KIND_DATASET)
    who = "spec.placement asks" if own else "spec.copies, or its Dataset's spec.placement, asks"
    return (
        f"it lies on {counted(got, 'node')}, and {who} for {asked}: only {plan.eligible} live cache "
        f"{'node has' if plan.eligible == 1 else 'nodes have'} room and the labels of spec.placement.nodeSelector. "
        "Add cache nodes, or ask for fewer"
    )
