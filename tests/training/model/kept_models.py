"""Models with what a list of operators may lose: tables of an own class, hooks, changed buffers, compiled functions."""

from collections import OrderedDict
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH = 8


class Output(OrderedDict[str, Any]):
    """What libraries of models return: a table with attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class WithLoss(nn.Module):
    """Labels in, loss out, and all arguments optional."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.body = nn.Embedding(20, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, 20, bias=False)
        self.output.weight = self.table.weight

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        return_dict: bool | None = None,
        **options: Any,
    ) -> Any:
        if input_ids is None:
            raise ValueError("no input_ids")
        hidden = torch.tanh(self.body(self.table(input_ids)))
        logits, loss = self.output(hidden), None
        if labels is not None:
            loss = functional.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1))
        if return_dict is False:
            return loss, logits
        return Output(loss=loss, logits=logits, hidden_states=(hidden,))


class Underscored(nn.Module):
    """Names that become one where dots are written as underscores, and names of Python's own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer_1 = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.layer_1_0, self.input_1 = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.add_module("class", nn.Linear(WIDTH, WIDTH))
        self.output = nn.Linear(WIDTH, 5)

    def forward(self, input_: torch.Tensor, *, add_: float = 1.0) -> torch.Tensor:
        hidden = self.layer_1_0(self.layer_1(input_))
        return self.output(getattr(self, "class")(hidden) + self.input_1(hidden) * add_)


class MovingMean(nn.Module):
    """Changes a buffer in place, in one of two ways."""

    def __init__(self, *, copied: bool) -> None:
        super().__init__()
        self.copied = copied
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        mean = values.detach().mean(0)
        if self.copied:
            with torch.no_grad():
                self.mean.copy_(0.9 * self.mean + 0.1 * mean)
        else:
            self.steps += 1
            self.mean.mul_(0.9).add_(mean, alpha=0.1)
        return values - self.mean


class Moving(nn.Module):
    def __init__(self, *, copied: bool) -> None:
        super().__init__()
        self.first, self.mean = nn.Linear(WIDTH, WIDTH), MovingMean(copied=copied)
        self.second, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 5)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.second(self.mean(self.first(values)))))


class CheckpointOfTwo(nn.Module):
    """A checkpoint of a function with several results."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.before = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 5)

    def part(self, values: torch.Tensor, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(self.layer(values))
        return hidden * scale, hidden.mean(1, keepdim=True)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        hidden, mean = checkpoint(self.part, self.before(values), scale=0.5, use_reentrant=False)
        return self.head(hidden) + mean


def _biased_gelu(values: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(values + bias)


biased_gelu = torch.jit.script(_biased_gelu)


class Fused(nn.Module):
    """Calls a function of TorchScript, and one behind torch.compile."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.bias = nn.Linear(WIDTH, WIDTH, bias=False), nn.Parameter(torch.zeros(WIDTH))
        self.scaled = torch.compile(lambda values: torch.tanh(values) * 2, backend="eager")
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.head(self.scaled(biased_gelu(self.layer(values), self.bias)))


class Hooked(nn.Module):
    """A block whose hooks change what goes through it, forward and back."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(WIDTH, WIDTH)
        self.block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.block.register_forward_hook(lambda module, inputs, output: output * 2)
        self.block.register_full_backward_hook(
            lambda module, inputs, outputs: tuple(
                gradient if gradient is None else gradient * 0.1 for gradient in inputs
            )
        )
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.before(values)))


class OfDevice(nn.Module):
    """Autocast on the device that its input is on."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, 5),
        )

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        with torch.autocast(values.device.type, dtype=torch.bfloat16):
            values = self.second(torch.relu(self.first(values)))
        return self.head(values.float())


class Answered(dict[str, object]):
    """What a backbone returns: values by name, some of which are None."""

    @property
    def cache(self) -> object:
        return self.get("cache")


class Backbone(nn.Module):
    """Is called in one piece: its forward asks for what a graph does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, values: torch.Tensor) -> Answered:
        return Answered(values=self.second(torch.relu(self.first(values))), size=len(values.tolist()))


class SaysItsSize(nn.Module):
    """Its output has numbers, and values that are None, beside the tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.backbone, self.head = nn.Linear(WIDTH, WIDTH), Backbone(), nn.Linear(WIDTH, 5)

    def forward(self, values: torch.Tensor) -> dict[str, object]:
        answer = self.backbone(torch.relu(self.stem(values)))
        output = self.head(answer["values"])
        return {"logits": output, "cache": answer.cache, "rows": values.shape[0], "size": answer["size"]}


class HookedParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, 5),
        )
        self.first.weight.register_hook(lambda gradient: gradient * 0.1)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.head(self.second(self.first(values)))


class CatchesAll(nn.Module):
    """Goes another way when anything fails, also when it is traced."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, 5),
        )

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        hidden = self.first(values)
        try:
            large = bool(hidden.mean() > 0)
        except Exception:
            large = False
        return self.head(self.second(hidden) if large else hidden)


class AsksForGradients(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, 5),
        )

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        hidden = self.first(values)
        if hidden.requires_grad:
            hidden.register_hook(lambda gradient: gradient * 0.1)
        return self.head(self.second(hidden))


class TiedByData(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up, self.head = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, 5),
        )
        self.up.weight.data = self.down.weight.data

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.head(self.up(torch.relu(self.down(values))))


class ChangesOwnBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 5)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return self.head(torch.relu(self.first(values)))
