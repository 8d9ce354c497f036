"""The order in which a TensorFlow step reads its variables from servers, and whether a trace kept it. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from tdcs_train.errors import InputError


def layer_priorities(document: Any, *, source: str) -> list[int]:
    """The priorities of the layers with parameters, in the order in which the model calls them.

    `document` is what `tdcs-train order --json` writes; its layers are numbered in the order of the calls (`node7`).

    Raises:
        InputError: It is no such document; the message names `source` and the entry.
    """
    transfers = document.get("transfers") if isinstance(document, Mapping) else None
    if not isinstance(transfers, list) or not transfers:
        raise InputError(f"{source} has no list `transfers`; write it with tdcs-train order --json")
    priority_of: dict[int, int] = {}
    for number, transfer in enumerate(transfers):
        node = transfer.get("node") if isinstance(transfer, Mapping) else None
        priority = transfer.get("priority") if isinstance(transfer, Mapping) else None
        digits = node.removeprefix("node") if isinstance(node, str) else ""
        if not digits.isdecimal() or not isinstance(priority, int) or isinstance(priority, bool):
            raise InputError(
                f"{source}, transfers[{number}] needs node, such as node7, and priority, a whole number"
            )
        if int(digits) in priority_of:
            raise InputError(f"{source}, transfers[{number}]: {node} is there twice")
        priority_of[int(digits)] = priority
    return [priority_of[layer] for layer in sorted(priority_of)]


def read_order(priorities: Sequence[int]) -> list[int]:
    """The places of variables in the order in which they are read: the largest priority first, equal ones as given."""
    return sorted(range(len(priorities)), key=lambda place: (-priorities[place], place))


def kept(arrivals: Sequence[float], priorities: Sequence[int], *, window: int) -> bool:
    """Whether variables that arrived at these times came in order: none before one that is `window` places ahead."""
    times = [arrivals[place] for place in read_order(priorities)]
    return all(early <= late for early, late in zip(times, times[window:], strict=False))
