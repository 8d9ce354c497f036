"""The answer of the planner: stages, what they take, and whether a pipeline is worth it at all."""

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tdcs_train.errors import InputError
from tdcs_train.plan.evaluation import (
    bottleneck_seconds,
    data_parallel_seconds,
    held_bytes,
    one_worker_seconds,
    overlapped_seconds,
    stages,
)
from tdcs_train.plan.graph import Graph, InputShape, pruned
from tdcs_train.plan.optimizer import best_blocks
from tdcs_train.plan.options import Level, Options
from tdcs_train.plan.quantities import spoken_bytes
from tdcs_train.plan.stage import MOST_AHEAD, Block, Stage
from tdcs_train.plan.timeline import steady_seconds

NO_GAIN = 1 + 1e-9
"""A plan that is faster by less than rounding is no faster."""


class Parallelism(enum.Enum):
    """What is best for a model, workers and links."""

    ONE_WORKER = "one worker"
    DATA_PARALLEL = "data parallel"
    PIPELINE = "pipeline"


@dataclass(frozen=True, kw_only=True)
class PipelinePlan:
    """The fastest plan that the options allow, beside one worker and data parallel."""

    stages: tuple[Stage, ...]
    bottleneck_seconds: float
    """Seconds a mini-batch: the time of the slowest stage."""
    expected_seconds: float
    """Seconds a mini-batch with as many of them in flight as the stages hold versions: the bottleneck at least. It is
    more where transfers take too long to be hidden."""
    one_worker_seconds: float
    data_parallel_seconds: float
    """With a ring as DistributedDataParallel does it: gradients travel while backward goes on. With parameter servers,
    and where the published advice is asked for, by the published formula: after it."""
    one_worker_stages: tuple[Stage, ...]
    """The whole model on one worker."""
    data_parallel_stages: tuple[Stage, ...]
    """The whole model on every worker."""
    ahead: int
    """Mini-batches that a worker has in flight beside the published number, for each stage behind it."""
    deeper_seconds: float | None
    """`expected_seconds` with `ahead` one more; None where that is refused, by its number or by the memory."""
    inputs: tuple[InputShape, ...]
    """The model's inputs as they were profiled."""
    levels: tuple[Level, ...]
    """The links that were planned over."""
    whole_fits: bool
    """Whether the whole model fits in the memory of a worker; else only a plan of several stages can be run."""

    @property
    def replicas(self) -> tuple[int, ...]:
        """Workers of each stage."""
        return tuple(stage.replicas for stage in self.stages)

    @property
    def workers(self) -> int:
        """Workers of all stages."""
        return sum(self.replicas)

    @property
    def best(self) -> Parallelism:
        """What to use: the least of one worker, data parallel and what is expected of the stages."""
        expected = self.expected_seconds * NO_GAIN
        if self.whole_fits and self.one_worker_seconds <= min(expected, self.data_parallel_seconds * NO_GAIN):
            return Parallelism.ONE_WORKER
        if len(self.stages) == 1 or (self.whole_fits and self.data_parallel_seconds <= expected):
            return Parallelism.DATA_PARALLEL
        return Parallelism.PIPELINE

    @property
    def advised(self) -> "PipelinePlan":
        """What the advice runs: these stages, or the whole model as one stage where no pipeline is best."""
        if self.best is Parallelism.ONE_WORKER:
            single, seconds = self.one_worker_stages, self.one_worker_seconds
        elif self.best is Parallelism.DATA_PARALLEL and len(self.stages) > 1:
            single, seconds = self.data_parallel_stages, self.data_parallel_seconds
        else:
            return self
        return replace(
            self,
            stages=single,
            bottleneck_seconds=max(stage.seconds for stage in single),
            expected_seconds=seconds,
            ahead=0,
            deeper_seconds=seconds,
        )

    @property
    def advice(self) -> str:
        """The answer in words."""
        if self.best is Parallelism.PIPELINE:
            shape = "-".join(str(count) for count in self.replicas)
            return f"a pipeline of {len(self.stages)} stages, {shape} workers, is best here"
        return f"{self.best.value} is best here"


def plan_pipeline(
    graph: Graph, options: Options, *, note: Callable[[str], None] = lambda _: None
) -> PipelinePlan:
    """The fastest plan for a checked graph; `note` is called with what a user should know of the search.

    Raises:
        InputError: The options mean nothing, no plan keeps to them, or no layer takes any time.
    """
    if not graph.seconds:
        raise InputError(
            "no layer of the profile takes any time (forward_compute_time, backward_compute_time); measure the model "
            "with tdcs-train profile"
        )
    blocks = best_blocks(graph, options, note=note)
    options = replace(options, ahead=_ahead(blocks, graph, options))
    assert options.ahead is not None
    plan_stages = tuple(stages(blocks, graph, options))
    slowest = bottleneck_seconds(blocks, graph, options)
    if options.ahead and (number := _above_memory(plan_stages, options)) is not None:
        raise InputError(
            f"--ahead: with {options.ahead} stage {number} needs {spoken_bytes(plan_stages[number].memory_bytes)}, "
            f"above --memory {spoken_bytes(options.memory_bytes or 0.0)}; give a smaller number or leave it out"
        )
    deeper = stages(blocks, graph, replace(options, ahead=options.ahead + 1))
    can_deeper = options.ahead < MOST_AHEAD and _above_memory(deeper, options) is None
    nodes = pruned(graph).order
    one_worker = _whole(nodes, [1] * len(options.levels))
    data_parallel = _whole(nodes, [level.machines for level in options.levels])
    limit = options.memory_bytes
    return PipelinePlan(
        stages=plan_stages,
        bottleneck_seconds=slowest,
        expected_seconds=_expected(blocks, plan_stages, slowest, graph, options),
        ahead=options.ahead,
        deeper_seconds=(slowest if options.published else max(slowest, steady_seconds(deeper)))
        if can_deeper
        else None,
        one_worker_seconds=one_worker_seconds(graph),
        data_parallel_seconds=_data_parallel(graph, options),
        inputs=graph.inputs,
        levels=options.levels,
        one_worker_stages=tuple(stages(one_worker, graph, options)),
        data_parallel_stages=tuple(stages(data_parallel, graph, options)),
        whole_fits=limit is None or held_bytes(graph, nodes) <= limit,
    )


