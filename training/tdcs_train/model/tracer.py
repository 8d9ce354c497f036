"""Symbolic tracing of a forward, with what torch.fx would change or lose without a word.

With an example of the inputs (shapes and types alone) each node also knows what it would compute. A branch on a shape
is followed, and a guard in the graph refuses inputs for which the branch would go the other way. A branch on the values
of tensors cannot be followed. What cannot be traced inside a module makes that module a layer that is left whole.
"""

import builtins
import contextlib
import functools
import inspect
import logging
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils import checkpoint as checkpointing

from tdcs_train.errors import InputError
from tdcs_train.model.errors import ModelError
from tdcs_train.model.kept import Context, applied, scripted
from tdcs_train.model.mapped_functions import closed_over, lifted
from tdcs_train.model.module_state import attributes_of, copied, random_state
from tdcs_train.model.outputs import opened
from tdcs_train.model.traced_values import (
    UNKNOWN,
    TracedValue,
    Untraceable,
    ValueAttribute,
    ValueProxy,
    spoken,
)

_LOG = logging.getLogger("torch._subclasses.fake_tensor")
_FACTORIES = (
    *(
        "arange",
        "as_tensor",
        "empty",
        "eye",
        "full",
        "linspace",
        "ones",
        "rand",
        "randint",
        "randn",
        "randperm",
    ),
    *("tensor", "tril_indices", "triu_indices", "zeros"),
)
"""Functions that make tensors from numbers: PyTorch calls them at once, whatever the numbers are."""


