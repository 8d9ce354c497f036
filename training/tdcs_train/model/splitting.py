"""Cutting a traced model into stages that run one after another, each with what it takes in and gives out.

A stage hands on whatever a later stage reads, also tensors that it does not touch itself (a skip connection, labels),
so that stages are joined to their neighbours only, as the planner counts it (PipeDream, SOSP'19: each tensor that
crosses a cut is counted at that cut).
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx, nn
from torch.fx.passes.split_module import split_module

from tdcs_train.model.errors import ModelError, PlanError
from tdcs_train.model.tracing import TracedModel, attribute, is_shared, parameter_names, selects

_IN_PLACE = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
}


@dataclass(frozen=True, kw_only=True)
class StagePart:
    """What one stage computes. Names are those of values in the whole model's graph."""

    module: fx.GraphModule
    takes: tuple[str, ...]
    """The arguments of the module."""
    gives: tuple[str, ...]
    """Its results."""
    arriving: tuple[str, ...]
    """All values that come from the stage before (for the first: the model's inputs)."""
    leaving: tuple[str, ...]
    """All values that go to the stage behind (for the last: the model's outputs)."""
    names: dict[str, str]
    """The name of each parameter and buffer in the whole model, by its name in the module."""


@dataclass(frozen=True, kw_only=True)
class SplitModel:
    """A model in stages."""

    parts: tuple[StagePart, ...]
    inputs: tuple[str, ...]
    input_names: tuple[str, ...]
    """The arguments of forward that the inputs are."""
    output: tuple[object, ...]
    """The values that make what the model returns: fx nodes, or constants."""
    rebuild: Callable[[Sequence[Any]], Any]
    """Makes what the model returns from these values."""


def split(traced: TracedModel, stages: Sequence[Sequence[str]]) -> SplitModel:
    """The model in stages; each stage is given by the ids of its layers.

    Inputs may be left out (they enter at the first stage), and so may operators that nothing uses.

    Raises PlanError for a plan of another model, an edge that leads back or a shared parameter cut in two, and
    ModelError for a layer that would change a value of another stage in place.
    """
    places = _places(traced, stages)
    _refuse_cut_parameters(traced, places)
    copied, copies = _by_stage(traced.graph_module.graph, places)
    graph_module = fx.GraphModule(traced.graph_module, copied)
    _keep_apart(graph_module)
    place_of = {copies[node].name: places[node.name] for node in copies if node.name in places}
    whole = split_module(
        graph_module, traced.graph_module, lambda node: place_of[node.name], keep_original_order=True
    )
    return _joined(traced, whole, count=len(stages))


def _keep_apart(module: fx.GraphModule) -> None:
    """Gives modules names of their own that split_module, which writes `a.0` as `a_0`, would take for one."""
    targets: dict[str, str] = {}
    for node in module.graph.nodes:
        if node.op != "call_module":
            continue
        target, flat = str(node.target), str(node.target).replace(".", "_")
        number = 0
        while targets.setdefault(flat, target) != target:
            number += 1
            flat = f"{target.replace('.', '_')}_apart{number}"
        if number:
            module.add_module(flat, module.get_submodule(target))
            node.target = flat
    module.recompile()


def _by_stage(graph: fx.Graph, places: Mapping[str, int]) -> tuple[fx.Graph, dict[fx.Node, fx.Node]]:
    """A copy of a graph with the nodes of a stage behind each other, and the copy of each node."""
    copied = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}

    def stage(node: fx.Node) -> float:
        if node.op == "get_attr":
            return min((places.get(user.name, 0) for user in node.users), default=0)
        return math.inf if node.op == "output" else -1 if node.op == "placeholder" else places[node.name]

    for node in sorted(graph.nodes, key=stage):
        copies[node] = copied.node_copy(node, lambda source: copies[source])
        for name in ("val", "example_value"):  # split_module looks there for sizes that are open
            copies[node].meta.pop(name, None)
    return copied, copies


