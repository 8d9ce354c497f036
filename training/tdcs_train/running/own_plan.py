"""The plan of a run that was given none: all workers profile the model and measure the links, worker 0 plans."""

import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from tdcs_train.link.session import Job, measure_links
from tdcs_train.model.measuring import Subject, profile
from tdcs_train.model.tracer import Example
from tdcs_train.model.tracing import trace
from tdcs_train.peers.rendezvous import Rendezvous
from tdcs_train.pipeline.plan_file import StagePlan, plan_of
from tdcs_train.pipeline.stage import Loss
from tdcs_train.pipeline.worker import Settings
from tdcs_train.plan.graph import Graph, InputShape, check
from tdcs_train.plan.options import Level, Options
from tdcs_train.plan.pipeline_plan import document, plan_pipeline
from tdcs_train.plan.profile_text import parse, render


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is planned for."""

    model: nn.Module
    loss: Loss
    optimizer: Callable[..., Any]
    mini_batch: Callable[[], tuple[Any, Any]]
    example: tuple[InputShape, ...]


def own_plan(
    task: Task, rendezvous: Rendezvous, *, settings: Settings, steps: int, link_seconds: float
) -> StagePlan:
    """The plan that all workers are given; of one worker it is the whole model.

    Raises:
        InputError: The model cannot be profiled, or a link not be measured.
    """
    membership = rendezvous.membership
    if membership.world_size == 1:
        return _whole(task)
    graph = _profiled(task, steps)
    if membership.rank == 0:
        rendezvous.note("link port", _free_port())
    port = rendezvous.read("link port", awaited="where worker 0 measures links")
    job = Job(
        master=membership.master,
        port=port,
        rank=membership.rank,
        world_size=membership.world_size,
        timeout=membership.timeout,
    )
    rates = measure_links(job, seconds=link_seconds)
    if membership.rank == 0:
        level = Level(
            machines=membership.world_size,
            bandwidth=min(rate.bytes_per_second for rate in rates),
            latency=max(rate.latency_seconds for rate in rates),
        )
        ahead = 0 if settings.mode == "flush" else None
        plan = plan_pipeline(graph, Options(levels=(level,), ahead=ahead))
        if plan.advised.workers != membership.world_size:
            # One worker is best, but there are more of them: they average their gradients.
            plan = replace(plan, stages=plan.data_parallel_stages, whole_fits=False, ahead=0)
        rendezvous.note("plan", document(plan))
    return plan_of(rendezvous.read("plan", awaited="the plan of worker 0"), source="the plan of worker 0")


def _profiled(task: Task, steps: int) -> Graph:
    subject = Subject(model=task.model, batch=task.mini_batch, loss=task.loss)
    graph = profile(subject, steps=steps)
    check(graph, source="the profile")
    return parse(render(graph))


def _whole(task: Task) -> StagePlan:
    names = [tensor.name for tensor in task.example]
    positional = all(name == f"input_{number}" for number, name in enumerate(names))
    inputs = len(names) if positional else names
    traced = trace(
        task.model, inputs=inputs, example=[Example(e.name, e.dtype, e.shape) for e in task.example]
    )
    return StagePlan((tuple(layer.id for layer in traced.layers),), (1,), inputs=task.example)


def _free_port() -> int:
    with socket.create_server(("", 0)) as server:
        port: int = server.getsockname()[1]
        return port