def _overlaps(options: Options) -> bool:
    """Whether gradients of the whole model travel while backward goes on."""
    return options.sync == "ring" and not options.published


def _data_parallel(graph: Graph, options: Options) -> float:
    if _overlaps(options):
        return overlapped_seconds(graph, options, [level.machines for level in options.levels])
    return data_parallel_seconds(graph, options)


def _expected(
    blocks: Sequence[Block], found: Sequence[Stage], slowest: float, graph: Graph, options: Options
) -> float:
    """What a full pipeline takes, or data parallel where there is one stage."""
    if len(found) == 1 and _overlaps(options):
        replicas: list[int] = []
        while blocks:
            replicas.insert(0, blocks[0].replicas)
            blocks = blocks[0].inner
        return overlapped_seconds(graph, options, replicas)
    return slowest if options.published else max(slowest, steady_seconds(found))


MOST_CHOSEN = 4
"""Mini-batches ahead that are chosen without being asked for: each makes updates older by one step."""
WORTH = 0.97
"""More mini-batches in flight must bring the expected time to this part of what fewer bring."""


def _ahead(blocks: Sequence[Block], graph: Graph, options: Options) -> int:
    """How many mini-batches more than published to have in flight.

    None where a pipeline is best without, for they make updates older; else the least number that more would not
    improve on.
    """
    if options.ahead is not None:
        return options.ahead
    if options.published or len(stages(blocks, graph, replace(options, ahead=0))) == 1:
        return 0
    slowest = bottleneck_seconds(blocks, graph, options)
    alternatives = _data_parallel(graph, options), one_worker_seconds(graph)
    best, least = 0, math.inf
    for ahead in range(MOST_CHOSEN + 1):
        tried = stages(blocks, graph, replace(options, ahead=ahead))
        if _above_memory(tried, options) is not None:
            break
        expected = max(slowest, steady_seconds(tried))
        if expected < WORTH * least:
            best, least = ahead, expected
        if expected <= slowest * NO_GAIN or (ahead == 0 and expected * NO_GAIN < min(alternatives)):
            break
    return best


def _above_memory(found: Sequence[Stage], options: Options) -> int | None:
    """The first stage that `ahead` makes too large: the search goes by the published memory, which has none of it."""
    limit = math.inf if options.memory_bytes is None else options.memory_bytes
    return next((number for number, stage in enumerate(found) if stage.memory_bytes > limit), None)


def _whole(nodes: tuple[str, ...], replicas: Sequence[int]) -> tuple[Block, ...]:
    """All layers as one stage, with so many replicas on each level, the innermost first."""
    blocks: tuple[Block, ...] = ()
    for count in replicas:
        blocks = (Block(nodes=nodes, replicas=count, inner=blocks),)
    return blocks


def document(plan: PipelinePlan) -> dict[str, Any]:
    """What the advice runs, as one JSON document; with one stage where no pipeline is best."""
    plan = plan.advised
    return {
        "bottleneckSeconds": plan.bottleneck_seconds,
        "expectedSeconds": plan.expected_seconds,
        "ahead": plan.ahead,
        "oneWorkerSeconds": plan.one_worker_seconds,
        "dataParallelSeconds": plan.data_parallel_seconds,
        "speedVsOne": plan.one_worker_seconds / plan.expected_seconds,
        "speedVsDataParallel": plan.data_parallel_seconds / plan.expected_seconds,
        "workers": plan.workers,
        "levels": [
            {
                "machines": level.machines,
                "bytesPerSecond": level.bandwidth,
                "latencySeconds": level.latency,
            }
            for level in plan.levels
        ],
        "stages": [
            {
                "nodes": list(stage.nodes),
                "replicas": stage.replicas,
                "computeSeconds": stage.compute_seconds,
                "syncSeconds": stage.sync_seconds,
                "transferSeconds": stage.transfer_seconds,
                "warmup": stage.warmup,
                "versions": stage.versions,
                "memoryBytes": stage.memory_bytes,
                **({"recomputes": True} if stage.recomputes else {}),
            }
            for stage in plan.stages
        ],
        "inputs": [
            {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape)}
            for tensor in plan.inputs
        ],
        "advice": plan.advice,
    }
