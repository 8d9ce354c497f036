"""The conditions of a Dataset, and what Preloads share of them, in words that say what to do."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from tdcs.api import names
from tdcs.api.conditions import (
    CACHE_STARTING,
    CACHE_UNAVAILABLE,
    CLAIM_LOST,
    COPIES_WRONG,
    EVICTED,
    EXPIRED,
    FILES_FAILED,
    LISTING_WAITS,
    LOAD_FAILED,
    NO_CACHE_NODE,
    NOT_ALL_FITS,
    PRELOAD_DISABLED,
    QUOTA_EXCEEDED,
    RELOADING,
    Finding,
    finding,
    shorten,
)
from tdcs.api.dataset import DatasetState
from tdcs.api.preload import Preload
from tdcs.decide.cache.cache_quotas import allowed
from tdcs.decide.place.holdings import Failures, Holdings, WantProgress, cached_of
from tdcs.decide.place.slot_nodes import WantPlacement
from tdcs.decide.problem import Problem
from tdcs.model.humanize import counted, human
from tdcs.model.near_path import PATHS_NAMED

ROOM = "Add cache capacity or nodes (spec.storage, spec.replicas of the CacheCluster), or ask for less"

HeldUpBy = Literal["namespace", "all"]
"""What a listing waits for: others of its namespace, or of any."""

PLAIN = frozenset({"Loaded", "Mounted"})
"""Reasons of Datasets that are ready, and as they were asked for."""


def mounted(uri: str) -> Finding:
    return finding(names.MOUNTED, True, "Mounted", f"{uri} can be read through the cache")


def mounting(uri: str) -> list[Finding]:
    text = f"{uri} is being mounted"
    return [
        finding(names.MOUNTED, False, "Mounting", text),
        finding(names.LOADED, None, "Mounting", "cannot be known until the source is mounted"),
        finding(names.READY, False, "Mounting", text),
    ]


def not_listed(uri: str, *, held_up_by: HeldUpBy | None, namespace: str) -> Problem:
    """The source is mounted but its files are unknown: it is being listed, or waits until others are.

    Args:
        uri: of the source.
        held_up_by: what it waits for; None when it is being listed.
    """
    if held_up_by is None:
        return Problem(reason="Mounting", message=f"{uri} is being listed", uri=uri)
    peers, flag = "other Datasets", "-A, for administrators"
    if held_up_by == "namespace":
        peers, flag = f"other Datasets of namespace {namespace}", f"-n {namespace}"
    text = (
        f"{uri} waits to be listed: {peers} are, as many as may be at a time. It comes by itself; if it takes long, "
        f"see which are Mounting (kubectl get datasets {flag}) or were not checked for long, and whether their stores "
        "answer slowly"
    )
    return Problem(reason=LISTING_WAITS, message=text, uri=uri)


def blocked(*, reason: str, message: str, mounted_too: bool = False, uri: str = "") -> list[Finding]:
    """A problem stops all work on the Dataset. `mounted_too`: it appeared after the mount; `uri`: the source that this
    pass found mounted."""
    ready_finding = [finding(names.READY, False, reason, message)]
    if uri or mounted_too:
        mounted_findings = [mounted(uri)] if uri else []
        return [*mounted_findings, finding(names.LOADED, False, reason, message), *ready_finding]
    return [
        finding(names.MOUNTED, False, reason, message),
        finding(names.LOADED, None, reason, "cannot be known until the source is mounted"),
        *ready_finding,
    ]


def given_nothing(
    *, reason: str, message: str, known: Collection[str], still_used_by: str = ""
) -> list[Finding]:
    """The cache holds nothing for the Dataset, and it is granted nothing: its source may not be used, or its cache is
    gone.

    Args:
        known: the types of conditions that its status has; what it was never granted is not said to be lost.
        still_used_by: a sentence about pods that keep its volume; empty without such pods.
    """
    lost = (names.PLACED, names.GRANTED, names.SOURCE_REACHABLE)
    return [
        *blocked(reason=reason, message=f"{message}; {still_used_by}" if still_used_by else message),
        *(finding(kind, False, reason, message) for kind in lost if kind in known),
    ]


def kept_for_readers(*, reason: str, message: str) -> list[Finding]:
    """The deletion waits: until it goes on, what is known of the data stays true."""
    return [finding(names.READY, False, reason, message)]


def unplaced(*, uri: str, selector: Mapping[str, str]) -> list[Finding]:
    """No node can hold any of it; it is read from the source."""
    reason, text = NO_CACHE_NODE, no_node(selector)
    return [finding(names.PLACED, False, reason, text), *blocked(reason=reason, message=text, uri=uri)]


def reachable(trouble: tuple[str, str] | None = None, *, differs: str = "") -> Finding:
    """Whether the source and its keys could be used when last looked at; with reason and message if not.

    Args:
        trouble: what was wrong.
        differs: the Dataset of the same namespace with the keys that are used, when they are not this one's own.
    """
    if trouble is None and differs:
        text = (
            f"the source is read with the keys of {differs}: those of spec.source.secretRef differ, and it takes them "
            "too. Put the same keys into both Secrets, or name one Secret in both Datasets"
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


def serving(*, uri: str, where: Finding, loaded: bool, ready: bool, reason: str, text: str) -> list[Finding]:
    """The conditions of a source that can be read: where it is placed, whether it is loaded and ready, and why."""
    return [
        mounted(uri),
        where,
        finding(names.LOADED, loaded, reason, text),
        finding(names.READY, ready, reason, text),
    ]


def on_demand(*, held: Holdings, uri: str, shared: bool = False) -> list[Finding]:
    """Preload is off: the data is usable, and jobs fill the cache. `shared`: other Datasets of the source do so too."""
    shared_note = " (with what other Datasets of this source have there)" if shared else ""
    text = "the cache is filled by what jobs read"
    return [
        mounted(uri),
        finding(names.PLACED, None, PRELOAD_DISABLED, text),
        finding(names.LOADED, False, PRELOAD_DISABLED, text),
        finding(names.READY, True, "Mounted", f"{extent(held)}{shared_note}; more is cached as jobs read"),
    ]


def scheduled(*, progress: WantProgress, uri: str, placement: WantPlacement, start: str) -> list[Finding]:
    """The preload begins later; the data can be read meanwhile."""
    text = f"loading begins at {start} (spec.preload.startTime); until then it is {so_far(progress)}"
    return serving(uri=uri, where=placed(placement), loaded=False, ready=False, reason="Scheduled", text=text)


def loading(
    *,
    progress: WantProgress,
    uri: str,
    placement: WantPlacement,
    cause: str = "",
    absent: Sequence[str] = (),
    was_loaded: bool = False,
    was_ready: bool = False,
) -> list[Finding]:
    """Blocks are on their way; with the cause when the source gives nothing just now.

    Args:
        was_ready: whether it was ready since then, loaded or not: one that had left the cache goes on serving while it
            comes back.
        was_loaded: whether all of it was loaded since the spec last changed: it serves, whatever is brought to other
            nodes, or to another version of the source.
        absent: nodes with agents that are away, and may be back with what they have.
    """
    reason, text = "Loading", f"{so_far(progress)}{_away(absent)}"
    if cause:
        reason, text = LOAD_FAILED, f"{text}; it is tried again: {cause}"
    elif was_loaded or was_ready:
        reason = RELOADING
        text = f"its nodes, its source or its share of the cache have changed, and some of it is loaded again: {text}"
    loaded, ready = was_loaded and not cause, (was_loaded or was_ready) and not cause
    return serving(uri=uri, where=placed(placement), loaded=loaded, ready=ready, reason=reason, text=text)


def loaded(
    *,
    held: Holdings,
    uri: str,
    placement: WantPlacement,
    progress: WantProgress,
    failures: Failures | None = None,
    absent: Sequence[str] = (),
) -> list[Finding]:
    """Everything that was to be cached is on its nodes, but for files that cannot be had.

    A path under which the source has no file is not loaded, nor is a share of less than a file: a job that waits for
    its data would begin without it.

    Args:
        absent: those of these nodes with agents that are away, and may be back with what they have.
    """
    where = placed(placement)
    reason, text = "Loaded", f"{own_extent(held, placement, progress)}{manner(placement)}{_away(absent)}"
    if where.status != "True":
        reason, text = where.reason, f"{text}; {where.message}"
    failed = progress.failed_bytes > 0 and failures is not None
    if failures is not None and failed:
        reason, text = FILES_FAILED, f"{text}; {lacking(progress, failures)}"
    nothing = bool(placement.totals.unknown_paths) or _asks_too_little(placement)
    whole = (not failed or progress.ignored_bytes > 0) and not nothing
    return serving(uri=uri, where=where, loaded=whole, ready=True, reason=reason, text=text)


def _away(absent: Sequence[str]) -> str:
    if not absent:
        return ""
    more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
    return (
        f"; the agent of {', '.join(absent[:3])}{more} is away: what is there is not among the copies until it is "
        "back, and is loaded on other nodes when it stays away"
    )


def lacking(progress: WantProgress, failures: Failures) -> str:
    first = "; ".join(f"{file.path}: {file.reason}" for file in failures.files[:2])
    more = f" and {failures.count - 2} more" if failures.count > 2 else ""
    return (
        f"{human(progress.failed_bytes)} of {counted(failures.count, 'file')} cannot be had ({first}{more}). They are "
        "tried again; the rest can be read. See status.failedFiles"
    )


def with_wrong(
    findings: list[Finding], *, preloads: Sequence[tuple[str, Preload]], where: str
) -> list[Finding]:
    """The conditions of data of which comparisons found copies that differ from the source twice.

    Args:
        findings: those without them.
        preloads: the Preloads that asked for these comparisons, by name.
    """
    ready = next((condition for condition in findings if condition.type == names.READY), None)
    if not preloads or ready is None or ready.status != "True":
        return findings
    sentences = "; ".join(
        f"{condition.message.partition('. Check')[0]} (Preload {where}/{name})"
        for name, preload in preloads
        for condition in (preload.status.conditions if preload.status else ())
        if condition.type == names.FAILED
    )
    text = (
        f"{sentences}. The wrong copies were dropped, and what reads them reads the source. Check the source and the "
        f"nodes' disks, then delete {', '.join(f'Preload {where}/{name}' for name, _ in preloads)} to have them "
        "loaded again"
    )
    kept_findings = [condition for condition in findings if condition.type not in {names.LOADED, names.READY}]
    return [
        *kept_findings,
        finding(names.LOADED, False, COPIES_WRONG, text),
        finding(names.READY, True, COPIES_WRONG, text),
    ]


def with_trouble(findings: list[Finding], *, reason: str, message: str) -> list[Finding]:
    """The conditions of cached data whose source or keys cannot be used now: the message of Ready names the cause."""
    return [
        replace(condition, message=f"{condition.message}; {reason}: {message}")
        if condition.type == names.READY
        else condition
        for condition in findings
    ]


def with_loss(findings: list[Finding], sentence: str) -> list[Finding]:
    """The conditions of data that does not all fit, with what left the cache with workers; empty: nothing did."""
    return [
        replace(condition, message=f"{condition.message}; {sentence}")
        if sentence and condition.reason == NOT_ALL_FITS and condition.type != names.GRANTED
        else condition
        for condition in findings
    ]


def without_claim(findings: list[Finding], *, reason: str, message: str) -> list[Finding]:
    """The conditions of cached data with a claim that no new pod can mount."""
    return [
        finding(names.READY, False, reason, message) if condition.type == names.READY else condition
        for condition in findings
    ]


def placed(placement: WantPlacement) -> Finding:
    """Whether the placement is as it was asked for: files, room for them, and as many nodes."""
    if placement.totals.unknown_paths:
        named = ", ".join(repr(path) for path in placement.totals.unknown_paths[:PATHS_NAMED])
        near = " and ".join(repr(path) for path in placement.totals.near_paths if path)
        question = f" (did you mean {near}?)" if near else ""
        text = f"the source has no file under {named} of paths{question}: correct the paths, or put the files there"
        return finding(names.PLACED, False, "PathNotFound", text)
    if _asks_too_little(placement):
        field = "percent" if placement.want.subset.fraction is not None else "amount"
        text = (
            f"{human(placement.asked_bytes)} ({field}) is less than the first file that would be taken, so nothing is "
            "loaded: ask for more"
        )
        return finding(names.PLACED, False, "AmountTooSmall", text)
    if placement.short_of:
        return finding(names.PLACED, False, QUOTA_EXCEEDED, allowed(placement))
    if placement.unplaced_bytes:
        return finding(names.PLACED, False, NOT_ALL_FITS, _partial(placement))
    text = _too_few(placement)
    if text:
        return finding(names.PLACED, False, "TooFewNodes", text)
    return finding(
        names.PLACED, True, "Placed", f"on {counted(len(set(placement.nodes)), 'node')}{manner(placement)}"
    )


def _asks_too_little(placement: WantPlacement) -> bool:
    return placement.asked_bytes > 0 and not placement.subset_bytes


def no_node(selector: Mapping[str, str]) -> str:
    """The message that no worker has room: which nodes were selected, and what to do."""
    labels = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
    selector_text = f" with the labels of spec.placement.nodeSelector ({labels})" if labels else ""
    return (
        f"no node{selector_text} has a live cache worker with free space: see kubectl get cacheclusters -A -o wide, "
        f"and free or add cache capacity{', or change the selector' if labels else ''}"
    )


def manner(placement: WantPlacement) -> str:
    """Such as `` (Replicate)`` or `` (Partition, 2 copies)``."""
    if not placement.copies:
        return ""
    copies = f", {len(placement.copies)} copies" if len(placement.copies) > 1 else ""
    return f" ({placement.copies[0].mode.value}{copies})"


def state_of(findings: list[Finding]) -> DatasetState:
    by_type = {condition.type: condition for condition in findings}
    ready, source = by_type.get(names.READY), by_type.get(names.SOURCE_REACHABLE)
    if ready is not None and ready.status == "True":
        if ready.reason in {EVICTED, EXPIRED}:
            return "Evicted"
        if ready.reason == RELOADING:
            return "Loading"
        reached = source is None or source.status != "False"
        return "Ready" if ready.reason in PLAIN and reached else "Degraded"
    early: dict[str, DatasetState] = {
        "Mounting": "Mounting",
        LISTING_WAITS: "Mounting",
        "Scheduled": "Scheduled",
        "Loading": "Loading",
        "CacheClusterDeleting": "Pending",
        "CacheClusterNotFound": "Pending",
        CACHE_STARTING: "Pending",
        CLAIM_LOST: "Pending",
        CACHE_UNAVAILABLE: "Pending",
        NO_CACHE_NODE: "Pending",
        "EndpointLookup": "Pending",
        "KeysUnchecked": "Pending",
    }
    return early.get(ready.reason if ready is not None else "", "Failed")


def reason_of(findings: Sequence[Finding], *, state: DatasetState) -> str | None:
    """Why a Dataset is in this state, in one word; None when the state says it already, or there is nothing to say."""
    cause = _cause_of(findings, state=state)
    plain = state in {"Ready", "Degraded"} and cause is not None and cause.reason in PLAIN
    if cause is None or (plain and cause.type == names.READY):
        return None
    return None if cause.reason == state else cause.reason


def message_of(findings: Sequence[Finding], *, state: DatasetState) -> str | None:
    """How it stands with a Dataset, in a sentence; None when nothing is known."""
    cause = _cause_of(findings, state=state)
    return shorten(cause.message) if cause is not None and cause.message else None


def _cause_of(findings: Sequence[Finding], *, state: DatasetState) -> Finding | None:
    """The condition that explains a Dataset's state best: Ready, or a failing one if the Dataset is ready."""
    by_type = {condition.type: condition for condition in findings}
    ready = by_type.get(names.READY)
    if ready is None or state not in {"Ready", "Degraded"} or ready.reason not in PLAIN:
        return ready
    wrong = (by_type.get(kind) for kind in (names.SOURCE_REACHABLE, names.GRANTED))
    return next(
        (condition for condition in wrong if condition is not None and condition.status == "False"), ready
    )


