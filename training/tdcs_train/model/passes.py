"""Changes of a traced graph that keep what a list of operators alone would lose."""

import copy
import keyword
import operator
from collections.abc import Collection
from typing import Any

import torch
from torch import fx, nn
from torch.fx.passes.utils.fuser_utils import erase_nodes, fuse_as_graphmodule, insert_subgm
from torch.utils import _pytree as pytree

from tdcs_train.model.kept import Borrowing, ByMode, Context, InContext, Recomputed, Shared


def keep_contexts(graph: fx.Graph, model: nn.Module, *, outside: Context) -> None:
    """Calls under autocast or no_grad inside of a forward become calls of modules that enter it again."""
    for node in graph.nodes:
        context = node.meta.get("context")
        if context is None:
            continue
        if node.op == "call_module":
            target: Any = model.get_submodule(str(node.target))
            title = " ".join(repr(target).split())
        else:
            target = node.target
            title = getattr(target, "__name__", str(target))
        _call_kept(node, InContext(target, context, outside, title=title))


def _call_kept(node: fx.Node, module: nn.Module) -> None:
    """The module is put below the graph's owner when the graph module is made."""
    node.op = "call_module"
    node.target = f"kept_{node.name}"
    node.meta["kept"] = module


def owner_of(graph: fx.Graph, model: nn.Module) -> nn.Module:
    """The model with the modules that passes have added; the model itself stays as it is."""
    owner = copy.copy(model)
    owner.__dict__ = dict(model.__dict__)
    owner._modules = dict(model._modules)
    for node in graph.nodes:
        if "kept" in node.meta:
            owner.add_module(str(node.target), node.meta["kept"])
        elif node.op == "call_module" and any(map(keyword.iskeyword, str(node.target).split("."))):
            # torch.fx writes Python that would read self.class
            name = "named_" + str(node.target).replace(".", "_")
            owner.add_module(name, model.get_submodule(str(node.target)))
            node.target = name
    return owner


def by_mode(graph: fx.Graph, other: fx.Graph, model: nn.Module, *, training: bool) -> bool:
    """Calls whose constants differ between training and evaluation become calls that look at the mode.

    `other` is the graph of the mode that the model is not in. Whether both have the same calls.
    """
    our_nodes, their_nodes = list(graph.nodes), list(other.nodes)
    if len(our_nodes) != len(their_nodes):
        return False
    names = dict(zip(their_nodes, our_nodes, strict=True))
    differing = []
    for our_node, their_node in zip(our_nodes, their_nodes, strict=True):
        if our_node.op != their_node.op or not _same_target(our_node, their_node, model):
            return False
        our_arguments, their_arguments = (
            (our_node.args, our_node.kwargs),
            fx.node.map_arg((their_node.args, their_node.kwargs), lambda node: names[node]),
        )
        flat_mine, spec_mine = pytree.tree_flatten((list(our_arguments[0]), dict(our_arguments[1])))
        flat_yours, spec_yours = pytree.tree_flatten((list(their_arguments[0]), dict(their_arguments[1])))
        if spec_mine != spec_yours:
            return False
        if any(_differ(a, b) for a, b in zip(flat_mine, flat_yours, strict=True)):
            if our_node.op not in ("call_function", "call_method"):
                return False
            if any(
                _differ(a, b) and fx.Node in (type(a), type(b))
                for a, b in zip(flat_mine, flat_yours, strict=True)
            ):
                return False
            differing.append((our_node, their_arguments))
    for node, (arguments, keywords) in differing:
        places = [n for n, (a, b) in enumerate(zip(node.args, arguments, strict=True)) if _differ(a, b)]
        keys = [key for key in node.kwargs if _differ(node.kwargs[key], keywords[key])]
        now = [node.args[n] for n in places] + [node.kwargs[key] for key in keys]
        then = [arguments[n] for n in places] + [keywords[key] for key in keys]
        title = getattr(node.target, "__name__", str(node.target))
        first, second = (now, then) if training else (then, now)
        kept = ByMode(node.target, places, keys, first, second, title=title)
        kept.training = training
        _call_kept(node, kept)
    return True


def _same_target(one: fx.Node, two: fx.Node, model: nn.Module) -> bool:
    if one.op == "get_attr" and all(str(node.target).startswith("_tensor_constant") for node in (one, two)):
        # each trace keeps its own copies of the tensors that a forward makes of nothing but numbers
        constants = [_value_of(model, str(node.target)) for node in (one, two)]
        return bool(constants[0].dtype == constants[1].dtype and torch.equal(*constants))
    if "kept" in one.meta and "kept" in two.meta:
        return type(one.meta["kept"]) is type(two.meta["kept"])
    is_same = one.target == two.target
    return bool(is_same) or getattr(one.target, "args", one) == getattr(two.target, "args", two)


