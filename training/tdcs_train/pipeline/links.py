"""What joins the workers of a pipeline: links between stages, and reducers inside of one."""

from collections.abc import Sequence
from typing import Protocol

import torch

from tdcs_train.pipeline.values import Packet


class Link(Protocol):
    """What joins a worker to the workers of the stages before and behind."""

    def arriving(self, batch: int) -> Packet:
        """The values of a mini-batch, from the stage before; waits for them."""

    def pass_on(self, packet: Packet) -> None:
        """Gives values to the stage behind; waits for a free register of the sender at most."""

    def returning(self, batch: int) -> Packet:
        """The gradients of a mini-batch, from the stage behind; waits for them."""

    def pass_back(self, packet: Packet) -> None:
        """Gives gradients to the stage before."""


class Reducer(Protocol):
    """What joins the replicas of a stage."""

    def sum(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replaces each tensor by its sum over the replicas; all replicas call it in the same order."""
