"""What tests examine of a partitioned module: the operators, which of them a region holds, and who reads whom."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax

from tdcs_train.compile.relax_reader import operator_name


@dataclass
class OperatorGraph:
    """Operators by number: their names, the numbers that they read, and their region (None on the host)."""

    names: list[str] = field(default_factory=list)
    reads: list[set[int]] = field(default_factory=list)
    regions: list[str | None] = field(default_factory=list)


def operator_graph(module: Any) -> OperatorGraph:
    """The operators of `main`, with those inside merged regions and their composites."""
    graph = OperatorGraph()
    _walk(module, module["main"], {}, None, graph)
    return graph


def _walk(
    module: Any, function: Any, makers: Mapping[Any, set[int]], region: str | None, graph: OperatorGraph
) -> list[set[int]]:
    """Add a function's operators; the makers of each of its results."""
    by_var = dict(makers)
    local: dict[Any, Any] = {}
    tuples: dict[Any, list[set[int]]] = {}
    for block in function.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Function):
                local[binding.var] = value
            elif isinstance(value, relax.Call) and (
                isinstance(value.op, tvm.ir.GlobalVar) or value.op in local
            ):
                callee = local.get(value.op) if value.op in local else module[value.op]
                assert callee is not None
                arguments = {
                    param: _makers(argument, by_var)
                    for param, argument in zip(callee.params, value.args, strict=True)
                }
                name = region or (str(value.op.name_hint) if isinstance(value.op, tvm.ir.GlobalVar) else None)
                tuples[binding.var] = _walk(
                    module,
                    callee,
                    arguments,
                    f"{name}@{len(graph.names)}" if region is None else region,
                    graph,
                )
                by_var[binding.var] = set().union(*tuples[binding.var])
            elif isinstance(value, relax.TupleGetItem) and value.tuple_value in tuples:
                by_var[binding.var] = tuples[value.tuple_value][value.index]
            elif operator_name(value):
                graph.names.append(operator_name(value))
                graph.reads.append(set().union(*(_makers(argument, by_var) for argument in value.args)))
                graph.regions.append(region)
                by_var[binding.var] = {len(graph.names) - 1}
            else:
                by_var[binding.var] = _makers(value, by_var)
    result = function.body.body
    results = result.fields if isinstance(result, relax.Tuple) else [result]
    return [_makers(output, by_var) for output in results]


def _makers(expression: Any, known: Mapping[Any, set[int]]) -> set[int]:
    if isinstance(expression, relax.Tuple):
        return set().union(*(_makers(member, known) for member in expression.fields))
    if isinstance(expression, relax.TupleGetItem):
        return _makers(expression.tuple_value, known)
    if isinstance(expression, relax.Call):
        return set().union(*(_makers(argument, known) for argument in expression.args))
    return known.get(expression, set()) if isinstance(expression, relax.Var) else set()


def not_convex(graph: OperatorGraph) -> set[str]:
    """The regions that a path leaves and enters again."""
    regions: set[str] = set()
    for region in {name for name in graph.regions if name is not None}:
        outside_after: set[int] = set()  # operators outside that need the region's results
        for number, reads in enumerate(graph.reads):
            if graph.regions[number] == region:
                if reads & outside_after:
                    regions.add(region)
            elif reads & outside_after or any(graph.regions[source] == region for source in reads):
                outside_after.add(number)
    return regions


def counts(graph: OperatorGraph) -> Mapping[str, int]:
    """How often each operator is computed."""
    return Counter(graph.names)


def region_sets(graph: OperatorGraph) -> Sequence[set[int]]:
    """The operators of each region."""
    names = sorted({region for region in graph.regions if region is not None})
    return [{number for number, region in enumerate(graph.regions) if region == name} for name in names]
