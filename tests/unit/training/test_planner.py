"""The planner against brute force, and what its answers mean.

``TDCS_PLANNED_GRAPHS=1000`` compares it for so many random graphs.
"""

import math
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy
import pytest

from tdcs_train.errors import InputError
from tdcs_train.plan import states
from tdcs_train.plan.evaluation import bottleneck_seconds, stages
from tdcs_train.plan.graph import Graph, Layer, check
from tdcs_train.plan.optimizer import best_blocks
from tdcs_train.plan.options import Level, Options
from tdcs_train.plan.pipeline_plan import Parallelism, PipelinePlan, document, plan_pipeline
from tdcs_train.plan.stage import in_flight_bound, warmup_counts

GRAPHS = int(os.environ.get("TDCS_PLANNED_GRAPHS", "100"))
Seconds = Callable[[int, int], float]


def layer(name: str, seconds: float, *, parameters: float = 0, output: float = 0) -> Layer:
    """A layer with a third of its time in the forward pass."""
    description = "Input" if name == "input" else "Layer"
    return Layer(
        name=name,
        description=description,
        forward_ms=1000 * seconds / 3,
        backward_ms=2000 * seconds / 3,
        activation_bytes=(output,),
        parameter_bytes=parameters,
    )


def chain(*layers: Layer) -> Graph:
    """An input, and layers one after the other."""
    named = {entry.name: entry for entry in (layer("input", 0), *layers)}
    return Graph(named, tuple(zip(named, list(named)[1:], strict=False)))


def random_graph(chooser: random.Random) -> Graph:
    """Up to 8 layers, each with one to three of the earlier ones before it, and one output."""
    count = chooser.randint(1, 8)
    names = [f"layer{number}" for number in range(count)]
    layers = {"input": layer("input", 0)}
    edges: list[tuple[str, str]] = []
    for number, name in enumerate(names):
        layers[name] = layer(
            name,
            chooser.choice([0, 0.1, 0.5]) + chooser.random(),
            parameters=chooser.choice([0, 0, 1e6, 1e8]) * chooser.random(),
            output=chooser.choice([0, 1e4, 1e7]) * chooser.random(),
        )
        before = chooser.sample(["input", *names[:number]], min(number + 1, chooser.randint(1, 3)))
        edges += [(source, name) for source in before]
    users = {producer for producer, _ in edges}
    edges += [(name, names[-1]) for name in names[:-1] if name not in users]
    layers[names[0]] = layer(names[0], 0.5, parameters=1e5, output=1e4)
    graph = Graph(layers, tuple(dict.fromkeys(edges)))
    check(graph, source="random")
    return graph


def closed_sets(graph: Graph, start: frozenset[str]) -> Iterator[frozenset[str]]:
    """All sets of layers beyond `start` that hold what they need, by trying every subset."""
    names = [name for name in graph.layers if name != "input" and name not in start]
    for bits in range(1, 1 << len(names)):
        inside = start | {name for place, name in enumerate(names) if bits >> place & 1}
        if all(set(graph.predecessors[name]) <= inside | {"input"} for name in inside):
            yield inside


