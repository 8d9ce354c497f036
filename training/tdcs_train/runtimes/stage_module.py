"""A stage of a plan as a module of tensors by position, which pipelines of other packages can run.

These pipelines send a gradient back for every tensor that they have sent, and integers have none. So whole numbers
travel as floating-point numbers of the same bits, every tensor that leaves takes part in autograd, and every one that
arrives is given a gradient, of zeros where the stage does not use it.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tdcs_train.model.errors import ModelError, PlanError
from tdcs_train.model.splitting import SplitModel, StagePart
from tdcs_train.pipeline.computing_again import computed_again
from tdcs_train.pipeline.stage import Loss

_BY_BITS = {torch.int64: torch.float64, torch.int32: torch.float32, torch.int16: torch.float16}
_BY_VALUE = (torch.bool, torch.int8, torch.uint8)


@dataclass(frozen=True, kw_only=True)
class Kinds:
    """What passes between stages, for one micro-batch."""

    tensors: Mapping[str, tuple[torch.dtype, torch.Size]]
    """Type and shape of each tensor."""
    constants: Mapping[str, Any]
    """Sizes and numbers: they follow from the shapes, which are always the same, and need not travel."""


class StageModule(nn.Module):
    """One stage: tensors in by position, tensors out by position."""

    def __init__(self, model: SplitModel, number: int, kinds: Kinds, *, recomputes: bool = False) -> None:
        super().__init__()
        self._recomputes = recomputes
        self.part = model.parts[number]
        self.module = self.part.module
        self._is_first, self._is_last = number == 0, number == len(model.parts) - 1
        self.arriving = travelling(self.part.arriving, kinds)
        self.leaving = travelling(self.part.leaving, kinds)
        self._constants = dict(kinds.constants)
        self._types = [kinds.tensors[name][0] for name in self.arriving]

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by their names in the whole model."""
        return {self.part.names.get(name, name): value for name, value in self.module.state_dict().items()}

    def forward(self, *arrived: Any) -> Any:
        """The values that leave the stage."""
        if len(arrived) == 1 and isinstance(arrived[0], tuple):
            arrived = arrived[0]  # as DeepSpeed calls its layers
        tensors = list(arrived) if self._is_first else list(arrive(self._types, *arrived))
        values = {**self._constants, **dict(zip(self.arriving, tensors, strict=True))}
        arguments = [values[name] for name in self.part.takes]
        if self._recomputes and torch.is_grad_enabled():
            outputs = computed_again(self.module, self.module, arguments)
        else:
            outputs = self.module(*arguments)
        values.update(zip(self.part.gives, outputs if len(self.part.gives) > 1 else (outputs,), strict=True))
        leaving = [values[name] for name in self.leaving]
        if self._is_last:
            # What they return to the caller is joined along the first dimension, which a number has not.
            leaving = [value if value.dim() else value.unsqueeze(0) for value in leaving]
            # PyTorch detaches them in place afterwards, which views refuse, and expects the layout of new tensors.
            leaving = [
                value.clone(memory_format=torch.contiguous_format)
                if value._is_view() or not value.is_contiguous()
                else value
                for value in leaving
            ]
        else:
            leaving = list(leave(*leaving))
        return tuple(leaving) if len(leaving) > 1 else leaving[0]


def loss_of_leaving(model: SplitModel, kinds: Kinds, loss: Loss) -> Loss:
    """The loss as a function of the tensors that leave the last stage, and labels."""
    names = travelling(model.parts[-1].leaving, kinds)

    def of(leaving: Any, labels: Any) -> torch.Tensor:
        tensors = leaving if isinstance(leaving, tuple) else (leaving,)
        values = dict(kinds.constants) | {
            name: tensor if kinds.tensors[name][1] else tensor.squeeze(0)
            for name, tensor in zip(names, tensors, strict=True)
        }
        output = model.rebuild(
            [values[leaf.name] if isinstance(leaf, torch.fx.Node) else leaf for leaf in model.output]
        )
        return loss(output, labels)

    return of


