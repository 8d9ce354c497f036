"""What a Dataset's status says. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tdcs.api import names
from tdcs.api.conditions import Finding, finding
from tdcs.api.dataset import Copy, DatasetState, DatasetStatus, NodeBytes
from tdcs.controllers.dataset.plan import LoadPlan
from tdcs.controllers.dataset.survey import Survey, held_nodes, ratio
from tdcs.controllers.sizes import counted, human, percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What of a dataset is cached at this moment: the last survey and what was loaded since."""

    total_bytes: int = 0
    total_files: int = 0
    cached_bytes: int = 0
    node_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a load is: bytes of all wanted copies, and how many of them lie on their nodes."""

    placed_bytes: int
    wanted_bytes: int
    nodes: int

    def __str__(self) -> str:
        """Such as ``1.2 MB of 3.0 MB on 2 nodes``."""
        nodes = counted(self.nodes, "node")
        return f"{human(self.placed_bytes)} of {human(self.wanted_bytes)} on {nodes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why a load did not do all that was planned."""

    failed_blocks: int
    cause: str


def holdings(*, survey: Survey, loaded: Mapping[str, int] | None = None, newly_cached: int = 0) -> Holdings:
    """The survey, with the bytes that a running load has placed since."""
    node_bytes = dict(survey.node_bytes)
    for node, size in (loaded or {}).items():
        node_bytes[node] = node_bytes.get(node, 0) + size
    return Holdings(
        total_bytes=survey.total_bytes,
        total_files=survey.total_files,
        cached_bytes=min(survey.cached_bytes + newly_cached, survey.total_bytes),
        node_bytes=node_bytes,
    )


def status_of(*, held: Holdings, claim_name: str, mount_path: str, state: DatasetState) -> DatasetStatus:
    """The status without its conditions."""
    nodes = held_nodes(held.node_bytes)
    return DatasetStatus(
        state=state,
        total_bytes=held.total_bytes,
        total_files=held.total_files,
        cached_bytes=held.cached_bytes,
        physical_bytes=sum(size for _, size in nodes),
        cached_ratio=ratio(held.cached_bytes, held.total_bytes) if held.total_files else 0.0,
        cached=percent(held.cached_bytes, held.total_bytes) if held.total_files else None,
        size=human(held.total_bytes) if held.total_files else None,
        copies=[Copy(id="0", nodes=[NodeBytes(name=name, bytes=size) for name, size in nodes])],
        claim_name=claim_name,
        mount_path=mount_path,
    )


def extent(held: Holdings) -> str:
    """How much of the data is cached and where, such as ``1.2 MB of 3.0 MB on 2 nodes``."""
    nodes = counted(len(held_nodes(held.node_bytes)), "node")
    return f"{human(held.cached_bytes)} of {human(held.total_bytes)} on {nodes}"


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


def on_demand(*, held: Holdings, uri: str) -> list[Finding]:
    """Preload is off: the data can be used, and jobs fill the cache."""
    return [
        mounted(uri),
        finding(names.LOADED, False, "PreloadDisabled", "the cache is filled by what jobs read"),
        finding(names.READY, True, "Mounted", f"{extent(held)}; more is cached as jobs read"),
    ]


def loading(*, progress: Progress, uri: str, trouble: Trouble | None) -> list[Finding]:
    """Blocks are on their way, or the last load has left some out."""
    reason, text = "Loading", str(progress)
    if trouble is not None:
        reason = "LoadFailed"
        blocks = counted(trouble.failed_blocks, "block")
        text = f"{text}; {blocks} could not be loaded and will be tried again: {trouble.cause}"
    return [
        mounted(uri),
        finding(names.LOADED, False, reason, text),
        finding(names.READY, False, reason, text),
    ]


def loaded(*, held: Holdings, uri: str, plan: LoadPlan) -> list[Finding]:
    """The listing shows everything that was to be cached on its nodes."""
    if plan.unplaced_bytes == 0:
        reason, text = "Loaded", f"{extent(held)} ({plan.copy.mode.value})"
    else:
        reason = "NotAllFits"
        text = (
            f"{extent(held)}, which is all that the chosen nodes have room for; the rest is read from the "
            f"source. Add cache capacity or nodes, or raise spec.placement.nodeCount, to cache all of it"
        )
    return [
        mounted(uri),
        finding(names.LOADED, True, reason, text),
        finding(names.READY, True, reason, text),
    ]


def state_of(findings: list[Finding]) -> DatasetState:
    """The conditions in one word."""
    by_type = {found.type: found for found in findings}
    ready = by_type.get(names.READY)
    if ready is not None and ready.status == "True":
        return "Degraded" if ready.reason == "NotAllFits" else "Ready"
    reason = ready.reason if ready is not None else ""
    if reason in {"Mounting", "Loading"}:
        return "Mounting" if reason == "Mounting" else "Loading"
    if reason in {"CacheClusterNotFound", "CacheUnavailable"}:
        return "Pending"
    return "Failed"