def brute_force(graph: Graph, options: Options) -> float:
    """The least bottleneck over all cuts and numbers of workers, by the formulas as they are printed."""
    (level,) = options.levels
    everything = frozenset(graph.layers) - {"input"}
    factor = 4 if options.sync == "ps" else 2

    def total(names: frozenset[str], attribute: str) -> float:
        return math.fsum(getattr(graph.layers[name], attribute) for name in names)

    def crossing(left: frozenset[str]) -> float:
        return math.fsum(
            graph.layers[name].output_bytes
            for name in left
            if any(user not in left for user in graph.successors[name])
        )

    def computing(names: frozenset[str], left: frozenset[str], replicas: int, machines: int) -> float:
        """Seconds of forward and backward, the forward twice where it must be; infinite where nothing fits."""
        parameters, outputs = total(names, "parameter_bytes"), total(names, "output_bytes")
        in_flight = max(math.ceil((level.machines - machines) / replicas), 1)
        if options.memory_bytes is None or in_flight * (outputs + parameters) <= options.memory_bytes:
            return total(names, "seconds")
        held = in_flight * (crossing(left) + parameters) + outputs
        if options.recompute and held <= options.memory_bytes:
            return total(names, "seconds") + total(names, "forward_ms") / 1000
        return math.inf

    def best(left: frozenset[str], machines: int, worst: float) -> float:
        """`left` has `machines` in all, those of its last stage included."""
        if left == everything:
            return worst if options.fewer or machines == level.machines else math.inf
        least = math.inf
        for right in closed_sets(graph, left):
            names = right - left
            for idle in range(level.machines if options.fewer and left else 1):
                for replicas in range(1, 2 if options.straight else level.machines + 1):
                    upto = machines + idle + replicas
                    if upto > level.machines:
                        continue
                    compute = computing(names, left, replicas, upto)
                    sync = (
                        factor * (replicas - 1) / replicas * total(names, "parameter_bytes") / level.bandwidth
                    )
                    times = [worst, (compute + sync) / replicas]
                    if left:
                        times.append(2 * crossing(left) / (level.bandwidth * replicas))
                        if right != everything:
                            times.append(2 * crossing(right) / (level.bandwidth * replicas))
                    least = min(least, best(right, upto, max(times)))
        return least

    return best(frozenset(), 0, 0.0)


