"""A back end for a toy device: it multiplies, and squares with relu behind it, four elements at a time.

The device is this processor, so that the example runs anywhere. A real one differs in what `_statement` writes: calls
of its library, or messages to its driver.
"""

from collections.abc import Sequence

from tdcs_train.backends import Backend, GeneratedCode, Match, Node, Region, Row, c_file, c_module

LANES = 4


def _fits(match: Match) -> str | None:
    """The check of both rows: None takes a match, a sentence leaves it to others."""
    for step in match.steps:
        for tensor in (*step.inputs, step.output):
            if tensor.dtype != "float32" or not tensor.static:
                return "the device has only float32 of known size"
            if tensor.dims != match.steps[0].output.dims:
                return "the device cannot broadcast"
    if match.steps[0].output.elements % LANES:
        return f"the device computes {LANES} elements at a time"
    return None


def _table() -> Sequence[Row]:
    """The pattern table; a longer pattern stands before a shorter one that is part of it."""
    from tvm.relax.dpl import is_op, wildcard

    product = is_op("relax.multiply")(wildcard(), wildcard())
    return (
        Row(name="mul_relu", pattern=is_op("relax.nn.relu")(product), check=_fits),
        Row(name="mul", pattern=product, check=_fits),
    )


def _statement(node: Node, names: dict[int, str]) -> str:
    left, right = (names[tensor] for tensor in node.inputs)
    product = f"{left}[i + lane] * {right}[i + lane]"
    if node.kind == "mul_relu":
        product = f"({product} > 0.0f ? {product} : 0.0f)"
    return (
        f"  for (int64_t i = 0; i < {node.output.elements}; i += {LANES})\n"
        f"    for (int lane = 0; lane < {LANES}; ++lane) {names[node.id]}[i + lane] = {product};"
    )


def _source(region: Region) -> str:
    """The function `<symbol>_`: a pointer for each input, a pointer for each output, 0 if all went well."""
    names = {each.id: f"in{each.id}" for each in region.inputs}
    names |= {node.id: f"value{node.id}" for node in region.nodes}
    parameters = [f"const float* in{each.id}" for each in region.inputs]
    parameters += [f"float* out{place}" for place in range(len(region.outputs))]
    lines = [f"static int {region.symbol}_({', '.join(parameters)}) {{"]
    lines += [f"  static float value{node.id}[{node.output.elements}];" for node in region.nodes]
    lines += [_statement(node, names) for node in region.nodes]
    for place, tensor in enumerate(region.outputs):
        count = region.type_of(tensor).elements
        lines.append(f"  for (int64_t i = 0; i < {count}; ++i) out{place}[i] = value{tensor}[i];")
    return "\n".join([*lines, "  return 0;", "}", ""])


def _codegen(region: Region) -> GeneratedCode:
    text = c_file(region, [_source(region)])
    return GeneratedCode(module=c_module(region, text), text=text)


TOY = Backend(
    name="toy", version="1", table=_table, codegen=_codegen, targets=frozenset({"x86-64-v2", "x86-64-v3"})
)