def kinds_of(model: SplitModel, inputs: Sequence[torch.Tensor]) -> Kinds:
    """Types and shapes of all values that pass between stages, found without computing them.

    Raises:
        ModelError: A stage cannot be run on shapes alone, or what passes a border is no tensor.
    """
    examples = [value.detach().to("meta") for value in inputs]
    values: dict[str, Any] = dict(zip(model.inputs, examples, strict=True))
    for number, part in enumerate(model.parts):
        module = copy.deepcopy(part.module).to("meta")
        try:
            with torch.no_grad():
                outputs = module(*(values[name] for name in part.takes))
        except Exception as error:  # an operator raises anything
            raise ModelError(
                f"the shapes that stage {number} makes cannot be found without computing them "
                f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}), which this runtime "
                "needs before it begins; use tdcs_train's own pipeline"
            ) from error
        values.update(zip(part.gives, outputs if len(part.gives) > 1 else (outputs,), strict=True))
        _refuse_others(part, values, number)
    passed = {name for part in model.parts for name in (*part.arriving, *part.leaving)}
    return Kinds(
        tensors={
            name: (value.dtype, value.shape)
            for name, value in values.items()
            if isinstance(value, torch.Tensor)
        },
        constants={
            name: value
            for name, value in values.items()
            if name in passed and not isinstance(value, torch.Tensor)
        },
    )


def travelling(names: Sequence[str], kinds: Kinds) -> tuple[str, ...]:
    """Those of the values that are tensors."""
    return tuple(name for name in names if name in kinds.tensors)


def carried(kinds: Kinds, names: Sequence[str]) -> tuple[torch.Tensor, ...]:
    """Tensors without content of the types and shapes in which these values travel."""
    return tuple(
        torch.empty(kinds.tensors[name][1], dtype=_carrier(kinds.tensors[name][0]), device="meta")
        for name in names
    )


def _refuse_others(part: StagePart, values: Mapping[str, Any], number: int) -> None:
    for name in part.leaving:
        value = values[name]
        if isinstance(value, torch.Tensor):
            _carrier(value.dtype)
        elif any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value)):
            raise PlanError(
                f"{name}, a {type(value).__name__} of tensors, passes from stage {number} to the next, and this "
                "runtime carries tensors alone; cut elsewhere (--together), or use tdcs_train's own pipeline"
            )


def _carrier(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_floating_point:
        return dtype
    if dtype in _BY_VALUE:
        return torch.float32
    if dtype in _BY_BITS:
        return _BY_BITS[dtype]
    raise PlanError(
        f"a tensor of type {dtype} passes between stages, which this runtime cannot carry; use tdcs_train's own "
        "pipeline"
    )


def leave(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The values as they travel."""
    anchor = torch.zeros((), device=values[0].device, requires_grad=True)
    carried: tuple[torch.Tensor, ...] = _Leave.apply(anchor, *values)
    return carried


def arrive(types: Sequence[torch.dtype], *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The values as they were, of these types."""
    arrived: tuple[torch.Tensor, ...] = _Arrive.apply(types, *values)
    return arrived


class _Leave(torch.autograd.Function):
    """Makes floating-point tensors of all, and each a part of autograd: by the anchor, which needs a gradient."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.floats = [value.is_floating_point() for value in values]
        return tuple(_packed(value) for value in values)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return (
            None,
            *(
                gradient if floating else None
                for gradient, floating in zip(gradients, ctx.floats, strict=True)
            ),
        )


class _Arrive(torch.autograd.Function):
    """The inverse: values of their own types; each that arrived has a gradient, of zeros where it is not used."""

    @staticmethod
    def forward(ctx: Any, types: Sequence[torch.dtype], *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.arrived = [(value.shape, value.dtype, value.device) for value in values]
        tensors = tuple(_unpacked(value, dtype) for value, dtype in zip(values, types, strict=True))
        ctx.mark_non_differentiable(*(value for value in tensors if not value.is_floating_point()))
        return tensors

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return (
            None,
            *(
                gradient
                if gradient is not None and gradient.dtype == dtype
                else torch.zeros(shape, dtype=dtype, device=device)
                for gradient, (shape, dtype, device) in zip(gradients, ctx.arrived, strict=True)
            ),
        )


def _packed(value: torch.Tensor) -> torch.Tensor:
    carrier = _carrier(value.dtype)
    if value.is_floating_point():
        return value.view_as(value) if value.is_contiguous() else value.contiguous()
    if value.dtype in _BY_VALUE:
        return value.to(carrier)
    return value.contiguous().view(carrier)


def _unpacked(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        return value.clone()  # layers may change it in place
    return value.to(dtype) if dtype in _BY_VALUE else value.contiguous().view(dtype)
