"""The best pipeline for a model, workers and links."""

import math
from collections.abc import Callable

import numpy

from tdcs_train.errors import InputError
from tdcs_train.plan.graph import Graph, pruned
from tdcs_train.plan.options import Options, check_options
from tdcs_train.plan.recurrence import Floats, Integers, Table, Terms, solve, stages_of
from tdcs_train.plan.stage import Block
from tdcs_train.plan.states import States, constants, states_of
from tdcs_train.plan.terms import MemoryTerms, Setting, TimeTerms


def best_blocks(
    graph: Graph, options: Options, *, note: Callable[[str], None] = lambda _: None
) -> tuple[Block, ...]:
    """The plan whose slowest stage is fastest, on all workers (or fewer, if the options say so).

    With several levels the lowest is solved for every range of layers; its best time on all its machines is what the
    next level takes as the compute time of that range (PipeDream, section 3.2). `note` as for `states_of`.

    Raises:
        InputError: The options mean nothing, straight stages outnumber the layers, or nothing fits the memory.
    """
    check_options(options)
    states = states_of(graph, together=options.together, note=note)
    settings = _settings(states, options)
    computes = [_seconds_between(states)]
    for setting in settings[:-1]:
        computes.append(_whole(TimeTerms(setting=setting, compute=computes[-1]), setting))
    blocks = _blocks(settings, computes, start=0, end=len(states.members) - 1)
    if not blocks:
        raise InputError(_why_none(states, settings, options))
    return _with_constants(blocks, pruned(graph))


def _settings(states: States, options: Options) -> list[Setting]:
    settings, within = [], 1
    for level in options.levels:
        settings.append(Setting(states=states, level=level, within=within, options=options))
        within *= level.machines
    return settings


def _seconds_between(states: States) -> Floats:
    difference = states.seconds[None, :] - states.seconds[:, None]
    return numpy.where(states.inside, difference, numpy.inf)


def _solve(terms: Terms, setting: Setting, starts: Integers) -> Table:
    return solve(
        terms,
        inside=setting.states.inside,
        starts=starts,
        machines=setting.level.machines,
        fewer=setting.options.fewer,
    )


def _whole(terms: Terms, setting: Setting) -> Floats:
    """The best cost of every range of layers on all machines of a level."""
    return _solve(terms, setting, numpy.arange(len(setting.states.members))).best[:, :, -1]


def _blocks(settings: list[Setting], computes: list[Floats], *, start: int, end: int) -> tuple[Block, ...]:
    """The stages of a range on the highest of the levels, and inside each of them those of the levels below."""
    setting = settings[-1]
    terms = TimeTerms(setting=setting, compute=computes[-1])
    table = _solve(terms, setting, numpy.array([start]))
    if not numpy.isfinite(table.best[0, end, -1]):
        return ()
    return tuple(
        Block(
            nodes=setting.states.names(first, last),
            replicas=replicas,
            inner=_blocks(settings[:-1], computes[:-1], start=first, end=last) if len(settings) > 1 else (),
        )
        for first, last, replicas in stages_of(table, row=0, end=end, machines=setting.level.machines)
    )


def _why_none(states: States, settings: list[Setting], options: Options) -> str:
    layers = len(states.graph.layers)
    least = numpy.where(states.inside, 0.0, numpy.inf)
    for setting in settings:
        least = _whole(MemoryTerms(setting=setting, least=least), setting)
    smallest = float(least[0, -1])
    if math.isinf(smallest) or options.memory_bytes is None:
        return (
            f"--straight: {options.workers} stages of one worker are more than the model of {layers} layers has; take "
            "fewer workers, or --fewer"
        )
    return (
        f"--memory: no plan fits {options.memory_bytes:.0f} bytes; the smallest memory that one fits is "
        f"{math.ceil(smallest)} bytes ({smallest / 2**30:.3f} GiB); profile a smaller batch or give more workers"
    )


def _with_constants(blocks: tuple[Block, ...], graph: Graph) -> tuple[Block, ...]:
    """The blocks with the layers that cost nothing, each where it is used first."""
    leaves = [leaf for block in blocks for leaf in _leaves(block)]
    place = {name: index for index, leaf in enumerate(leaves) for name in leaf.nodes}
    for name in reversed([name for name in graph.order if name in constants(graph)]):
        users = [place[user] for user in graph.successors[name] if user in place]
        if users:
            place[name] = min(users)
    firsts = iter(range(len(leaves)))

    def filled(block: Block) -> tuple[Block, set[int]]:
        inner = [filled(part) for part in block.inner]
        members = set().union(*(numbers for _, numbers in inner)) if inner else {next(firsts)}
        nodes = tuple(name for name in graph.order if place.get(name) in members)
        return Block(nodes=nodes, replicas=block.replicas, inner=tuple(part for part, _ in inner)), members

    return tuple(filled(block)[0] for block in blocks)


def _leaves(block: Block) -> list[Block]:
    return [leaf for part in block.inner for leaf in _leaves(part)] if block.inner else [block]
