"""Which parameters an operator uses, at the moment at which it is about to use them.

A module's forward need not call the modules inside it: `nn.MultiheadAttention` reads the weights of its `out_proj`, and
a language model may multiply by the weights of its embedding. So it is not the modules that are watched, but the
operators: every function of PyTorch that is given a parameter passes here first, also inside a list, as LSTM has them.
So does one that is given other names of a parameter's memory, such as a transposed view that a module has kept.

Functions of TorchScript and those with a backward of their own are no operators, and are watched where they are called.
Functions behind torch.compile run as they were written meanwhile.
"""

import contextlib
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from tdcs_train.model.errors import ModelError

_CLIPPING = frozenset({"clip_grad_norm_", "clip_grad_value_", "unscale_", "_unscale_grads_"})
"""Functions that change gradients between backward and step."""
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


_GRADIENT = torch.Tensor.grad.__get__  # type: ignore[attr-defined, unused-ignore]


def _caller() -> str:
    """The function of PyTorch that reads a property, from inside of a list or loop."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name.startswith("<"):
        frame = frame.f_back
    return frame.f_code.co_name if frame is not None else ""


class UseOfParameters(TorchFunctionMode):
    """Calls `before` with the number of each parameter that an operator of this thread is given.

    `not_clipped` says why gradients cannot be clipped here, if they cannot.
    """

    def __init__(
        self, parameters: Sequence[torch.Tensor], before: Callable[[int], None], *, not_clipped: str = ""
    ) -> None:
        super().__init__()
        self._numbers = {id(value): number for number, value in enumerate(parameters)}
        self._memory: dict[int, list[int]] = {}
        """The parameters that have their values in a piece of memory."""
        for number, value in enumerate(parameters):
            self._memory.setdefault(value.untyped_storage()._cdata, []).append(number)
        self._before, self._not_clipped = before, not_clipped
        self.idle = False
        """Whether operators are let through without a look at what they are given."""

    def __enter__(self) -> "UseOfParameters":
        _OTHER_CALLS.begin()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        _OTHER_CALLS.end()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.idle:
            return func(*args, **kwargs)
        if self._not_clipped and func == _GRADIENT and id(args[0]) in self._numbers:
            name = _caller()
            if name in _CLIPPING:
                raise ModelError(f"{name} was called, and {self._not_clipped}")
        if func not in _METADATA:
            self.look(args)
            if kwargs:
                self.look(tuple(kwargs.values()))
        return func(*args, **kwargs)

    def look(self, values: Any) -> None:
        """Call `before` for the parameters among the arguments of a call."""
        for value in values:
            if isinstance(value, torch.Tensor):
                number = self._numbers.get(id(value))
                for index in self._behind(value) if number is None else (number,):
                    self._before(index)
            elif isinstance(value, (tuple, list)):
                self.look(value)
            elif isinstance(value, dict):
                self.look(tuple(value.values()))

    def _behind(self, value: torch.Tensor) -> Sequence[int]:
        """The parameters whose memory a tensor is another name of. Results of operators have memory of their own."""
        if value.grad_fn is not None:
            base = value._base
            number = None if base is None else self._numbers.get(id(base))
            return () if number is None else (number,)
        try:
            return self._memory.get(value.untyped_storage()._cdata, ())
        except (NotImplementedError, RuntimeError):  # sparse ones, and those inside of torch.func, have none
            return ()


class _OtherCalls:
    """Calls that are no operators, watched while any thread watches its operators."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watching = 0
        self._undo = contextlib.ExitStack()

    def begin(self) -> None:
        with self._lock:
            self._watching += 1
            if self._watching == 1:
                self._undo.enter_context(_watched(torch.jit.ScriptFunction, "__call__"))
                self._undo.enter_context(_watched(torch.autograd.Function, "apply"))
                self._undo.enter_context(torch.compiler.set_stance("force_eager"))

    def end(self) -> None:
        with self._lock:
            self._watching -= 1
            if self._watching == 0:
                self._undo.close()


_OTHER_CALLS = _OtherCalls()


@contextlib.contextmanager
def _watched(owner: Any, name: str) -> Iterator[None]:
    """A method of a class of PyTorch that the modes of the calling thread are shown the arguments of."""
    original = owner.__dict__[name]

    def called(bound: Any, *arguments: Any, **named: Any) -> Any:
        for mode in _get_current_function_mode_stack():
            if isinstance(mode, UseOfParameters):
                mode.look((*arguments, *named.values()))
        return bound(*arguments, **named)

    if isinstance(original, classmethod):

        def of_class(cls: Any, *arguments: Any, **named: Any) -> Any:
            return called(original.__get__(None, cls), *arguments, **named)

        setattr(owner, name, classmethod(of_class))
    else:

        def of_instance(self: Any, *arguments: Any, **named: Any) -> Any:
            return called(original.__get__(self), *arguments, **named)

        setattr(owner, name, of_instance)
    try:
        yield
    finally:
        setattr(owner, name, original)


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
            subject = f"its module {name}" if name else f"the model {type(module).__name__}"
            raise ModelError(
                f"{subject} is compiled ({by}), and a compiled forward cannot wait for single parameters; "
                f"use the model as it is before {by}"
            )
