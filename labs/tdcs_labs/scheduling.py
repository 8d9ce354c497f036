"""The scheduler of the simulation: which nodes the pods of a gang get."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tdcs.decide.place.node_score import without_left_nodes

NOTHING_LEFT: Final[Mapping[int, Collection[str]]] = MappingProxyType({})


def place_pods(
    *,
    pods: Sequence[int],
    free_gpus: Mapping[str, int],
    scores: Mapping[str, int],
    leave: Mapping[int, Collection[str]] = NOTHING_LEFT,
) -> tuple[str, ...] | None:
    """The nodes of a gang's pods, in the order of `pods`; None when they do not all fit.

    The score comes first, as with the extender; among equals the fullest node, so that large free nodes stay free for
    large pods (kube-scheduler with the strategy MostAllocated).

    Args:
        pods: GPUs of each pod.
        free_gpus: GPUs that are free, by node.
        scores: the score of each node (:func:`tdcs.decide.place.node_score.node_scores`); a missing one is 0.
        leave: by the GPUs of a pod the nodes that it leaves to larger ones
            (:class:`tdcs.decide.queue.kept_nodes.NodesLeft`).
    """
    taken_gpus: dict[str, int] = {}
    chosen: dict[int, str] = {}
    for index in sorted(range(len(pods)), key=lambda index: -pods[index]):
        gpus = pods[index]
        counted = scores
        if gpus in leave:
            candidates = [name for name, free in free_gpus.items() if free - taken_gpus.get(name, 0) >= gpus]
            counted = without_left_nodes(scores, leave=leave[gpus], candidates=candidates)
        best: tuple[int, int, str] | None = None
        for name, free in free_gpus.items():
            room = free - taken_gpus.get(name, 0) if taken_gpus else free
            if room < gpus:
                continue
            rank = (-counted.get(name, 0), room, name)
            if best is None or rank < best:
                best = rank
        if best is None:
            return None
        chosen[index] = best[2]
        taken_gpus[best[2]] = taken_gpus.get(best[2], 0) + gpus
    return tuple(chosen[index] for index in range(len(pods)))
