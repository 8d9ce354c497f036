"""The published order of a pipeline's worker, written down without registers: what traced orders are compared with."""

from collections.abc import Sequence

from tdcs_train.pipeline.order import Act


def one_forward_one_backward(batches: Sequence[int], *, warm_up: int) -> list[Act]:
    """The warm-up's forwards, a forward and a backward in turn, the warm-up's backwards (PipeDream, section 3.2)."""
    forwards = [Act("forward", batch) for batch in batches]
    backwards = [Act("backward", batch) for batch in batches]
    order, later_forwards = forwards[:warm_up], forwards[warm_up:]
    for forward in later_forwards:
        order += [forward, backwards.pop(0)]
    return order + backwards
