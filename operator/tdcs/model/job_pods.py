"""What the pods of a job tell: where they are, how they ended, and why they do not run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tdcs.api import names
from tdcs.api.trainingjob import ROLES, Role
from tdcs.model.kube_objects import Object
from tdcs.model.printable_text import without_rpc_words

WAITING_AS_USUAL = frozenset({"ContainerCreating", "PodInitializing", ""})
"""Reasons of a waiting container that every start goes through."""

QUOTE_LIMIT = 600
"""Characters of a quoted message: a scheduler on many nodes can be talkative."""

UNSCHEDULABLE = "Unschedulable"

GATED = "SchedulingGated"
"""A scheduling gate of the template keeps the pod from its scheduler."""

VOLUME_NOT_BOUND = "VolumeNotBound"
"""Unschedulable for a claim: the scheduler hears of a bound one up to a second late, and then tries again soon."""

_UNBOUND = "unbound immediate PersistentVolumeClaims"
"""The scheduler's words about a claim that is not bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodProblem:
    """Why a pod does not run: the reason and the words of whoever holds it up (scheduler, kubelet, Job controller).
    `container`: the one that it is about, and `code`: how that ended, where it did so by itself."""

    reason: str
    message: str = ""
    code: int | None = None
    container: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.message else self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmade:
    """Pods of a role that the Job controller cannot make: how many, and what it says (a quota, a policy)."""

    role: Role
    count: int
    problem: PodProblem

    def __str__(self) -> str:
        pods = "pod" if self.count == 1 else "pods"
        return f"{self.count} {pods} of the role {self.role} could not be made: {self.problem}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """A pod of the job.

    Attributes:
        node: empty while it has none.
        index: its number in its role.
        phase: as Kubernetes has it: Pending, Running, Succeeded, Failed; Succeeded from the moment on in which all its
            containers have ended well, which the kubelet says of the pod about a second later.
        created, finished: times, empty when unknown.
        waiting: why it does not run yet; None when it runs, or starts as every pod does.
        failure: how it failed; None when it did not.
        disruption: why the cluster ended it (an eviction, a preemption), by the reason of its condition
            DisruptionTarget; empty where it was ended by its own containers.
        exit_codes: of its containers that failed, by their names.
        ended: the exit codes of its containers that have ended, but for those that ran before them.
        program_failure: how a container of a pod that still runs has failed; None when none has.
        going: whether it is being deleted.
        kept_alive: whether its own containers have ended, and one that was added to it still runs.
        uid: distinguishes it from another pod of the same name.
        scheduler: which scheduler is to place it.
        scheduled: when its scheduler last decided about it; empty before that.
    """

    name: str
    role: Role = "Worker"
    index: str = ""
    node: str = ""
    phase: str = "Pending"
    ready: bool = False
    created: str = ""
    finished: str = ""
    waiting: PodProblem | None = None
    failure: PodProblem | None = None
    disruption: str = ""
    exit_codes: Mapping[str, int] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)
    program_failure: PodProblem | None = None
    going: bool = False
    kept_alive: bool = False
    uid: str = ""
    scheduler: str = ""
    scheduled: str = ""

    @property
    def number(self) -> int | None:
        """Its number in its role; None when it is not known."""
        return int(self.index) if self.index.isdecimal() else None

    @property
    def disrupted(self) -> bool:
        """Whether the cluster ended it, rather than its own containers."""
        return bool(self.disruption)

    @property
    def starting(self) -> bool:
        """Whether it has a node and its containers are on their way."""
        return bool(self.node) and self.phase == "Pending" and not self.going


def pod_view(pod: Object) -> PodView:
    metadata, status = pod["metadata"], pod.get("status") or {}
    phase = _phase(status)
    ended = _ended(status.get("containerStatuses") or ())
    return PodView(
        name=metadata["name"],
        role=_role(metadata.get("labels") or {}),
        index=(metadata.get("annotations") or {}).get(names.ANNOTATION_COMPLETION_INDEX, metadata["name"]),
        node=pod["spec"].get("nodeName") or "",
        phase=phase,
        ready=_condition(status, "Ready").get("status") == "True",
        created=metadata.get("creationTimestamp", ""),
        finished=_finished(status),
        waiting=_waiting(status) if phase in {"Pending", "Running"} else None,
        failure=_failure(status) if phase == "Failed" else None,
        disruption=_disruption(status),
        exit_codes={name: code for name, code in _ended(_containers(status)).items() if code},
        ended=ended,
        program_failure=_failure(status) if phase == "Running" and any(ended.values()) else None,
        going=bool(metadata.get("deletionTimestamp")),
        uid=metadata.get("uid", ""),
        scheduler=str(pod["spec"].get("schedulerName") or ""),
        scheduled=scheduled_at(pod),
    )


def scheduled_at(pod: Object) -> str:
    """When the scheduler of a pod last decided about it; empty before that."""
    return str(_condition(pod.get("status") or {}, "PodScheduled").get("lastTransitionTime") or "")


def newest(pods: Iterable[PodView]) -> list[PodView]:
    """The newest pod of each index of each role: the others were replaced. In the order of roles and indexes."""
    by_index: dict[tuple[Role, str], PodView] = {}
    for pod in pods:
        earlier = by_index.get((pod.role, pod.index))
        if earlier is None or (earlier.created, earlier.name) < (pod.created, pod.name):
            by_index[pod.role, pod.index] = pod
    return sorted(by_index.values(), key=lambda pod: (ROLES.index(pod.role), len(pod.index), pod.index))


def problem_of(pods: Sequence[PodView]) -> tuple[PodView, PodProblem, int] | None:
    """The first pod that something holds up, what it is, and how many pods have the same reason."""
    held = [(pod, pod.waiting) for pod in pods if pod.waiting is not None and not pod.ready]
    if not held:
        return None
    pod, problem = held[0]
    return pod, problem, sum(cause.reason == problem.reason for _, cause in held)


def quoted(text: object) -> str:
    """A message of somebody else on one line, shortened."""
    words = " ".join(str(text or "").split())
    return words if len(words) <= QUOTE_LIMIT else words[: QUOTE_LIMIT - 1] + "…"


def quoted_from_kubelet(text: object) -> str:
    """The same of what the kubelet says, who repeats what runtimes and drivers answered to its calls."""
    return quoted(without_rpc_words(str(text or "")))


def _phase(status: Mapping[str, Any]) -> str:
    phase = str(status.get("phase") or "Pending")
    ended = [
        (container.get("state") or {}).get("terminated")
        for container in status.get("containerStatuses") or ()
    ]
    well = bool(ended) and all(state is not None and state.get("exitCode") == 0 for state in ended)
    return "Succeeded" if phase == "Running" and well else phase


def _role(labels: Mapping[str, str]) -> Role:
    label = labels.get(names.LABEL_ROLE, "")
    return next((role for role in ROLES if role.lower() == label), "Worker")


def _condition(status: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    return next(
        (condition for condition in status.get("conditions") or () if condition.get("type") == type_), {}
    )


def _containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _waiting(status: Mapping[str, Any]) -> PodProblem | None:
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        message = str(scheduled.get("message") or "")
        reason = VOLUME_NOT_BOUND if _UNBOUND in message else str(scheduled.get("reason") or UNSCHEDULABLE)
        return PodProblem(reason=reason, message=quoted_from_kubelet(message))
    for container in _containers(status):
        waits = (container.get("state") or {}).get("waiting") or {}
        reason = str(waits.get("reason") or "")
        if reason not in WAITING_AS_USUAL:
            return PodProblem(
                reason=reason,
                message=quoted_from_kubelet(waits.get("message")),
                container=str(container.get("name", "")),
            )
    return None


def _disruption(status: Mapping[str, Any]) -> str:
    condition = _condition(status, "DisruptionTarget")
    return str(condition.get("reason") or "DisruptionTarget") if condition.get("status") == "True" else ""


def _ended(containers: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The exit codes of those that have ended, by name."""
    states = {
        str(container.get("name", "")): (container.get("state") or {}).get("terminated")
        for container in containers
    }
    return {name: int(state.get("exitCode") or 0) for name, state in states.items() if state}


