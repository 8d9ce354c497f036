"""What a Preload's status says. Pure."""

from dataclasses import dataclass, field

from tdcs.api import names
from tdcs.api.conditions import Finding, finding
from tdcs.api.preload import FAILED_FILES_KEPT, FailedFile, PreloadState, PreloadStatus
from tdcs.controllers.clock import seconds_between
from tdcs.controllers.dataset.plan import WantPlan
from tdcs.controllers.dataset.report import Progress, Trouble
from tdcs.controllers.dataset.verdicts import manner, placed
from tdcs.controllers.dataset.verify import VerifyProgress
from tdcs.controllers.humanize import human, percent, speed

TRIES = 2
"""After so many loads in a row that left something out, a Preload has failed. Each tries a block several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything that a verdict on a Preload needs.

    Attributes:
        known: its status so far.
        plan: what it came to; None while its Dataset has not looked at it.
        progress: how far it is.
        loading: whether a load of it is under way.
        trouble: why its last load left something out.
        tries: how many loads in a row did.
        waiting: why it cannot begin: reason and message; None when it can.
        suspended: spec.suspend.
        starts_in: seconds until spec.startTime.
        start: spec.startTime.
        generation: the Dataset's.
        verify: the comparison with the source, while it runs or when it is done.
        verifying: whether it still runs, or is still to begin.
        verify_error: why it ended early.
    """

    known: PreloadStatus
    plan: WantPlan | None = None
    progress: Progress = field(default_factory=Progress)
    loading: bool = False
    trouble: Trouble | None = None
    tries: int = 0
    waiting: tuple[str, str] | None = None
    suspended: bool = False
    starts_in: float = 0.0
    start: str = ""
    generation: int = 0
    verify: VerifyProgress | None = None
    verifying: bool = False
    verify_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The state, and why."""

    state: PreloadState
    reason: str
    message: str


def judge(view: View) -> Verdict:
    """Where a Preload that has not ended stands."""
    plan = view.plan
    if view.suspended:
        held = f"holds it at {view.progress}" if view.progress.wanted_bytes else "keeps it from beginning"
        text = f"spec.suspend {held}; set it to false to go on"
        return Verdict(state="Suspended", reason="Suspended", message=text)
    if view.starts_in > 0:
        return Verdict(state="Scheduled", reason="Scheduled", message=f"it begins at {view.start}")
    if view.waiting is not None:
        reason, text = view.waiting
        so_far = f"; {view.progress} so far" if view.progress.wanted_bytes else ""
        return Verdict(state="Pending", reason=reason, message=f"{text}{so_far}")
    if plan is None:
        return Verdict(state="Pending", reason="Planning", message="its blocks are being looked for")
    if plan.unknown_paths:
        return _failed(placed(plan))
    if not plan.copies:
        text = (
            "no live cache worker with free space is on a node that it may use (spec.nodes, and "
            "spec.placement.nodeSelector of the Dataset): see kubectl get cacheclusters -o wide"
        )
        return Verdict(state="Pending", reason="NoCacheNode", message=text)
    if view.loading or len(plan.work) or plan.missing_bytes > 0:
        return _under_way(view)
    where = placed(plan)
    if where.status != "True":
        return _failed(where)
    text = f"{human(plan.placed_bytes)} found on their nodes{manner(plan)}"
    if plan.want.verify != "None":
        return _verified(view, text)
    return Verdict(state="Complete", reason="Complete", message=text)


def _verified(view: View, text: str) -> Verdict:
    done = view.verify
    if done is None or view.verifying:
        compared = human(done.bytes_done) if done is not None else human(0)
        return Verdict(
            state="Verifying", reason="Verifying", message=f"{text}; {compared} compared with the source"
        )
    if view.verify_error or done.failed_files:
        cause = view.verify_error or "; ".join(f"{one.path}: {one.reason}" for one in done.failures[:2])
        told = f"{done.failed_files} files differ from the source or could not be compared: {cause}"
        more = "Check the source and the nodes' disks, delete the Preload and create it anew"
        return Verdict(state="Failed", reason="VerifyFailed", message=f"{text}, but {told}. {more}")
    return Verdict(
        state="Complete", reason="Complete", message=f"{text}; {human(done.bytes_done)} are as at the source"
    )


def _failed(where: Finding) -> Verdict:
    return Verdict(state="Failed", reason=where.reason, message=where.message)


def _under_way(view: View) -> Verdict:
    text = str(view.progress)
    if view.trouble is None or view.loading:
        return Verdict(state="Loading", reason="Loading", message=text)
    text = f"{text}; {view.trouble.failed_blocks} blocks could not be loaded: {view.trouble.cause}"
    if view.tries < TRIES:
        return Verdict(state="Loading", reason="LoadFailed", message=f"{text}. It is tried again")
    more = f"{text}. Mend the cause, delete the Preload and create it anew: what is there is not loaded again"
    return Verdict(state="Failed", reason="LoadFailed", message=more)


def findings_of(verdict: Verdict) -> list[Finding]:
    """The conditions."""
    reason, message = verdict.reason, verdict.message
    return [
        finding(names.COMPLETE, verdict.state == "Complete", reason, message),
        finding(names.FAILED, verdict.state == "Failed", reason, message),
        finding(names.SUSPENDED, verdict.state == "Suspended", reason, message),
    ]


def status_of(view: View, *, verdict: Verdict, now: str) -> PreloadStatus:
    """The status without its conditions."""
    known, done, plan = view.known, view.progress, view.plan
    begun = verdict.state in {"Loading", "Verifying", "Complete", "Failed"}
    ended = verdict.state in {"Complete", "Failed"}
    read, copied = done.bytes_per_second, done.copied_per_second
    if not (read or copied) and verdict.state not in {"Suspended", "Pending"}:
        read, copied = known.bytes_per_second, known.copied_bytes_per_second
    rate = speed(read=read, copied=copied)
    if plan is None:  # nothing new is known
        told = {
            "state": verdict.state,
            "bytes_per_second": read,
            "copied_bytes_per_second": copied,
            "rate": rate,
            "progress": progress(done=known.bytes_done, total=known.bytes_total, state=verdict.state),
        }
        return known.model_copy(update=told)
    total = plan.wanted_bytes + plan.unplaced_bytes
    files = view.trouble.files if view.trouble is not None else ()
    if view.verify is not None:
        files = tuple((failure.path, failure.reason) for failure in view.verify.failures)
    return PreloadStatus(
        state=verdict.state,
        bytes_per_second=read,
        copied_bytes_per_second=copied,
        rate=rate,
        start_time=known.start_time or (now if begun else None),
        completion_time=now if ended else None,
        bytes_total=total,
        bytes_done=done.placed_bytes,
        files_total=done.wanted_files,
        files_done=done.placed_files,
        progress=progress(done=done.placed_bytes, total=total, state=verdict.state),
        failed_files=[FailedFile(path=path, reason=reason) for path, reason in files[:FAILED_FILES_KEPT]],
        nodes=sorted(set(plan.nodes)),
        verified_bytes=view.verify.bytes_done if view.verify is not None else 0,
        dataset_generation=view.generation if verdict.state == "Complete" else 0,
    )


def progress(*, done: int, total: int, state: PreloadState) -> str | None:
    """The share that is there; None when nothing says what all of it is, or when all is there and the Preload is
    neither done nor on its way: 100% would look like an end."""
    if not total and state != "Complete":
        return None
    if done >= total and state in {"Pending", "Failed"}:
        return None
    return percent(done, total)


def ended_seconds(status: PreloadStatus, *, now: str) -> float:
    """Seconds since its end."""
    return seconds_between(status.completion_time, now) if status.completion_time else 0.0
