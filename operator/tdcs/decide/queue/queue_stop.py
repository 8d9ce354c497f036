"""Whether the jobs of a namespace may start: its queue may be paused, and its running jobs be suspended with that.

The words are those of Kueue (`stopPolicy` of a LocalQueue); they stand in an annotation of the Namespace, which the
owner of the cluster writes, or whoever may change the namespace.
"""

from collections.abc import Mapping
from enum import StrEnum

from tdcs.api import names
from tdcs.decide.queue.pod_admission import Reason
from tdcs.model.kube_objects import Key, Object


class StopPolicy(StrEnum):
    """What becomes of the jobs of a namespace."""

    NONE = "None"
    """They start in their turn."""
    HOLD = "Hold"
    """None starts; those that run go on."""
    DRAIN = "HoldAndDrain"
    """None starts, and those that run are suspended and queue again."""


def stop_policy(namespaces: Mapping[Key, Object], namespace: str) -> StopPolicy:
    """What the annotation of a namespace says. A word that is none of these holds jobs back: somebody wanted to stop
    something, and a job that starts cannot be taken back."""
    namespace_object = namespaces.get(("", namespace)) or {"metadata": {}}
    text = (namespace_object["metadata"].get("annotations") or {}).get(names.ANNOTATION_QUEUE_STOP)
    if text is None or text == StopPolicy.NONE:
        return StopPolicy.NONE
    return StopPolicy.DRAIN if text == StopPolicy.DRAIN else StopPolicy.HOLD


def stopped(namespace: str, *, drained: bool = False) -> tuple[Reason, str]:
    """Why a job of a paused namespace does not start; `drained`: it ran, and was suspended for it."""
    ended = "its pods were ended and it queues again with its age: " if drained else ""
    return Reason.STOPPED, (
        f"{ended}the queue of namespace {namespace} is paused (annotation {names.ANNOTATION_QUEUE_STOP}); "
        f"tdcs queue resume --all -n {namespace} lets jobs start"
    )
