"""What the pods of the whole cluster take of each node, kept up to date pod by pod.

Only what counts is kept of a pod, because a large cluster has a hundred thousand of them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tdcs.api import names
from tdcs.controllers.resources import Amounts, added, pod_requests
from tdcs.kube.api import Object
from tdcs.kube.objects import UNENDED_PODS, Key

BOUND_AND_UNENDED = f"spec.nodeName!=,{UNENDED_PODS}"
"""Field selector of the pods that hold resources of a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPod:
    """A pod's place in a TrainingJob: which job, which role, which index."""

    job: Key
    role: str
    index: str


def trimmed(pod: Object) -> Object:
    """A pod with its node, what it takes there, its place in a job, and nothing else."""
    metadata = pod["metadata"]
    kept = {field: metadata[field] for field in ("name", "namespace", "resourceVersion") if field in metadata}
    found = {"metadata": kept, "node": pod["spec"].get("nodeName", ""), "takes": pod_requests(pod["spec"])}
    member = None if metadata.get("deletionTimestamp") else job_pod_of(pod)
    return found if member is None else {**found, "member": member}


def job_pod_of(pod: Object) -> JobPod | None:
    """The place of a pod in a TrainingJob; None when it belongs to none."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    job = labels.get(names.LABEL_TRAINING_JOB)
    if not job:
        return None
    index = (metadata.get("annotations") or {}).get(names.ANNOTATION_COMPLETION_INDEX, metadata["name"])
    return JobPod(
        job=(metadata.get("namespace", ""), job), role=labels.get(names.LABEL_ROLE, ""), index=index
    )


class Usage:
    """The sum of requests by node.

    Args:
        on_change: called when a sum has changed.
    """

    def __init__(self, *, on_change: Callable[[], None] = lambda: None) -> None:
        self._pods: dict[Key, tuple[str, Amounts]] = {}
        self._nodes: dict[str, dict[str, int]] = {}
        self._members: dict[Key, JobPod] = {}
        self._on_change = on_change

    def taken(self, node: str) -> Mapping[str, int]:
        """What the pods of a node take of it."""
        return self._nodes.get(node, {})

    def members(self) -> Iterator[JobPod]:
        """The pods of TrainingJobs that have a node; one that is being deleted is none any more."""
        yield from self._members.values()

    def seen(self, key: Key, pod: Object | None) -> None:
        """Take in a trimmed pod; None means that it has ended, or is gone."""
        before, member = self._pods.pop(key, None), self._members.pop(key, None)
        after = None if pod is None or not pod["node"] else (pod["node"], pod["takes"])
        if pod is not None and after is not None:
            self._pods[key] = after
            if "member" in pod:
                self._members[key] = pod["member"]
        if (before, member) == (after, self._members.get(key)):
            return
        if before is not None:
            self._add(before[0], {name: -value for name, value in before[1].items()})
        if after is not None:
            self._add(*after)
        self._on_change()

    def _add(self, node: str, amounts: Amounts) -> None:
        total = {name: value for name, value in added((self._nodes.get(node, {}), amounts)).items() if value}
        if total:
            self._nodes[node] = total
        else:
            self._nodes.pop(node, None)
