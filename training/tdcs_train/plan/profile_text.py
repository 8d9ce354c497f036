"""The text format of profiles that PipeDream (SOSP'19) published.

A line a node, then a line an edge, which begins with a tab:

    node2 -- Linear(4, 2) -- forward_compute_time=1.5, backward_compute_time=3.0, activation_size=64, parameter_size=40
    \tnode1 -- node2

Times are milliseconds for one mini-batch, sizes bytes. A node that makes several tensors has a list of sizes,
`activation_size=[64.0; 8.0]`. ` -- stage_id=1` may end a node's line. The order of the lines means nothing.
"""

import math
import re

from tdcs_train.errors import InputError
from tdcs_train.plan.graph import Graph, Layer, check

TIMES = ("forward_compute_time", "backward_compute_time")
FIELDS = (*TIMES, "activation_size", "parameter_size")


def parse(text: str, *, source: str = "profile") -> Graph:
    """The graph of a profile's text; `source` is named in errors.

    Raises:
        InputError: A line that is neither node nor edge, a missing field, a value that is negative or not finite, a
            node that occurs twice, or a graph that cannot be planned.
    """
    layers: dict[str, Layer] = {}
    edges: list[tuple[str, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{source}, line {number}"
        parts = [part.strip() for part in line.strip().split(" -- ")]
        if line[0].isspace():
            if len(parts) != 2:
                raise InputError(f"{where}: an edge is two names with -- between them, not {line.strip()!r}")
            edges.append((parts[0], parts[1]))
        else:
            layer = _layer(parts, where=where)
            if layer.name in layers:
                raise InputError(f"{where}: the node {layer.name} occurs twice; keep one")
            layers[layer.name] = layer
    if not layers:
        raise InputError(f"{source}: there is no node in it; write one with tdcs-train profile")
    graph = Graph(layers, tuple(dict.fromkeys(edges)))
    check(graph, source=source)
    return graph


def render(graph: Graph) -> str:
    """The text of a profile."""
    lines = []
    for layer in graph.layers.values():
        sizes = [f"{size:.3f}" for size in layer.activation_bytes]
        activation = sizes[0] if len(sizes) == 1 else "[" + "; ".join(sizes) + "]"
        stage = "" if layer.stage is None else f" -- stage_id={layer.stage}"
        lines.append(
            f"{layer.name} -- {layer.description} -- forward_compute_time={layer.forward_ms:.3f}, "
            f"backward_compute_time={layer.backward_ms:.3f}, activation_size={activation}, "
            f"parameter_size={layer.parameter_bytes:.3f}{stage}"
        )
    lines += [f"\t{producer} -- {consumer}" for producer, consumer in graph.edges]
    return "\n".join(lines) + "\n"


def _layer(parts: list[str], *, where: str) -> Layer:
    stage = None
    if len(parts) > 3 and (match := re.fullmatch(r"stage_id=(\d+)", parts[-1])):
        stage = int(match[1])
        parts = parts[:-1]
    if len(parts) < 3:
        raise InputError(f"{where}: a node is NAME -- DESCRIPTION -- VALUES, not {' -- '.join(parts)!r}")
    name, description, values = parts[0], " -- ".join(parts[1:-1]), parts[-1]
    fields = dict(re.findall(r"(\w+)=(\[[^\]]*\]|[^,\s]+)", values))
    missing = [field for field in FIELDS if field not in fields]
    if missing:
        raise InputError(f"{where}: {name} has no {', '.join(missing)}; a node needs {', '.join(FIELDS)}")
    numbers = {field: _numbers(fields[field], what=f"{where}: {field} of {name}") for field in FIELDS}
    for field in (*TIMES, "parameter_size"):
        if len(numbers[field]) != 1:
            raise InputError(f"{where}: {field} of {name} is {fields[field]}; it must be one number")
    return Layer(
        name=name,
        description=description,
        forward_ms=numbers["forward_compute_time"][0],
        backward_ms=numbers["backward_compute_time"][0],
        activation_bytes=numbers["activation_size"],
        parameter_bytes=numbers["parameter_size"][0],
        stage=stage,
    )


def _numbers(text: str, *, what: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in text.strip("[]").split(";"))
    except ValueError:
        raise InputError(f"{what} is {text}; it must be a number") from None
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise InputError(f"{what} is {text}; it must be finite and not negative")
    return numbers
