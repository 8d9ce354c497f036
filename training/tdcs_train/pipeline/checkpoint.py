"""Checkpoints of a pipeline: one file a stage and step, whole or absent, and the newest step that all stages have."""

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
    found: dict[int, list[int]] = {}
    for match in filter(None, map(_NAME.fullmatch, names)):
        found.setdefault(int(match[1]), []).append(int(match[2]))
    return {stage: sorted(found[stage]) for stage in sorted(found)}


def newest_common(steps: Iterable[Iterable[int]]) -> int | None:
    """The newest step that every stage has."""
    sets = [set(of_stage) for of_stage in steps]
    common = set.intersection(*sets) if sets else set()
    return max(common, default=None)


def check_start(folder: Path, steps: Mapping[int, Iterable[int]], *, stages: int, plan: str) -> None:
    """Refuses to begin from nothing in a folder that has checkpoints, though no step of all stages.

    One step that not all stages have is what a job leaves that ended in its first save, and no reason to refuse.

    Raises:
        PlanError: The checkpoints are of another plan, or some have gone; it says which stages have what.
    """
    for stage, own in steps_in(folder).items():
        load(folder, stage=stage, step=max(own), plan=plan)
    if len({step for own in steps.values() for step in own}) <= 1:
        return
    have = "; ".join(
        f"stage {stage} has {', '.join(map(str, steps.get(stage, ()))) or 'none'}"
        for stage in range(max(stages, 1 + max(steps)))
    )
    raise PlanError(
        f"{folder} has checkpoints, but no step of all {stages} stages ({have}); bring the missing files back, or give "
        "an empty folder to begin again"
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


def load(folder: Path, *, stage: int, step: int, plan: str) -> Checkpoint:
    """The checkpoint of a stage and step.

    Raises PlanError with the file for one of another plan, or one that cannot be read.
    """
    path = path_of(folder, stage=stage, step=step)
    try:
        content = torch.load(path, weights_only=True)
        checkpoint = Checkpoint(**content)
    except Exception as error:  # a damaged file makes torch.load raise anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise PlanError(
            f"{path} cannot be read: {reason}; remove step {step} of all stages to use an older one"
        ) from error
    if checkpoint.plan != plan:
        raise PlanError(f"{path} was written with another plan; give another folder, or train with that plan")
    return checkpoint


def _unusable(folder: Path, error: Exception) -> InputError:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error).splitlines()[0]
    return InputError(
        f"checkpoints cannot be kept in {folder}: {reason}; give a folder that can be written and has room"
    )
