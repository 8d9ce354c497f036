"""Functions of `torch.vmap` as calls of a graph, which has no place for tensors that a function closes over."""

import contextlib
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

_PLAIN: tuple[type, ...] = (
    *(type(None), bool, int, float, complex, str, bytes, type, fx.Tracer),
    *(torch.dtype, torch.device, torch.Size, torch.finfo, torch.iinfo),
    *(types.ModuleType, types.BuiltinFunctionType, types.MethodDescriptorType),
)


def closed_over(function: Callable[..., Any]) -> tuple[list[fx.Proxy], str]:
    """The traced values that a function and those in it close over, and a word for what a graph could not give it.

    That is what may hold parameters of a stage, as a module does, or values where they cannot be replaced.
    """
    values: list[fx.Proxy] = []
    foreign, visited, queue = "", set[int](), [function]
    while queue:
        value: Any = queue.pop()
        if id(value) in visited:
            continue
        visited.add(id(value))
        if isinstance(value, fx.Proxy):
            values.append(value)
        elif type(value) in (tuple, list):
            queue += value
        elif isinstance(value, types.FunctionType):
            queue += _contents(value)
            defaults = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
            if any(isinstance(default, fx.Proxy) for default in defaults):
                foreign = "a default of an argument"
            queue += defaults
        elif not isinstance(value, _PLAIN) and (not isinstance(value, torch.Tensor) or value.requires_grad):
            foreign = f"a {type(value).__name__}"
    return values, foreign


def lifted(function: Callable[..., Any], values: list[fx.Proxy]) -> Callable[..., Any]:
    """The function as one that is given the traced values which it closes over, as a list first.

    The modes of functions (`torch.overrides.TorchFunctionMode`) that hold now hold again when it is called. `args` of
    the answer is equal for functions of the same code and constants.
    """
    places = {id(value): place for place, value in enumerate(values)}
    modes = list(torch.overrides._get_current_function_mode_stack())

    def call(given: list[Any], *arguments: Any, **named: Any) -> Any:
        whole = _replaced(function, lambda proxy: given[places[id(proxy)]], {})
        with contextlib.ExitStack() as stack:
            for mode in modes:
                stack.enter_context(mode)
            return whole(*arguments, **named)

    call.__name__ = "vmap"
    call.args = _written(function, set())  # type: ignore[attr-defined]
    return call


def _contents(function: types.FunctionType) -> list[Any]:
    contents = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell: a name that has no value yet
            contents.append(cell.cell_contents)
    return contents


def _replaced(value: Any, replace: Callable[[fx.Proxy], Any], copies: dict[int, Any]) -> Any:
    """A copy of a function, or of a list of them, with other values for the traced ones."""
    if isinstance(value, fx.Proxy):
        return replace(value)
    if type(value) in (tuple, list):
        return type(value)(_replaced(part, replace, copies) for part in value)
    if not isinstance(value, types.FunctionType) or not value.__closure__:
        return value
    if id(value) not in copies:
        cells = tuple(types.CellType() for _ in value.__closure__)
        copied = types.FunctionType(
            value.__code__, value.__globals__, value.__name__, value.__defaults__, cells
        )
        copied.__kwdefaults__ = value.__kwdefaults__
        copies[id(value)] = copied  # before its cells: a function may call itself
        for cell, before in zip(cells, value.__closure__, strict=True):
            with contextlib.suppress(ValueError):
                cell.cell_contents = _replaced(before.cell_contents, replace, copies)
    return copies[id(value)]


def _written(value: Any, above: set[int]) -> Any:
    """What two traces of the same function have in common."""
    if isinstance(value, (type(None), bool, int, float, str, torch.dtype)):
        return value
    if type(value) in (tuple, list):
        return tuple(_written(part, above) for part in value)
    if not isinstance(value, types.FunctionType) or id(value) in above:
        return type(value).__name__
    return value.__code__, tuple(_written(content, above | {id(value)}) for content in _contents(value))
