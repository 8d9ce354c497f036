"""A model as a graph of layers, by symbolic tracing (torch.fx).

A layer is a module that torch.fx does not look into (all of torch.nn, what the user names as a leaf, and modules that
cannot be traced) or an operator that a forward method calls itself. Layers are numbered in the order of the graph, so
that the same model and inputs give the same numbers on every machine: layer K is `nodeK` of a profile file.

What a list of operators would lose is kept (`tdcs_train.model.kept`): autocast and no_grad inside of forward,
checkpoints, functions with a backward of their own, dropout that only works in training. Parameters that several layers
use are a layer of their own.
"""

import contextlib
import operator
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from tdcs_train.errors import InputError
from tdcs_train.model.errors import ModelError
from tdcs_train.model.kept import Kept, Shared
from tdcs_train.model.memory import refuse_overlaps
from tdcs_train.model.passes import by_mode, fuse_regions, keep_contexts, owner_of, share
from tdcs_train.model.traced_values import UNKNOWN
from tdcs_train.model.tracer import Example, Tracer, guard

LAYER_OPERATIONS = frozenset({"placeholder", "call_module", "call_function", "call_method"})
MOST_NAMED = 12
"""A message names no more layers than this."""
_PLAIN_METHODS = frozenset({"size", "dim", "numel", "ndimension", "stride", "element_size", "get_device"})


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A node of the graph. `id` is its name in a profile, `name` in the graph; `inputs` are ids."""

    id: str
    name: str
    description: str
    inputs: tuple[str, ...]
    parameters: tuple[str, ...]
    """Names of the parameters that it uses, as the model has them."""
    plain: bool = False
    """It makes numbers, or takes a part out of a tuple: it runs where its inputs are, and no plan names it."""
    dead: bool = False
    """The output does not depend on it. It runs with the layers that it reads, and no plan names it."""

    @property
    def is_planned(self) -> bool:
        """Whether a profile has it."""
        return not (self.plain or self.dead)


@dataclass(frozen=True, kw_only=True)
class TracedModel:
    """A model, its graph, and the layers of the graph in an order in which they can run."""

    graph_module: fx.GraphModule
    layers: tuple[Layer, ...]
    inputs: tuple[str, ...]
    """Names of the inputs in the order of the placeholders."""
    rebuild: Callable[[Sequence[Any]], Any]
    """Makes what the model returns from the values of the graph's output."""
    known: Mapping[int, str]
    """The model's own name of each parameter and buffer, by identity."""
    notes: tuple[str, ...] = field(default=())
    """What a user should know: modules that were left whole, and why."""

    @property
    def names(self) -> dict[str, str]:
        """The id of each layer by its name in the graph."""
        return {layer.name: layer.id for layer in self.layers}

    @property
    def output_nodes(self) -> list[fx.Node]:
        """The nodes that the output is made of, each once."""
        output = next(node for node in self.graph_module.graph.nodes if node.op == "output")
        return list(output.all_input_nodes)


def trace(
    model: nn.Module,
    *,
    inputs: int | Sequence[str] = 1,
    leaves: Sequence[str] = (),
    layers: Sequence[str] = (),
    example: Sequence[Example] = (),
) -> TracedModel:
    """The graph of a model.

    `inputs` is the number of arguments of its forward method that are data, or their names; others keep their
    defaults. `leaves` are names of modules to leave whole. `layers` names modules that run one after another, each on
    the output of the one before: then nothing is traced. `example` has shape and type of each input; with it a branch
    on shapes can be followed. A program of torch.export is taken, too.

    Raises ModelError with the line of a forward method that cannot be traced, or for a name that the model lacks.
    """
    exported = hasattr(model, "graph_signature") and hasattr(model, "module")
    module: nn.Module = model.module() if exported else uncompiled(model)
    if isinstance(module, torch.jit.ScriptModule):
        raise ModelError(
            f"{_title(module)} is compiled (torch.jit), and cannot be cut into layers: give it as it was before that"
        )
    if lazy := [name for name, value in module.named_parameters() if nn.parameter.is_lazy(value)]:
        raise ModelError(
            f"{_title(module)}: the parameter {lazy[0]} has no shape yet; call the model once with a mini-batch first"
        )
    refuse_overlaps(list(module.named_parameters()))
    _refuse_hooks(module)
    modules = dict(module.named_modules())
    for option, wished in (("leaf", leaves), ("layer", layers)):
        if missing := [name for name in wished if name not in modules or not name]:
            raise ModelError(
                f"{_title(module)} has no {option} {missing[0]!r}; its modules: {', '.join(filter(None, modules))}"
            )
    names = {id(value): name for name, value in [*module.named_buffers(), *module.named_parameters()]}
    notes: tuple[str, ...] = ()
    reentrant: set[int] = set()
    rebuild: Callable[[Sequence[Any]], Any]
    if layers:
        graph, rebuild = _chain(layers), _first
    elif exported:
        graph, rebuild = _exported(module)
    else:
        graph, rebuild, notes, reentrant = _traced(module, inputs=inputs, leaves=leaves, example=example)
    graph_module = fx.GraphModule(owner_of(graph, module), graph)
    graph_module.training = module.training
    for name in [name for name in vars(module) if name.startswith("_tensor_constant")]:
        delattr(module, name)  # torch.fx puts constants there
    if not layers:
        fuse_regions(graph_module, reentrant=reentrant)
        share(graph_module)
    graph_module.recompile()
    placeholders = [str(node.target) for node in graph_module.graph.nodes if node.op == "placeholder"]
    return TracedModel(
        graph_module=graph_module,
        layers=_layers(graph_module, names),
        known=names,
        inputs=tuple(placeholders),
        rebuild=rebuild,
        notes=notes,
    )


