"""Functions of `torch.vmap` as calls of a graph, which has no place for tensors that a function closes over."""

import contextlib
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import fx


def lifted(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[fx.Proxy]]:
    """The function as one that is given the traced values which it and the functions in it close over, as a list first.

    The modes of functions (`torch.overrides.TorchFunctionMode`) that hold now hold again when it is called. `args` of
    the answer is equal for functions of the same code and constants.
    """
    values: dict[int, fx.Proxy] = {}

    def number(proxy: fx.Proxy) -> fx.Proxy:
        values.setdefault(id(proxy), proxy)
        return proxy

    _replaced(function, number, {})
    places = {key: place for place, key in enumerate(values)}
    modes = list(torch.overrides._get_current_function_mode_stack())

    def call(closed_over: list[Any], *arguments: Any, **named: Any) -> Any:
        whole = _replaced(function, lambda proxy: closed_over[places[id(proxy)]], {})
        with contextlib.ExitStack() as stack:
            for mode in modes:
                stack.enter_context(mode)
            return whole(*arguments, **named)

    call.__name__ = "vmap"
    call.args = _written(function, set())  # type: ignore[attr-defined]
    return call, list(values.values())


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
            with contextlib.suppress(ValueError):  # an empty cell: a name that has no value yet
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
    contents = []
    for cell in value.__closure__ or ():
        with contextlib.suppress(ValueError):
            contents.append(_written(cell.cell_contents, above | {id(value)}))
    return value.__code__, tuple(contents)
