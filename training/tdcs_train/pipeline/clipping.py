"""Clipping of gradients by their norm over all stages of a pipeline.

The sums of squares travel from the last stage to the first, each stage adds its own, and the total travels back.
Source: Pascanu et al., "On the difficulty of training recurrent neural networks" (2013), section 3.2.
"""

import math
from collections.abc import Iterable

import torch

from tdcs_train.pipeline.links import Link
from tdcs_train.pipeline.order import Place, share
from tdcs_train.pipeline.values import Packet

_SQUARES = "squares"
_EPSILON = 1e-6
"""As in `torch.nn.utils.clip_grad_norm_`."""


def clip(gradients: Iterable[torch.Tensor | None], most: float, *, place: Place, link: Link) -> float:
    """Scale this stage's gradients so that those of all stages have a norm of at most `most`; returns the norm before.

    All workers call it at the same step, with gradients that the replicas of a stage have added up.
    """
    tensors = [gradient for gradient in gradients if gradient is not None]
    norm = math.sqrt(_over_all_stages(_squares(tensors), place=place, link=link))
    factor = min(1.0, most / (norm + _EPSILON)) if not math.isnan(norm) else math.nan
    if factor != 1.0:
        for gradient in tensors:
            gradient.mul_(factor)
    return norm


def _squares(gradients: Iterable[torch.Tensor]) -> float:
    return math.fsum(
        float(torch.linalg.vector_norm(_values(gradient), dtype=torch.float64)) ** 2 for gradient in gradients
    )


def _values(gradient: torch.Tensor) -> torch.Tensor:
    if gradient.is_sparse:
        return gradient.coalesce().values()
    return torch.view_as_real(gradient) if gradient.is_complex() else gradient


def _over_all_stages(own: float, *, place: Place, link: Link) -> float:
    """The packets go the ways of as many mini-batches as reach every replica, with numbers that no mini-batch has."""
    period = math.lcm(*place.replicas)
    batches = share(place, first=-period, count=period)
    total = own
    for batch in batches:
        behind = 0.0 if place.is_last else float(link.returning(batch).values[_SQUARES])
        total = own + behind
        if not place.is_first:
            link.pass_back(Packet(batch, {_SQUARES: torch.tensor(total, dtype=torch.float64)}))
    for batch in batches:
        if not place.is_first:
            total = float(link.arriving(batch).values[_SQUARES])
        if not place.is_last:
            link.pass_on(Packet(batch, {_SQUARES: torch.tensor(total, dtype=torch.float64)}))
    return total
