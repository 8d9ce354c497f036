"""A profiled model as a graph of layers."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import networkx

from tdcs_train.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One operator of a model, with what it costs for one mini-batch."""

    name: str
    description: str
    forward_ms: float
    backward_ms: float
    activation_bytes: tuple[float, ...]
    """Bytes of each tensor that the operator makes."""
    parameter_bytes: float
    stage: int | None = None
    """The pipeline stage that a plan has put it in."""

    @property
    def seconds(self) -> float:
        """Forward and backward."""
        return (self.forward_ms + self.backward_ms) / 1000

    @property
    def output_bytes(self) -> float:
        """All tensors that it makes together."""
        return math.fsum(self.activation_bytes)

    @property
    def is_input(self) -> bool:
        """Whether it stands for data that enters the model."""
        return self.description.startswith("Input")

    @property
    def is_free(self) -> bool:
        """Whether it costs nothing: no time, no parameters, no bytes, as constants are."""
        return not (self.seconds or self.output_bytes or self.parameter_bytes)


@dataclass(frozen=True)
class InputShape:
    """An input of the model as it was profiled: name, type (as PyTorch calls it) and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]


_INPUT = re.compile(r"Input\d+ (\w+) (\w+)\[([\d,]*)\]")


@dataclass(frozen=True)
class Graph:
    """Layers by name, and edges (producer, consumer) between them."""

    layers: Mapping[str, Layer]
    edges: tuple[tuple[str, str], ...]

    @cached_property
    def successors(self) -> Mapping[str, tuple[str, ...]]:
        """The layers that use what a layer makes."""
        consumers: dict[str, list[str]] = {name: [] for name in self.layers}
        for producer, consumer in self.edges:
            consumers[producer].append(consumer)
        return {name: tuple(dict.fromkeys(names)) for name, names in consumers.items()}

    @cached_property
    def predecessors(self) -> Mapping[str, tuple[str, ...]]:
        """The layers that make what a layer uses."""
        producers: dict[str, list[str]] = {name: [] for name in self.layers}
        for producer, consumer in self.edges:
            producers[consumer].append(producer)
        return {name: tuple(dict.fromkeys(names)) for name, names in producers.items()}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The names in a topological order; the order of the layers decides where several are possible."""
        place = {name: index for index, name in enumerate(self.layers)}
        graph = networkx.DiGraph()
        graph.add_nodes_from(self.layers)
        graph.add_edges_from(self.edges)
        return tuple(networkx.lexicographical_topological_sort(graph, key=place.__getitem__))

    @property
    def inputs(self) -> tuple[InputShape, ...]:
        """The model's inputs in their order; empty for a profile that does not say them, as published ones."""
        matches = [_INPUT.match(layer.description) for layer in self.layers.values() if layer.is_input]
        if not all(matches):
            return ()
        return tuple(
            InputShape(match[1], match[2], tuple(int(size) for size in match[3].split(",") if size))
            for match in matches
            if match
        )

    @property
    def seconds(self) -> float:
        """Forward and backward of all layers but the inputs, on one worker."""
        return math.fsum(layer.seconds for layer in self.layers.values() if not layer.is_input)

    @property
    def parameter_bytes(self) -> float:
        """The parameters of all layers."""
        return math.fsum(layer.parameter_bytes for layer in self.layers.values())

    def without(self, names: set[str]) -> "Graph":
        """The graph without some layers and their edges."""
        return Graph(
            {name: layer for name, layer in self.layers.items() if name not in names},
            tuple(edge for edge in self.edges if not names.intersection(edge)),
        )


def check(graph: Graph, *, source: str) -> None:
    """Refuse a graph that cannot be planned.

    Raises:
        InputError: An edge names an unknown layer, a cycle, two outputs, no parameters, or a layer that does work
            and has no input. `source` is named in the message.
    """
    for edge in graph.edges:
        for name in edge:
            if name not in graph.layers:
                text = " -- ".join(edge)
                raise InputError(
                    f"{source}: the edge {text} names {name}, which is no node; add the node or drop the edge"
                )
    directed = networkx.DiGraph(graph.edges)
    if not networkx.is_directed_acyclic_graph(directed):
        cycle = [start for start, _ in networkx.find_cycle(directed)]
        raise InputError(f"{source}: the nodes {', '.join(cycle)} form a cycle; a model must be acyclic")
    if not graph.parameter_bytes:
        raise InputError(f"{source}: no node has parameters (parameter_size); there is nothing to train")
    for name, layer in graph.layers.items():
        if not graph.predecessors[name] and not layer.is_input and not layer.is_free:
            raise InputError(
                f"{source}: {name} ({layer.description}) has no edge that leads to it and is no Input; "
                "add the edge, or a node whose description begins with Input"
            )
    outputs = [name for name in pruned(graph).layers if not pruned(graph).successors[name]]
    if len(outputs) != 1:
        raise InputError(
            f"{source}: {len(outputs)} nodes have no successor ({', '.join(outputs) or 'none'}); "
            "a model has one output: add a node that costs nothing, with an edge from each of them"
        )


def pruned(graph: Graph) -> Graph:
    """The layers that a pipeline is cut from: without inputs, and without `__getitem__` that nothing uses.

    Source: PipeDream (SOSP'19), the published optimizer.
    """
    names = {name for name, layer in graph.layers.items() if layer.is_input}
    while True:
        unused = {
            name
            for name, layer in graph.layers.items()
            if name not in names
            and layer.description.startswith("__getitem__")
            and names.issuperset(graph.successors[name])
        }
        if not unused:
            return graph.without(names)
        names |= unused
