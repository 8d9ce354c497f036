"""The places where a model can be cut: sets of layers that are closed under predecessors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from tdcs_train.errors import InputError
from tdcs_train.plan.graph import Graph, pruned

MOST_STATES = 2000
"""More would take minutes and gigabytes. Where many branches run side by side, only some cuts are looked at."""


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


def states_of(
    graph: Graph, *, together: Sequence[Sequence[str]] = (), note: Callable[[str], None] = lambda _: None
) -> States:
    """The states of a checked graph, at most `MOST_STATES`; none has a part of a group that is to stay together.

    `note` is called with what a user should know: layers of which not every cut is looked at.

    Raises:
        InputError: The model has more layers than that, or a group names no layer of the model.
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
        bits for bits in _closed_sets(needs, note) if all(bits & group in (0, group) for group in groups)
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


def _closed_sets(needs: list[int], note: Callable[[str], None]) -> tuple[int, ...]:
    """The sets of layers that are closed under predecessors; `needs` are the predecessors of each, as bits.

    A layer that all others lead to or come from parts them: what is before it is whole in every set that has it. Where
    the parts have too many sets together, those with the most are cut only in the order of their layers.
    """
    parts = _parts(needs)
    sets = [_closed_sets_of(part, needs) for part in parts]
    ordered = [
        [sum(1 << index for index in part[:count]) for count in range(1, len(part) + 1)] for part in parts
    ]
    chosen = [ordered[number] if each is None else each for number, each in enumerate(sets)]
    while (total := sum(map(len, chosen))) > MOST_STATES:
        number = max(range(len(parts)), key=lambda number: len(chosen[number]) - len(ordered[number]))
        if len(chosen[number]) == len(ordered[number]):
            raise InputError(
                f"the model can be cut in {total} ways, more than {MOST_STATES}, even in the order of its layers; "
                "profile coarser layers (the blocks of the model)"
            )
        chosen[number] = ordered[number]
    if restricted := sum(
        len(part)
        for part, each, order, full in zip(parts, chosen, ordered, sets, strict=True)
        if each is order and (full is None or len(full) > len(order))
    ):
        note(
            f"{restricted} of {len(needs)} layers, many side by side, can be cut in too many ways: the plan cuts them "
            "only in the order in which the model calls them; profile coarser layers (the blocks of the model) for all"
        )
    closed, before = [0], 0
    for part, each in zip(parts, chosen, strict=True):
        closed += [before | bits for bits in each]
        before |= sum(1 << index for index in part)
    return tuple(sorted(closed, key=lambda bits: (bits.bit_count(), bits)))


def _parts(needs: list[int]) -> list[list[int]]:
    """The layers in their order, divided behind each that all others lead to or come from."""
    before: list[int] = []
    for need in needs:
        before.append(need)
        for index in range(len(before) - 1):
            if need >> index & 1:
                before[-1] |= before[index]
    after = [0] * len(needs)
    for index, bits in enumerate(before):
        for earlier in range(index):
            after[earlier] |= (bits >> earlier & 1) << index
    parts: list[list[int]] = [[]]
    for index in range(len(needs)):
        parts[-1].append(index)
        if (before[index] | after[index]).bit_count() == len(needs) - 1:
            parts.append([])
    return [part for part in parts if part]


def _closed_sets_of(part: list[int], needs: list[int]) -> list[int] | None:
    """Those of a part but the empty one, without what is before the part; None where there are too many."""
    inside = sum(1 << index for index in part)
    closed: set[int] = set()
    level = {0}
    while level:
        level = {
            bits | 1 << index
            for bits in level
            for index in part
            if not bits >> index & 1 and needs[index] & inside & ~bits == 0
        }
        closed |= level
        if len(closed) > MOST_STATES:
            return None
    return list(closed)


def _proper_subsets(member_bits: NDArray[numpy.float64]) -> NDArray[numpy.bool_]:
    bits = member_bits.astype(numpy.float32)
    sizes = bits.sum(axis=1)
    common = bits @ bits.T
    subset: NDArray[numpy.bool_] = (common == sizes[:, None]) & (sizes[:, None] < sizes[None, :])
    return subset
