"""What each layer of a model costs: forward and backward time, bytes of its outputs and parameters.

Forward times are taken by running the graph layer by layer. Backward times come from hooks on the outputs of layers:
autograd works through layers one after another, so the time from the moment at which the gradient of a layer's output
is complete to the same moment of the layer that comes next is that layer's own. With an optimizer, the update of a
layer's parameters counts as part of its backward: a worker does it for every mini-batch, and with many parameters it
takes as long as the gradients themselves.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from tdcs_train.model.clocks import Clock, ProcessorClock
from tdcs_train.model.errors import ModelError
from tdcs_train.model.tracing import TracedModel, attribute, examples_of, parameter_names, trace, uncompiled
from tdcs_train.model.verification import verify
from tdcs_train.plan.graph import Graph, Layer

WARM_UP_STEPS = 2
"""Steps before the measured ones: the first ones allocate memory and choose algorithms."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model and what to measure it with. `batch` gives the inputs and the labels of a mini-batch."""

    model: nn.Module
    batch: Callable[[], tuple[Any, Any]]
    loss: Callable[[Any, Any], torch.Tensor]
    clock: Clock = field(default_factory=ProcessorClock)
    """Of the device that the model and its mini-batches are on."""
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None = None
    """Makes what updates some parameters; the model's weights then change while it is measured."""


def profile(
    subject: Subject,
    *,
    steps: int,
    leaves: Sequence[str] = (),
    layers: Sequence[str] = (),
    note: Callable[[str], None] = lambda _: None,
) -> Graph:
    """The profile of a model: the median of each layer's times over `steps` mini-batches.

    `note` is called with what a user should know, such as modules that are left whole.

    Raises ModelError for a model that cannot be traced, or a mini-batch that it cannot work on.
    """
    parameters = _parameters(subject.model)
    if not any(parameter.requires_grad for parameter in parameters):
        raise ModelError(
            f"the model {type(subject.model).__name__} has no parameters that are trained; there is nothing to plan"
        )
    inputs, labels = subject.batch()
    keywords = inputs if isinstance(inputs, dict) else {}
    positional = () if keywords else inputs if isinstance(inputs, tuple) else (inputs,)
    traced = trace(
        subject.model,
        inputs=list(keywords) or len(positional),
        leaves=leaves,
        layers=layers,
        example=examples_of(inputs),
    )
    for text in traced.notes:
        note(text)
    try:
        if not layers and isinstance(subject.model, nn.Module):
            verify(
                uncompiled(subject.model),
                traced,
                positional=positional,
                named=keywords,
                loss=lambda output: subject.loss(output, labels),
            )
    except ModelError:
        raise
    except Exception as error:  # a model raises anything
        raise _failed(error) from error
    arguments = (*positional, *(keywords[name] for name in traced.inputs if name in keywords))
    recorder = _Recorder(traced.graph_module, subject.clock)
    updates = _Updates(traced, subject.optimizer, subject.clock)
    for step in range(WARM_UP_STEPS + steps):
        if step == WARM_UP_STEPS:
            recorder.forward.clear()
            recorder.backward.clear()
            updates.seconds.clear()
        try:
            output = traced.rebuild(recorder.run(*arguments))
            loss = subject.loss(output, labels)
            recorder.measure_backward(loss)
            updates.measure()
        except ModelError:
            raise
        except Exception as error:  # a model raises anything
            raise _failed(error) from error
        for parameter in parameters:
            parameter.grad = None
    return _graph(traced, recorder, updates)


def _parameters(model: Any) -> list[nn.Parameter]:
    """Those of a module, or of a program of torch.export."""
    module = model if isinstance(model, nn.Module) else model.module()
    return list(module.parameters())


def _failed(error: Exception) -> ModelError:
    # What follows the first line is the interpreter's account of the graph.
    reason = str(error).strip().splitlines()[:1]
    return ModelError(f"the model fails on its own mini-batch: {': '.join([type(error).__name__, *reason])}")


