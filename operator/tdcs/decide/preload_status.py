"""What a Preload's status says."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tdcs.api import names
from tdcs.api.conditions import LOAD_FAILED, NO_CACHE_NODE, Finding, finding, shorten
from tdcs.api.durations import seconds_between
from tdcs.api.failures import FAILED_FILES_KEPT, FailedFile
from tdcs.api.preload import PreloadState, PreloadStatus
from tdcs.decide.cache.wants import Want
from tdcs.decide.dataset_conditions import manner, placed, so_far
from tdcs.decide.place.copy_nodes import Mode
from tdcs.decide.place.holdings import Failures, WantProgress
from tdcs.decide.place.slot_nodes import WantPlacement
from tdcs.model.agent_state import CheckState
from tdcs.model.humanize import counted, human, percent, speed
from tdcs.model.printable_text import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class PreloadView:
    """Everything that a verdict on a Preload needs.

    Attributes:
        known: its status so far.
        placement: what it came to; None while its Dataset has not looked at it.
        progress: how far it is.
        assigned: whether all of its agents work by this placement.
        failures: files of its Dataset that cannot be had for now.
        away: why the source gives nothing; empty when it does.
        gives_up: whether what cannot be had has been tried for long enough.
        waiting: why it cannot begin: reason and message; None when it can.
        suspended: spec.suspend.
        starts_in: seconds until spec.startTime.
        start: spec.startTime.
        uid: the Dataset's.
        unknown_nodes: those of spec.nodes that the cluster has not.
        checks: the comparison with the source by node.
    """

    known: PreloadStatus
    placement: WantPlacement | None = None
    progress: WantProgress = field(default_factory=WantProgress)
    assigned: bool = False
    failures: Failures = field(default_factory=Failures)
    away: str = ""
    gives_up: bool = False
    waiting: tuple[str, str] | None = None
    suspended: bool = False
    starts_in: float = 0.0
    start: str = ""
    generation: int = 0
    uid: str = ""
    unknown_nodes: tuple[str, ...] = ()
    checks: Mapping[str, CheckState] = field(default_factory=dict)

    @property
    def stuck(self) -> bool:
        """Whether everything is there but what cannot be had."""
        return self.assigned and self.progress.failed_bytes > 0 and self.progress.missing_bytes == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """The state, and why."""

    state: PreloadState
    reason: str
    message: str


def conclude(view: PreloadView) -> Conclusion:
    """Where a Preload that has not ended stands."""
    placement = view.placement
    if view.suspended:
        held = (
            f"holds it at {so_far(view.progress)}"
            if view.progress.wanted_bytes
            else "keeps it from beginning"
        )
        text = f"spec.suspend {held}; set it to false to go on"
        return Conclusion(state="Suspended", reason="Suspended", message=text)
    if view.starts_in > 0:
        return Conclusion(state="Scheduled", reason="Scheduled", message=f"it begins at {view.start}")
    if view.waiting is not None:
        reason, text = view.waiting
        done = f"; {so_far(view.progress)} so far" if view.progress.wanted_bytes else ""
        return Conclusion(state="Pending", reason=reason, message=f"{text}{done}")
    if placement is None:
        return Conclusion(state="Pending", reason="Planning", message="its blocks are being looked for")
    if placement.totals.unknown_paths:
        return _failed(placed(placement))
    if not placement.copies:
        return Conclusion(state="Pending", reason=NO_CACHE_NODE, message=_nowhere(view, placement.want))
    if not view.assigned or view.progress.missing_bytes > 0 or view.progress.failed_bytes > 0:
        return _under_way(view)
    where = placed(placement)
    if where.status != "True":
        return _failed(where)
    text = f"{human(view.progress.placed_bytes)} are on their nodes{manner(placement)}"
    if placement.want.verify != "None":
        return _verified(view, placement, text)
    return Conclusion(state="Complete", reason="Complete", message=text)


def _nowhere(view: PreloadView, want: Want) -> str:
    """The message that no node has room for the Preload: the cause, and what to do."""
    workers = "see kubectl get cacheclusters -A -o wide"
    if not want.nodes:
        return (
            "no node that its Dataset may use (spec.placement.nodeSelector) has a live cache worker with free space: "
            f"{workers}"
        )
    absent = ", ".join(view.unknown_nodes[:5])
    other_nodes = [node for node in want.nodes if node not in view.unknown_nodes]
    parts = []
    if other_nodes:
        have = "has" if len(other_nodes) == 1 else "have"
        parts.append(
            f"{', '.join(other_nodes[:5])} of spec.nodes {have} no live cache worker with free space: {workers}"
        )
    if absent:
        parts.append(
            f"there is no node {absent}, which spec.nodes names: add it, or create the Preload again with nodes of "
            "kubectl get nodes"
        )
    return "; ".join(parts)


def _verified(view: PreloadView, placement: WantPlacement, text: str) -> Conclusion:
    compared = sum(check.bytes for check in view.checks.values())
    if any(node not in view.checks or not view.checks[node].done for node in placement.nodes):
        message = f"{text}; {human(compared)} compared with the source"
        return Conclusion(state="Verifying", reason="Verifying", message=message)
    wrong = wrong_files(view)
    if wrong.count:
        return Conclusion(state="Failed", reason="VerifyFailed", message=_wrong(view, text, wrong))
    return Conclusion(
        state="Complete", reason="Complete", message=f"{text}; {human(compared)} are as at the source"
    )


def wrong_files(view: PreloadView) -> Failures:
    """The files that differed from the source twice, or could not be compared, without duplicates."""
    wrong_by_path = {file.path: file for check in view.checks.values() for file in check.wrong}
    count = sum(check.wrong_count for check in view.checks.values())
    return Failures(count=count, files=tuple(wrong_by_path[path] for path in sorted(wrong_by_path)))


def _wrong(view: PreloadView, text: str, wrong: Failures) -> str:
    nodes = sorted(node for node, check in view.checks.items() if check.wrong_count)
    named = ", ".join(printable(file.path) for file in wrong.files[:5])
    more = " and others" if wrong.count > len(wrong.files[:5]) else ""
    if wrong.files and not any(file.code == "Wrong" for file in wrong.files):
        return (
            f"{text}, but {counted(wrong.count, 'file')} could not be compared with the source on "
            f"{', '.join(nodes[:5])}: {named}{more} ({wrong.files[0].reason}). Mend the cause, delete the Preload and "
            "create it again"
        )
    return (
        f"{text}, but {counted(wrong.count, 'file')} differed from the source on {', '.join(nodes[:5])}, also when "
        f"loaded again: {named}{more}. Check the source and the nodes' disks, delete the Preload and create it again"
    )


def _failed(where: Finding) -> Conclusion:
    return Conclusion(state="Failed", reason=where.reason, message=where.message)


def _under_way(view: PreloadView) -> Conclusion:
    text = so_far(view.progress)
    if not view.stuck and not view.away:
        where = placed(view.placement) if view.placement is not None else None
        if where is not None and where.status != "True":  # at once, not when the rest is there
            text = f"{text}; it cannot complete as it is: {where.message}"
            return Conclusion(state="Loading", reason=where.reason, message=text)
        return Conclusion(state="Loading", reason="Loading", message=text)
    if any(check.wrong_count for check in view.checks.values()):
        wrong = wrong_files(view)
        return Conclusion(state="Failed", reason="VerifyFailed", message=_wrong(view, text, wrong))
    first = view.failures.files[0] if view.failures.files else None
    cause = view.away or (f"{printable(first.path)}: {first.reason}" if first is not None else "see status")
    text = f"{text}; {counted(view.failures.count, 'file')} could not be loaded: {cause}"
    if view.away or not view.gives_up:
        return Conclusion(state="Loading", reason=LOAD_FAILED, message=f"{text}. It is tried again")
    more = (
        f"{text}. Mend the cause, delete the Preload and create it again: what is there is not loaded again"
    )
    return Conclusion(state="Failed", reason=LOAD_FAILED, message=more)


def findings_of(conclusion: Conclusion) -> list[Finding]:
    reason, message = conclusion.reason, conclusion.message
    return [
        finding(names.COMPLETE, conclusion.state == "Complete", reason, message),
        finding(names.FAILED, conclusion.state == "Failed", reason, message),
        finding(names.SUSPENDED, conclusion.state == "Suspended", reason, message),
    ]


def _asked_bytes(placement: WantPlacement) -> int:
    """Bytes that were asked for on all nodes, also those for which there is no room or no node."""
    want, copies = placement.want, placement.copies
    if want.nodes or not copies:
        lacking = 0
    elif copies[0].mode is Mode.REPLICATE:
        lacking = placement.asked_nodes - len(placement.nodes)
    else:
        lacking = want.copies - len(copies)
    return placement.wanted_bytes + placement.unplaced_bytes + max(lacking, 0) * placement.subset_bytes


def status_of(view: PreloadView, *, conclusion: Conclusion, now: str) -> PreloadStatus:
    status, done, placement = view.known, view.progress, view.placement
    begun = conclusion.state in {"Loading", "Verifying", "Complete", "Failed"}
    ended = conclusion.state in {"Complete", "Failed"}
    read, copied = done.source_rate, done.peer_rate
    if not (read or copied) and conclusion.state not in {"Suspended", "Pending", "Verifying"}:
        read, copied = status.bytes_per_second, status.copied_bytes_per_second
    rate = None if ended else speed(read=read, copied=copied)
    if placement is None:  # nothing new is known
        update = {
            "state": conclusion.state,
            "message": shorten(conclusion.message),
            "bytes_per_second": read,
            "copied_bytes_per_second": copied,
            "rate": rate,
            "progress": progress(done=status.bytes_done, total=status.bytes_total, state=conclusion.state),
        }
        return status.model_copy(update=update)
    total = _asked_bytes(placement)
    wrong = wrong_files(view)
    files = wrong.files or (view.failures.files if done.failed_bytes else ())
    named = {printable(file.path): file.reason for file in files}
    return PreloadStatus(
        state=conclusion.state,
        message=shorten(conclusion.message),
        bytes_per_second=read,
        copied_bytes_per_second=copied,
        rate=rate,
        start_time=status.start_time or (now if begun else None),
        completion_time=now if ended else None,
        bytes_total=total,
        bytes_done=done.placed_bytes,
        files_total=done.wanted_files,
        files_done=done.placed_files,
        progress=progress(done=done.placed_bytes, total=total, state=conclusion.state),
        failed_files=[
            FailedFile(path=path, reason=shorten(printable(reason)))
            for path, reason in list(named.items())[:FAILED_FILES_KEPT]
        ],
        nodes=sorted(set(placement.nodes)),
        verified_bytes=sum(check.bytes for check in view.checks.values()),
        dataset_generation=view.generation if conclusion.state == "Complete" else 0,
        dataset_uid=view.uid if ended else "",
    )


def progress(*, done: int, total: int, state: PreloadState) -> str | None:
    """The share that is there; None when nothing says what all of it is, or when all is there and the Preload waits:
    100% would look like an end. One that has failed lacks something, and came to 99% at most."""
    if not total and state != "Complete":
        return None
    if done >= total and state == "Pending":
        return None
    return percent(min(done, total * 99 // 100) if state == "Failed" else done, total)


def ended_seconds(status: PreloadStatus, *, now: str) -> float:
    """Seconds since its end."""
    return seconds_between(status.completion_time, now) if status.completion_time else 0.0
