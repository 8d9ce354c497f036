"""What the gang queue needs to know of each job's spec, parsed once: its roles, what their pods take, its priority."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from tdcs.api.trainingjob import Role, TrainingJobSpec
from tdcs.control.context import Stores
from tdcs.decide.job.node_failures import avoiding
from tdcs.decide.queue.namespace_quota import quota_amounts
from tdcs.model.kube_objects import Object
from tdcs.model.pod_resources import Amounts, pod_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDemand:
    """What of a job's spec the queue needs, parsed once for each generation, and for each choice of avoided nodes."""

    generation: int
    avoided: tuple[str, ...]
    spec: TrainingJobSpec
    requests: Mapping[Role, Amounts]
    charges: Mapping[Role, Amounts]


class PodDemands:
    def __init__(self, *, stores: Stores) -> None:
        self._stores = stores
        self._known: dict[str, PodDemand] = {}

    def clear(self) -> None:
        """What RuntimeClasses add to pods has changed."""
        self._known.clear()

    def of(self, obj: Object) -> PodDemand | None:
        """The parsed spec of a job; None when it cannot be understood."""
        uid, generation = obj["metadata"].get("uid", ""), int(obj["metadata"].get("generation", 0))
        avoided = tuple(map(str, (obj.get("status") or {}).get("avoidedNodes") or ()))
        known = self._known.get(uid)
        if known is None or (known.generation, known.avoided) != (generation, avoided):
            try:
                spec = avoiding(TrainingJobSpec.model_validate(obj.get("spec")), avoided)
            except (ValidationError, RecursionError):
                return None  # its own pass says what is wrong
            pods = {role: each.template["spec"] for role, each in spec.by_role().items()}
            known = self._known[uid] = PodDemand(
                generation=generation,
                avoided=avoided,
                spec=spec,
                requests={
                    role: pod_requests(pod, overhead=self._overhead(pod)) for role, pod in pods.items()
                },
                charges={
                    role: quota_amounts(pod, overhead=self._overhead(pod)) for role, pod in pods.items()
                },
            )
            if len(self._known) > 2 * len(self._stores.training_jobs) + 100:
                kept = {each["metadata"].get("uid") for each in self._stores.training_jobs.values()} | {uid}
                self._known = {each: demand for each, demand in self._known.items() if each in kept}
        return known

    def priority(self, spec: TrainingJobSpec) -> int:
        """The value of the job's PriorityClass, or of the one that is everybody's."""
        classes = self._stores.priority_classes
        name = class_of(spec)
        if name:
            return int((classes.get(("", name)) or {}).get("value", 0))
        return max(
            (int(each.get("value", 0)) for each in classes.values() if each.get("globalDefault")), default=0
        )

    def missing_class(self, spec: TrainingJobSpec) -> str:
        """That the PriorityClass which the job names does not exist; empty when it does."""
        name = class_of(spec)
        if not name or ("", name) in self._stores.priority_classes:
            return ""
        return f"there is no PriorityClass {name}; create it, or correct spec.scheduling.priorityClassName"

    def _overhead(self, pod: Mapping[str, object]) -> Mapping[str, object] | None:
        """What the RuntimeClass of a template adds to its pods, once the API server has made them."""
        found = self._stores.runtime_classes.get(("", str(pod.get("runtimeClassName") or ""))) or {}
        overhead: Mapping[str, object] | None = (found.get("overhead") or {}).get("podFixed")
        return overhead


def class_of(spec: TrainingJobSpec) -> str:
    """The PriorityClass that the job names, or else its workers' template."""
    named = spec.scheduling.priority_class_name
    return named or str(spec.worker.template["spec"].get("priorityClassName") or "")
