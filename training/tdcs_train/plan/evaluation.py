"""What a plan takes, by the formulas alone: no search, no states."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tdcs_train.plan.graph import Graph, pruned
from tdcs_train.plan.options import Options, averaging_latency, synchronisation
from tdcs_train.plan.stage import Block, Stage, warmup_counts


@dataclass(frozen=True)
class Leaf:
    """A stage of the lowest level with what all levels together make of it."""

    nodes: tuple[str, ...]
    replicas: int
    sync_seconds: float
    transfer_seconds: float
    arriving_seconds: float


def bottleneck_seconds(blocks: Sequence[Block], graph: Graph, options: Options) -> float:
    """Seconds a mini-batch of the slowest stage of a plan; the plan's rate is the inverse.

    Source: PipeDream (SOSP'19, section 3.2) and its published optimizer.
    """
    return _slowest(blocks, pruned(graph), options, level=len(options.levels) - 1, before=())


def one_worker_seconds(graph: Graph) -> float:
    """A mini-batch of the whole model on one worker."""
    return graph.seconds


def data_parallel_seconds(graph: Graph, options: Options) -> float:
    """A mini-batch when all workers hold the whole model, level by level."""
    seconds, within = graph.seconds, 1
    for level in options.levels:
        sync = (
            synchronisation(options.sync, level.machines) * graph.parameter_bytes / (level.bandwidth * within)
        )
        seconds = (seconds + sync) / level.machines
        within *= level.machines
    return seconds


FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20
"""Gradients that DistributedDataParallel averages at a time, by its defaults."""


def overlapped_seconds(graph: Graph, options: Options, replicas: Sequence[int]) -> float:
    """A mini-batch of the whole model on so many machines of each level, as DistributedDataParallel runs it.

    Gradients are averaged in buckets as backward makes them, from the last layer to the first, while backward goes on;
    the step ends with the last bucket.
    """
    link = latency = 0.0
    for level, count in zip(options.levels, replicas, strict=True):
        link += synchronisation(options.sync, count) / level.bandwidth
        latency += averaging_latency(options.sync, level, count)
    graph = pruned(graph)
    computed = math.fsum(layer.forward_ms for layer in graph.layers.values()) / 1000
    sent, bucket_bytes, full = 0.0, 0.0, float(FIRST_BUCKET_BYTES)
    for name in reversed(graph.order):
        computed += graph.layers[name].backward_ms / 1000
        bucket_bytes += graph.layers[name].parameter_bytes
        if bucket_bytes >= full:
            sent = max(sent, computed) + bucket_bytes * link + latency
            bucket_bytes, full = 0.0, float(BUCKET_BYTES)
    if bucket_bytes:
        sent = max(sent, computed) + bucket_bytes * link + latency
    return max(sent, computed) / math.prod(replicas)


def stages(blocks: Sequence[Block], graph: Graph, options: Options) -> list[Stage]:
    """The stages of a plan in order, those inside of machines too, with what each of them takes."""
    graph = pruned(graph)
    leaves = _leaves(blocks, graph, options, level=len(options.levels) - 1, before=(), arriving=0.0)
    replicas = [leaf.replicas for leaf in leaves]
    published = warmup_counts(replicas)
    warmups = warmup_counts(replicas, ahead=options.ahead or 0)
    recompute_flags = recomputing([leaf.nodes for leaf in leaves], replicas, graph, options)
    arriving = _arriving_bytes([leaf.nodes for leaf in leaves], graph)
    return [
        Stage(
            nodes=leaf.nodes,
            replicas=leaf.replicas,
            compute_seconds=compute_seconds(graph, leaf.nodes)
            + (forward_seconds(graph, leaf.nodes) if recomputes else 0.0),
            forward_seconds=forward_seconds(graph, leaf.nodes),
            arriving_seconds=leaf.arriving_seconds,
            sync_seconds=leaf.sync_seconds,
            transfer_seconds=leaf.transfer_seconds,
            warmup=warmup,
            versions=warmup + 1,
            memory_bytes=_memory_bytes(
                graph,
                leaf.nodes,
                in_flight=max(least, 1) + warmup - least,
                arriving=arrives if recomputes else None,
            ),
            recomputes=recomputes,
        )
        for leaf, least, warmup, recomputes, arrives in zip(
            leaves, published, warmups, recompute_flags, arriving, strict=True
        )
    ]


def recomputing(
    parts: Sequence[Sequence[str]], replicas: Sequence[int], graph: Graph, options: Options
) -> list[bool]:
    """Which stages compute their forward again: those that would not fit in the memory otherwise."""
    if not options.recompute or options.memory_bytes is None:
        return [False] * len(parts)
    limit = options.memory_bytes
    return [
        _memory_bytes(graph, nodes, in_flight=max(in_flight, 1), arriving=None) > limit
        for nodes, in_flight in zip(parts, warmup_counts(replicas), strict=True)
    ]


def _memory_bytes(graph: Graph, nodes: Sequence[str], *, in_flight: int, arriving: float | None) -> float:
    """`arriving`: bytes that a stage keeps of each mini-batch which computes its forward again."""
    if arriving is None:
        return in_flight * held_bytes(graph, nodes)
    activations = held_bytes(graph, nodes) - parameter_bytes(graph, nodes)
    return in_flight * (parameter_bytes(graph, nodes) + arriving) + activations


def _arriving_bytes(parts: Sequence[Sequence[str]], graph: Graph) -> list[float]:
    prefix: list[str] = []
    sizes = []
    for nodes in parts:
        sizes.append(cut_bytes(graph, prefix))
        prefix += nodes
    return sizes


def forward_seconds(graph: Graph, nodes: Sequence[str]) -> float:
    """The forward of some layers."""
    return math.fsum(graph.layers[name].forward_ms / 1000 for name in nodes)


def compute_seconds(graph: Graph, nodes: Sequence[str]) -> float:
    """Forward and backward of some layers."""
    return math.fsum(graph.layers[name].seconds for name in nodes)


def parameter_bytes(graph: Graph, nodes: Sequence[str]) -> float:
    """Parameters of some layers."""
    return math.fsum(graph.layers[name].parameter_bytes for name in nodes)


def held_bytes(graph: Graph, nodes: Sequence[str]) -> float:
    """Activations and parameters of some layers for one mini-batch."""
    return parameter_bytes(graph, nodes) + math.fsum(graph.layers[name].output_bytes for name in nodes)


def cut_bytes(graph: Graph, left: Sequence[str]) -> float:
    """Bytes of the tensors that some layers of a pruned graph make and others use, each once."""
    inside = set(left)
    return math.fsum(
        graph.layers[name].output_bytes
        for name in left
        if any(user not in inside for user in graph.successors[name])
    )


def _sync_share(block: Block, graph: Graph, options: Options, *, level: int, within: int) -> float:
    """What averaging gradients adds to the time of a block, s(m) P / (b m)."""
    sync = synchronisation(options.sync, block.replicas) / (options.levels[level].bandwidth * within)
    return sync * parameter_bytes(graph, block.nodes) / block.replicas


def _within(options: Options, index: int, level: int) -> int:
    """By what the link is multiplied.

    As in the published optimizer, the first stage of a level averages its gradients over the links of all workers of a
    machine, and a stage behind a cut over one.
    """
    return 1 if index else math.prod(inner_level.machines for inner_level in options.levels[:level])


def _transfer_seconds(
    index: int,
    blocks: Sequence[Block],
    graph: Graph,
    options: Options,
    *,
    level: int,
    before: tuple[str, ...],
) -> float:
    if index == 0:
        return 0.0
    bandwidth = options.levels[level].bandwidth * options.activation_ratio * blocks[index].replicas
    prefix = before + tuple(name for block in blocks[:index] for name in block.nodes)
    through = prefix + blocks[index].nodes
    return 2 * max(cut_bytes(graph, prefix), cut_bytes(graph, through)) / bandwidth


def _slowest(
    blocks: Sequence[Block], graph: Graph, options: Options, *, level: int, before: tuple[str, ...]
) -> float:
    slowest, prefix = 0.0, before
    recompute_flags = recomputing(
        [block.nodes for block in blocks], [block.replicas for block in blocks], graph, options
    )
    for index, block in enumerate(blocks):
        compute = (
            _slowest(block.inner, graph, options, level=level - 1, before=prefix)
            if block.inner
            else compute_seconds(graph, block.nodes)
        )
        if recompute_flags[index]:
            compute += forward_seconds(graph, block.nodes)
        within = _within(options, index, level)
        busy = compute / block.replicas + _sync_share(block, graph, options, level=level, within=within)
        transfer = _transfer_seconds(index, blocks, graph, options, level=level, before=before)
        slowest = max(slowest, busy, transfer)
        prefix += block.nodes
    return slowest


def _leaves(
    blocks: Sequence[Block],
    graph: Graph,
    options: Options,
    *,
    level: int,
    before: tuple[str, ...],
    arriving: float,
) -> list[Leaf]:
    """`arriving`: one way of the tensors that arrive at the first of the blocks."""
    leaves: list[Leaf] = []
    prefix = before
    for index, block in enumerate(blocks):
        transfer = _transfer_seconds(index, blocks, graph, options, level=level, before=before)
        bandwidth = options.levels[level].bandwidth * _within(options, index, level)
        factor = synchronisation(options.sync, block.replicas) / bandwidth
        latency = averaging_latency(options.sync, options.levels[level], block.replicas)
        if index:
            link = options.levels[level].bandwidth * options.activation_ratio
            arriving = options.levels[level].latency + cut_bytes(graph, prefix) / link
        if block.inner:
            inside = _leaves(block.inner, graph, options, level=level - 1, before=prefix, arriving=arriving)
            for leaf in inside:
                sync = leaf.replicas * factor * parameter_bytes(graph, leaf.nodes) + latency
                leaves.append(
                    Leaf(
                        nodes=leaf.nodes,
                        replicas=leaf.replicas * block.replicas,
                        sync_seconds=leaf.sync_seconds + sync,
                        transfer_seconds=max(leaf.transfer_seconds / block.replicas, transfer),
                        arriving_seconds=leaf.arriving_seconds,
                    )
                )
        else:
            sync = factor * parameter_bytes(graph, block.nodes) + latency
            leaves.append(Leaf(block.nodes, block.replicas, sync, transfer, arriving))
        prefix += block.nodes
    return leaves
