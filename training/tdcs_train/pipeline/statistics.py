"""Running statistics of a stage that has several replicas."""

import torch
from torch import nn

from tdcs_train.pipeline.links import Reducer


def averaged_statistics(module: nn.Module, reducer: Reducer, *, replicas: int) -> dict[str, torch.Tensor]:
    """The running statistics of BatchNorm layers by their names, averaged over the replicas of a stage, which all call
    this. The module keeps its own; counts of mini-batches are this replica's."""
    buffers = {
        f"{path}.{name}" if path else name: buffer.detach().clone()
        for path, inner in module.named_modules()
        if isinstance(inner, nn.modules.batchnorm._BatchNorm)
        for name, buffer in inner.named_buffers(recurse=False)
        if buffer is not None and buffer.is_floating_point()
    }
    if replicas > 1 and buffers:
        reducer.sum(list(buffers.values()))
        for tensor in buffers.values():
            tensor.div_(replicas)
    return buffers
