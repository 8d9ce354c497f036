"""Outputs of models that are tables of a class of their own, as libraries have them beside plain dictionaries."""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class _Table:
    """The content of a table that PyTorch does not look into; with other values it becomes one of the same class."""

    kind: type
    keys: tuple[Any, ...]
    values: Sequence[Any]


def opened(value: Any) -> Any:
    """The content of such a table, also of those inside; any other value as it is."""
    if not isinstance(value, dict) or isinstance(value, fx.Proxy) or type(value) in pytree.SUPPORTED_NODES:
        return value
    inner = [
        pytree.tree_map(opened, element, is_leaf=lambda part: isinstance(part, fx.Proxy))
        for element in value.values()
    ]
    return _Table(type(value), tuple(value), inner)


def _made(values: Iterable[Any], context: Any) -> Any:
    """A table made by its class from a table or from named arguments, else one that is filled."""
    kind, keys = context
    content = dict(zip(keys, values, strict=True))
    for arguments, keywords in (((content,), {}), ((), content)):
        with contextlib.suppress(Exception):  # of somebody's class
            rebuilt = kind(*arguments, **keywords)
            if list(rebuilt) == list(content):
                return rebuilt
    rebuilt = kind.__new__(kind)
    dict.update(rebuilt, content)
    return rebuilt


pytree.register_pytree_node(_Table, lambda table: (list(table.values), (table.kind, table.keys)), _made)