@dataclass(frozen=True)
class Example:
    """Inputs of which only name, type and shape are known."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}[{','.join(map(str, self.shape))}]"


def guard(value: object, expected: object, message: str) -> None:
    """Refuses inputs for which the forward would have gone another way than the graph goes."""
    if value != expected:
        raise ModelError(f"{message}; profile and train with inputs that agree in this")


class Tracer(fx.Tracer):
    """Traces one forward. `whole` are modules to leave whole, by name; `kinds` all of some classes."""

    def __init__(
        self,
        *,
        inputs: Sequence[str] | int,
        whole: frozenset[str],
        kinds: frozenset[type],
        example: Sequence[Example],
    ) -> None:
        super().__init__(param_shapes_constant=True)
        self.inputs, self.whole, self.kinds, self.example = inputs, whole, kinds, example
        self.failed_in = ""
        """The innermost module in whose forward the trace failed; empty for the model itself."""
        self.output_spec: Any = None
        self.outside = Context.now()
        self.regions = 0
        self.reentrant: set[int] = set()
        """Of the checkpointed regions, those of the reentrant kind."""
        self._region: int | None = None
        self._refusal = ""
        self._shape_runs: dict[int, int] = {}
        """PyTorch's count of changes in place of a buffer by modules that were run for shapes; its values stay."""
        self._evaluating = False
        self._fakes = FakeTensorMode(allow_non_fake_inputs=True)
        self._guarded: set[fx.Node] = set()

    # What torch.fx calls.

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        leaf: bool = super().is_leaf_module(m, module_qualified_name)
        return leaf or module_qualified_name in self.whole or type(m) in self.kinds

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> Any:
        """The inputs as placeholders; what else the forward takes keeps its defaults."""
        positional, keywords = self._placeholders(root_fn)

        def flat(*_: Any) -> Any:
            output = pytree.tree_map(
                opened,
                root_fn(self.root, *positional, **keywords),
                is_leaf=lambda each: isinstance(each, fx.Proxy),
            )
            leaves, self.output_spec = pytree.tree_flatten(
                output, is_leaf=lambda each: isinstance(each, fx.Proxy)
            )
            return leaves

        return flat, [self.root]

    def _placeholders(self, root_fn: Any) -> tuple[list[Any], dict[str, Any]]:
        parameters = list(inspect.signature(root_fn).parameters.values())[1:]
        plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        starred = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        if not isinstance(self.inputs, int):
            names = list(self.inputs)
            takes = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
            takes |= set(names) if any(p.kind is p.VAR_KEYWORD for p in parameters) else set()
            if unknown := [name for name in names if name not in takes]:
                raise InputError(f"forward has no argument {unknown[0]!r}; it takes {', '.join(plain)}")
            return [], {name: self._placeholder(name, number) for number, name in enumerate(names)}
        names = plain[: self.inputs]
        if len(names) < self.inputs:
            if not starred:
                raise InputError(f"forward takes {len(plain)} inputs, and a mini-batch has {self.inputs}")
            names += [f"input_{number}" for number in range(self.inputs - len(names))]
        return [self._placeholder(name, number) for number, name in enumerate(names)], {}

    def _placeholder(self, name: str, number: int) -> fx.Proxy:
        proxy: fx.Proxy = self.create_proxy("placeholder", name, (), {})
        if number < len(self.example):
            example = self.example[number]
            proxy.node.meta["example"] = example
            with self._fakes:
                proxy.node.meta["value"] = torch.empty(example.shape, dtype=getattr(torch, example.dtype))
        return proxy

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return ValueProxy(node, self)

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, (ValueProxy, ValueAttribute)):
            return a.node
        try:
            return super().create_arg(a)
        except NotImplementedError as error:
            raise Untraceable(
                f"a {type(a).__name__} is passed on, and a graph has tensors, numbers, tuples, lists and dictionaries "
                "only; leave it out (a cache of transformers: use_cache=False)"
            ) from error

    def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, *more: Any, **options: Any) -> Any:
        name = getattr(target, "__name__", "") if kind == "call_function" else ""
        if (kind == "call_method" or name) and args and self._is_kept(args[0]) and _is_in_place(target):
            self.refuse(
                "its forward changes a tensor of the model in place, which other stages would not see"
            )
        if name.endswith("_") and not name.endswith("__") and args and isinstance(args[0], TracedValue):
            plain = getattr(torch, name.removesuffix("_"), None) or getattr(
                torch.nn.functional, name.removesuffix("_"), None
            )
            if plain is not None:
                return args[0].become(self.create_proxy(kind, plain, args, kwargs))
        proxy = super().create_proxy(kind, target, args, kwargs, *more, **options)
        node: fx.Node = proxy.node
        context = Context.now()
        if kind.startswith("call_") and context != self.outside:
            node.meta["context"] = context
        if kind.startswith("call_") and self._region is not None:
            node.meta["region"] = self._region
        if "value" not in node.meta:
            node.meta["value"] = self._value(node)
        return proxy

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        if self._evaluating:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self._evaluating:
            return forward(*args, **kwargs)
        try:
            path = self.path_of_module(m)
        except NameError:  # one that the forward makes, such as nn.ReLU()(x)
            if next(m.parameters(), None) is not None:
                self.refuse(f"its forward makes a {type(m).__name__} with parameters, which nothing trains")
            return forward(*args, **kwargs)
        if not self.is_leaf_module(m, path) and not any(
            isinstance(leaf, fx.Proxy) for leaf in pytree.tree_leaves((args, kwargs))
        ):
            return forward(*args, **kwargs)
        if self.is_leaf_module(m, path):
            return super().call_module(m, forward, args, kwargs)
        try:
            if m._backward_hooks or m._backward_pre_hooks:
                raise Untraceable("it has backward hooks, which a graph of its layers does not call")
            with self._unchanged(m):
                output = super().call_module(m, forward, args, kwargs)
            self._raise_refusal()
            return output
        except BaseException:
            self.failed_in = self.failed_in or path
            raise

    # What it adds.

    @contextlib.contextmanager
    def _unchanged(self, module: nn.Module) -> Iterator[None]:
        """Refuses a forward that draws random numbers at once, or sets attributes: a graph repeats neither."""
        drawn, attributes = random_state(), attributes_of(module)
        buffers = {name: self._changes(buffer) for name, buffer in module.named_buffers()}
        try:
            yield
        finally:
            changed = [
                name
                for name, value in attributes_of(module).items()
                if attributes.get(name, UNKNOWN) is not value
            ]
            for name in changed:
                module.__dict__.pop(name)
            module.__dict__.update(
                {name: value for name, value in attributes.items() if name not in module.__dict__}
            )
        if changed:
            raise Untraceable(f"its forward sets self.{changed[0]}, which a graph does not repeat")
        for name, buffer in module.named_buffers():
            if buffers.get(name, self._changes(buffer)) != self._changes(buffer):
                raise Untraceable(
                    f"its forward changes the buffer {name} in place, which other stages would not see"
                )
        if random_state() != drawn:
            raise Untraceable(
                "its forward draws random numbers that depend on no input, which a graph does not repeat"
            )

    def _changes(self, buffer: torch.Tensor) -> int:
        """How often a forward has changed a buffer, runs for shapes alone left out."""
        return int(buffer._version) - self._shape_runs.get(id(buffer), 0)

    def refuse(self, reason: str) -> NoReturn:
        """Raises Untraceable, also where the forward catches every error and goes another way."""
        self._refusal = self._refusal or reason
        raise Untraceable(reason)

    def _raise_refusal(self) -> None:
        if self._refusal:
            raise Untraceable(self._refusal)

    def _is_kept(self, value: Any) -> bool:
        """Whether a value is a buffer or parameter of the model, and not one of a forward."""
        if isinstance(value, fx.Proxy):
            return bool(value.node.op == "get_attr")
        return isinstance(value, torch.Tensor) and any(value is buffer for buffer in self.root.buffers())

    def specialised(self, node: fx.Node, what: str) -> Any:
        """The value of a node that is no tensor; a guard watches it from now on."""
        value = node.meta.get("value", UNKNOWN)
        if value is UNKNOWN or isinstance(value, (torch.Tensor, torch.SymInt)):
            self.refuse(f"{what} {spoken(node)} depends on the data")
        if node not in self._guarded:
            self._guarded.add(node)
            sentence = f"the model was traced where {spoken(node)} is {value}"
            super().create_proxy("call_function", guard, (fx.Proxy(node, self), value, sentence), {})
        return value

    def _known(self, argument: Any) -> Any:
        """What is known of an argument of a node."""
        if not isinstance(argument, fx.Node):
            return argument
        if (
            argument.op == "get_attr" and "value" not in argument.meta
        ):  # a constant, which torch.fx adds by itself
            argument.meta["value"] = self._value(argument)
        return argument.meta.get("value", UNKNOWN)

    def _value(self, node: fx.Node) -> Any:
        """What a node computes for the example, from shapes and types alone."""
        if not self.example or node.op in ("placeholder", "output"):
            return UNKNOWN
        if node.op == "get_attr":
            self._evaluating = True
            try:
                return _attribute(self.root, str(node.target))
            finally:
                self._evaluating = False
        args, kwargs = fx.node.map_aggregate((node.args, node.kwargs), self._known)
        if any(leaf is UNKNOWN for leaf in pytree.tree_leaves((args, kwargs))):
            return UNKNOWN
        state, self._evaluating = random.getstate(), True
        silent, _LOG.disabled = (
            _LOG.disabled,
            True,
        )  # it prints a traceback for what the model itself does wrongly
        before = [(buffer, buffer._version) for buffer in self.root.buffers()]
        try:
            with self._fakes, torch.no_grad():
                if node.op == "call_module":
                    return copied(self.root.get_submodule(str(node.target))).forward(*args, **kwargs)
                if node.op == "call_method":
                    return getattr(args[0], str(node.target))(*args[1:], **kwargs)
                # TorchScript ends the process when it is given shapes alone.
                function: Any = getattr(node.target, "written", node.target)
                return function(*args, **kwargs) if function is not None else UNKNOWN
        except Exception:  # what a shape alone does not tell, or an operator that has no such form
            return UNKNOWN
        finally:
            self._evaluating, _LOG.disabled = False, silent
            random.setstate(state)
            for buffer, version in before:
                if buffer._version != version:
                    more = self._shape_runs.get(id(buffer), 0) + buffer._version - version
                    self._shape_runs[id(buffer)] = more

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        """PyTorch while a forward is traced: factories, checkpoints and functions with a backward become nodes."""
        tracer = self
        with contextlib.ExitStack() as stack:
            for name in _FACTORIES:
                stack.enter_context(_replaced(torch, name, _recorded(getattr(torch, name), tracer)))
            own_apply = torch.autograd.Function.__dict__.get("apply")

            def original(cls: Any, *arguments: Any, **named: Any) -> Any:
                bound = (
                    super(torch.autograd.Function, cls).apply
                    if own_apply is None
                    else own_apply.__get__(None, cls)
                )
                return bound(*arguments, **named)

            def apply(cls: Any, *arguments: Any, **named: Any) -> Any:
                if not tracer._evaluating and _has_proxy(arguments, named):
                    return tracer.create_proxy("call_function", applied(cls), arguments, named)
                return original(cls, *arguments, **named)

            stack.enter_context(_replaced(torch.autograd.Function, "apply", classmethod(apply)))

            vmap = torch.vmap

            def mapping(function: Any, *options: Any, **more: Any) -> Any:
                return tracer._mapped(vmap(function, *options, **more))

            for owner in (torch, torch.func):
                stack.enter_context(_replaced(owner, "vmap", mapping))
            for name in ("finfo", "iinfo"):
                stack.enter_context(_replaced(torch, name, _of_type(getattr(torch, name))))
            run_script = torch.jit.ScriptFunction.__call__

            def script(function: Any, *arguments: Any, **named: Any) -> Any:
                if not tracer._evaluating and _has_proxy(arguments, named):
                    return tracer.create_proxy("call_function", scripted(function), arguments, named)
                inlined = getattr(function, "_torchdynamo_inline", None)
                if tracer._evaluating and inlined is not None:
                    return inlined(*arguments, **named)
                return run_script(function, *arguments, **named)

            stack.enter_context(_replaced(torch.jit.ScriptFunction, "__call__", script))
            if "torch._dynamo" in sys.modules:  # else nothing is compiled
                options: Any = torch._dynamo.config
                stack.enter_context(options.patch(error_on_nested_fx_trace=False))

            def generator(*_: Any, **__: Any) -> Iterator[None]:
                before = tracer._begin_region()
                yield
                tracer._region = before

            class Reentrant:
                @staticmethod
                def apply(function: Any, preserve: Any, *arguments: Any) -> Any:
                    before = tracer._begin_region(reentrant=True)
                    try:
                        return function(*arguments)
                    finally:
                        tracer._region = before

            for name in (
                "_checkpoint_without_reentrant_generator",
                "_checkpoint_without_reentrant_generator_impl",
            ):
                if hasattr(checkpointing, name):
                    stack.enter_context(_replaced(checkpointing, name, generator))
            stack.enter_context(_replaced(checkpointing, "CheckpointFunction", Reentrant))
            stack.enter_context(_replaced(builtins, "isinstance", _isinstance))
            stack.enter_context(_replaced(torch, "is_tensor", lambda value: _isinstance(value, torch.Tensor)))
            yield

    def _mapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of torch.vmap that becomes one node where it is given traced values, or closes over them."""

        def call(*arguments: Any, **named: Any) -> Any:
            values, foreign = closed_over(function)
            if self._evaluating or not (values or _has_proxy(arguments, named)):
                return function(*arguments, **named)
            if foreign:
                self.refuse(
                    f"torch.vmap is given a function that has {foreign} from outside; give it as an argument"
                )
            return self.create_proxy("call_function", lifted(function, values), (values, *arguments), named)

        return call

    def _begin_region(self, *, reentrant: bool = False) -> int | None:
        before = self._region
        if before is None:
            if reentrant:
                self.reentrant.add(self.regions)
            self._region, self.regions = self.regions, self.regions + 1
        return before

    def run(self, model: nn.Module) -> fx.Graph:
        """The graph of the model. Raises Untraceable and whatever a forward raises."""
        with self.patched(), self._unchanged(model):
            graph: fx.Graph = self.trace(model)
        self._raise_refusal()
        return graph


def _is_in_place(target: Any) -> bool:
    """Whether a function or method changes its first argument."""
    name = str(getattr(target, "__name__", target))
    return name in ("setitem", "__setitem__") or (name.endswith("_") and not name.startswith("_"))


_plain_isinstance = isinstance


def _isinstance(value: Any, kinds: Any) -> bool:
    """What a forward is told that asks whether a value is a tensor. PyTorch itself is told the truth."""
    if _plain_isinstance(value, kinds):
        return True
    if type(value) not in (ValueProxy, ValueAttribute) or not _plain_isinstance(value.known, torch.Tensor):
        return False
    caller = str(sys._getframe(1).f_globals.get("__name__", "")).partition(".")[0]
    return caller not in ("torch", "tdcs_train") and torch.Tensor in (
        kinds if _plain_isinstance(kinds, tuple) else (kinds,)
    )


def _recorded(function: Callable[..., Any], tracer: Tracer) -> Callable[..., Any]:
    @functools.wraps(function)
    def recorded(*arguments: Any, **named: Any) -> Any:
        if not tracer._evaluating and _has_proxy(arguments, named):
            return tracer.create_proxy("call_function", function, arguments, named)
        return function(*arguments, **named)

    return recorded


def _of_type(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch.finfo or torch.iinfo, for a type that is traced, too."""

    def limits(*dtype: Any) -> Any:
        return function(*(t.concrete("the limits of") if isinstance(t, TracedValue) else t for t in dtype))

    return limits


def _has_proxy(arguments: Any, named: Mapping[str, Any]) -> bool:
    return any(isinstance(leaf, fx.Proxy) for leaf in pytree.tree_leaves((arguments, dict(named))))


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = owner.__dict__.get(name, UNKNOWN)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is UNKNOWN:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def _attribute(module: nn.Module, path: str) -> Any:
    owner, _, name = path.rpartition(".")
    return getattr(module.get_submodule(owner), name)