def _refuse_hooks(module: nn.Module) -> None:
    """Raises ModelError for gradients that hooks change: stages compute them for versions of the parameters."""
    for name, parameter in module.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise ModelError(
                f"the parameter {name} has a hook on its gradient (register_hook), which a stage does not call: change "
                "the gradient in the optimizer, or by a function with a backward of its own"
            )


def uncompiled(model: nn.Module) -> nn.Module:
    """The model itself, where torch.compile wraps it: the stages are what runs, and can be compiled one by one."""
    while type(model).__name__ == "OptimizedModule":
        model = model._orig_mod
    return model


def examples_of(inputs: Any) -> tuple[Example, ...]:
    """Shape and type of the inputs of a mini-batch: a tensor, a tuple of them, or a mapping of names to tensors."""
    if isinstance(inputs, dict):
        pairs = list(inputs.items())
    else:
        pairs = [
            (f"input_{n}", value)
            for n, value in enumerate(inputs if isinstance(inputs, tuple) else (inputs,))
        ]
    for name, value in pairs:
        if not isinstance(value, torch.Tensor):
            raise InputError(
                f"the input {name} of a mini-batch is a {type(value).__name__}; the inputs are a tensor, a tuple of "
                "tensors, or a mapping of names to tensors: give the tensors in it as inputs of their own"
            )
    return tuple(
        Example(name, str(value.dtype).removeprefix("torch."), tuple(value.shape)) for name, value in pairs
    )


def describe(node: fx.Node, module: fx.GraphModule) -> str:
    """What a layer is, in one line without the separator of profile files."""
    if node.op == "call_module":
        target = module.get_submodule(str(node.target))
        text = target.title if isinstance(target, Kept) else repr(target)
    elif node.op == "call_function":
        text = getattr(node.target, "__name__", "") or node.name
    else:
        text = str(node.target)
    return " ".join(text.split()).replace(" -- ", " - ")


def parameter_names(node: fx.Node, module: fx.GraphModule) -> tuple[str, ...]:
    """The parameters that a layer uses: those of its module, and those that its arguments name."""
    names = [str(read.target) for read in node.all_input_nodes if read.op == "get_attr"]
    names = [name for name in names if isinstance(attribute(module, name), nn.Parameter)]
    if node.op == "call_module":
        target = str(node.target)
        parameters = module.get_submodule(target).named_parameters()
        names += [f"{target}.{name}" for name, _ in parameters]
    return tuple(dict.fromkeys(names))


def attribute(module: nn.Module, path: str) -> object:
    """The attribute of a module, or of one inside it, that a dotted path names."""
    owner, _, name = path.rpartition(".")
    return getattr(module.get_submodule(owner), name)


def _first(values: Sequence[Any]) -> Any:
    return values[0]


def _traced(
    model: nn.Module, *, inputs: int | Sequence[str], leaves: Sequence[str], example: Sequence[Example]
) -> tuple[fx.Graph, Callable[[Sequence[Any]], Any], tuple[str, ...], set[int]]:
    """The graph; a module that cannot be traced is left whole, with all of its class, until the rest can be."""
    with _buffers_kept(model):
        return _traced_modules(model, inputs=inputs, leaves=leaves, example=example)


