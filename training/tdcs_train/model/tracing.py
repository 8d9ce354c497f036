"""A model as a graph of layers, by symbolic tracing (torch.fx).

A layer is a module that torch.fx does not look into (all of torch.nn, and what the user names as a leaf) or an
operator that a forward method calls itself. Layers are numbered in the order of the graph, so that the same model gives
the same numbers on every machine: layer K is `nodeK` of a profile file.
"""

import inspect
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import fx, nn

from tdcs_train.model.errors import ModelError

LAYER_OPERATIONS = frozenset({"placeholder", "call_module", "call_function", "call_method"})


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A node of the graph. `id` is its name in a profile, `name` in the graph; `inputs` are ids."""

    id: str
    name: str
    description: str
    inputs: tuple[str, ...]
    parameters: tuple[str, ...]
    """Names of the parameters that it uses, as the model has them."""


@dataclass(frozen=True, kw_only=True)
class TracedModel:
    """A model, its graph, and the layers of the graph in an order in which they can run."""

    graph_module: fx.GraphModule
    layers: tuple[Layer, ...]

    @property
    def names(self) -> dict[str, str]:
        """The id of each layer by its name in the graph."""
        return {layer.name: layer.id for layer in self.layers}


def trace(
    model: nn.Module, *, inputs: int = 1, leaves: Sequence[str] = (), layers: Sequence[str] = ()
) -> TracedModel:
    """The graph of a model.

    `inputs` is the number of arguments of its forward method that are data; others keep their defaults. `leaves` are
    names of modules to leave whole. `layers` names modules that run one after another, each on the output of the one
    before: then nothing is traced.

    Raises ModelError with the line of a forward method that cannot be traced, or for a name that the model lacks.
    """
    known = dict(model.named_modules())
    for option, names in (("leaf", leaves), ("layer", layers)):
        if missing := [name for name in names if name not in known or not name]:
            raise ModelError(
                f"{_title(model)} has no {option} {missing[0]!r}; its modules: {', '.join(filter(None, known))}"
            )
    graph = _chain(layers) if layers else _traced(model, inputs=inputs, leaves=leaves)
    graph_module = fx.GraphModule(model, graph)
    return TracedModel(graph_module=graph_module, layers=_layers(graph_module))


def describe(node: fx.Node, module: fx.GraphModule) -> str:
    """What a layer is, in one line without the separator of profile files."""
    if node.op == "call_module":
        text = repr(module.get_submodule(str(node.target)))
    elif node.op == "call_function":
        text = getattr(node.target, "__name__", str(node.target))
    else:
        text = str(node.target)
    return " ".join(text.split()).replace(" -- ", " - ")


def parameter_names(node: fx.Node, module: fx.GraphModule) -> tuple[str, ...]:
    """The parameters that a layer uses: those of its module, and those that its arguments name."""
    names = [str(read.target) for read in node.all_input_nodes if read.op == "get_attr"]
    names = [name for name in names if isinstance(attribute(module, name), nn.Parameter)]
    if node.op == "call_module":
        target = str(node.target)
        own = module.get_submodule(target).named_parameters()
        names += [f"{target}.{name}" for name, _ in own]
    return tuple(dict.fromkeys(names))


def attribute(module: nn.Module, path: str) -> object:
    """The attribute of a module, or of one inside it, that a dotted path names."""
    owner, _, name = path.rpartition(".")
    return getattr(module.get_submodule(owner), name)


class _Tracer(fx.Tracer):
    """Leaves the modules whole that the user names."""

    def __init__(self, leaves: Sequence[str]) -> None:
        super().__init__()
        self._leaves = frozenset(leaves)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        whole: bool = super().is_leaf_module(m, module_qualified_name)
        return whole or module_qualified_name in self._leaves


def _traced(model: nn.Module, *, inputs: int, leaves: Sequence[str]) -> fx.Graph:
    parameters = list(inspect.signature(model.forward).parameters.values())
    fixed = {p.name: p.default for p in parameters[inputs:] if p.default is not inspect.Parameter.empty}
    try:
        graph = _Tracer(leaves).trace(model, concrete_args=fixed or None)
    except Exception as error:  # forward methods raise anything when they are given proxies
        raise ModelError(_untraceable(model, error)) from error
    for node in list(graph.nodes):  # arguments with fixed values remain as inputs that nothing reads
        if node.op == "placeholder" and not node.users and str(node.target).split("_")[0] in fixed:
            graph.erase_node(node)
    return graph


def _untraceable(model: nn.Module, error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    inside = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
    own = [frame for frame in frames if not frame.filename.startswith(inside)]
    where = f" at {own[-1].filename}, line {own[-1].lineno}: `{own[-1].line}`" if own else ""
    children = [name for name, module in model.named_modules() if name and not list(module.children())]
    return (
        f"{_title(model)} cannot be traced{where}: {str(error).splitlines()[0]}. Leave the module with this line "
        f"whole (--leaf NAME), or, where each layer runs on the output of the one before, list them "
        f"(--layers {','.join(children)})"
    )


def _title(model: nn.Module) -> str:
    return f"the model {type(model).__name__}"


def _chain(names: Sequence[str]) -> fx.Graph:
    graph = fx.Graph()
    value = graph.placeholder("input")
    for name in names:
        value = graph.call_module(name, (value,))
    graph.output(value)
    return graph


def _layers(module: fx.GraphModule) -> tuple[Layer, ...]:
    nodes = [node for node in module.graph.nodes if node.op in LAYER_OPERATIONS]
    ids = {node: f"node{number}" for number, node in enumerate(nodes, start=1)}
    inputs = [node for node in nodes if node.op == "placeholder"]
    return tuple(
        Layer(
            id=ids[node],
            name=node.name,
            description=f"Input{inputs.index(node)}" if node.op == "placeholder" else describe(node, module),
            inputs=tuple(ids[source] for source in node.all_input_nodes if source in ids),
            parameters=parameter_names(node, module),
        )
        for node in nodes
    )
