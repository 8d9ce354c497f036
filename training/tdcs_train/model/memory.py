"""Which parameters have their values in the same memory."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from tdcs_train.model.errors import PlanError


def refuse_overlaps(named: Sequence[tuple[str, nn.Parameter]]) -> None:
    """Raises PlanError for parameters with the same memory, each of which would be updated as if it had its own."""
    of_storage: dict[int, list[tuple[str, nn.Parameter]]] = {}
    for name, value in named:
        if value.layout == torch.strided and value.numel():
            of_storage.setdefault(value.untyped_storage()._cdata, []).append((name, value))
    for sharing in of_storage.values():
        if len(sharing) == 1 and sharing[0][1].is_contiguous():
            continue
        unit = math.gcd(*(value.element_size() for _, value in sharing))
        owner = torch.full((sharing[0][1].untyped_storage().nbytes() // unit,), -1, dtype=torch.int32)
        for number, (name, value) in enumerate(sharing):
            step = value.element_size() // unit
            strides = [stride * step for stride in value.stride()]
            places = owner.as_strided(value.shape, strides, value.storage_offset() * step)
            sharer = int(places.max())
            if sharer >= 0:
                twin = sharing[sharer][0]
                raise PlanError(
                    f"the parameters {twin} and {name} have the same memory without being one parameter: tie them by "
                    f"making {name} the parameter {twin} itself, not its .data"
                )
            places.fill_(number)
            if int((owner == number).sum()) < value.numel():
                raise PlanError(
                    f"the parameter {name} has several elements in one place of memory (it was expanded): make it with "
                    ".contiguous()"
                )