@contextlib.contextmanager
def _buffers_kept(model: nn.Module) -> Iterator[None]:
    """Gives buffers the values back that they had, where a forward changes them while it is traced."""
    before = [(buffer, buffer._version, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for buffer, version, value in before:
            if buffer._version != version:
                with torch.no_grad():
                    buffer.copy_(value)


def _traced_modules(
    model: nn.Module, *, inputs: int | Sequence[str], leaves: Sequence[str], example: Sequence[Example]
) -> tuple[fx.Graph, Callable[[Sequence[Any]], Any], tuple[str, ...], set[int]]:
    whole, kinds, notes = set(leaves), set[type](), []
    while True:
        tracer = Tracer(inputs=inputs, whole=frozenset(whole), kinds=frozenset(kinds), example=example)
        try:
            graph = tracer.run(model)
            break
        except InputError as error:
            raise ModelError(f"{_title(model)}: {error}") from error
        except Exception as error:  # forward methods raise anything when they are given proxies
            if not tracer.failed_in:
                raise ModelError(_untraceable(model, error)) from error
            whole.add(tracer.failed_in)
            kinds.add(type(model.get_submodule(tracer.failed_in)))
            notes.append(f"{tracer.failed_in} is left whole{_place(error)}: {_reason(error)}")
    keep_contexts(graph, model, outside=tracer.outside)
    flags = {module: module.training for module in model.modules()}
    flipped_tracer = Tracer(inputs=inputs, whole=frozenset(whole), kinds=frozenset(kinds), example=example)
    try:
        for module, training in flags.items():
            module.training = not training
        flipped = flipped_tracer.run(model)
        keep_contexts(flipped, model, outside=flipped_tracer.outside)
    except Exception as error:  # one that only training or only evaluation can do
        flipped = None
        notes.append(
            f"evaluation and training differ{_place(error)}: the graph is for the mode it was traced in"
        )
    finally:
        for module, training in flags.items():
            module.training = training
    if flipped is not None and not by_mode(graph, flipped, model, training=model.training):
        notes.append(
            "evaluation and training run other operators: the graph is for the mode it was traced in"
        )
    _drop_numbers_of_nothing(graph)
    spec = tracer.output_spec
    return graph, lambda values: pytree.tree_unflatten(list(values), spec), tuple(notes), tracer.reentrant


def _drop_numbers_of_nothing(graph: fx.Graph) -> None:
    """Shapes, parts of tuples and attributes that nothing reads any more."""
    for node in reversed(list(graph.nodes)):
        if (
            node.op in ("call_function", "call_method", "get_attr")
            and not node.users
            and node.target is not guard
        ):
            name = getattr(node.target, "__name__", str(node.target))
            if node.op == "get_attr" or name in ("getitem", "getattr") or is_plain(node):
                graph.erase_node(node)


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _place(error: Exception) -> str:
    """The line of a forward method that an error comes from."""
    inside = (
        *(str(Path(torch.__file__).parent), str(Path(__file__).parent), contextlib.__file__),
        "<eval_with_key>",
    )
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(inside)
    ]
    return f" at {frames[-1].filename}, line {frames[-1].lineno}: `{frames[-1].line}`" if frames else ""


def _untraceable(model: nn.Module, error: Exception) -> str:
    children = [name for name, module in model.named_modules() if name and not list(module.children())]
    listed = ",".join(children[:MOST_NAMED]) + (
        f",... of {len(children)}" if len(children) > MOST_NAMED else ""
    )
    return (
        f"{_title(model)} cannot be traced{_place(error)}: {_reason(error)}. It is the model's own forward: move this "
        "line into a module of its own, which is then left whole, give a program of torch.export, or, where each layer "
        f"runs on the output of the one before, list them (--layers {listed})"
    )


def _title(model: nn.Module) -> str:
    return f"the model {type(model).__name__}"


def _chain(names: Sequence[str]) -> fx.Graph:
    graph = fx.Graph()
    value = graph.placeholder("input")
    for name in names:
        value = graph.call_module(name, (value,))
    graph.output([value])
    return graph


def _exported(module: nn.Module) -> tuple[fx.Graph, Callable[[Sequence[Any]], Any]]:
    """The graph of a program of torch.export, its checks of inputs left out: stages check what they take themselves."""
    assert isinstance(module, fx.GraphModule)
    spec = module._out_spec
    graph = fx.Graph()
    output: Any = graph.graph_copy(module.graph, val_map={})
    leaves = list(output) if isinstance(output, (tuple, list)) else [output]
    for node in reversed(list(graph.nodes)):
        if node.op == "call_module" and "guard" in str(node.target).lower() and not node.users:
            graph.erase_node(node)
    graph.output(leaves)
    return graph, lambda values: pytree.tree_unflatten(list(values), spec)


def is_plain(node: fx.Node) -> bool:
    """Whether a node makes numbers and shapes only."""
    value = node.meta.get("value", UNKNOWN)
    if value is not UNKNOWN:
        return not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value))
    if node.op == "call_method":
        return str(node.target) in _PLAIN_METHODS
    if node.op != "call_function":
        return False
    if node.target is getattr:
        return node.args[1] in ("shape", "device", "dtype")
    arithmetic = getattr(node.target, "__module__", "") in ("_operator", "math", "builtins")
    return (
        arithmetic and bool(node.all_input_nodes) and all(is_plain(source) for source in node.all_input_nodes)
    )


