"""A pipeline over the network: what a training script uses."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn

from tdcs_train.errors import InputError
from tdcs_train.model.errors import PlanError
from tdcs_train.model.splitting import split
from tdcs_train.model.tracer import Example
from tdcs_train.model.tracing import TracedModel, trace
from tdcs_train.peers.errors import CRASHED, FINAL, PeerError
from tdcs_train.peers.rendezvous import Membership, Rendezvous, abort
from tdcs_train.pipeline import checkpoint
from tdcs_train.pipeline.checkpoint import Checkpoint, Kept
from tdcs_train.pipeline.evaluating import Evaluation, Metric, evaluate
from tdcs_train.pipeline.network import NetworkLink, RingReducer
from tdcs_train.pipeline.order import Place, check_counts, neighbours, place_of
from tdcs_train.pipeline.plan_file import StagePlan
from tdcs_train.pipeline.stage import Loss, StageCompute
from tdcs_train.pipeline.statistics import averaged_statistics
from tdcs_train.pipeline.worker import Batches, Settings, Spent, Worker

MakeOptimizer = Callable[[list[nn.Parameter], float], torch.optim.Optimizer]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is trained and how. `model` must be made equal at all workers: seed before.

    `optimizer` is given the parameters of a stage and its learning rate: in mode `stash` that is `learning_rate` x
    replicas / replicas of the input stage, because a stage with fewer replicas steps more often. `stage_rates`
    multiplies it for each stage, and `schedule` for each update, by the mini-batches that the pipeline was trained with
    before it; a scheduler of PyTorch would count the updates of one stage. Clipping in an optimizer clips the gradients
    of its stage alone: `settings.clip_norm` clips by their norm over the whole model (mode flush).
    """

    model: nn.Module
    loss: Loss
    optimizer: MakeOptimizer
    learning_rate: float
    settings: Settings = field(default_factory=Settings)
    stage_rates: Sequence[float] = ()
    schedule: Callable[[int], float] | None = None
    inputs: int | Sequence[str] = 1
    """How many arguments of forward are data, or their names; a plan of a profile says it, too."""
    labels: int = 1
    leaves: Sequence[str] = ()
    layers: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a round of training was like, equal at all workers."""

    loss: float
    """Mean over its mini-batches."""
    seconds: float
    bottleneck: int
    """The stage that computed and synchronised for the longest time."""
    stages: tuple[Spent, ...]
    """The mean over the replicas of each stage."""


class Pipeline:
    """This worker's part of a pipeline; a context manager. All workers make the same calls.

    Raises PlanError, ModelError or PeerError, which name what is wrong; other workers then fail with the same reason.
    """

    def __init__(
        self, recipe: Recipe, plan: StagePlan, membership: Membership, *, rendezvous: Rendezvous | None = None
    ) -> None:
        self.recipe, self.plan = recipe, plan
        self.place = _place(plan, membership)
        if recipe.settings.mode == "flush":
            check_counts(plan.replicas, recipe.settings.micro_batches)
        _check_ahead(plan, recipe.settings)
        if recipe.stage_rates and len(recipe.stage_rates) != len(plan.stages):
            raise PlanError(
                f"stage_rates has {len(recipe.stage_rates)} numbers for {len(plan.stages)} stages; give one for each"
            )
        traced = traced_by(recipe, plan)
        compute = StageCompute(
            split(traced, plan.stages),
            self.place.stage,
            recipe.loss,
            labels=recipe.labels,
            recomputes=self.place.stage in plan.recomputing,
        )
        facts = {"plan": plan.digest, "settings": repr(recipe.settings), **membership.facts}
        if rendezvous is None:
            rendezvous = Rendezvous(_with_facts(membership, facts))
        else:
            rendezvous.compare(facts)
        self._rendezvous = rendezvous
        connections = self._rendezvous.connect(_peers(self.place), purpose="pipeline")
        self._connections = list(connections.values())
        self.worker = Worker(
            place=self.place,
            compute=compute,
            settings=recipe.settings,
            link=NetworkLink(
                self.place,
                {n: connections[_rank(self.place, -1, n)] for n in neighbours(self.place, step=-1)},
                {n: connections[_rank(self.place, 1, n)] for n in neighbours(self.place, step=1)},
            ),
            reducer=_ring(self.place, connections),
            optimizer=_optimizer(recipe, compute, self.place),
            ahead=plan.ahead,
            schedule=recipe.schedule,
        )
        self._rounds = 0
        self.position: dict[str, Any] = {}
        """What the checkpoint that was resumed from was given as its position."""

    @property
    def is_first(self) -> bool:
        """Whether this worker reads data."""
        return self.place.is_first

    @property
    def done(self) -> int:
        """Mini-batches that the pipeline has been trained with."""
        return self.worker.done

    def train(self, batches: Batches | None, *, count: int) -> Summary:
        """Trains with `count` mini-batches (of all workers together) and leaves the pipeline empty.

        At the input stage `batches` gives this worker's share; others may pass None. In mode `flush` an item is a
        micro-batch, and there are `micro_batches` of them to each mini-batch.
        """
        before, losses, begin = Spent(**asdict(self.worker.spent)), len(self.worker.losses), time.monotonic()
        self.worker.events.clear()
        self.worker.run(batches, count=count)
        now = asdict(self.worker.spent)
        return self._summary(
            {name: now[name] - value for name, value in asdict(before).items()},
            self.worker.losses[losses:],
            time.monotonic() - begin,
        )

    def evaluate(self, batches: Batches | None, *, count: int, metric: Metric | None = None) -> Evaluation:
        """The loss of `count` mini-batches of the whole pipeline, and a metric, without training.

        `batches` is read by the first stage, as in training; mini-batches may differ in size. `metric` is a function of
        the model's output and the labels, like the loss.
        """
        module = self.worker.compute.part.module
        trained = [submodule for submodule in module.modules() if submodule.training]
        module.eval()
        try:
            evaluation = evaluate(self.worker, batches, count=count, metric=metric)
        finally:
            for submodule in trained:
                submodule.training = True
        totals = [Evaluation(**fields) for fields in self._together("evaluated", asdict(evaluation))]
        samples = sum(total.samples for total in totals)
        return Evaluation(
            loss=sum(total.loss * total.samples for total in totals) / max(samples, 1),
            metric=sum(total.metric * total.samples for total in totals) / max(samples, 1),
            samples=samples,
        )

    def agree(self, topic: str, own: Any) -> list[Any]:
        """What every worker gives to the same call, by rank; plain values."""
        return self._together(topic, own)

    def save(self, folder: Path, *, position: dict[str, Any] | None = None) -> None:
        """Writes a checkpoint: a file for each stage, by its replica 0. Returns when all stages have theirs.

        `position` are plain values that `resume` gives back, such as where the program was in its data.

        Running statistics (BatchNorm) are those of all replicas of a stage, averaged: each has seen other mini-batches.
        """
        averaged = averaged_statistics(
            self.worker.compute.part.module, self.worker.reducer, replicas=self.place.own
        )
        if self.place.replica == 0:
            compute, optimizer = self.worker.compute, self.worker.optimizer
            state = compute.part.module.state_dict() | averaged
            checkpoint.save(
                folder,
                Checkpoint(
                    stage=self.place.stage,
                    done=self.done,
                    plan=self.plan.digest,
                    model={compute.part.names.get(name, name): value for name, value in state.items()},
                    optimizer=optimizer.state_dict() if optimizer is not None else None,
                    stages=len(self.plan.stages),
                    trained=self._trained(),
                    position=position or {},
                ),
            )
        self._together("saved", self.done)

    def resume(self, folder: Path) -> int:
        """Goes on from the newest step of which every stage has a checkpoint; returns the mini-batches done.

        0 where there are none. Checkpoints of another plan are taken, too, where all workers see all files. Raises
        PlanError for checkpoints of another model, and where files are missing.
        """
        checkpoints = [
            [Kept(**fields) for fields in files]
            for files in self._together("steps", [asdict(file) for file in checkpoint.kept_in(folder)])
        ]
        stages = [self._stage_of(rank) for rank in range(self.plan.workers)]
        newest = checkpoint.newest_common(checkpoints, stages, plan=self.plan.digest)
        if newest is None:
            checkpoint.check_start(
                folder,
                list(itertools.chain.from_iterable(checkpoints)),
                stages=len(self.plan.stages),
                plan=self.plan.digest,
            )
            return 0
        is_own = newest.plan == self.plan.digest
        stage = self.place.stage if is_own else 0
        content = (
            checkpoint.load(folder, stage=stage, step=newest.step)
            if is_own
            else checkpoint.merged(folder, newest)
        )
        compute = self.worker.compute
        names = {key: compute.part.names.get(key, key) for key in compute.part.module.state_dict()}
        try:
            if is_own and (strange := content.model.keys() - set(names.values())):
                raise KeyError(f"this stage has no {min(strange)}")
            compute.part.module.load_state_dict({key: content.model[name] for key, name in names.items()})
            if self.worker.optimizer is not None and content.optimizer is not None:
                state = content.optimizer if is_own else self._regrouped(content.optimizer["state"])
                self.worker.optimizer.load_state_dict(state)
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            path = checkpoint.path_of(folder, stage=stage, step=newest.step)
            reason = " ".join(
                line.strip() for line in str(error).splitlines()[:2]
            )  # one tensor of perhaps many
            raise PlanError(
                f"{path} is of another model or optimizer: {reason.rstrip('.')}; give the options that it was "
                "trained with, or another folder"
            ) from error
        self.position = content.position
        self.worker.resume(content.done)
        return content.done

    def _trained(self) -> list[str]:
        """The names of the optimizer's parameters in the whole model, in its order."""
        compute, optimizer = self.worker.compute, self.worker.optimizer
        names = {
            id(parameter): compute.part.names.get(key, key) for key, parameter in compute.parameters.items()
        }
        groups = optimizer.param_groups if optimizer is not None else []
        return [names[id(parameter)] for group in groups for parameter in group["params"]]

    def _regrouped(self, state: dict[str, Any]) -> dict[str, Any]:
        """The optimizer's own groups, with what another plan's optimizers held of its parameters."""
        assert self.worker.optimizer is not None
        own_state = self.worker.optimizer.state_dict()
        by_number = {number: state[name] for number, name in enumerate(self._trained()) if name in state}
        return {"state": by_number, "param_groups": own_state["param_groups"]}

    def __enter__(self) -> "Pipeline":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            reason = f"{self.place} failed: {error}" if str(error) else repr(error)
            if not isinstance(error, PeerError):
                reason += f" ({FINAL if isinstance(error, InputError) else CRASHED})"
            abort(self._connections, reason)
        else:
            for connection in self._connections:
                connection.close()
        self._rendezvous.close()

    def _summary(self, spent: dict[str, float], losses: Sequence[float], seconds: float) -> Summary:
        reports = self._together("report", {"spent": spent, "losses": list(losses), "seconds": seconds})
        stages = []
        for stage, replicas in enumerate(self.plan.replicas):
            replicas_spent = [r["spent"] for rank, r in enumerate(reports) if self._stage_of(rank) == stage]
            stages.append(
                Spent(**{name: sum(replica[name] for replica in replicas_spent) / replicas for name in spent})
            )
        all_losses = [loss for report in reports for loss in report["losses"]]
        return Summary(
            loss=sum(all_losses) / len(all_losses),
            seconds=max(report["seconds"] for report in reports),
            bottleneck=max(range(len(stages)), key=lambda stage: stages[stage].compute + stages[stage].sync),
            stages=tuple(stages),
        )

    def _together(self, topic: str, own: Any) -> list[Any]:
        """What every worker gives to the same call, by rank."""
        self._rounds += 1
        key = f"{topic}/{self._rounds}"
        self._rendezvous.note(f"{key}/{self.place.rank}", own)
        return [
            self._rendezvous.read(
                f"{key}/{rank}",
                awaited=f"{topic} of {place_of(rank, self.plan.replicas)}",
                connections=self._connections,
            )
            for rank in range(self.plan.workers)
        ]

    def _stage_of(self, rank: int) -> int:
        return place_of(rank, self.plan.replicas).stage


