"""A picture of a plan, in the language of Graphviz."""

import itertools
import json
from collections.abc import Sequence

from tdcs_train.plan.graph import Graph, pruned
from tdcs_train.plan.pipeline_plan import PipelinePlan
from tdcs_train.plan.quantities import spoken_bytes
from tdcs_train.plan.stage import Stage

MOST_LAYERS = 60
"""Of a stage that are drawn one by one; of a larger one its first and last, and what crosses its borders."""
COLOURS = ("#cfe2f3", "#d9ead3", "#fff2cc", "#f4cccc", "#d9d2e9", "#fce5cd")


def drawn(graph: Graph, plan: PipelinePlan) -> str:
    """A cluster for each stage with its layers, and edges with the bytes that travel between stages."""
    plan = plan.advised
    graph = pruned(graph)
    stage_of = {name: number for number, stage in enumerate(plan.stages) for name in stage.nodes}
    visible = {name for stage in plan.stages for name in _shown(graph, stage, stage_of)}
    title = f"{plan.advice}: {1000 * plan.expected_seconds:.1f} ms a mini-batch"
    lines = [
        "digraph plan {",
        f"  label={_quoted(title)}; labelloc=t; rankdir=TB;",
        "  node [shape=box, style=filled, fontname=Helvetica, fontsize=10];",
        "  edge [fontname=Helvetica, fontsize=9];",
    ]
    for number, stage in enumerate(plan.stages):
        names = [name for name in stage.nodes if name in visible]
        workers = f"{stage.replicas} worker{'s' if stage.replicas > 1 else ''}"
        label = f"stage {number}: {workers}, {1000 * stage.compute_seconds:.1f} ms, {spoken_bytes(stage.memory_bytes)}"
        if len(names) < len(stage.nodes):
            label += f", {len(names)} of {len(stage.nodes)} layers"
        colour = COLOURS[number % len(COLOURS)]
        lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(label)}; color=grey;"]
        for name in names:
            layer = graph.layers[name]
            text = f"{layer.description.split('(')[0]}\n{1000 * layer.seconds:.2f} ms"
            if layer.parameter_bytes:
                text += f", {spoken_bytes(layer.parameter_bytes)}"
            lines.append(f"    {_quoted(name)} [label={_quoted(text)}, fillcolor={_quoted(colour)}];")
        # Layers that are not drawn lie between two that are.
        lines += [
            f"    {_quoted(first)} -> {_quoted(second)} [style=dotted];"
            for first, second in itertools.pairwise(names)
            if not _joined(graph, first, second) and len(names) < len(stage.nodes)
        ]
        lines.append("  }")
    for source, target in graph.edges:
        if source not in visible or target not in visible:
            continue
        crosses = stage_of[source] != stage_of[target]
        size = spoken_bytes(graph.layers[source].output_bytes)
        mark = f" [label={_quoted(size)}, penwidth=2, color=red]" if crosses else ""
        lines.append(f"  {_quoted(source)} -> {_quoted(target)}{mark};")
    return "\n".join([*lines, "}", ""])


def _shown(graph: Graph, stage: Stage, stage_of: dict[str, int]) -> Sequence[str]:
    if len(stage.nodes) <= MOST_LAYERS:
        return stage.nodes
    crossing = [
        name
        for name in stage.nodes
        if any(
            stage_of[neighbour] != stage_of[name]
            for neighbour in (*graph.successors[name], *graph.predecessors[name])
        )
    ]
    return [stage.nodes[0], *crossing, stage.nodes[-1]]


def _joined(graph: Graph, one: str, other: str) -> bool:
    return other in graph.successors[one]


def _quoted(text: str) -> str:
    """A string of Graphviz, whose escapes are those of JSON as far as labels have any."""
    return json.dumps(text, ensure_ascii=False)
