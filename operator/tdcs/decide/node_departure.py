"""Whether a node is about to go, by what autoscalers, clouds and the kubelet write to it beforehand."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

NOTICES: Final = (
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",  # of Karpenter before 1.0
    "cloud.google.com/impending-node-termination",
    "node.kubernetes.io/out-of-service",
)
"""Keys of taints that say that a node will be removed: by the cluster autoscaler, by Karpenter, by the cloud that takes
a spot machine back, or by an administrator who has seen it dead. `DeletionCandidateOfClusterAutoscaler` is none: it is
set long before, and most often taken back."""

NOTICE_GROUPS: Final = ("aws-node-termination-handler/",)
"""Beginnings of such keys: spot-itn, asg-lifecycle-termination, scheduled-maintenance, rebalance-recommendation."""

_SHUTTING_DOWN: Final = "node is shutting down"
"""What the kubelet's graceful node shutdown says in the condition Ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A node will go.

    Attributes:
        why: in words, as the end of a sentence.
        may_return: whether the same node may be back soon, with its disk: it shuts down, and a restart does that, too.
    """

    why: str
    may_return: bool = False


def departure(node: Mapping[str, Any]) -> Departure | None:
    """Why a node is about to leave; None when it is not. A cordon alone does not count."""
    if node["metadata"].get("deletionTimestamp"):
        return Departure(why="the node is being deleted")
    for taint in (node.get("spec") or {}).get("taints") or ():
        key = str(taint.get("key", ""))
        if taint.get("effect") != "PreferNoSchedule" and (key in NOTICES or key.startswith(NOTICE_GROUPS)):
            return Departure(why=f"the node goes (taint {key})")
    for condition in (node.get("status") or {}).get("conditions") or ():
        message = str(condition.get("message", ""))
        if (
            condition.get("type") == "Ready"
            and condition.get("status") != "True"
            and _SHUTTING_DOWN in message
        ):
            return Departure(why="the node shuts down", may_return=True)
    return None


def may_cache(node: Mapping[str, Any], *, answers: bool) -> bool:
    """Whether a node is one to have a cache worker, as far as it is not about to go.

    Args:
        answers: whether a worker answers there. One that shuts down hands its data over as long as it does; after that
            the node counts as one that restarts, whose data is waited for.
    """
    leaves = departure(node)
    return leaves is None or (leaves.may_return and not answers)
