"""What a training script offers to `tdcs-train run`: a small model, its data, and ways to end while it reads them."""

import os
import signal
from typing import Any

import torch
from torch import nn

SAMPLES = 48
WAY_TO_END, AT = os.environ.get("WAY_TO_END", ""), int(os.environ.get("AT", "0"))
"""By which signal, or error, this worker ends when it has read so many samples."""


class Numbers:
    """Rows of random numbers and the place of the largest."""

    def __init__(self, seed: int, samples: int) -> None:
        self.rows = torch.randn(samples, 6, generator=torch.Generator().manual_seed(seed))
        self.reads = 0

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        if WAY_TO_END == "no pairs":
            return self.rows[index]
        if WAY_TO_END and self.reads == AT:
            if WAY_TO_END == "error":
                raise RuntimeError("no such row")
            os.kill(os.getpid(), signal.Signals[WAY_TO_END])
        return self.rows[index], self.rows[index].argmax() % 4


def model() -> nn.Module:
    dropout = float(os.environ.get("DROPOUT", "0"))
    return nn.Sequential(
        nn.Linear(6, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)
    )


def batch(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.randn(samples, 6)
    return rows, rows.argmax(1) % 4


def loss(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output, labels)


def optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.02)


def dataset() -> Numbers:
    return Numbers(1, SAMPLES)


def evaluation() -> Numbers:
    return Numbers(2, 22)


def metric(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (output.argmax(1) == labels).float().mean()
