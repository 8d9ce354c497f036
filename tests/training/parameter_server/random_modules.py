"""Random modules that use their parameters in the ways that people write: through modules, past them, and shared."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH, TIME, BATCH = 8, 3, 4


class Attention(nn.Module):
    """The layer whose forward reads the weights of a module that it never calls."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.attention(values, values, values, need_weights=False)[0]
        return values + out


class OwnAttention(nn.MultiheadAttention):
    """The same, derived: its class is none of PyTorch's."""

    def __init__(self) -> None:
        super().__init__(WIDTH, 2, batch_first=True)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = super().forward(values, values, values)[0]
        return values + out


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = kind(WIDTH, WIDTH, batch_first=True)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        out, _ = self.layer(values)
        return values + out


class Uncalled(nn.Module):
    """Multiplies by the weights of a module that it does not call."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return functional.linear(torch.tanh(values), self.inner.weight.t(), self.inner.bias)


class Tied(nn.Module):
    """The same weights twice, one of them transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up.weight = self.down.weight

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.up(torch.relu(self.down(values))) + values @ self.down.weight


class Listed(nn.Module):
    """Parameters of its own, in a list and a table, of no dimension and of a layout that is not contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(WIDTH) * 0.9) for _ in range(2)])
        self.table = nn.ParameterDict({"shift": nn.Parameter(torch.zeros(WIDTH))})
        self.gain = nn.Parameter(torch.tensor(1.0))
        self.turned = nn.Parameter(torch.randn(WIDTH, WIDTH).t() * 0.2)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for scale in self.scales:
            values = values * scale
        return torch.addmm(self.table["shift"], values.flatten(0, 1), self.turned).view_as(values) * self.gain


class Recomputed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = checkpoint(self.inner, values, use_reentrant=False)
        return values + out


class Normed(nn.Module):
    """A weight that is computed from others, and a scale that is read without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            size = self.scale.norm()
        return torch.tanh(self.layer(values)) * self.scale / size + values * self.scale.detach()


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.inner(torch.tanh(self.inner(values)))


class Sometimes(nn.Module):
    """Skips a layer in some steps of some workers: then its parameters have no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.skips = False

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values if self.skips else values + torch.tanh(self.inner(values))


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dead = nn.Linear(WIDTH, WIDTH)
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.dead(values)
        return torch.sigmoid(self.inner(values))


class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + self.layer(values.transpose(1, 2)).transpose(1, 2)


class Words(nn.Module):
    """An embedding with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, WIDTH)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + self.table((values.detach().abs().sum(-1) * 3).long() % 5)


BLOCKS: tuple[Callable[[], nn.Module], ...] = (
    Attention,
    OwnAttention,
    Uncalled,
    Tied,
    Listed,
    Recomputed,
    Normed,
    Twice,
    Sometimes,
    Unused,
    Convolved,
    Words,
    lambda: Recurrent(nn.LSTM),
    lambda: Recurrent(nn.GRU),
    lambda: nn.TransformerEncoderLayer(WIDTH, 2, 12, dropout=0.0, batch_first=True),
    lambda: nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.PReLU()),
    lambda: nn.Linear(WIDTH, WIDTH).requires_grad_(False),
)


@dataclass(frozen=True)
class Case:
    """A model, and its loss in a step on a worker."""

    make: Callable[[], nn.Module]
    step: Callable[[nn.Module, int, int], torch.Tensor]


def random_module(seed: int) -> Case:
    """Two to five blocks, in a chain or with a skip over all of them."""
    chooser = random.Random(seed)
    blocks = chooser.choices(BLOCKS, k=chooser.randint(2, 5))

    def make() -> nn.Module:
        return nn.Sequential(*(block() for block in blocks), nn.Linear(WIDTH, 3))

    def step(model: nn.Module, number: int, worker: int) -> torch.Tensor:
        source = torch.Generator().manual_seed(1000 * seed + 10 * number + worker)
        values = torch.randn(BATCH, TIME, WIDTH, generator=source)
        labels = torch.randint(3, (BATCH,), generator=source)
        for block in model.modules():
            if isinstance(block, Sometimes):
                block.skips = (number + worker) % 3 == 0
        return functional.cross_entropy(model(values).mean(1), labels)

    return Case(make, step)