def _places(traced: TracedModel, stages: Sequence[Sequence[str]]) -> dict[str, int]:
    """The stage of each node of the graph."""
    stage_of = {layer: number for number, layers in enumerate(stages) for layer in layers}
    by_id = {layer.id: layer for layer in traced.layers}
    model = type(traced.graph_module).__name__
    if unknown := [layer for layer in stage_of if layer not in by_id]:
        raise PlanError(
            f"the plan has {unknown[0]}, but the model has {len(by_id)} layers, node1 to node{len(by_id)}: it is "
            "a plan "
            "of another model; plan again with a profile of this one"
        )
    if len(stage_of) != sum(len(layers) for layers in stages):
        twice = next(name for name in stage_of if sum(list(layers).count(name) for layers in stages) > 1)
        raise PlanError(f"the plan has {twice} in two stages; a layer belongs to one")
    if empty := [number for number, layers in enumerate(stages) if not layers]:
        raise PlanError(f"stage {empty[0]} of the plan has no layers; leave it out")
    places: dict[str, int] = {}
    for node in traced.graph_module.graph.nodes:
        layer = by_id.get(traced.names.get(node.name, ""))
        if node.op in ("get_attr", "output"):
            continue
        before = [places[source.name] for source in node.all_input_nodes if source.name in places]
        if node.op == "placeholder":
            places[node.name] = 0
        elif selects(node) and before:
            places[node.name] = before[0]  # a part of a tuple stays where the tuple is: tuples do not travel
        elif layer is not None and layer.id in stage_of:
            places[node.name] = stage_of[layer.id]
        elif is_shared(node, traced.graph_module):
            users = [stage_of.get(traced.names.get(user.name, ""), 0) for user in node.users]
            places[node.name] = min(users, default=0)
        elif layer is None or not layer.is_planned or not node.users:
            places[node.name] = max(before, default=0)
        else:
            raise PlanError(
                f"the plan lacks {layer.id} ({layer.description}) of {model}: it is a plan of another model; plan "
                "again "
                "with a profile of this one"
            )
        if before and max(before) > places[node.name]:
            name = node.name if layer is None else f"{layer.id} ({layer.description})"
            raise PlanError(
                f"{name} is in stage {places[node.name]} of the plan, but reads what stage "
                f"{max(before)} makes; a layer must not come before what it reads"
            )
    return places


def _refuse_cut_parameters(traced: TracedModel, places: dict[str, int]) -> None:
    """A parameter that several layers share belongs to one stage, for each stage changes its own."""
    first_uses: dict[int, tuple[str, int, str]] = {}
    for layer, node in _layer_nodes(traced):
        for name in parameter_names(node, traced.graph_module):
            place = places[layer]
            parameter = attribute(traced.graph_module, name)
            first_name, first_place, first_layer = first_uses.setdefault(id(parameter), (name, place, layer))
            if first_place != place:
                also = f" (also {first_name})" if first_name != name else ""
                raise PlanError(
                    f"the parameter {name}{also} is shared by {traced.names[first_layer]} in stage {first_place} and "
                    f"{traced.names[layer]} in stage {place}; put both into one stage (--together "
                    f"{traced.names[first_layer]},{traced.names[layer]}), or give each a parameter of its own"
                )
        for name in _running_statistics(node, traced.graph_module):
            buffer = attribute(traced.graph_module, name)
            _, first_place, first_layer = first_uses.setdefault(id(buffer), (name, places[layer], layer))
            if first_place != places[layer]:
                raise PlanError(
                    f"the running statistics {name} are shared by {traced.names[first_layer]} in stage {first_place} "
                    f"and {traced.names[layer]} in stage {places[layer]}; put both into one stage (--together "
                    f"{traced.names[first_layer]},{traced.names[layer]}), or give each a module of its own"
                )


def _running_statistics(node: fx.Node, module: fx.GraphModule) -> list[str]:
    """The buffers of BatchNorm layers, which a forward changes."""
    if node.op != "call_module":
        return []
    return [
        f"{node.target}.{path}.{name}".replace("..", ".")
        for path, inner in module.get_submodule(str(node.target)).named_modules()
        if isinstance(inner, nn.modules.batchnorm._BatchNorm)
        for name, buffer in inner.named_buffers(recurse=False)
        if buffer is not None
    ]


def _layer_nodes(traced: TracedModel) -> list[tuple[str, fx.Node]]:
    names = traced.names
    nodes = traced.graph_module.graph.nodes
    return [(node.name, node) for node in nodes if node.name in names and node.op != "output"]


