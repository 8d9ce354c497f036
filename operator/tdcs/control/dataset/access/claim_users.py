"""Which pods keep a claim, in words."""

from collections.abc import Iterable, Mapping
from typing import Any

from tdcs.api import names
from tdcs.model.humanize import counted
from tdcs.model.kube_objects import Object

NAMED = 3
"""Users of a claim that are named; the others are counted."""

ON_A_NODE = "spec.nodeName!="
"""Field selector of the pods that keep a claim: one without a node does not."""

DATA_KEPT = "the cached data is kept for them"
READS_GO_ON = "they read on, new versions too, for as long as another Dataset has this mount"
READS_FAIL = "what they read through the cache fails"
"""What becomes of the pods that keep a claim."""

ENDED = frozenset({"Succeeded", "Failed"})


def user_of(pod: Object) -> Object:
    """What counts of a pod here: its name, its job, its claims, and whether it has ended."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    return {
        "metadata": {"name": metadata["name"], "namespace": metadata.get("namespace", "")},
        "job": (metadata.get("labels") or {}).get(names.LABEL_TRAINING_JOB, ""),
        "claims": [_claim(volume) for volume in spec.get("volumes") or ()] if spec.get("nodeName") else [],
        "ended": (pod.get("status") or {}).get("phase") in ENDED,
    }


def why_kept(claim: Object, *, users: str, meanwhile: str) -> str:
    """Who keeps a claim that is being deleted, and what to do.

    Args:
        claim: the claim.
        users: its pods, as `in_words` gives them.
        meanwhile: what becomes of them.
    """
    namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
    if users:
        return (
            f"the claim {namespace}/{name} is still used by {users}; {meanwhile}: end these pods, or delete "
            "their TrainingJobs"
        )
    finalizers = ", ".join(claim["metadata"].get("finalizers") or ()) or "none"
    return (
        f"the claim {namespace}/{name} is being deleted, no pod with a node names it, and it is still there "
        f"(finalizers: {finalizers}): if that lasts, see kubectl describe pvc -n {namespace} {name}"
    )


def only_ended(users: Iterable[Object], *, namespace: str, claim: str) -> bool:
    """Whether pods name a claim, and all of them have ended."""
    mine = _of_claim(users, namespace=namespace, claim=claim)
    return bool(mine) and all(user["ended"] for user in mine)


def in_words(users: Iterable[Object], *, namespace: str, claim: str) -> str:
    """Who keeps a claim: ``2 pods: TrainingJob train (pod train-worker-0-x) and pod reader``; empty without a user that
    has not ended. Each TrainingJob is named once, with one of its pods.
    """
    mine = sorted(
        (user for user in _of_claim(users, namespace=namespace, claim=claim) if not user["ended"]),
        key=lambda user: str(user["metadata"]["name"]),
    )
    if not mine:
        return ""
    by_owner: dict[str, list[Object]] = {}
    for user in mine:
        by_owner.setdefault(user["job"] or f"/{user['metadata']['name']}", []).append(user)
    named = list(by_owner.values())[:NAMED]
    texts = [_described(pods) for pods in named]
    more = len(mine) - sum(map(len, named))
    if more:
        texts.append(f"{more} more")
    listed = texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
    return f"{counted(len(mine), 'pod')}: {listed}"


def _described(pods: list[Object]) -> str:
    first = pods[0]
    if not first["job"]:
        return f"pod {first['metadata']['name']}"
    more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
    return f"TrainingJob {first['job']} (pod {first['metadata']['name']}{more})"


def _of_claim(users: Iterable[Object], *, namespace: str, claim: str) -> list[Object]:
    return [user for user in users if user["metadata"]["namespace"] == namespace and claim in user["claims"]]


def _claim(volume: Mapping[str, Any]) -> str:
    return str((volume.get("persistentVolumeClaim") or {}).get("claimName", ""))