def selects(node: fx.Node) -> bool:
    """Whether a node takes a part out of a tuple, such as the output of an LSTM: it stays where the tuple is."""
    if node.op != "call_function" or node.target is not operator.getitem or not isinstance(node.args[1], int):
        return False
    source = node.args[0]
    value = source.meta.get("value", UNKNOWN) if isinstance(source, fx.Node) else UNKNOWN
    return value is UNKNOWN or not isinstance(value, torch.Tensor)


def is_shared(node: fx.Node, module: fx.GraphModule) -> bool:
    """Whether a node stands for parameters that several layers use."""
    return node.op == "call_module" and isinstance(module.get_submodule(str(node.target)), Shared)


def _layers(module: fx.GraphModule, names: Mapping[int, str]) -> tuple[Layer, ...]:
    nodes = [node for node in module.graph.nodes if node.op in LAYER_OPERATIONS and node.target is not guard]
    # Shared parameters have the last numbers: a model has the same layers with them and without.
    numbered = sorted(nodes, key=lambda node: is_shared(node, module))
    ids = {node: f"node{number}" for number, node in enumerate(numbered, start=1)}
    placeholders = [node for node in nodes if node.op == "placeholder"]
    output = next(node for node in module.graph.nodes if node.op == "output")
    alive = _before(output)
    plain = {node for node in nodes if node.op != "placeholder" and is_plain(node)}
    parts = {node for node in nodes if node not in plain and selects(node)}
    sources = _tensor_sources(nodes, plain, parts)
    layers = [
        Layer(
            id=ids[node],
            name=node.name,
            description=_input(node, placeholders.index(node))
            if node.op == "placeholder"
            else describe(node, module),
            inputs=tuple(ids[source] for source in sources[node]),
            parameters=tuple(
                names.get(id(attribute(module, name)), name) for name in parameter_names(node, module)
            ),
            plain=node in plain or node in parts,
            dead=node.op != "placeholder" and node not in alive,
        )
        for node in nodes
    ]
    # Numbers, and what is None, are no tensors that a plan could send.
    ends = dict.fromkeys(_whole(source) for source in output.all_input_nodes if source not in plain)
    if len(ends) > 1:
        layers.append(
            Layer(
                id=f"node{len(nodes) + 1}",
                name=output.name,  # a module may be called output, too
                description="Output",
                inputs=tuple(ids[source] for source in ends if source in ids),
                parameters=(),
            )
        )
    return tuple(layers)


def _input(node: fx.Node, number: int) -> str:
    example = node.meta.get("example")
    return f"Input{number}" if example is None else f"Input{number} {example}"


def _before(node: fx.Node) -> set[fx.Node]:
    """A node and all that it depends on."""
    ancestors, queue = set(), [node]
    while queue:
        current = queue.pop()
        if current not in ancestors:
            ancestors.add(current)
            queue += current.all_input_nodes
    return ancestors


def _whole(node: fx.Node) -> fx.Node:
    """The node whose tuple a part was taken from, or the node itself."""
    while selects(node) and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def _tensor_sources(
    nodes: Iterable[fx.Node], plain: set[fx.Node], parts: set[fx.Node]
) -> dict[fx.Node, list[fx.Node]]:
    """For each node the nodes whose tensors it reads, also by way of shapes where nothing else keeps it behind them.

    The layer of shared parameters hangs on what the first of its users reads, and what reads nothing on the first
    input, so that a plan has one place for it.
    """
    order = list(nodes)
    place = {node: number for number, node in enumerate(order)}
    ancestors: dict[fx.Node, int] = {}
    tensor_sources: dict[fx.Node, list[fx.Node]] = {}
    origins: dict[fx.Node, list[fx.Node]] = {}
    for node in order:
        read = [_whole(source) if source in parts else source for source in node.all_input_nodes]
        direct = list(dict.fromkeys(source for source in read if source in place and source not in plain))
        by_shape = [
            origin for source in node.all_input_nodes if source in plain for origin in origins[source]
        ]
        if node in plain:
            origins[node] = list(dict.fromkeys([*direct, *by_shape]))
        bits = 0
        for ancestor in direct:
            bits |= ancestors[ancestor] | 1 << place[ancestor]
        for ancestor in by_shape:
            if not bits >> place[ancestor] & 1:
                direct.append(ancestor)
                bits |= ancestors[ancestor] | 1 << place[ancestor]
        if not direct and node not in plain and node.op != "placeholder":
            follows = (_whole(source) for source in node.meta.get("follows", ()))
            direct = [source for source in follows if source in place and source not in plain]
            direct = direct or [placeholder for placeholder in order if placeholder.op == "placeholder"][:1]
            for ancestor in direct:
                bits |= ancestors[ancestor] | 1 << place[ancestor]
        ancestors[node] = bits
        tensor_sources[node] = list(dict.fromkeys(direct))
    return tensor_sources