def _graph(traced: TracedModel, recorder: "_Recorder", updates: "_Updates") -> Graph:
    layers = {}
    owned = _owned(traced)
    bearer: dict[str, str] = {}
    for layer in traced.layers:
        measured = Layer(
            name=layer.id,
            description=layer.description,
            forward_ms=_median_ms(recorder.forward.get(layer.name, [])),
            backward_ms=_median_ms(recorder.backward.get(layer.name, []))
            + _median_ms(updates.seconds.get(layer.id, [])),
            activation_bytes=tuple(float(size) for size in recorder.sizes.get(layer.name, ())) or (0.0,),
            parameter_bytes=float(sum(p.numel() * p.element_size() for p in owned[layer.id])),
        )
        if layer.is_planned:
            layers[layer.id] = measured
            continue
        # Nothing reads it, or numbers alone are read: it runs where its inputs are, and costs there.
        behind = [bearer.get(source, source) for source in layer.inputs]
        where = max((name for name in behind if name in layers), key=list(layers).index, default=None)
        if where is not None:
            bearer[layer.id] = where
            old = layers[where]
            layers[where] = replace(
                old,
                forward_ms=old.forward_ms + measured.forward_ms,
                parameter_bytes=old.parameter_bytes + measured.parameter_bytes,
            )
    edges = [(source, layer.id) for layer in traced.layers if layer.is_planned for source in layer.inputs]
    return Graph(layers, tuple(dict.fromkeys(edges)))


def _owned(traced: TracedModel) -> dict[str, list[nn.Parameter]]:
    """The parameters of each layer; a shared one counts once, at the first layer that uses it."""
    owners: dict[int, str] = {}
    by_layer: dict[str, list[nn.Parameter]] = {}
    nodes = {node.name: node for node in traced.graph_module.graph.nodes}
    for layer in traced.layers:
        names = parameter_names(nodes[layer.name], traced.graph_module)
        parameters = [attribute(traced.graph_module, name) for name in names]
        by_layer[layer.id] = [
            p
            for p in parameters
            if isinstance(p, nn.Parameter) and owners.setdefault(id(p), layer.id) == layer.id
        ]
    return by_layer


class _Updates:
    """An optimizer for each layer, and the seconds of its steps."""

    def __init__(
        self,
        traced: TracedModel,
        optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self.seconds: dict[str, list[float]] = {}
        self._optimizers: dict[str, torch.optim.Optimizer] = {}
        for layer, parameters in _owned(traced).items():
            trained = [parameter for parameter in parameters if parameter.requires_grad]
            if optimizer is not None and trained:
                self._optimizers[layer] = optimizer(trained)

    def measure(self) -> None:
        """A step of every layer."""
        for layer, optimizer in self._optimizers.items():
            begin = self._clock.mark()
            optimizer.step()
            seconds = self._clock.seconds(begin, self._clock.mark())
            self.seconds.setdefault(layer, []).append(seconds)


def _median_ms(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1000 if seconds else 0.0


class _Recorder(fx.Interpreter):
    """Runs the graph and notes when each layer begins and ends."""

    def __init__(self, module: fx.GraphModule, clock: Clock) -> None:
        super().__init__(module)
        self.forward: dict[str, list[float]] = {}
        self.backward: dict[str, list[float]] = {}
        self.sizes: dict[str, list[int]] = {}
        self._clock = clock
        self._marks: list[tuple[str, Any]] = []
        self._ran: list[tuple[str, Any, Any]] = []

    def run_node(self, n: fx.Node) -> Any:
        begin = self._clock.mark()
        output = super().run_node(n)
        end = self._clock.mark()
        if n.op in ("get_attr", "output"):
            return output
        tensors = list(_tensors(output))
        self.sizes[n.name] = [tensor.numel() * tensor.element_size() for tensor in tensors]
        if n.op != "placeholder":
            self._ran.append((n.name, begin, end))
            for tensor in tensors:
                if tensor.grad_fn is not None:
                    tensor.register_hook(
                        lambda _, name=n.name: self._marks.append((name, self._clock.mark()))
                    )
        return output

    def measure_backward(self, loss: torch.Tensor) -> None:
        """Runs backward; the time between two marks belongs to the layer of the first."""
        self._marks = []
        loss.backward()
        ends = [*[moment for _, moment in self._marks[1:]], self._clock.mark()]
        for name, begin, end in self._ran:
            self.forward.setdefault(name, []).append(self._clock.seconds(begin, end))
        self._ran = []
        seconds: dict[str, float] = {}
        for (name, begin), end in zip(self._marks, ends, strict=True):
            seconds[name] = seconds.get(name, 0.0) + self._clock.seconds(begin, end)
        for name, value in seconds.items():
            self.backward.setdefault(name, []).append(value)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    yield from (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))
