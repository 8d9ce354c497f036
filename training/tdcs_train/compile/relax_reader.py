"""Reads TVM's Relax functions into the frozen values of `tdcs_train.backends.graph`."""

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax

from tdcs_train.backends.graph import Attribute, Input, Match, Node, Region, Step, TensorType

ATTRIBUTES = (
    *("axes", "axis", "ceil_mode", "count_include_pad", "data_layout", "dilation", "groups", "keepdims"),
    *("kernel_layout", "layout", "out_dtype", "out_layout", "padding", "pool_size", "strides"),
)
"""The operator attributes that tables may look at."""


def tensor_type(expression: Any) -> TensorType:
    """Shape and element type of an expression; of anything but a tensor an empty element type."""
    kind = expression.ty
    if not isinstance(kind, relax.TensorType):
        return TensorType(shape=None, dtype="")
    sizes = getattr(kind.shape, "values", None)
    if sizes is None:
        return TensorType(shape=None, dtype=str(kind.dtype or ""))
    return TensorType(shape=tuple(_size(size) for size in sizes), dtype=str(kind.dtype or ""))


def operator_name(call: Any) -> str:
    """The operator that an expression calls, without the prefix `relax.`; empty if it calls none."""
    if not isinstance(call, relax.Call) or not hasattr(call.op, "name"):
        return ""
    return str(call.op.name).removeprefix("relax.")


def read_match(context: Any) -> Match | None:
    """What a pattern has matched, for its check.

    None if a value inside the match is read by others too: it would be computed a second time.
    """
    root = next(
        (var for var, value in context.matched_bindings.items() if value.same_as(context.matched_expr)), None
    )
    inside = dict(context.matched_bindings.items())
    for var in inside:
        if root is None or var.same_as(root):
            continue
        if any(not _contains(inside, reader) for reader in context.var_usages.get(var, ())):
            return None
    return Match(steps=_steps(context.matched_expr, lambda var: _lookup(inside, var)))


def read_region(
    function: Any, *, symbol: str, weights: Sequence[bool], attributes: Mapping[str, Sequence[str]]
) -> Region:
    """A region from TVM's merged function.

    Args:
        function: the function with the attribute Codegen.
        symbol: the region's name.
        weights: for each parameter, whether it is a weight.
        attributes: for each kind of node, the attributes that it shows.
    """
    ids = {param: place for place, param in enumerate(function.params)}
    local: dict[Any, Any] = {}
    nodes: list[Node] = []
    backend = str(function.attrs["Codegen"])
    body = function.body
    for block in body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Function):
                local[binding.var] = value
            elif isinstance(value, relax.Call):
                node = _node(len(ids), value, local, ids, backend, attributes)
                nodes.append(node)
                ids[binding.var] = node.id
            elif isinstance(value, relax.Var):
                ids[binding.var] = ids[value]
    outputs = body.body.fields if isinstance(body.body, relax.Tuple) else [body.body]
    return Region(
        symbol=symbol,
        backend=backend,
        inputs=tuple(
            Input(id=place, type=tensor_type(param), weight=weights[place])
            for place, param in enumerate(function.params)
        ),
        nodes=tuple(nodes),
        outputs=tuple(ids[output] for output in outputs),
    )


def _node(
    number: int,
    call: Any,
    local: Mapping[Any, Any],
    ids: Mapping[Any, int],
    backend: str,
    attributes: Mapping[str, Sequence[str]],
) -> Node:
    composite = local[call.op]
    kind = str(composite.attrs["Composite"]).removeprefix(f"{backend}.")
    id_of = {param: ids[argument] for param, argument in zip(composite.params, call.args, strict=True)}
    bindings = [binding for block in composite.body.blocks for binding in block.bindings]
    values = {binding.var: binding.value for binding in bindings}
    root = composite.body.body
    steps, outside = _ordered(values[root], lambda var: _lookup(values, var))
    names = attributes.get(kind, ())
    merged = {name: step.attributes[name] for name in names for step in steps if name in step.attributes}
    return Node(
        id=number,
        kind=kind,
        inputs=tuple(id_of[var] for var in outside),
        output=tensor_type(call),
        steps=steps,
        attributes=merged,
    )


def _steps(root: Any, value_of: Any) -> tuple[Step, ...]:
    return _ordered(root, value_of)[0]


def _ordered(root: Any, value_of: Any) -> tuple[tuple[Step, ...], list[Any]]:
    """The calls below an expression, each once and after those that it reads, and the values from outside in the order
    in which the calls take them."""
    steps: list[Step] = []
    arguments: list[list[Any]] = []
    numbers: dict[Any, int] = {}

    def visit(call: Any) -> int:
        if call in numbers:
            return numbers[call]
        sources: list[int | None] = []
        for argument in call.args:
            inner = argument if isinstance(argument, relax.Call) else value_of(argument)
            sources.append(visit(inner) if isinstance(inner, relax.Call) else None)
        steps.append(
            Step(
                op=operator_name(call),
                inputs=tuple(tensor_type(argument) for argument in call.args),
                output=tensor_type(call),
                sources=tuple(sources),
                attributes=_attributes(call.attrs),
            )
        )
        arguments.append(list(call.args))
        numbers[call] = len(steps) - 1
        return numbers[call]

    visit(root)
    outside = [
        argument
        for step, step_arguments in zip(steps, arguments, strict=True)
        for argument, source in zip(step_arguments, step.sources, strict=True)
        if source is None
    ]
    return tuple(steps), outside


def _attributes(attrs: Any) -> dict[str, Attribute]:
    if attrs is None:
        return {}
    return {name: _plain(getattr(attrs, name)) for name in ATTRIBUTES if hasattr(attrs, name)}


def _plain(value: Any) -> Attribute:
    if value is None or isinstance(value, str | float):
        return value
    if isinstance(value, bool | int):
        return int(value)
    if hasattr(value, "value"):  # IntImm
        return int(value.value)
    try:
        return tuple(int(getattr(element, "value", element)) for element in value)
    except TypeError:
        return str(value)


def _size(size: Any) -> int | None:
    value = getattr(size, "value", size)
    return int(value) if isinstance(value, int) else None


def _lookup(values: Mapping[Any, Any], var: Any) -> Any:
    if not isinstance(var, relax.Var):
        return None
    return values.get(var)


def _contains(values: Mapping[Any, Any], var: Any) -> bool:
    return var in values
