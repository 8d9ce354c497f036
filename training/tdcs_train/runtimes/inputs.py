"""Mini-batches as pipelines of other packages want them: tensors by position, with a part for each replica."""

from collections.abc import Sequence
from typing import Any

import torch

from tdcs_train.model.errors import ModelError, PlanError
from tdcs_train.model.splitting import SplitModel
from tdcs_train.pipeline.plan_file import StagePlan
from tdcs_train.pipeline.runtime import Recipe


def check_replicas(plan: StagePlan, *, runtime: str) -> None:
    """Refuses stages with different numbers of replicas.

    Raises:
        PlanError: It says what does run them.
    """
    if len(set(plan.replicas)) > 1:
        raise PlanError(
            f"the plan {plan} has stages with different numbers of workers, and {runtime} wants as many in each: plan "
            "with --straight, or use tdcs_train's own pipeline (--runtime tdcs)"
        )


def check_recipe(recipe: Recipe, *, runtime: str) -> None:
    """Refuses what would be left out of the updates without a word.

    Raises:
        PlanError: It names the setting.
    """
    options = {
        "settings.clip_norm": recipe.settings.clip_norm is not None,
        "schedule": recipe.schedule is not None,
        "stage_rates": bool(recipe.stage_rates),
    }
    if fields := [name for name, is_set in options.items() if is_set]:
        raise PlanError(
            f"{', '.join(fields)} of the recipe: {runtime} makes its own updates, which know nothing of it; change the "
            "learning rate in .optimizer between steps, or use tdcs_train's own pipeline, which has it"
        )


def positional(model: SplitModel, inputs: Any) -> tuple[torch.Tensor, ...]:
    """The tensors of a mini-batch in the order of the model's inputs.

    Raises:
        ModelError: It has others than the model takes.
    """
    if isinstance(inputs, dict):
        missing = [name for name in model.input_names if name not in inputs]
        if missing:
            raise ModelError(f"the mini-batch lacks the input {missing[0]}; it has {', '.join(inputs)}")
        return tuple(inputs[name] for name in model.input_names)
    tensors = inputs if isinstance(inputs, tuple) else (inputs,)
    if len(tensors) != len(model.inputs):
        raise ModelError(
            f"the mini-batch has {len(tensors)} inputs, the model takes {len(model.inputs)} "
            f"({', '.join(model.input_names)})"
        )
    return tensors


def label_tensors(labels: Any) -> tuple[torch.Tensor, ...]:
    """The tensors of the labels; none where the loss has no use for any."""
    return () if labels is None else labels if isinstance(labels, tuple) else (labels,)


def sliced(tensors: Sequence[torch.Tensor], *, replica: int, replicas: int) -> tuple[torch.Tensor, ...]:
    """The part of a replica of each tensor, along the first dimension.

    Raises:
        PlanError: The samples cannot be shared evenly.
    """
    if not tensors:
        return ()
    count = min((len(tensor) if tensor.dim() else 0 for tensor in tensors), default=0)
    if count == 0 or count % replicas or any(len(tensor) != count for tensor in tensors):
        raise PlanError(
            f"a mini-batch of {count} samples cannot be divided evenly by {replicas} (replicas of a stage, and "
            "micro-batches); give a multiple, with the samples along the first dimension of every tensor"
        )
    part = count // replicas
    return tuple(tensor[replica * part : (replica + 1) * part] for tensor in tensors)
