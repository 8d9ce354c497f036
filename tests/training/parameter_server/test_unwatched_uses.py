"""Parameters that are read where no operator of PyTorch is seen to be given them: awaited, or refused by name."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.training.parameter_server import served as holding
from torch import nn
from torch.nn import functional

from tdcs_train.errors import InputError

torch.set_num_threads(1)
WIDTH = 8


def _biased_gelu(values: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(values + bias)


biased_gelu = torch.jit.script(_biased_gelu)


class Scripted(nn.Module):
    """A fused function of TorchScript, as Megatron's models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.bias = nn.Linear(WIDTH, WIDTH, bias=False), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return biased_gelu(self.layer(values), self.bias)


class KeptView(nn.Module):
    """Keeps another name of a weight's memory, without a gradient or with one."""

    def __init__(self, gradient: bool) -> None:
        super().__init__()
        self.layer, self.inner = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        weight = self.inner.weight if gradient else self.inner.weight.detach()
        self.turned = [weight.t()]

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        out = self.layer(values) @ self.turned[0]
        return out if self.turned[0].requires_grad else self.inner(out)


class CompiledFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.ones(WIDTH))
        self.fused = [torch.compile(lambda values, scale: torch.tanh(values * scale), backend="eager")]

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.fused[0](self.layer(values), self.scale)


class Product(torch.autograd.Function):
    """Reads memory itself, as an extension in C++ does."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(values, weight)
        with torch._C.DisableTorchFunction():
            return torch.from_numpy(values.detach().numpy() @ weight.detach().numpy())

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        values, weight = context.saved_tensors
        return gradients[0] @ weight.t(), values.flatten(0, -2).t() @ gradients[0].flatten(0, -2)


class Extension(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.weight = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.eye(WIDTH))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return Product.apply(self.layer(values), self.weight)


class Columns(nn.Module):
    """Two parameters that are columns of one matrix."""

    def __init__(self) -> None:
        super().__init__()
        whole = torch.randn(WIDTH, 2 * WIDTH) * 0.2
        self.first, self.second = nn.Parameter(whole[:, :WIDTH]), nn.Parameter(whole[:, WIDTH:])

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return torch.relu(values @ self.first) @ self.second


class InAThread(nn.Module):
    """Uses the weights of a module in another thread, without calling it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        outputs: list[torch.Tensor] = []
        weight, bias = self.other.weight, self.other.bias
        thread = threading.Thread(target=lambda: outputs.append(functional.linear(values, weight, bias)))
        thread.start()
        thread.join()
        return self.layer(outputs[0])


class Renormed(nn.Module):
    """An embedding that changes its rows when they are read."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(5, WIDTH, max_norm=1.0), nn.Linear(WIDTH, WIDTH)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.layer(values + self.table((values.detach().abs().sum(-1) * 3).long() % 5))


class TiedByData(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up.weight.data = self.down.weight.data

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.up(torch.relu(self.down(values)))


class Expanded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.ones(1, WIDTH).expand(4, WIDTH))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.layer(values) * self.scale.mean(0)


def step(model: nn.Module, number: int, worker: int) -> torch.Tensor:
    source = torch.Generator().manual_seed(number)
    values = torch.randn(4, 3, WIDTH, generator=source)
    return functional.cross_entropy(model(values).mean(1), torch.randint(3, (4,), generator=source))


@pytest.mark.parametrize(
    "make",
    [Scripted, lambda: KeptView(True), lambda: KeptView(False), CompiledFunction, Extension, Columns],
    ids=["script", "view", "detached view", "compiled function", "extension", "columns"],
)
def test_a_use_that_is_no_operator_of_the_parameter_awaits_it(make: Callable[[], nn.Module]) -> None:
    model = holding.equal(make)
    names = [name for name, _ in model().named_parameters()]
    steps = len(names) + 2
    expected = holding.alone(model, step, steps=steps)
    outcome = holding.served(model, step, steps=steps, hold=lambda name, time: time == names.index(name) + 1)
    assert holding.difference(expected, outcome) < 1e-6


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            InAThread,
            r"the forward used other\.(weight|bias) where it could not be waited for.* modules as modules",
        ),
        (Renormed, r"table\.weight was changed in place here, as by max_norm"),
        (
            TiedByData,
            r"down\.weight and up\.weight have the same memory without being one parameter: tie them",
        ),
        (Expanded, r"the parameter scale has several elements in one place of memory"),
    ],
    ids=["thread", "max_norm", "tied by data", "expanded"],
)
def test_what_cannot_be_awaited_is_refused_by_name(make: Callable[[], nn.Module], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        holding.served(holding.equal(make), step, steps=3, hold=lambda name, time: False)


def test_clipping_at_a_worker_is_refused_by_name() -> None:
    def clipped(model: nn.Module, number: int, worker: int) -> torch.Tensor:
        loss = step(model, number, worker)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return loss

    with pytest.raises(InputError, match=r"clip_grad_norm_ was called, and the gradients have left"):
        holding.served(holding.equal(Scripted), clipped, steps=1, hold=lambda name, time: False)


def test_the_servers_follow_a_schedule_of_the_learning_rate() -> None:
    model = holding.equal(lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)))
    alone = model()
    optimizer = holding.descent(list(alone.parameters()))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, halved)
    losses = []
    for number in range(5):
        loss = step(alone, number, 0)
        losses.append(float(loss.detach()))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    outcome = holding.served(model, step, steps=5, hold=lambda name, time: False, schedule=halved)
    assert outcome.losses == pytest.approx(losses, abs=1e-6)


def halved(done: int) -> float:
    return 0.5**done


def test_pytorch_is_as_before_when_no_model_is_served_any_more() -> None:
    before = torch.jit.ScriptFunction.__call__, torch.autograd.Function.__dict__["apply"]
    model = holding.equal(Scripted)
    holding.served(model, step, steps=1, workers=2, hold=lambda name, time: False)
    assert (torch.jit.ScriptFunction.__call__, torch.autograd.Function.__dict__["apply"]) == before