def _differ(one: Any, two: Any) -> bool:
    if isinstance(one, fx.Node) or isinstance(two, fx.Node):
        return one is not two
    return bool(type(one) is not type(two) or one != two)


def fuse_regions(module: fx.GraphModule, *, reentrant: Collection[int]) -> None:
    """The calls of each checkpointed function become one layer that computes its forward again."""
    numbers = sorted({node.meta["region"] for node in module.graph.nodes if "region" in node.meta})
    for number in numbers:
        nodes = [node for node in module.graph.nodes if node.meta.get("region") == number]
        inner, inputs, outputs = fuse_as_graphmodule(module, nodes, f"recomputed_{number}")
        insert_subgm(module, inner, inputs, outputs)
        name = type(inner).__name__
        call = next(node for node in module.graph.nodes if node.op == "call_module" and node.target == name)
        nodes[-1].append(call)
        for part in reversed(list(call.users)):
            if part.target is operator.getitem:
                call.append(part)
        erase_nodes(module, nodes)
        module.add_module(name, Recomputed(inner, reentrant=number in reentrant))
        call.meta["value"] = (
            outputs[0].meta.get("value")
            if len(outputs) == 1
            else tuple(output.meta.get("value") for output in outputs)
        )


def share(module: fx.GraphModule) -> None:
    """Parameters that several calls use become layers that these calls read."""
    users: dict[int, list[tuple[fx.Node, str]]] = {}
    values: dict[int, nn.Parameter] = {}
    names: dict[int, str] = {}
    for name, value in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(value), name)
    for node in module.graph.nodes:
        for path, value in _parameters(node, module):
            users.setdefault(id(value), []).append((node, path))
            values[id(value)] = value
    groups: dict[tuple[fx.Node, ...], list[int]] = {}
    for key, uses in users.items():
        nodes = tuple(dict.fromkeys(node for node, _ in uses))
        if len(nodes) > 1:
            groups.setdefault(nodes, []).append(key)
    borrowed: dict[fx.Node, list[tuple[fx.Node, list[str]]]] = {}
    for number, (nodes, keys) in enumerate(groups.items()):
        split = [keys] if all(node.op == "call_module" for node in nodes) else [[key] for key in keys]
        for part, group in enumerate(split):
            target = f"shared_{number}_{part}"
            module.add_module(target, Shared([names[key] for key in group], [values[key] for key in group]))
            with module.graph.inserting_before(nodes[0]):
                read = module.graph.call_module(target)
            read.meta["follows"] = [source for source in nodes[0].all_input_nodes if source.op != "get_attr"]
            for node in nodes:
                reads = [source for source in node.all_input_nodes if source.op == "get_attr"]
                for source in reads:
                    if id(_value_of(module, str(source.target))) in group:
                        node.replace_input_with(source, read)
                if node.op == "call_module":
                    paths = [path for key in group for user, path in users[key] if user is node and path]
                    if paths:
                        borrowed.setdefault(node, []).append((read, paths))
    for node, groups_of_node in borrowed.items():
        inner = module.get_submodule(str(node.target))
        title = getattr(inner, "title", "") or " ".join(repr(inner).split())
        name = f"borrowing_{node.name}"
        module.add_module(name, Borrowing(inner, [paths for _, paths in groups_of_node], title=title))
        node.target = name
        node.args = (*node.args, *(read for read, _ in groups_of_node))
    for node in reversed(list(module.graph.nodes)):
        if node.op == "get_attr" and not node.users:
            module.graph.erase_node(node)
    module.delete_all_unused_submodules()


def _parameters(node: fx.Node, module: fx.GraphModule) -> list[tuple[str, nn.Parameter]]:
    """The parameters that a call uses, each with its path in the module that is called, or with none."""
    parameters = []
    for read in node.all_input_nodes:
        if read.op == "get_attr" and node.op in ("call_function", "call_method", "call_module"):
            value = _value_of(module, str(read.target))
            if isinstance(value, nn.Parameter):
                parameters.append(("", value))
    if node.op == "call_module":
        inner = module.get_submodule(str(node.target))
        parameters += list(inner.named_parameters(remove_duplicate=False))
    return parameters


def _value_of(module: nn.Module, path: str) -> Any:
    owner, _, name = path.rpartition(".")
    return getattr(module.get_submodule(owner), name)
