"""Networks with several towers, experts, or constructs that a tracer may stumble over."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class TwoTower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query_tower = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.item_tower = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8))

    def forward(self, query_features: torch.Tensor, item_features: torch.Tensor) -> torch.Tensor:
        q = functional.normalize(self.query_tower(query_features), dim=-1)
        i = functional.normalize(self.item_tower(item_features), dim=-1)
        return q @ i.t() / 0.1


class Siamese(nn.Module):
    """The same tower twice."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return self.tower(left) @ self.tower(right).t()


class MixtureOfExperts(nn.Module):
    """Every token goes to all experts, weighted by a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 3)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(3)
        )
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = functional.softmax(self.gate(x), dim=-1)
        out = torch.stack([expert(x) for expert in self.experts], dim=-1)
        return self.head((out * weights.unsqueeze(-2)).sum(-1).mean(1))


class RoutedByHash(nn.Module):
    """Fixed routing: the position of a token says its expert."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            out[:, number::3] = expert(x[:, number::3])
        return self.head(out.mean(1))


class RoutedByData(nn.Module):
    """A module that takes another way for each token: it can only be one layer."""

    class Router(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.mean() > 0:
                return self.experts[0](x)
            return self.experts[1](x)

    def __init__(self) -> None:
        super().__init__()
        self.inlet, self.router, self.outlet = nn.Linear(8, 8), RoutedByData.Router(), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outlet(torch.relu(self.router(torch.relu(self.inlet(x)))))


class Branching(nn.Module):
    """The branch is in the model's own forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.mean() > 0:
            x = self.first(x)
        return self.second(x)


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh()) for _ in range(3)
        )
        self.head = nn.Linear(8, 5)
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(lambda value, run=block: run(value) + value, x, use_reentrant=self.reentrant)
        return self.head(x)


class Autocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.head(x.float())


class FrozenBackbone(nn.Module):
    """Without gradients for a part, by a context and not by its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.neck, self.head = nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            features = self.backbone(x)
        return self.head(torch.relu(self.neck(features)))


class Reversal(torch.autograd.Function):
    """A function whose backward is not the derivative of its forward."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor, scale: float) -> torch.Tensor:
        context.scale = scale
        return values.view_as(values)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0].neg() * context.scale, None


class Adversarial(nn.Module):
    """Two outputs, one of them behind a reversed gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.task, self.domain = nn.Linear(8, 8), nn.Linear(8, 5), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.tanh(self.body(x))
        return self.task(h), self.domain(Reversal.apply(h, 0.5))


class Unused(nn.Module):
    """A dead layer, a result that nobody reads, and parameters that no forward uses."""

    def __init__(self) -> None:
        super().__init__()
        self.a_layer, self.dead, self.never = nn.Linear(8, 8), nn.Linear(8, 3), nn.Linear(8, 3)
        self.norm_1, self.head = nn.BatchNorm1d(8), nn.Linear(8, 5)

    def forward(self, x_in: torch.Tensor, scale_by: float = 2.0, *, use_it: bool = False) -> torch.Tensor:
        count = x_in.shape[0]
        self.dead(x_in)
        h = torch.relu(self.norm_1(self.a_layer(x_in * scale_by)))
        values, _places = h.max(dim=1, keepdim=True)
        assert count > 0
        return self.head(h - values)


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x)
        y = self.b(h)
        y += h
        y[:, 0] = 0
        y.mul_(0.5)
        return self.c(torch.relu_(y))


class StochasticDepth(nn.Module):
    """Drops whole blocks by a random number that depends on no input."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training and float(torch.rand(1)) < 0.5:
                return x
            return x + torch.tanh(self.layer(x))

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(StochasticDepth.Block() for _ in range(3)))
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x))


class WideAndDeep(nn.Module):
    """Categories by column, numbers beside them; written with functional calls and parameters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(7, 4) for _ in range(3))
        self.weight_1 = nn.Parameter(torch.randn(16, 20) * 0.2)
        self.bias_1 = nn.Parameter(torch.zeros(16))
        self.wide, self.deep = nn.Linear(8, 5), nn.Linear(16, 5)

    def forward(self, columns: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        parts = [table(columns[:, place]) for place, table in enumerate(self.tables)]
        h = functional.linear(torch.cat([*parts, numbers], dim=1), self.weight_1, self.bias_1)
        return self.wide(numbers) + self.deep(functional.leaky_relu(h, 0.1))


class AutoEncoder(nn.Module):
    """A variational one: noise of the shape of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.mu, self.logvar = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8))

    def forward(self, x: torch.Tensor) -> Any:
        h = torch.relu(self.encoder(x))
        mu, logvar = self.mu(h), self.logvar(h).clamp(-3, 3)
        return self.decoder(mu + 0.0 * torch.randn_like(mu) + torch.exp(0.5 * logvar)), mu, logvar


class MadeInForward(nn.Module):
    """A module without parameters is made where it is used, as transformers' DistilBERT does."""

    def __init__(self, kind: type[nn.Module] = nn.ReLU, *sizes: int) -> None:
        super().__init__()
        self.first, self.last, self.kind, self.sizes = nn.Linear(8, 8), nn.Linear(8, 5), kind, sizes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.last(self.kind(*self.sizes)(self.first(x)))
        return output


class MappedOverRows(nn.Module):
    """torch.vmap of a function that closes over a value of the forward, within another, as masks of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        largest = torch.tanh(x).max()
        limits = torch.finfo(x.dtype)

        def scaled(row: torch.Tensor) -> torch.Tensor:
            return torch.vmap(lambda value: value * largest + limits.tiny)(row)

        output: torch.Tensor = self.last(torch.vmap(scaled)(x))
        return output


class OfConstants(nn.Module):
    """Branches on the type and shape of what a tensor made of numbers alone leads to."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.table, self.last = nn.Linear(8, 8), nn.Embedding(4, 8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kinds = self.table(torch.zeros(8, dtype=torch.long))
        x = self.first(x)
        output: torch.Tensor = self.last(x + kinds[:4] if kinds.shape[0] > 4 else x)
        return output


class DropsOut(nn.Module):
    """A function of dropout that looks at the mode."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.dropout(self.first(x), 0.5, self.training)
        output: torch.Tensor = self.last(torch.tanh(x))
        return output


class MappedModule(nn.Module):
    """torch.vmap of a function that uses a module of the model, whose parameters a stage has in versions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(lambda row: self.last(row) * self.last.bias)(self.first(x))


class MappedDefault(MappedModule):
    """And of one that has a value of the forward as a default."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        largest = x.max()
        output: torch.Tensor = self.last(torch.vmap(lambda row, most=largest: row * most)(x))
        return output


class Cache:
    """What a model keeps for its next call, as those of transformers."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values


class ReturnsCache(nn.Module):
    """The output has an object that is no tensor, of a model with many layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(8, 8) for _ in range(20)))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Cache]:
        x = self.layers(x)
        return x, Cache(x)
