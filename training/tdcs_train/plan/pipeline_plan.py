"""The answer of the planner: stages, what they take, and whether a pipeline is worth it at all."""

import enum
from dataclasses import dataclass
from typing import Any

from tdcs_train.plan.evaluation import bottleneck_seconds, data_parallel_seconds, one_worker_seconds, stages
from tdcs_train.plan.graph import Graph
from tdcs_train.plan.optimizer import best_blocks
from tdcs_train.plan.options import Options
from tdcs_train.plan.stage import Block, Stage

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

    blocks: tuple[Block, ...]
    stages: tuple[Stage, ...]
    bottleneck_seconds: float
    """Seconds a mini-batch: the time of the slowest stage."""
    one_worker_seconds: float
    data_parallel_seconds: float

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
        """What to use."""
        if self.one_worker_seconds <= self.bottleneck_seconds * NO_GAIN:
            return Parallelism.ONE_WORKER
        return Parallelism.DATA_PARALLEL if len(self.stages) == 1 else Parallelism.PIPELINE

    @property
    def advice(self) -> str:
        """The answer in words."""
        if self.best is Parallelism.PIPELINE:
            shape = "-".join(str(count) for count in self.replicas)
            return f"a pipeline of {len(self.stages)} stages, {shape} workers, is best here"
        return f"{self.best.value} is best here"


def plan_pipeline(graph: Graph, options: Options) -> PipelinePlan:
    """The fastest plan for a checked graph.

    Raises:
        InputError: The options mean nothing, or no plan keeps to them.
    """
    blocks = best_blocks(graph, options)
    return PipelinePlan(
        blocks=blocks,
        stages=tuple(stages(blocks, graph, options)),
        bottleneck_seconds=bottleneck_seconds(blocks, graph, options),
        one_worker_seconds=one_worker_seconds(graph),
        data_parallel_seconds=data_parallel_seconds(graph, options),
    )


def document(plan: PipelinePlan) -> dict[str, Any]:
    """The plan as one JSON document."""
    return {
        "bottleneckSeconds": plan.bottleneck_seconds,
        "oneWorkerSeconds": plan.one_worker_seconds,
        "dataParallelSeconds": plan.data_parallel_seconds,
        "speedVsOne": plan.one_worker_seconds / plan.bottleneck_seconds,
        "speedVsDataParallel": plan.data_parallel_seconds / plan.bottleneck_seconds,
        "workers": plan.workers,
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
            }
            for stage in plan.stages
        ],
        "advice": plan.advice,
    }
