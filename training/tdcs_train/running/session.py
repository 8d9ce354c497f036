"""A worker of `tdcs-train run`: rounds of training with a checkpoint after each, then an evaluation."""

import itertools
import json
import math
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tdcs_train.errors import InputError
from tdcs_train.loader.watching import watch
from tdcs_train.model.script import Script
from tdcs_train.model.tracing import examples_of
from tdcs_train.peers.rendezvous import Membership, Rendezvous
from tdcs_train.pipeline import checkpoint
from tdcs_train.pipeline.order import Place
from tdcs_train.pipeline.plan_file import StagePlan
from tdcs_train.pipeline.runtime import Pipeline, Recipe
from tdcs_train.pipeline.worker import Settings
from tdcs_train.plan.graph import InputShape
from tdcs_train.running import exit_codes
from tdcs_train.running.last_message import leave_message
from tdcs_train.running.own_plan import Task, own_plan
from tdcs_train.running.sample_order import SampleOrder
from tdcs_train.running.training_script import TrainingScript, read, seed_all, size_of, training_script

Say = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What the command line says."""

    model: str
    batch: int
    epochs: int
    seed: int
    settings: Settings
    checkpoints: Path | None
    every: int
    """Mini-batches between two checkpoints; 0: an epoch."""
    output: Path | None
    """Where the state dict goes."""
    processes: int
    """That read data beside each worker of the first stage."""
    profile_steps: int
    link_seconds: float


def run(
    script: Script, options: RunOptions, plan: StagePlan | None, membership: Membership, *, say: Say
) -> int:
    """Trains to the end, or until it is asked to stop; the exit code.

    Raises:
        InputError: What it was given cannot be used, or another worker has ended (PeerError).
    """
    stop = _stop_on_signal()
    seed_all(options.seed)
    training = training_script(script, model=options.model)
    rendezvous = Rendezvous(membership)
    try:
        data = _Data.of(training, options, rendezvous, plan)
        if plan is None:
            task = Task(
                model=training.model,
                loss=training.loss,
                optimizer=training.optimizer,
                mini_batch=data.mini_batch,
                example=data.example,
            )
            plan = own_plan(
                task,
                rendezvous,
                settings=options.settings,
                steps=options.profile_steps,
                link_seconds=options.link_seconds,
            )
            say({"plan": str(plan), "stages": [len(stage) for stage in plan.stages]})
        recipe = Recipe(
            model=training.model,
            loss=training.loss,
            optimizer=lambda parameters, factor: _scaled(training.optimizer(parameters), factor),
            learning_rate=1.0,
            settings=options.settings,
            schedule=training.schedule,
            inputs=1 if plan.inputs else data.names,
            labels=data.labels,
        )
        pipeline = Pipeline(recipe, plan, membership, rendezvous=rendezvous)
    except BaseException:
        rendezvous.close()
        raise
    with pipeline:
        return _train(pipeline, training, data, options, stop, say)


def _train(
    pipeline: Pipeline,
    own: TrainingScript,
    data: "_Data",
    options: RunOptions,
    stop: threading.Event,
    say: Say,
) -> int:
    end = options.epochs * data.order.items
    done = pipeline.resume(options.checkpoints) if options.checkpoints else 0
    if done:
        _check_position(pipeline.position, options)
        say({"resumed": done, "of": end})
    interval = options.every or data.order.items
    while done < end:
        count = _round(min(interval, end - done), pipeline.plan, options.settings)
        # The numbers of a round are by its place: after a restart they are what they would have been.
        seed_all(options.seed, done, pipeline.place.rank)
        items = data.items(pipeline.place, first=done, count=count) if pipeline.is_first else None
        summary = pipeline.train(items, count=count)
        done = pipeline.done
        seconds = summary.seconds / count
        if options.checkpoints:
            pipeline.save(options.checkpoints, position={"batch": options.batch, "seed": options.seed})
        if pipeline.place.rank == 0:
            say(
                {
                    "done": done,
                    "epoch": done / data.order.items,
                    "loss": summary.loss,
                    "secondsPerMiniBatch": seconds,
                    "bottleneck": summary.bottleneck,
                }
            )
            leave_message(
                seconds * _profiled_share(pipeline.plan, options),
                flushed_micro_batches=options.settings.micro_batches
                if options.settings.mode == "flush"
                else None,
            )
        if any(pipeline.agree("stop", stop.is_set())) and done < end:
            say({"stopped": done})
            return exit_codes.STOPPED
    if data.evaluations:
        items = data.evaluation_items(pipeline.place) if pipeline.is_first else None
        evaluation = pipeline.evaluate(items, count=data.evaluations, metric=own.metric)
        if pipeline.place.rank == 0:
            report = {"evaluation": evaluation.loss, "samples": evaluation.samples}
            say({**report, **({"metric": evaluation.metric} if own.metric else {})})
    _write_model(pipeline, options)
    return exit_codes.DONE


def _profiled_share(plan: StagePlan, options: RunOptions) -> float:
    """The part of a mini-batch that the plan's expectation is for: as many samples as were profiled at a time."""
    shape = plan.inputs[0].shape if plan.inputs else ()
    return shape[0] / options.batch if shape else 1.0


def _write_model(pipeline: Pipeline, options: RunOptions) -> None:
    """One state dict of the whole model, by worker 0, from the checkpoint of all stages."""
    if options.output is None:
        return
    assert options.checkpoints is not None, "the command line asks for both"
    if pipeline.place.rank == 0:
        newest = checkpoint.Kept(
            stage=0, step=pipeline.done, plan=pipeline.plan.digest, stages=len(pipeline.plan.stages)
        )
        scratch = options.output.with_name(options.output.name + ".tmp")
        try:
            torch.save(checkpoint.merged(options.checkpoints, newest).model, scratch)
            scratch.replace(options.output)
        except (OSError, RuntimeError) as error:
            raise InputError(f"{options.output} cannot be written: {error}") from error
    pipeline.agree("written", True)


