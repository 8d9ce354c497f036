"""The text of a region that the runtime module reads: a line for the symbol, each input and each node.

    subgraph_0
    input 0 10 10
    weight 1 10 10
    add 2 inputs: 0 1 shape: 10 10

An input's line has its id and shape; the line of a weight begins with `weight`. A node's line has its kind, its id, the
ids that it reads and the shape of its result, and `attrs:` with `name=value` where its kind has any. If what leaves the
region is not just the last node, a line `output` names the ids.
"""

from tdcs_train.backends.graph import Attribute, Node, Region


def graph_text(region: Region) -> str:
    """The region as text; pure."""
    lines = [region.symbol]
    lines += [
        f"{'weight' if tensor.weight else 'input'} {tensor.id} {_numbers(tensor.type.dims)}".rstrip()
        for tensor in region.inputs
    ]
    lines += [_node_line(node) for node in region.nodes]
    if region.outputs != (region.nodes[-1].id,):
        lines.append(f"output {_numbers(region.outputs)}")
    return "\n".join(lines) + "\n"


def _node_line(node: Node) -> str:
    line = (
        f"{node.kind} {node.id} inputs: {_numbers(node.inputs)} shape: {_numbers(node.output.dims)}".rstrip()
    )
    attributes = [f"{name}={_value(value)}" for name, value in node.attributes.items()]
    return " ".join([line, "attrs:", *attributes]) if attributes else line


def _numbers(values: tuple[int, ...]) -> str:
    return " ".join(map(str, values))


def _value(value: Attribute) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(int(value)) if isinstance(value, bool | int) else str(value)