@pytest.mark.parametrize("part", range(GRAPHS // 100))
def test_the_planner_equals_brute_force_on_random_graphs(part: int) -> None:
    chooser = random.Random(part)
    refused = cut = again = 0
    for number in range(100):
        graph = random_graph(chooser)
        held = sum(entry.output_bytes + entry.parameter_bytes for entry in graph.layers.values())
        recompute = number % 3 == 0
        options = Options(
            levels=(Level(machines=chooser.randint(1, 4), bandwidth=10 ** chooser.uniform(6, 9)),),
            sync=chooser.choice(["ring", "ps"]),
            memory_bytes=chooser.choice(
                [*([] if recompute else [None, None]), held * chooser.uniform(0.1, 1.5)]
            ),
            recompute=recompute,
            straight=chooser.random() < 0.15,
            fewer=not recompute and chooser.random() < 0.3,
        )
        expected = brute_force(graph, options)
        if math.isinf(expected):
            refused += 1
            with pytest.raises(InputError):
                best_blocks(graph, options)
            continue
        blocks = best_blocks(graph, options)
        cut += len(blocks) > 1
        assert bottleneck_seconds(blocks, graph, options) == pytest.approx(expected, rel=1e-9)
        again += any(stage.recomputes for stage in stages(blocks, graph, options))
        names = [name for block in blocks for name in block.nodes]
        assert sorted(names) == sorted(set(graph.layers) - {"input"})
    assert refused > 3
    assert cut > 20
    assert again >= 1


def two_levels_by_hand(graph: Graph, inner: Level, outer: Level) -> float:
    """The best plan of a chain on two levels, by trying every cut on both."""
    names = [name for name in graph.layers if name != "input"]
    layers = [graph.layers[name] for name in names]

    def sums(first: int, last: int, attribute: str) -> float:
        return math.fsum(getattr(entry, attribute) for entry in layers[first:last])

    def level_best(
        first: int, last: int, level: Level, machines: int, compute: Seconds, within: int
    ) -> float:
        sync = 4 * (machines - 1) / machines * sums(first, last, "parameter_bytes") / level.bandwidth
        least = (compute(first, last) + sync / within) / machines
        for cut in range(first + 1, last):
            for replicas in range(1, machines):
                busy = compute(cut, last)
                busy += 4 * (replicas - 1) / replicas * sums(cut, last, "parameter_bytes") / level.bandwidth
                times = [busy / replicas, 2 * layers[cut - 1].output_bytes / (level.bandwidth * replicas)]
                if last != len(layers):
                    times.append(2 * layers[last - 1].output_bytes / (level.bandwidth * replicas))
                remainder = level_best(first, cut, level, machines - replicas, compute, within)
                least = min(least, max(*times, remainder))
        return least

    def inside(first: int, last: int) -> float:
        return level_best(first, last, inner, inner.machines, lambda a, b: sums(a, b, "seconds"), 1)

    return level_best(0, len(layers), outer, outer.machines, inside, inner.machines)


def test_two_levels_equal_brute_force_on_random_chains() -> None:
    chooser = random.Random(7)
    for _ in range(40):
        layers = [
            layer(str(n), chooser.random(), parameters=1e8 * chooser.random(), output=1e7 * chooser.random())
            for n in range(chooser.randint(2, 5))
        ]
        graph = chain(*layers)
        inner = Level(machines=chooser.randint(1, 3), bandwidth=10 ** chooser.uniform(7, 9))
        outer = Level(machines=chooser.randint(1, 3), bandwidth=10 ** chooser.uniform(6, 8))
        options = Options(levels=(inner, outer), sync="ps")
        blocks = best_blocks(graph, options)
        expected = two_levels_by_hand(graph, inner, outer)
        assert bottleneck_seconds(blocks, graph, options) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("replicas", "warmups", "bound"),
    [((3, 1), [1, 0], 2), ((1, 1, 1, 1), [3, 2, 1, 0], 4), ((2, 1, 1), [1, 1, 0], 2), ((4,), [0], 1)],
)
def test_warm_up_counts_follow_from_the_workers_behind(
    replicas: Sequence[int], warmups: list[int], bound: int
) -> None:
    assert warmup_counts(replicas) == warmups
    assert in_flight_bound(replicas) == bound


def test_data_parallel_is_an_answer_where_parameters_are_few() -> None:
    graph = chain(layer("a", 1.0, parameters=1e3, output=1e9), layer("b", 1.0, parameters=1e3, output=8))
    plan = plan_pipeline(graph, Options(levels=(Level(machines=4, bandwidth=1e8),)))
    assert plan.best is Parallelism.DATA_PARALLEL
    assert plan.advice == "data parallel is best here"
    assert plan.expected_seconds == pytest.approx(plan.data_parallel_seconds)


@pytest.mark.parametrize(
    ("parameters", "seconds"),
    [
        # Of 3 s forward and 6 s backward the layers behind the first have made their gradients after 3 + 4 s.
        (1e3, 9.0),
        (1e8, 9.0 + 1.5),  # 3 x 1.5 s on the link: those of the last two layers are hidden
        (1e9, 3.0 + 2.0 + 3 * 15.0),  # the link is the bound, from the first bucket to the end
    ],
)
def test_gradients_travel_while_backward_goes_on(parameters: float, seconds: float) -> None:
    layers = [
        Layer(
            name=name,
            description="Layer",
            forward_ms=1000,
            backward_ms=2000,
            activation_bytes=(1e9,),
            parameter_bytes=parameters,
        )
        for name in "abc"
    ]
    levels = (Level(machines=4, bandwidth=1e8),)
    plan = plan_pipeline(chain(*layers), Options(levels=levels))
    assert plan.data_parallel_seconds == pytest.approx(seconds / 4, rel=1e-4)
    after = plan_pipeline(chain(*layers), Options(levels=levels, published=True))
    assert after.data_parallel_seconds == pytest.approx((9.0 + 3 * parameters * 1.5 / 1e8) / 4)


def test_latency_counts_for_each_tensor_and_each_step_of_averaging() -> None:
    graph = chain(layer("a", 1.0, parameters=1e9, output=10), layer("b", 1.0, parameters=1e9, output=8))

    def planned(latency: float) -> PipelinePlan:
        levels = (Level(machines=2, bandwidth=1e8, latency=latency),)
        return plan_pipeline(graph, Options(levels=levels, straight=True, ahead=0))

    near, far = planned(0.0), planned(0.5)
    assert [stage.arriving_seconds for stage in far.stages] == pytest.approx([0, 0.5])
    assert [stage.arriving_seconds for stage in near.stages] == pytest.approx([0, 0], abs=1e-6)
    # A mini-batch goes there and back while one other may be in flight.
    assert near.expected_seconds == pytest.approx(1.0, abs=1e-6)
    assert far.expected_seconds > 1.2
    # Two buckets, one for each layer, of two steps each.
    assert far.data_parallel_seconds == pytest.approx(near.data_parallel_seconds + 2 * 2 * 0.5 / 2)
    assert near.best is far.best is Parallelism.PIPELINE


def test_one_worker_is_an_answer_where_the_link_is_slow() -> None:
    graph = chain(layer("a", 1.0, parameters=1e9, output=1e9), layer("b", 0.1, parameters=1e9, output=8))
    options = Options(levels=(Level(machines=2, bandwidth=1e6),))
    plan = plan_pipeline(graph, options)
    assert plan.advice == "one worker is best here"
    assert plan.workers == 2
    fewer = plan_pipeline(graph, Options(levels=options.levels, fewer=True))
    assert fewer.workers == 1
    assert fewer.bottleneck_seconds == pytest.approx(1.1)


def crossing_bytes(graph: Graph, inside: frozenset[str]) -> float:
    """What a cut costs, by carrying every tensor to each of its readers and noting once what passes the cut."""
    carried = set()
    for producer, consumer in graph.edges:
        if producer != "input" and producer in inside and consumer not in inside:
            carried.add(producer)
    return math.fsum(graph.layers[name].output_bytes for name in carried)


def test_a_cut_costs_every_tensor_that_someone_behind_it_reads_once_and_no_other() -> None:
    """The published optimizer also counts a tensor whose readers are all before the cut, where they are a fork."""
    chooser = random.Random(3)
    forks = 0
    for _ in range(60):
        graph = random_graph(chooser)
        table = states.states_of(graph)
        for bits, cost in zip(table.members, table.cut_bytes, strict=True):
            inside = frozenset(name for place, name in enumerate(table.graph.order) if bits >> place & 1)
            everything = set(graph.layers) - {"input"}
            exact = crossing_bytes(graph, inside) if inside != everything else 0.0
            assert cost == pytest.approx(exact)
            forks += published_cut(table.graph, inside) > cost * (1 + 1e-9)
    assert forks, "a fork among the random graphs for which the published cost is too high"


def published_cut(graph: Graph, inside: frozenset[str]) -> float:
    """The cost that the published optimizer counts: the outputs of an augmented antichain."""
    before: dict[str, set[str]] = {}
    for name in graph.order:
        before[name] = set().union(*({source} | before[source] for source in graph.predecessors[name]))
    antichain = {name for name in inside if not inside.intersection(graph.successors[name])}
    extra = {
        earlier
        for name in antichain
        for earlier in before[name]
        if any(user not in before[name] and user != name for user in graph.successors[earlier])
    }
    if len(inside) == len(graph.layers):
        return 0.0
    return math.fsum(graph.layers[name].output_bytes for name in antichain | extra)


def test_layers_that_are_to_stay_together_are_in_one_stage() -> None:
    graph = chain(*(layer(f"layer{n}", 1.0, parameters=1e6, output=1e3) for n in range(6)))
    level = Level(machines=3, bandwidth=1e9)
    free = plan_pipeline(graph, Options(levels=(level,), straight=True))
    assert [len(stage.nodes) for stage in free.stages] == [2, 2, 2]
    for group in (("layer1", "layer2"), ("layer1", "layer3")):
        plan = plan_pipeline(graph, Options(levels=(level,), straight=True, together=(group,)))
        homes = [number for number, stage in enumerate(plan.stages) if set(group) & set(stage.nodes)]
        assert len(homes) == 1
    with pytest.raises(InputError, match=r"--together: the profile has no layer9"):
        plan_pipeline(graph, Options(levels=(level,), together=(("layer9", "layer1"),)))


def test_the_advice_is_never_beaten_by_a_figure_in_the_same_document() -> None:
    chooser = random.Random(0)
    answers = set()
    for _ in range(80):
        layers = [
            Layer(
                name=str(number),
                description="Layer",
                forward_ms=100 * chooser.random(),
                backward_ms=200 * chooser.random(),
                activation_bytes=(10 ** chooser.uniform(4, 8),),
                parameter_bytes=10 ** chooser.uniform(4, 8),
            )
            for number in range(chooser.randint(3, 6))
        ]
        level = Level(machines=chooser.choice([2, 3, 4]), bandwidth=10 ** chooser.uniform(6.5, 9.5))
        outer = Level(machines=2, bandwidth=level.bandwidth / 4)
        levels = chooser.choice([(level,), (level, outer)])
        plan = plan_pipeline(chain(*layers), Options(levels=levels, fewer=chooser.random() < 0.2, ahead=0))
        content = document(plan)
        figures = [content[name] for name in ("expectedSeconds", "oneWorkerSeconds", "dataParallelSeconds")]
        figures += [plan.expected_seconds]
        assert content["expectedSeconds"] <= min(figures) * (1 + 1e-6)
        assert content["speedVsOne"] == pytest.approx(
            content["oneWorkerSeconds"] / content["expectedSeconds"]
        )
        first = content["stages"][0]
        if len(content["stages"]) == 1:
            busy = (first["computeSeconds"] + first["syncSeconds"]) / first["replicas"]
            assert content["bottleneckSeconds"] == pytest.approx(busy)
        assert (len(content["stages"]) > 1) == (plan.best is Parallelism.PIPELINE)
        assert content["workers"] == sum(stage["replicas"] for stage in content["stages"])
        answers.add((plan.best, len(plan.stages) > 1))
    assert answers >= {(parallelism, True) for parallelism in Parallelism}, (
        "every answer where the planner had a pipeline"
    )


def test_a_model_that_is_too_large_for_a_worker_is_never_advised_whole() -> None:
    graph = chain(layer("a", 1.0, parameters=1e6, output=1e9), layer("b", 1.0, parameters=1e6, output=8))
    levels = (Level(machines=2, bandwidth=1e8),)
    assert plan_pipeline(graph, Options(levels=levels)).best is Parallelism.DATA_PARALLEL
    small = plan_pipeline(graph, Options(levels=levels, memory_bytes=1.0015e9))
    assert small.data_parallel_seconds < small.one_worker_seconds < small.expected_seconds
    assert small.best is Parallelism.PIPELINE
    assert document(small)["stages"][0]["nodes"] == ["a"]


def test_a_profile_in_which_nothing_takes_time_is_refused() -> None:
    for workers in (1, 2):
        with pytest.raises(InputError, match="no layer of the profile takes any time"):
            plan_pipeline(
                chain(layer("a", 0, parameters=8)), Options(levels=(Level(machines=workers, bandwidth=1e9),))
            )


def test_the_smallest_memory_of_a_refusal_does_fit_and_less_does_not() -> None:
    chooser = random.Random(3)
    for _ in range(30):
        graph = random_graph(chooser)
        level = Level(machines=chooser.randint(1, 4), bandwidth=1e8)
        sizes = []
        for again in (False, True):
            with pytest.raises(InputError, match="the smallest memory that one fits") as refusal:
                best_blocks(graph, Options(levels=(level,), memory_bytes=1, recompute=again))
            smallest = int(str(refusal.value).split("one fits is ")[1].split(" ")[0])
            assert best_blocks(graph, Options(levels=(level,), memory_bytes=smallest, recompute=again))
            with pytest.raises(InputError):
                best_blocks(graph, Options(levels=(level,), memory_bytes=smallest - 1, recompute=again))
            sizes.append(smallest)
        assert sizes[1] <= sizes[0]


def test_a_stage_computes_its_forward_again_only_where_it_would_not_fit() -> None:
    graph = chain(*(layer(name, 1.0, parameters=10, output=500) for name in "abc"))

    def planned(memory: float | None, *, recompute: bool) -> PipelinePlan:
        options = Options(
            levels=(Level(machines=3, bandwidth=1e9),),
            straight=True,
            ahead=0,
            memory_bytes=memory,
            recompute=recompute,
        )
        return plan_pipeline(graph, options)

    plain = planned(None, recompute=False)
    assert [stage.memory_bytes for stage in plain.stages] == [1020, 510, 510]
    assert planned(1020, recompute=True).stages == plain.stages
    with pytest.raises(InputError, match="no plan fits 600 bytes"):
        planned(600, recompute=False)
    small = planned(600, recompute=True)
    # The parameters of two mini-batches, of which nothing arrives, and the activations of one.
    assert [stage.memory_bytes for stage in small.stages] == [520, 510, 510]
    assert [stage.recomputes for stage in small.stages] == [True, False, False]
    assert [stage.compute_seconds for stage in small.stages] == pytest.approx([4 / 3, 1, 1])
    assert small.bottleneck_seconds == pytest.approx(4 / 3)
    assert small.expected_seconds == pytest.approx(4 / 3, rel=1e-3)
    assert [stage.get("recomputes") for stage in document(small)["stages"]] == [True, None, None]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "--recompute without --memory"),
        (
            {"memory_bytes": 1e9, "levels": (Level(machines=2, bandwidth=1e9),) * 2},
            "--recompute with several levels",
        ),
    ],
)
def test_computing_again_that_cannot_be_planned_is_refused(changes: dict[str, Any], message: str) -> None:
    options = replace(Options(levels=(Level(machines=2, bandwidth=1e9),), recompute=True), **changes)
    with pytest.raises(InputError, match=message):
        plan_pipeline(chain(layer("a", 1.0, parameters=8)), options)


