"""The parameters of a model as servers and workers share them: numbers, order and the server of each."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tdcs_train.model.errors import PlanError
from tdcs_train.model.memory import refuse_overlaps
from tdcs_train.model.tracing import TracedModel
from tdcs_train.ps.channel import class_of


@dataclass(frozen=True, kw_only=True)
class SharedParameter:
    """A parameter. Larger `priority` travels first; `server` holds it."""

    number: int
    name: str
    bytes: int
    priority: int
    priority_class: int
    server: int


def shared_parameters(
    model: nn.Module, *, servers: int, priorities: Mapping[str, int] | None = None
) -> list[SharedParameter]:
    """The trained parameters of a model. Without priorities those of earlier layers go first.

    The largest ones go to the server with the fewest bytes, so all servers hold about as many.
    """
    parameters = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not parameters:
        raise PlanError(f"the model {type(model).__name__} has no parameters to train")
    if lazy := [name for name, p in parameters if isinstance(p, nn.parameter.UninitializedParameter)]:
        raise PlanError(
            f"the parameter {lazy[0]} has no shape yet; call the model on one mini-batch before it is served"
        )
    refuse_overlaps(parameters)
    if priorities is None:
        priorities = {name: len(parameters) - number for number, (name, _) in enumerate(parameters)}
    if missing := [name for name, _ in parameters if name not in priorities]:
        raise PlanError(f"the order has no priority for {missing[0]}; it is an order of another model")
    sizes = [p.numel() * p.element_size() for _, p in parameters]
    loads, server = [0] * servers, [0] * len(parameters)
    for number in sorted(range(len(parameters)), key=lambda each: -sizes[each]):
        server[number] = loads.index(min(loads))
        loads[server[number]] += sizes[number]
    urgency = sorted(range(len(parameters)), key=lambda each: (-priorities[parameters[each][0]], each))
    places = {number: place for place, number in enumerate(urgency)}
    return [
        SharedParameter(
            number=number,
            name=name,
            bytes=sizes[number],
            priority=len(parameters) - places[number],
            priority_class=class_of(places[number], len(parameters)),
            server=server[number],
        )
        for number, (name, _) in enumerate(parameters)
    ]


def priorities_of(document: Any, traced: TracedModel, *, source: str) -> dict[str, int]:
    """The priority of each parameter from what `tdcs-train order --json` writes, by the layer that it belongs to.

    Raises PlanError for a document that is no order, or one of another model.
    """
    transfers = document.get("transfers") if isinstance(document, Mapping) else None
    if not isinstance(transfers, Sequence) or isinstance(transfers, str):
        raise PlanError(f"{source} has no list `transfers`; write it with tdcs-train order --json")
    of_layer: dict[str, int] = {}
    for number, transfer in enumerate(transfers):
        layer = transfer.get("node") if isinstance(transfer, Mapping) else None
        priority = transfer.get("priority") if isinstance(transfer, Mapping) else None
        if not isinstance(layer, str) or not isinstance(priority, int):
            raise PlanError(f"{source}, transfers[{number}] needs node and priority, a whole number")
        of_layer[layer] = priority
    priorities: dict[str, int] = {}
    for layer in traced.layers:
        for name in layer.parameters:
            if layer.id in of_layer:
                priorities[name] = max(priorities.get(name, of_layer[layer.id]), of_layer[layer.id])
            elif name not in priorities:
                raise PlanError(
                    f"{source} has no transfer for {layer.id} ({layer.description}); order this model again"
                )
    return priorities


def digest(parameters: Sequence[SharedParameter]) -> str:
    """Equal at servers and workers that can work together."""
    described = [[parameter.name, parameter.bytes, parameter.server] for parameter in parameters]
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:16]


def staging(value: torch.Tensor) -> torch.Tensor:
    """Contiguous memory for a value of this shape, whatever the layout of the parameter itself is."""
    return torch.empty(value.shape, dtype=value.dtype)


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous tensor on the processor."""
    flat: Any = tensor.detach().view(-1).view(torch.uint8).numpy()
    return memoryview(flat)
