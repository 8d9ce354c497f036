"""The conditions of a Dataset, in words that say what to do. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from tdcs.api import names
from tdcs.api.conditions import Finding, finding
from tdcs.api.dataset import DatasetState
from tdcs.controllers.dataset.plan import WantPlan
from tdcs.controllers.dataset.report import Holdings, Progress, Trouble, Wrong, extent, own_extent
from tdcs.controllers.humanize import counted, human

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


def blocked(*, reason: str, message: str, mounted_too: bool = False, uri: str = "") -> list[Finding]:
    """Nothing can be done until a cause is gone. `mounted_too`: the cause came after the mount; `uri`: what this pass
    has found mounted."""
    found = [finding(names.READY, False, reason, message)]
    if uri or mounted_too:
        there = [mounted(uri)] if uri else []
        return [*there, finding(names.LOADED, False, reason, message), *found]
    return [
        finding(names.MOUNTED, False, reason, message),
        finding(names.LOADED, None, reason, "cannot be known until the source is mounted"),
        *found,
    ]


def unplaced(*, uri: str, selector: Mapping[str, str]) -> list[Finding]:
    """No node can hold any of it; it is read from the source."""
    reason, text = "NoCacheNode", no_node(selector)
    return [finding(names.PLACED, False, reason, text), *blocked(reason=reason, message=text, uri=uri)]


def reachable(trouble: tuple[str, str] | None = None, *, differs: str = "") -> Finding:
    """Whether the source and its keys could be used when last looked at; with reason and message if not.

    Args:
        trouble: what was wrong.
        differs: whose keys are used, when they are not this Dataset's own.
    """
    if trouble is None and differs:
        text = (
            f"the source is read with the keys of {differs}, which were the last to change: those of "
            "spec.source.secretRef differ. Put the same keys into both Secrets"
        )
        return finding(names.SOURCE_REACHABLE, True, "KeysDiffer", text)
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


def on_demand(*, held: Holdings, uri: str, shared: bool = False) -> list[Finding]:
    """Preload is off: the data can be used, and jobs fill the cache. `shared`: so do other Datasets of the source."""
    whose = " (with what other Datasets of this source have there)" if shared else ""
    text = "the cache is filled by what jobs read"
    return [
        mounted(uri),
        finding(names.PLACED, None, "PreloadDisabled", text),
        finding(names.LOADED, False, "PreloadDisabled", text),
        finding(names.READY, True, "Mounted", f"{extent(held)}{whose}; more is cached as jobs read"),
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
    reason, text = "Loaded", f"{own_extent(held, plan)}{manner(plan)}"
    if where.status != "True":
        reason, text = where.reason, f"{text}; {where.message}"
    return [
        mounted(uri),
        where,
        finding(names.LOADED, True, reason, text),
        finding(names.READY, True, reason, text),
    ]


def with_wrong(findings: list[Finding], *, wrong: Mapping[str, Wrong]) -> list[Finding]:
    """The conditions of data of which some copies were found to differ from the source twice."""
    count = sum(one.count for one in wrong.values())
    nodes = sorted({node for one in wrong.values() for node in one.copies})
    told = ", ".join(file.path for one in wrong.values() for file in one.files)
    more = " and others" if count > sum(len(one.files) for one in wrong.values()) else ""
    text = (
        f"{counted(count, 'file')} differed from the source on {', '.join(nodes[:5])}, also when loaded again: "
        f"{told}{more}. The wrong copies were dropped, and what reads them reads the source. Check the source and the "
        f"nodes' disks, then delete {', '.join(sorted(wrong))} to have them loaded again"
    )
    kept = [one for one in findings if one.type not in {names.LOADED, names.READY}]
    ready = next((one for one in findings if one.type == names.READY), None)
    if ready is None or ready.status != "True":
        return findings
    return [
        *kept,
        finding(names.LOADED, False, "CopiesWrong", text),
        finding(names.READY, True, "CopiesWrong", text),
    ]


def with_trouble(findings: list[Finding], *, reason: str, message: str) -> list[Finding]:
    """The conditions of data whose source, or keys, cannot be used just now: the sentence that people are shown first
    has the cause, too."""
    return [
        replace(one, message=f"{one.message}; {reason}: {message}") if one.type == names.READY else one
        for one in findings
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


def no_node(selector: Mapping[str, str]) -> str:
    """No worker can take a byte: which nodes were meant, and what to do."""
    told = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
    which = f"the labels of spec.placement.nodeSelector ({told})" if told else "a live cache worker"
    return (
        f"no node with {which} has a live cache worker with free space: see kubectl get cacheclusters -o wide, "
        "free or add cache capacity, or change the selector"
    )


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
        "CacheClusterDeleting": "Pending",
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
