"""What the gang queue needs to know of each job's spec, parsed once: its roles, what their pods take, its priority."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from tdcs.api.trainingjob import Role, RolePods, TrainingJobSpec
from tdcs.control.context import Stores
from tdcs.control.job_index import template_of
from tdcs.decide.job.node_failures import avoiding
from tdcs.decide.place.node_eligibility import signature
from tdcs.decide.queue.namespace_quota import quota_amounts
from tdcs.decide.queue.occupants import END_GRACE
from tdcs.model.kube_objects import Object
from tdcs.model.pod_resources import Amounts, pod_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDemand:
    """What of a job's spec the queue needs, parsed once for each generation, and for each choice of avoided nodes.

    Attributes:
        grace: seconds that its pods may take to end.
        template: what makes jobs alike, see `tdcs.control.job_index.template_of`.
        priority_class: the PriorityClass that it names, or its workers' template; empty: none.
    """

    generation: int
    avoided: tuple[str, ...]
    overheads: int
    spec: TrainingJobSpec
    roles: Mapping[Role, RolePods]
    signatures: Mapping[Role, str]
    requests: Mapping[Role, Amounts]
    charges: Mapping[Role, Amounts]
    grace: float
    template: str
    priority_class: str


class PodDemands:
    def __init__(self, *, stores: Stores) -> None:
        self._stores = stores
        self._demands: dict[str, PodDemand] = {}
        self._overheads = 0

    def at(self, stores: Stores) -> "PodDemands":
        """The same of a copy of the views, for a thread: what it parses is known here, too."""
        demands = PodDemands(stores=stores)
        demands._demands, demands._overheads = self._demands, self._overheads
        return demands

    def keep(self, uids: Collection[str]) -> None:
        """Forget all jobs but these, once there are many others."""
        if len(self._demands) > 2 * len(uids) + 100:
            self._demands = {uid: demand for uid, demand in list(self._demands.items()) if uid in uids}

    def clear(self) -> None:
        """What RuntimeClasses add to pods has changed: specs stay parsed."""
        self._overheads += 1

    def of(self, obj: Object) -> PodDemand | None:
        """The parsed spec of a job; None when it cannot be understood."""
        uid, generation = obj["metadata"].get("uid", ""), int(obj["metadata"].get("generation", 0))
        avoided = tuple(map(str, (obj.get("status") or {}).get("avoidedNodes") or ()))
        demand = self._demands.get(uid)
        is_same_spec = demand is not None and (demand.generation, demand.avoided) == (generation, avoided)
        if demand is None or not is_same_spec or demand.overheads != self._overheads:
            try:
                spec = (
                    demand.spec
                    if demand is not None and is_same_spec
                    else avoiding(TrainingJobSpec.model_validate(obj.get("spec")), avoided)
                )
            except (ValidationError, RecursionError):
                return None  # its own pass says what is wrong
            roles = spec.by_role()
            pods = {role: role_spec.template["spec"] for role, role_spec in roles.items()}
            demand = self._demands[uid] = PodDemand(
                generation=generation,
                avoided=avoided,
                overheads=self._overheads,
                spec=spec,
                roles=roles,
                signatures={role: signature(pod) for role, pod in pods.items()},
                requests={
                    role: pod_requests(pod, overhead=self._overhead(pod)) for role, pod in pods.items()
                },
                template=template_of(obj.get("spec")),
                priority_class=class_of(spec),
                grace=max((_grace(pod) for pod in pods.values()), default=0.0),
                charges={
                    role: quota_amounts(pod, overhead=self._overhead(pod)) for role, pod in pods.items()
                },
            )
        return demand

    def priority(self, name: str) -> int:
        """The value of a job's PriorityClass, or, without a name, of the one that is everybody's."""
        classes = self._stores.priority_classes
        if name:
            return int((classes.get(("", name)) or {}).get("value", 0))
        return max(
            (
                int(priority_class.get("value", 0))
                for priority_class in list(classes.values())
                if priority_class.get("globalDefault")
            ),
            default=0,
        )

    def may_preempt(self, name: str) -> bool:
        """Whether the PriorityClass that the job names lets it take the place of others."""
        priority_class = self._stores.priority_classes.get(("", name)) or {}
        return priority_class.get("preemptionPolicy") == "PreemptLowerPriority"

    def missing_class(self, name: str) -> str:
        """That the PriorityClass which the job names does not exist; empty when it does."""
        if not name or ("", name) in self._stores.priority_classes:
            return ""
        return f"there is no PriorityClass {name}; create it, or correct spec.scheduling.priorityClassName"

    def _overhead(self, pod: Mapping[str, object]) -> Mapping[str, object] | None:
        """What the RuntimeClass of a template adds to its pods, once the API server has made them."""
        runtime_class = self._stores.runtime_classes.get(("", str(pod.get("runtimeClassName") or ""))) or {}
        overhead: Mapping[str, object] | None = (runtime_class.get("overhead") or {}).get("podFixed")
        return overhead


def _grace(pod: Mapping[str, object]) -> float:
    grace = pod.get("terminationGracePeriodSeconds")
    return float(grace) if isinstance(grace, int) and grace >= 0 else END_GRACE


def class_of(spec: TrainingJobSpec) -> str:
    """The PriorityClass that the job names, or else its workers' template."""
    named = spec.scheduling.priority_class_name
    return named or str(spec.worker.template["spec"].get("priorityClassName") or "")
