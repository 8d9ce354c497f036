"""The scheduler of the simulation: which nodes the pods of a gang get."""

from collections.abc import Mapping, Sequence


def place_pods(
    *, pods: Sequence[int], free_gpus: Mapping[str, int], scores: Mapping[str, int]
) -> tuple[str, ...] | None:
    """The nodes of a gang's pods, in the order of `pods`; None when they do not all fit.

    The score comes first, as with the extender; among equals the fullest node, so that large free nodes stay free for
    large pods (kube-scheduler with the strategy MostAllocated).

    Args:
        pods: GPUs of each pod.
        free_gpus: GPUs that are free, by node.
        scores: the score of each node (:func:`tdcs.policy.scoring.node_scores`); a missing one is 0.
    """
    taken: dict[str, int] = {}
    chosen: dict[int, str] = {}
    for index in sorted(range(len(pods)), key=lambda index: -pods[index]):
        gpus = pods[index]
        best: tuple[int, int, str] | None = None
        for name, free in free_gpus.items():
            room = free - taken.get(name, 0) if taken else free
            if room < gpus:
                continue
            rank = (-scores.get(name, 0), room, name)
            if best is None or rank < best:
                best = rank
        if best is None:
            return None
        chosen[index] = best[2]
        taken[best[2]] = taken.get(best[2], 0) + gpus
    return tuple(chosen[index] for index in range(len(pods)))