def _joined(traced: TracedModel, whole: fx.GraphModule, *, count: int) -> SplitModel:
    """The parts with the values that pass between them, from the outer graph that split_module makes."""
    calls = {str(node.target): node for node in whole.graph.nodes if node.op == "call_module"}
    inputs = tuple(node.name for node in whole.graph.nodes if node.op == "placeholder")
    output = next(node for node in whole.graph.nodes if node.op == "output")
    takes, gives, modules = [], [], []
    for number in range(count):
        call = calls.get(f"submod_{number}")
        if call is None:
            raise PlanError(f"stage {number} of the plan computes nothing; leave it out")
        module = whole.get_submodule(str(call.target))
        assert isinstance(module, fx.GraphModule)
        takes.append(tuple(arg.name for arg in _own_attributes(module, call, whole)))
        parts = {node.args[1]: node.name for node in call.users if selects(node)}
        gives.append(tuple(parts[index] for index in sorted(parts)) if parts else (call.name,))
        _undo_in_place(module)
        modules.append(module)
    arriving: list[tuple[str, ...]] = [()] * (count + 1)
    arriving[count] = tuple(dict.fromkeys(node.name for node in output.all_input_nodes))
    for number in reversed(range(count)):
        later = [name for name in arriving[number + 1] if name not in gives[number]]
        arriving[number] = tuple(dict.fromkeys((*takes[number], *later)))
    arriving[0] = inputs
    parts_of_model = tuple(
        StagePart(
            module=modules[number],
            takes=takes[number],
            gives=gives[number],
            arriving=arriving[number],
            leaving=arriving[number + 1],
            names={
                name: traced.known.get(id(value), name)
                for name, value in [*modules[number].named_parameters(), *modules[number].named_buffers()]
            },
        )
        for number in range(count)
    )
    values = output.args[0]
    assert isinstance(values, (list, tuple))
    return SplitModel(
        parts=parts_of_model,
        inputs=inputs,
        input_names=traced.inputs,
        output=tuple(values),
        rebuild=traced.rebuild,
    )


def _own_attributes(module: fx.GraphModule, call: fx.Node, whole: fx.GraphModule) -> list[fx.Node]:
    """Moves attributes of the model that a stage is given as arguments into the stage; returns the other arguments."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    arguments = []
    for argument, placeholder in zip(call.args, placeholders, strict=True):
        assert isinstance(argument, fx.Node)
        if argument.op != "get_attr":
            arguments.append(argument)
            continue
        path = str(argument.target)
        _put(module, path, attribute(whole, path))
        with module.graph.inserting_before(placeholder):
            placeholder.replace_all_uses_with(module.graph.get_attr(path))
        module.graph.erase_node(placeholder)
    module.recompile()
    return arguments


def _put(module: nn.Module, path: str, value: object) -> None:
    owner: nn.Module = module
    *folders, name = path.split(".")
    for folder in folders:
        if not hasattr(owner, folder):
            owner.add_module(folder, nn.Module())
        owner = getattr(owner, folder)
    if isinstance(value, nn.Parameter) or not hasattr(value, "shape"):
        setattr(owner, name, value)
    else:
        owner.register_buffer(name, value)


def _undo_in_place(module: fx.GraphModule) -> None:
    """Layers that read a value of another stage leave it unchanged: that stage, or a later one, still needs it."""
    for placeholder in [node for node in module.graph.nodes if node.op == "placeholder"]:
        for user in placeholder.users:
            if user.op == "call_module":
                layer = module.get_submodule(str(user.target))
                if getattr(layer, "inplace", False):
                    layer.inplace = False
            elif user.op == "call_function" and user.args[:1] == (placeholder,):
                user.target = _IN_PLACE.get(user.target, user.target)
                if user.kwargs.get("inplace"):
                    user.kwargs = {**user.kwargs, "inplace": False}
            elif user.op == "call_method" and str(user.target).endswith("_") and user.args[0] is placeholder:
                raise ModelError(
                    f"the layer {user.name} changes {placeholder.name} in place ({user.target}), which another stage "
                    f"makes; use {str(user.target).rstrip('_')} instead, or cut elsewhere"
                )
    module.recompile()