def traced_by(recipe: Recipe, plan: StagePlan) -> TracedModel:
    """The model's graph as the profile of the plan had it."""
    example = tuple(Example(tensor.name, tensor.dtype, tensor.shape) for tensor in plan.inputs)
    inputs = recipe.inputs
    if inputs == 1 and example:
        positional = all(tensor.name == f"input_{number}" for number, tensor in enumerate(example))
        inputs = len(example) if positional else [tensor.name for tensor in example]
    return trace(recipe.model, inputs=inputs, leaves=recipe.leaves, layers=recipe.layers, example=example)


def _place(plan: StagePlan, membership: Membership) -> Place:
    if plan.workers != membership.world_size:
        raise PlanError(
            f"the plan is for {plan.workers} workers ({plan}), the job has {membership.world_size} (WORLD_SIZE); plan "
            f"again with --workers {membership.world_size}"
        )
    return place_of(membership.rank, plan.replicas)


def _check_ahead(plan: StagePlan, settings: Settings) -> None:
    if plan.ahead and settings.mode == "flush":
        raise PlanError(
            f"the plan has ahead {plan.ahead}, by which mode flush gains nothing: each step waits until the "
            "pipeline is empty; plan without --ahead, or use mode stash"
        )
    if plan.ahead and settings.vertical_sync:
        raise PlanError(
            f"the plan has ahead {plan.ahead}, which vertical_sync does not know; plan without --ahead, or leave out "
            "vertical_sync"
        )


