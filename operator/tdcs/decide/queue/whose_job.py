"""Who decides about a TrainingJob: the own queue, or Kueue."""

from tdcs.api import names
from tdcs.model.kube_objects import Object


def local_queue(job: Object, *, kueue: bool) -> str:
    """The LocalQueue by which Kueue decides about a job; empty: the own queue decides.

    Args:
        job: as the API server has it, however wrong its spec may be.
        kueue: whether the operator follows Kueue at all.
    """
    labels = job["metadata"].get("labels") or {}
    return str(labels.get(names.KUEUE_QUEUE) or "") if kueue else ""
