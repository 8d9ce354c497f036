"""The computation of one stage: forward, backward, and the update of its weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from tdcs_train.model.errors import ModelError
from tdcs_train.model.splitting import SplitModel, StagePart
from tdcs_train.pipeline.computing_again import computed_again
from tdcs_train.pipeline.values import Gradients, Packet, detached, tensors_of
from tdcs_train.pipeline.versions import WeightVersions

Loss = Callable[[Any, Any], torch.Tensor]
LABEL = "label."
"""Labels enter with the inputs at the first stage and travel along under this prefix and a number."""


@dataclass
class _InFlight:
    """A mini-batch between its forward and its backward."""

    batch: int
    version: int
    arrived: dict[str, Any]
    results: dict[str, Any]
    loss: torch.Tensor | None = None


@dataclass
class StageCompute:
    """What a worker computes. All calls come from one thread; mini-batches leave in the order in which they came.

    `loss` is called at the last stage with the model's output and the labels.
    """

    model: SplitModel
    number: int
    loss: Loss
    labels: int = 1
    """Label tensors of a mini-batch; 0: the loss is called with None."""
    recomputes: bool = False
    """Keep only what arrives until the backward, and compute the forward again then."""
    parameters: dict[str, nn.Parameter] = field(init=False)
    weights: WeightVersions = field(init=False)
    _in_flight: dict[int, _InFlight] = field(init=False, default_factory=dict)
    _places: list[tuple[dict[str, Any], str, str]] = field(init=False)
    """Where a parameter is: the table of its module, its key there, and its name; a shared one is at several places."""

    def __post_init__(self) -> None:
        self.parameters = dict(self.part.module.named_parameters())
        self.weights = WeightVersions(self.parameters)
        names = {id(parameter): name for name, parameter in self.parameters.items()}
        self._places = [
            (module._parameters, key, names[id(parameter)])
            for module in self.part.module.modules()
            for key, parameter in module._parameters.items()
            if parameter is not None
        ]

    @property
    def part(self) -> StagePart:
        return self.model.parts[self.number]

    @property
    def is_last(self) -> bool:
        return self.number == len(self.model.parts) - 1

    @property
    def label_names(self) -> list[str]:
        return [f"{LABEL}{number}" for number in range(self.labels)]

    @property
    def in_flight(self) -> int:
        """Mini-batches between their forward and their backward."""
        return len(self._in_flight)

    def oldest_version_needed(self, *, after: int | None = None) -> int | None:
        """The oldest version that a mini-batch in flight uses, `after` one left out; None without any."""
        versions = [entry.version for batch, entry in self._in_flight.items() if batch != after]
        return min(versions, default=None)

    def enter(self, batch: int, inputs: Any, labels: Any) -> Packet:
        """The packet of a mini-batch that the input stage has read.

        Raises ModelError when there are more or fewer inputs or labels than the model takes.
        """
        if isinstance(inputs, dict) and (
            missing := [name for name in self.model.inputs if name not in inputs]
        ):
            raise ModelError(f"mini-batch {batch} lacks the input {missing[0]}; it has {', '.join(inputs)}")
        arguments = inputs if isinstance(inputs, tuple) else (inputs,)
        if isinstance(inputs, dict):
            arguments = tuple(inputs[name] for name in self.model.input_names)
        marks = () if labels is None else labels if isinstance(labels, tuple) else (labels,)
        if len(arguments) != len(self.model.inputs) or len(marks) != self.labels:
            raise ModelError(
                f"mini-batch {batch} has {len(arguments)} inputs and {len(marks)} labels; the model takes "
                f"{len(self.model.inputs)} ({', '.join(self.model.input_names)}), the pipeline {self.labels}"
            )
        values = dict(zip(self.model.inputs, arguments, strict=True)) | dict(
            zip(self.label_names, marks, strict=True)
        )
        return Packet(batch, values)

    def forward(self, packet: Packet, *, version: int, share_of_loss: float = 1.0) -> Packet:
        """Works on a mini-batch with the weights of a version; returns what goes to the next stage.

        At the last stage the packet holds the loss. `share_of_loss` is the part of a mini-batch's loss that this
        micro-batch is (mode flush).
        """
        entry = self._run(packet, version)
        self._in_flight[packet.batch] = entry
        if self.is_last:
            output, marks = self._end(entry)
            entry.loss = self.loss(output, marks) * share_of_loss
            return Packet(packet.batch, {"loss": float(entry.loss.detach())}, packet.version)
        return self._leaving(entry, packet)

    def evaluate(self, packet: Packet) -> Packet | tuple[Any, Any]:
        """Works on a mini-batch with the newest weights, without a backward to come: what goes to the next stage, or
        the model's output and the labels at the last one."""
        with torch.no_grad():
            entry = self._run(packet, self.weights.newest)
            return self._end(entry) if self.is_last else self._leaving(entry, packet)

    def _run(self, packet: Packet, version: int) -> _InFlight:
        part = self.part
        arrived = {name: detached(value) for name, value in packet.values.items()}
        arguments = [arrived[name] for name in part.takes]
        weights = self.weights.at(version)
        if self.recomputes and torch.is_grad_enabled():
            answer = computed_again(lambda *given: self._computed(weights, given), part.module, arguments)
        else:
            answer = self._computed(weights, arguments)
        outputs = dict(zip(part.gives, answer if len(part.gives) > 1 else (answer,), strict=True))
        return _InFlight(packet.batch, version, arrived, outputs)

    def _end(self, entry: _InFlight) -> tuple[Any, Any]:
        """What the model returns, and the labels."""
        values = {**entry.arrived, **entry.results}
        output = self.model.rebuild(
            [values[leaf.name] if isinstance(leaf, fx.Node) else leaf for leaf in self.model.output]
        )
        marks = [entry.arrived[name] for name in self.label_names]
        return output, marks[0] if len(marks) == 1 else tuple(marks) or None

    def _leaving(self, entry: _InFlight, packet: Packet) -> Packet:
        values = {**entry.arrived, **entry.results}
        leaving = [*self.part.leaving, *self.label_names]
        # With the graph that made it: what is sent are bytes, and who takes it here begins with a leaf of its own.
        return Packet(packet.batch, {name: values[name] for name in leaving}, packet.version)

    def backward(self, gradients: Packet) -> tuple[Packet, list[torch.Tensor | None]]:
        """Works back on a mini-batch: the gradients for the stage before, and those of this stage's parameters."""
        entry = self._in_flight.pop(gradients.batch)
        weights = self.weights.at(entry.version)
        trained = [name for name, parameter in self.parameters.items() if parameter.requires_grad]
        leaves = {name: tensors_of(value) for name, value in entry.arrived.items()}
        ends, seeds = self._ends(entry, gradients.values)
        targets = [tensor for group in leaves.values() for tensor in group if tensor.requires_grad]
        targets += [weights[name] for name in trained]
        derivatives: Sequence[torch.Tensor | None] = [None] * len(targets)
        if ends and targets:
            derivatives = torch.autograd.grad(ends, targets, seeds, allow_unused=True)
        of_values = iter(derivatives)
        back: dict[str, Gradients] = {
            name: [next(of_values) if tensor.requires_grad else None for tensor in group]
            for name, group in leaves.items()
        }
        for (
            name,
            group,
        ) in back.items():  # what was handed on unchanged comes back with what later stages make of it
            if name in gradients.values and name not in entry.results:
                back[name] = [
                    _added(first, second) for first, second in zip(group, gradients.values[name], strict=True)
                ]
        of_parameters = dict(zip(trained, of_values, strict=True))
        return (
            Packet(gradients.batch, {name: group for name, group in back.items() if any_gradient(group)}),
            [of_parameters.get(name) for name in self.parameters],
        )

    def _computed(self, weights: Mapping[str, torch.Tensor], arguments: Sequence[Any]) -> Any:
        """What the stage's module makes of its arguments with these weights.

        As `torch.func.functional_call`, of which the general case costs as much as a small layer.
        """
        try:
            for table, key, name in self._places:
                table[key] = weights[name]
            return self.part.module.forward(
                *arguments
            )  # calling a GraphModule costs as much as a small layer
        finally:
            for table, key, name in self._places:
                table[key] = self.parameters[name]

    def _ends(
        self, entry: _InFlight, gradients: Mapping[str, Gradients]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
        """The tensors at which backward begins, and their gradients."""
        if entry.loss is not None:
            return ([entry.loss], [None]) if entry.loss.requires_grad else ([], [])
        pairs = [
            pair
            for name, value in entry.results.items()
            if name in gradients
            for pair in zip(tensors_of(value), gradients[name], strict=True)
        ]
        ends = [(tensor, gradient) for tensor, gradient in pairs if gradient is not None]
        return [tensor for tensor, _ in ends], [gradient for _, gradient in ends]


def any_gradient(gradients: Gradients) -> bool:
    """Whether a value has a gradient at all; those without stay where they are."""
    return any(gradient is not None for gradient in gradients)


def _added(one: torch.Tensor | None, other: torch.Tensor | None) -> torch.Tensor | None:
    return other if one is None else one if other is None else one + other