def _round(count: int, plan: StagePlan, settings: Settings) -> int:
    """Mini-batches that the replicas of every stage can share: never fewer, so that a run comes to its end."""
    if settings.mode == "flush":
        return count
    multiple = math.lcm(*plan.replicas)
    return -(-count // multiple) * multiple


def _check_position(position: dict[str, Any], options: RunOptions) -> None:
    for name, value in (("batch", options.batch), ("seed", options.seed)):
        if position.get(name, value) != value:
            raise InputError(
                f"{options.checkpoints} has checkpoints of a run with --{name} {position[name]}, this one has {value}: "
                "the data would not go on where it was; give the same, or another folder"
            )


def _scaled(optimizer: torch.optim.Optimizer, factor: float) -> torch.optim.Optimizer:
    for group in optimizer.param_groups:
        group["lr"] *= factor
    return optimizer


def _stop_on_signal() -> threading.Event:
    stop = threading.Event()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    return stop


@dataclass(frozen=True, kw_only=True)
class _Data:
    """The datasets, where they are read, and what all workers know of them."""

    own: TrainingScript
    options: RunOptions
    order: SampleOrder
    labels: int
    names: Any
    example: tuple[InputShape, ...]
    evaluation_samples: int
    dataset: Any
    """None where no data is read."""

    @classmethod
    def of(
        cls, own: TrainingScript, options: RunOptions, rendezvous: Rendezvous, plan: StagePlan | None
    ) -> "_Data":
        """Worker 0, which always reads, tells the others; with a plan only workers of the first stage read."""
        rank = rendezvous.membership.rank
        reads = plan is None or rank < plan.replicas[0]
        dataset = own.dataset() if reads else None
        if rank == 0:
            try:
                rendezvous.note("data", _facts(own, options, dataset))
            except InputError as error:
                rendezvous.note("data", {"error": str(error)})
                raise
        facts = rendezvous.read("data", awaited="what worker 0 says of the data")
        if "error" in facts:
            raise InputError(f"rank 0 cannot read the data: {facts['error']}")
        return cls(
            own=own,
            options=options,
            order=SampleOrder(samples=facts["samples"], size=options.batch, seed=options.seed),
            labels=facts["labels"],
            names=facts["names"],
            example=tuple(InputShape(name, dtype, tuple(shape)) for name, dtype, shape in facts["inputs"]),
            evaluation_samples=facts["evaluation"],
            dataset=dataset,
        )

    @property
    def evaluations(self) -> int:
        """Mini-batches of the evaluation."""
        return -(-self.evaluation_samples // self.options.batch)

    def mini_batch(self) -> tuple[Any, Any]:
        """The first one."""
        first = self.order.indices(first=0, step=1, end=1)
        return next(read(self.dataset, first, collate=self.own.collate, processes=0))

    def items(self, place: Place, *, first: int, count: int) -> Iterator[tuple[Any, Any]]:
        """This worker's share of some mini-batches; in mode flush an item is a micro-batch."""
        settings = self.options.settings
        if settings.mode == "flush":
            whole = self.order.indices(first=first, step=1, end=first + count)
            parts = (_divided(indices, settings.micro_batches) for indices in whole)
            batches: Iterator[list[int]] = itertools.chain.from_iterable(
                part[place.replica :: place.own] for part in parts
            )
        else:
            batches = self.order.indices(first=first + place.replica, step=place.own, end=first + count)
        return self._read(self.dataset, batches)

    def evaluation_items(self, place: Place) -> Iterator[tuple[Any, Any]]:
        """This worker's share of the evaluation."""
        assert self.own.evaluation is not None
        size, samples = self.options.batch, self.evaluation_samples
        batches = (
            list(range(number * size, min((number + 1) * size, samples)))
            for number in range(place.replica, self.evaluations, place.own)
        )
        return self._read(self.own.evaluation(), batches)

    def _read(self, dataset: Any, indices: Iterator[list[int]]) -> Iterator[tuple[Any, Any]]:
        return iter(watch(read(dataset, indices, collate=self.own.collate, processes=self.options.processes)))


def _facts(own: TrainingScript, options: RunOptions, dataset: Any) -> dict[str, Any]:
    """What worker 0 tells the others of the data."""
    order = SampleOrder(samples=size_of(dataset), size=options.batch, seed=options.seed)
    first = order.indices(first=0, step=1, end=1)
    inputs, labels = next(read(dataset, first, collate=own.collate, processes=0))
    return {
        "samples": order.samples,
        "labels": len(labels) if isinstance(labels, tuple) else 0 if labels is None else 1,
        "names": list(inputs)
        if isinstance(inputs, dict)
        else len(inputs)
        if isinstance(inputs, tuple)
        else 1,
        "inputs": [[tensor.name, tensor.dtype, list(tensor.shape)] for tensor in examples_of(inputs)],
        "evaluation": size_of(own.evaluation()) if own.evaluation else 0,
    }


def _divided(indices: list[int], parts: int) -> list[list[int]]:
    size = len(indices) // parts
    return [indices[number * size : (number + 1) * size] for number in range(parts)]


def printed(fields: dict[str, Any]) -> None:
    """A line of JSON."""
    print(json.dumps(fields), flush=True)