def test_more_straight_stages_than_layers_are_refused() -> None:
    graph = chain(layer("a", 1.0, parameters=8), layer("b", 1.0))
    with pytest.raises(InputError, match="3 stages of one worker are more than the model of 2 layers has"):
        best_blocks(graph, Options(levels=(Level(machines=3, bandwidth=1e9),), straight=True))


def test_many_branches_side_by_side_are_cut_in_the_order_of_their_layers() -> None:
    """The other cuts, more than can be looked at, are none; those outside of the branches stay."""
    layers = {"input": layer("input", 0), "end": layer("end", 1.0, parameters=8)}
    edges = []
    for number in range(20):
        layers[f"branch{number}"] = layer(f"branch{number}", 1.0)
        edges += [("input", f"branch{number}"), (f"branch{number}", "end")]
    layers |= {"left": layer("left", 4.0), "right": layer("right", 4.0), "sum": layer("sum", 1.0)}
    edges += [("end", "left"), ("end", "right"), ("left", "sum"), ("right", "sum")]
    graph, notes = Graph(layers, tuple(edges)), list[str]()
    table = states.states_of(graph, note=notes.append)
    assert len(table.members) == 1 + 21 + 3 + 1
    assert len(notes) == 1
    assert notes[0].startswith("21 of 24 layers, many side by side, can be cut in too many ways")
    first, second = best_blocks(graph, Options(levels=(Level(machines=2, bandwidth=1e9),), straight=True))
    assert len(first.nodes) == 15
    assert set(second.nodes) >= {"end", "left", "right", "sum"}


def test_a_model_with_more_layers_than_cuts_are_looked_at_is_refused() -> None:
    graph = chain(*(layer(str(number), 1.0, parameters=8) for number in range(states.MOST_STATES + 1)))
    with pytest.raises(InputError, match=f"more than {states.MOST_STATES}, even in the order"):
        states.states_of(graph)


def test_the_states_of_a_chain_are_as_many_as_its_layers_and_the_empty_one() -> None:
    graph = chain(*(layer(str(number), 1.0, parameters=8, output=number) for number in range(9)))
    table = states.states_of(graph)
    assert len(table.members) == 10
    assert numpy.array_equal(table.cut_bytes, [0, 0, 1, 2, 3, 4, 5, 6, 7, 0])
