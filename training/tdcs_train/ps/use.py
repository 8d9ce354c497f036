"""Which parameters an operator uses, at the moment at which it is about to use them.

A module's forward need not call the modules inside it: `nn.MultiheadAttention` reads the weights of its `out_proj`, and
a language model may multiply by the weights of its embedding. So it is not the modules that are watched, but the
operators: every function of PyTorch that is given a parameter passes here first, also inside a list, as LSTM has them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from tdcs_train.model.errors import ModelError

_METADATA = frozenset(
    getattr(torch.Tensor, name).__get__
    for name in (
        *(
            "device",
            "dtype",
            "grad",
            "grad_fn",
            "is_complex",
            "is_cpu",
            "is_cuda",
            "is_leaf",
            "is_meta",
            "is_mkldnn",
        ),
        *(
            "is_quantized",
            "is_sparse",
            "itemsize",
            "layout",
            "name",
            "names",
            "nbytes",
            "ndim",
            "requires_grad",
        ),
        *("retains_grad", "shape"),
    )
    if hasattr(torch.Tensor, name) and hasattr(getattr(torch.Tensor, name), "__get__")
)
"""Properties that no value is read for. Methods such as `size` wait like any other: they are rare in a forward."""


class UseOfParameters(TorchFunctionMode):
    """Calls `before` with the number of each known parameter that an operator of this thread is given."""

    def __init__(self, numbers: Mapping[int, int], before: Callable[[int], None]) -> None:
        super().__init__()
        self._numbers, self._before = numbers, before

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _METADATA:
            self._look(args)
            if kwargs:
                self._look(tuple(kwargs.values()))
        return func(*args, **kwargs)

    def _look(self, values: Any) -> None:
        for value in values:
            if isinstance(value, torch.Tensor):
                number = self._numbers.get(id(value))
                if number is not None:
                    self._before(number)
            elif isinstance(value, (tuple, list)):
                self._look(value)
            elif isinstance(value, dict):
                self._look(tuple(value.values()))


def refuse_compiled(model: nn.Module) -> None:
    """A compiled forward reads its parameters where nothing can wait for them."""
    for name, module in model.named_modules():
        by = "torch.jit" if isinstance(module, torch.jit.ScriptModule) else ""
        if (
            type(module).__name__ == "OptimizedModule"
            or getattr(module, "_compiled_call_impl", None) is not None
        ):
            by = "torch.compile"
        if by:
            which = f"its module {name}" if name else f"the model {type(module).__name__}"
            raise ModelError(
                f"{which} is compiled ({by}), and a compiled forward cannot wait for single parameters; "
                f"use the model as it is before {by}"
            )