def _partial(placement: WantPlacement) -> str:
    total = placement.wanted_bytes + placement.unplaced_bytes
    if placement.wanted_bytes == 0:
        return (
            f"not one block of it fits on {', '.join(sorted(set(placement.nodes))[:5])}: the cache there is full, or "
            f"smaller than a block; all is read from the source. {ROOM}"
        )
    return (
        f"{human(placement.wanted_bytes)} of {human(total)} is all that the chosen nodes have room for: these files "
        f"are kept, and the rest is read from the source without being cached. {ROOM}"
    )


def _too_few(placement: WantPlacement) -> str:
    want, node_count = placement.want, len(set(placement.nodes))
    if want.nodes:
        away = sorted(set(want.nodes) - set(placement.nodes))
        if not away:
            return ""
        verb = "is no live cache node" if len(away) == 1 else "are no live cache nodes"
        return f"{', '.join(away[:5])} of spec.nodes {verb}: see status.workers of the CacheCluster"
    if node_count >= placement.asked_nodes and len(placement.copies) >= want.copies:
        return ""
    nodes_text = counted(want.node_count or 1, "node")
    wish = nodes_text if want.copies == 1 else f"{want.copies} copies of {nodes_text} each"
    is_dataset = want.key.startswith(names.KIND_DATASET)
    subject = "spec.placement asks" if is_dataset else "spec.copies, or its Dataset's spec.placement, asks"
    labels = " and the labels of spec.placement.nodeSelector" if want.node_selector else ""
    return (
        f"it is on {counted(node_count, 'node')}, and {subject} for {wish}: only {placement.eligible} live cache "
        f"{'node has' if placement.eligible == 1 else 'nodes have'} room{labels}. Add cache nodes, or ask for fewer"
    )


def so_far(progress: WantProgress) -> str:
    """How far a load is, such as ``1.2 MB of 3.0 MB on 2 nodes``."""
    nodes = counted(len({node for copy in progress.copies for node in copy}), "node")
    return f"{human(progress.placed_bytes)} of {human(progress.counted_bytes)} on {nodes}"


def own_extent(held: Holdings, placement: WantPlacement, progress: WantProgress) -> str:
    """How much of the data is on the nodes that a want has chosen, such as ``1.2 MB of 3.0 MB on 2 nodes``: what
    other Datasets of the source have elsewhere is theirs."""
    nodes = counted(len(progress.holders), "node")
    return f"{human(cached_of(placement, progress))} of {human(held.total_bytes)} on {nodes}"


def extent(held: Holdings) -> str:
    """How much of the data is cached and where, whoever wants it, such as ``1.2 MB of 3.0 MB on 2 nodes``."""
    nodes = counted(len(held.node_bytes), "node")
    return f"{human(held.cached_bytes)} of {human(held.total_bytes)} on {nodes}"