def _failure(status: Mapping[str, Any]) -> PodProblem:
    if (container := _first_failed(status)) is not None:
        ended = _end(container)
        text = f"container {container.get('name', '')} ended with exit code {ended['exitCode']}"
        ending = quoted(ended.get("message"))
        return PodProblem(
            reason=str(ended.get("reason") or "Error"),
            message=f"{text}: {ending}" if ending else text,
            code=ended["exitCode"],
            container=str(container.get("name", "")),
        )
    return PodProblem(
        reason=str(status.get("reason") or "Failed"), message=quoted_from_kubelet(status.get("message"))
    )


def _first_failed(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The container by which a pod failed: of those of the program the one that failed first, as the others are ended
    or fail by it. One of those that are started before them only where the program never failed: a sidecar among them
    is ended with the pod, and often by force."""
    for containers in (status.get("containerStatuses"), status.get("initContainerStatuses")):
        failed: list[Mapping[str, Any]] = [
            container for container in containers or () if _end(container).get("exitCode")
        ]
        if failed:
            return min(failed, key=lambda container: str(_end(container).get("finishedAt") or "~"))
    return None


def _end(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """How a container ended; empty while it has not."""
    return (container.get("state") or {}).get("terminated") or {}


def _finished(status: Mapping[str, Any]) -> str:
    times = [
        str(ended["finishedAt"])
        for container in _containers(status)
        if (ended := (container.get("state") or {}).get("terminated")) and ended.get("finishedAt")
    ]
    return max(times, default="")