def _with_facts(membership: Membership, facts: dict[str, str]) -> Membership:
    return replace(membership, facts=facts)


def _rank(place: Place, step: int, replica: int) -> int:
    return Place(replicas=place.replicas, stage=place.stage + step, replica=replica).rank


def _peers(place: Place) -> dict[int, str]:
    """All workers that this one exchanges packets with: neighbours in the pipeline, and in the ring of its stage."""
    ranks = [_rank(place, step, n) for step in (-1, 1) for n in neighbours(place, step=step)]
    if place.own > 1:
        ranks += [_rank(place, 0, (place.replica + step) % place.own) for step in (-1, 1)]
    return {rank: str(place_of(rank, place.replicas)) for rank in ranks}


def _ring(place: Place, connections: dict[int, Any]) -> RingReducer:
    if place.own == 1:
        return RingReducer(0, 1, None, None)
    before, after = (connections[_rank(place, 0, (place.replica + step) % place.own)] for step in (-1, 1))
    return RingReducer(place.replica, place.own, before, after)


def _optimizer(recipe: Recipe, compute: StageCompute, place: Place) -> torch.optim.Optimizer | None:
    parameters = [parameter for parameter in compute.parameters.values() if parameter.requires_grad]
    if not parameters:
        return None
    rate = recipe.learning_rate
    if recipe.settings.mode == "stash":
        rate *= place.own / place.replicas[0]
    if recipe.stage_rates:
        rate *= recipe.stage_rates[place.stage]
    return recipe.optimizer(parameters, rate)
