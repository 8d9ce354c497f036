"""Checkpoints of a pipeline: one file a stage and step, whole or absent, and the newest step that all stages have."""

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

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


def steps_in(folder: Path, stage: int) -> list[int]:
    """The steps of which a stage has a checkpoint."""
    if not folder.is_dir():
        return []
    found = (_NAME.fullmatch(entry.name) for entry in folder.iterdir())
    return sorted(int(match[2]) for match in found if match and int(match[1]) == stage)


def newest_common(steps: Iterable[Iterable[int]]) -> int | None:
    """The newest step that every stage has."""
    sets = [set(of_stage) for of_stage in steps]
    common = set.intersection(*sets) if sets else set()
    return max(common, default=None)


def save(folder: Path, checkpoint: Checkpoint) -> Path:
    """Writes a checkpoint under a name of its own and moves it into place, then drops old ones of the stage."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"stage-{checkpoint.stage}.step-{checkpoint.done:09d}.pt"
    scratch = path.with_suffix(f".tmp-{os.getpid()}")
    try:
        with scratch.open("wb") as file:
            torch.save(vars(checkpoint), file)
            file.flush()
            os.fsync(file.fileno())
        scratch.rename(path)
    finally:
        scratch.unlink(missing_ok=True)
    for old in steps_in(folder, checkpoint.stage)[:-KEPT]:
        with contextlib.suppress(OSError):
            (folder / f"stage-{checkpoint.stage}.step-{old:09d}.pt").unlink()
    return path


def load(folder: Path, *, stage: int, step: int, plan: str) -> Checkpoint:
    """The checkpoint of a stage and step.

    Raises PlanError with the file for one of another plan, or one that cannot be read.
    """
    path = folder / f"stage-{stage}.step-{step:09d}.pt"
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
