"""Checkpoints of a pipeline: one file a stage and step, whole or absent, and the newest step that all stages have."""

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tdcs_train.errors import InputError
from tdcs_train.model.errors import PlanError

_NAME = re.compile(r"stage-(\d+)\.step-(\d+)\.pt")
KEPT = 2
"""Steps that stay: a newer one may be complete at some stages only when a worker dies."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The state of a stage after a number of mini-batches. `plan` is the digest of the plan that it belongs to."""

    stage: int
    done: int
    plan: str
    model: dict[str, torch.Tensor]
    """Parameters and buffers by their names in the whole model."""
    optimizer: dict[str, Any] | None
    stages: int = 0
    """Of the plan; 0 in checkpoints that do not know."""
    trained: list[str] = field(default_factory=list)
    """The names of the optimizer's parameters in the whole model, in its order."""
    position: dict[str, Any] = field(default_factory=dict)
    """Where the program was in its data: plain values of its own."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A file of a checkpoint, as a worker lists it for the others."""

    stage: int
    step: int
    plan: str
    stages: int


def path_of(folder: Path, *, stage: int, step: int) -> Path:
    """Where the checkpoint of a stage and step is."""
    return folder / f"stage-{stage}.step-{step:09d}.pt"


def steps_in(folder: Path) -> dict[int, list[int]]:
    """The steps of which each stage has a checkpoint, by stage; empty for a folder that does not exist yet.

    Raises:
        InputError: The folder is none, or cannot be listed.
    """
    try:
        names = [entry.name for entry in folder.iterdir()]
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _unusable(folder, error) from error
    steps: dict[int, list[int]] = {}
    for match in filter(None, map(_NAME.fullmatch, names)):
        steps.setdefault(int(match[1]), []).append(int(match[2]))
    return {stage: sorted(steps[stage]) for stage in sorted(steps)}


def kept_in(folder: Path) -> list[Kept]:
    """What each file of the folder belongs to.

    Raises:
        InputError: The folder cannot be listed, or a file cannot be read.
    """
    checkpoints = []
    for stage, steps in steps_in(folder).items():
        for step in steps:
            content = load(folder, stage=stage, step=step, whole=False)
            checkpoints.append(Kept(stage=stage, step=step, plan=content.plan, stages=content.stages))
    return checkpoints


def newest_common(seen: Sequence[Sequence[Kept]], own_stage: Sequence[int], *, plan: str) -> Kept | None:
    """The newest step that all workers can go on from, and whose it is.

    `seen` is what each worker sees, `own_stage` its stage. Of the plan that is run, each needs the file of its own
    stage; of another plan each needs all of them, as its layers may be in any.
    """
    views = [{(file.stage, file.step, file.plan) for file in files} for files in seen]
    steps = sorted(
        {file for files in seen for file in files}, key=lambda each: (-each.step, each.plan, each.stage)
    )
    for candidate in steps:
        stages = (
            [own_stage] if candidate.plan == plan else [[n] * len(views) for n in range(candidate.stages)]
        )
        if stages and all(
            (stage, candidate.step, candidate.plan) in view
            for assignment in stages
            for stage, view in zip(assignment, views, strict=True)
        ):
            return candidate
    return None


def check_start(folder: Path, seen: Sequence[Kept], *, stages: int, plan: str) -> None:
    """Refuses to begin from nothing in a folder that has checkpoints, though no step of all stages.

    One step that not all stages have is what a job leaves that ended in its first save, and no reason to refuse.

    Raises:
        PlanError: Some have gone, it says which stages have what; or they are of another plan, of a version that did
            not know how to go on with those.
    """
    if foreign := next((file for file in seen if file.plan != plan and not file.stages), None):
        path = path_of(folder, stage=foreign.stage, step=foreign.step)
        raise PlanError(f"{path} was written with another plan; give another folder, or train with that plan")
    steps: dict[int, set[int]] = {}
    for file in seen:
        steps.setdefault(file.stage, set()).add(file.step)
    if len(set().union(*steps.values())) <= 1:
        return
    have = "; ".join(
        f"stage {stage} has {', '.join(map(str, sorted(steps.get(stage, ())))) or 'none'}"
        for stage in range(max(stages, 1 + max(steps)))
    )
    raise PlanError(
        f"{folder} has checkpoints, but no step of all {stages} stages ({have}); bring the missing files back, or give "
        "an empty folder to begin again"
    )


def merged(folder: Path, kept: Kept) -> Checkpoint:
    """All stages of a step as one: the whole model, and what an optimizer holds of each parameter by its name."""
    parts = [load(folder, stage=stage, step=kept.step) for stage in range(kept.stages)]
    state: dict[str, Any] = {}
    for part in parts:
        if part.optimizer is not None:
            state |= {part.trained[number]: value for number, value in part.optimizer["state"].items()}
    return Checkpoint(
        stage=0,
        done=kept.step,
        plan=kept.plan,
        stages=1,
        model={name: value for part in parts for name, value in part.model.items()},
        optimizer={"state": state},
        position=parts[0].position,
    )


def save(folder: Path, checkpoint: Checkpoint) -> Path:
    """Writes a checkpoint under a name of its own and moves it into place, then drops older ones of the stage.

    Raises:
        InputError: The folder cannot be written, or is full.
    """
    try:
        return _written(folder, checkpoint)
    except (OSError, RuntimeError) as error:  # torch.save raises RuntimeError where a write is cut short
        raise _unusable(folder, error) from error


def _written(folder: Path, checkpoint: Checkpoint) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of(folder, stage=checkpoint.stage, step=checkpoint.done)
    scratch = path.with_suffix(f".tmp-{os.getpid()}")
    try:
        with scratch.open("wb") as file:
            torch.save(vars(checkpoint), file)
            file.flush()
            os.fsync(file.fileno())
        scratch.rename(path)
    finally:
        scratch.unlink(missing_ok=True)
    older = [step for step in steps_in(folder).get(checkpoint.stage, ()) if step < checkpoint.done]
    for old in older[: 1 - KEPT]:
        with contextlib.suppress(OSError):
            path_of(folder, stage=checkpoint.stage, step=old).unlink()
    return path


def load(folder: Path, *, stage: int, step: int, whole: bool = True) -> Checkpoint:
    """The checkpoint of a stage and step; without `whole` its tensors are not read.

    Raises PlanError with the file for one that cannot be read.
    """
    path = path_of(folder, stage=stage, step=step)
    try:
        return Checkpoint(**torch.load(path, weights_only=True, mmap=not whole))
    except Exception as error:  # a damaged file makes torch.load raise anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise PlanError(
            f"{path} cannot be read: {reason}; remove step {step} of all stages to use an older one"
        ) from error


def _unusable(folder: Path, error: Exception) -> InputError:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error).splitlines()[0]
    return InputError(
        f"checkpoints cannot be kept in {folder}: {reason}; give a folder that can be written and has room"
    )
