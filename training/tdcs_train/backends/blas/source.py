"""Writes C source for a region: a function for each node, one that runs them in order, and the exported symbol.

For the region `subgraph_0` with the nodes 0, 1 and 2 it writes `subgraph_0_0` to `subgraph_0_2`, and `subgraph_0_` that
allocates the buffers between them, calls them and frees the buffers.
"""

import math
from collections.abc import Sequence

from tdcs_train.backends.c_source import c_file
from tdcs_train.backends.graph import Node, Region

OPERATORS = {"add": "+", "sub": "-", "mul": "*"}


def c_source(region: Region) -> str:
    """The C source of a region; pure.

    Raises:
        ValueError: a node's kind is not one of the table.
    """
    functions = [
        _node_function(region, node, f"{region.symbol}_{number}") for number, node in enumerate(region.nodes)
    ]
    return c_file(region, [*functions, _runner(region)], includes=["cblas.h"])


def _node_function(region: Region, node: Node, name: str) -> str:
    parameters = [f"const float* in{place}" for place in range(len(node.inputs))]
    head = f"static void {name}({', '.join([*parameters, 'float* out'])}) {{"
    body = _elementwise(node) if node.kind in {*OPERATORS, "relu"} else _product(region, node)
    return "\n".join([head, *(f"  {line}" for line in body), "}", ""])


def _elementwise(node: Node) -> Sequence[str]:
    value = (
        "in0[i] > 0.0f ? in0[i] : 0.0f" if node.kind == "relu" else f"in0[i] {OPERATORS[node.kind]} in1[i]"
    )
    return (f"for (int64_t i = 0; i < {node.output.elements}; ++i) out[i] = {value};",)


def _product(region: Region, node: Node) -> Sequence[str]:
    kind, *extras = node.kind.split("_")
    if kind not in {"dense", "matmul"} or not set(extras) <= {"bias", "relu"}:
        raise ValueError(f"blas has no code for {node.kind}")
    transposed = kind == "dense"
    # The transposition is the first step, so the right side is the first tensor that comes from outside.
    first, second = (1, 0) if transposed else (0, 1)
    left, right = (region.type_of(node.inputs[place]).dims for place in (first, second))
    depth, columns = left[-1], node.output.dims[-1]
    if len(right) == 2:  # one matrix for all rows of the left side
        batch, rows = 1, math.prod(left[:-1])
    else:
        batch, rows = math.prod(left[:-2]), left[-2]
    gemm = (
        f"cblas_sgemm(CblasRowMajor, CblasNoTrans, {'CblasTrans' if transposed else 'CblasNoTrans'}, "
        f"{rows}, {columns}, {depth}, 1.0f, in{first} + b * INT64_C({rows * depth}), {depth}, "
        f"in{second} + b * INT64_C({depth * columns if batch > 1 else 0}), {depth if transposed else columns}, "
        f"{1.0 if 'bias' in extras else 0.0}f, out + b * INT64_C({rows * columns}), {columns});"
    )
    lines = []
    if "bias" in extras:  # the product is added to it
        lines.append(f"for (int64_t i = 0; i < {node.output.elements}; ++i) out[i] = in2[i % {columns}];")
    lines.append(f"for (int64_t b = 0; b < {batch}; ++b) {gemm}")
    if "relu" in extras:
        lines.append(
            f"for (int64_t i = 0; i < {node.output.elements}; ++i) if (!(out[i] > 0.0f)) out[i] = 0.0f;"
        )
    return lines


def _runner(region: Region) -> str:
    """The function that calls the nodes in order. A node whose result leaves the region writes where the caller wants
    it, the others have a buffer each."""
    leaving = {tensor: f"out{place}" for place, tensor in reversed(list(enumerate(region.outputs)))}
    inside = [node for node in region.nodes if node.id not in leaving]
    names = {tensor.id: f"in{tensor.id}" for tensor in region.inputs}
    names |= {node.id: f"buf{node.id}" for node in inside} | leaving
    parameters = [f"const float* in{tensor.id}" for tensor in region.inputs]
    parameters += [f"float* out{place}" for place in range(len(region.outputs))]
    lines = [f"static int {region.symbol}_({', '.join(parameters)}) {{"]
    lines += [f"  float* buf{node.id} = (float*)malloc({4 * node.output.elements});" for node in inside]
    if inside:
        lines.append(f"  int whole = {' && '.join(f'buf{node.id} != NULL' for node in inside)};")
        lines.append("  if (whole) {")
    else:
        lines.append("  int whole = 1;\n  {")
    for number, node in enumerate(region.nodes):
        arguments = [names[tensor] for tensor in (*node.inputs, node.id)]
        lines.append(f"    {region.symbol}_{number}({', '.join(arguments)});")
    for place, tensor in enumerate(region.outputs):
        if leaving[tensor] != f"out{place}":  # the same tensor leaves twice
            count = region.type_of(tensor).elements
            lines.append(f"    for (int64_t i = 0; i < {count}; ++i) out{place}[i] = {leaving[tensor]}[i];")
    lines.append("  }")
    lines += [f"  free(buf{node.id});" for node in inside]
    return "\n".join([*lines, "  return whole ? 0 : -1;", "}", ""])
