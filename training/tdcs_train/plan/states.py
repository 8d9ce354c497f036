"""The places where a model can be cut: sets of layers that are closed under predecessors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from tdcs_train.errors import InputError
from tdcs_train.plan.graph import Graph, pruned

MOST_STATES = 6000
"""More than this would take minutes and gigabytes: a model with that many ways to be cut has many parallel branches."""


@dataclass(frozen=True)
class States:
    """All cuts of a model. State 0 is the empty set, the last one is all layers; subsets come before supersets.

    A chain of n layers has n + 1 states, the empty one counted. Source: PipeDream (SOSP'19), section 3.2, and its
    published optimizer, which names a state by its maximal nodes.
    """

    graph: Graph
    """The pruned graph that the states are sets of, without layers that cost nothing and depend on nothing."""
    members: tuple[int, ...]
    """Each state as bits: bit n is layer n of `graph.order`."""
    seconds: NDArray[numpy.float64]
    forward_seconds: NDArray[numpy.float64]
    """Those of `seconds` that the forward takes."""
    parameter_bytes: NDArray[numpy.float64]
    activation_bytes: NDArray[numpy.float64]
    cut_bytes: NDArray[numpy.float64]
    """Bytes of the tensors that are made inside a state and used outside, each once."""
    inside: NDArray[numpy.bool_]
    """inside[k, j]: state k is a proper subset of state j."""

    def names(self, start: int, end: int) -> tuple[str, ...]:
        """The layers of state `end` that state `start` has not, in topological order."""
        bits = self.members[end] & ~self.members[start]
        return tuple(name for index, name in enumerate(self.graph.order) if bits >> index & 1)


def states_of(graph: Graph, *, together: Sequence[Sequence[str]] = ()) -> States:
    """All states of a checked graph; none of them has a part of a group that is to stay together.

    Raises:
        InputError: There are more than `MOST_STATES`, or a group names no layer of the model.
    """
    for name in (name for group in together for name in group):
        if name not in graph.layers:
            raise InputError(
                f"--together: the profile has no {name}; its layers are called as in its file, like node2"
            )
    graph = pruned(graph)
    graph = graph.without(constants(graph))
    place = {name: index for index, name in enumerate(graph.order)}
    needs = [sum(1 << place[source] for source in graph.predecessors[name]) for name in graph.order]
    uses = [sum(1 << place[target] for target in graph.successors[name]) for name in graph.order]
    groups = [sum(1 << place[name] for name in group if name in place) for group in together]
    members = tuple(
        bits for bits in _closed_sets(needs) if all(bits & group in (0, group) for group in groups)
    )
    layers = [graph.layers[name] for name in graph.order]
    member_bits = numpy.array(
        [[bits >> index & 1 for index in range(len(layers))] for bits in members], dtype=numpy.float64
    )
    crossing = numpy.array(
        [
            [bool(bits >> index & 1 and uses[index] & ~bits) for index in range(len(layers))]
            for bits in members
        ],
        dtype=numpy.float64,
    )
    output_bytes = numpy.array([layer.output_bytes for layer in layers])
    return States(
        graph=graph,
        members=members,
        seconds=member_bits @ numpy.array([layer.seconds for layer in layers]),
        forward_seconds=member_bits @ numpy.array([layer.forward_ms / 1000 for layer in layers]),
        parameter_bytes=member_bits @ numpy.array([layer.parameter_bytes for layer in layers]),
        activation_bytes=member_bits @ output_bytes,
        cut_bytes=crossing @ output_bytes,
        inside=_proper_subsets(member_bits),
    )


def constants(graph: Graph) -> set[str]:
    """Layers that cost nothing and depend on nothing that does: whichever stage uses them can make them itself."""
    names: set[str] = set()
    for name in graph.order:
        if (
            graph.layers[name].is_free
            and graph.successors[name]
            and names.issuperset(graph.predecessors[name])
        ):
            names.add(name)
    return names


def _closed_sets(needs: list[int]) -> tuple[int, ...]:
    closed = {0}
    level = {0}
    while level:
        following: set[int] = set()
        for bits in level:
            for index, need in enumerate(needs):
                if not bits >> index & 1 and need & ~bits == 0:
                    following.add(bits | 1 << index)
        closed |= following
        if len(closed) > MOST_STATES:
            raise InputError(
                f"the model can be cut in more than {MOST_STATES} ways, since many of its branches run side by side; "
                "profile coarser layers (the blocks of the model)"
            )
        level = following
    return tuple(sorted(closed, key=lambda bits: (bits.bit_count(), bits)))


def _proper_subsets(member_bits: NDArray[numpy.float64]) -> NDArray[numpy.bool_]:
    bits = member_bits.astype(numpy.float32)
    sizes = bits.sum(axis=1)
    common = bits @ bits.T
    subset: NDArray[numpy.bool_] = (common == sizes[:, None]) & (sizes[:, None] < sizes[None, :])
    return subset
