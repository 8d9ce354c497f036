"""Over a link on which any tensor may be late, parameter servers train every kind of layer as one process does."""

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.training.parameter_server import served as holding
from tests.training.parameter_server.test_parameter_server import Servers
from torch import nn

from tdcs_train.errors import InputError
from tdcs_train.model.errors import ModelError, PlanError
from tdcs_train.peers.errors import PeerError
from tdcs_train.ps.worker import ServedModel

torch.set_num_threads(1)


def values(*shape: int) -> Callable[[torch.Generator], tuple[Any, ...]]:
    return lambda source: (torch.randn(*shape, generator=source),)


def words(*shape: int) -> Callable[[torch.Generator], tuple[Any, ...]]:
    return lambda source: (torch.randint(7, shape, generator=source),)


def several(*shapes: tuple[int, ...]) -> Callable[[torch.Generator], tuple[Any, ...]]:
    return lambda source: tuple(torch.randn(*shape, generator=source) for shape in shapes)


THREE = ((2, 3, 8),) * 3
LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[torch.Generator], tuple[Any, ...]]]] = {
    "Linear": (lambda: nn.Linear(8, 4), values(2, 8)),
    "Bilinear": (lambda: nn.Bilinear(8, 8, 4), several((2, 8), (2, 8))),
    "Conv1d": (lambda: nn.Conv1d(4, 4, 3), values(2, 4, 8)),
    "Conv2d": (lambda: nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last), values(2, 4, 8, 8)),
    "Conv3d": (lambda: nn.Conv3d(2, 2, 2), values(2, 2, 4, 4, 4)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 4, 3), values(2, 4, 8)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 4, 3), values(2, 4, 8, 8)),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(2, 2, 2), values(2, 2, 4, 4, 4)),
    "Embedding": (lambda: nn.Embedding(7, 4), words(2, 5)),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(7, 4), words(2, 5)),
    "sparse Embedding": (lambda: nn.Embedding(7, 4, sparse=True), words(2, 5)),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), values(8, 4)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), values(4, 4, 3, 3)),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(2), values(4, 2, 2, 2, 2)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True), values(2, 4, 3, 3)),
    "LayerNorm": (lambda: nn.LayerNorm(4), values(3, 4)),
    "RMSNorm": (lambda: nn.RMSNorm(4), values(3, 4)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), values(3, 4, 5)),
    "PReLU": (lambda: nn.PReLU(4), values(3, 4)),
    "RNN": (lambda: nn.RNN(8, 4, num_layers=2, bidirectional=True), values(3, 2, 8)),
    "LSTM": (lambda: nn.LSTM(8, 4, num_layers=2, proj_size=3), values(3, 2, 8)),
    "GRU": (lambda: nn.GRU(8, 4, bidirectional=True), values(3, 2, 8)),
    "RNNCell": (lambda: nn.RNNCell(8, 4), values(2, 8)),
    "LSTMCell": (lambda: nn.LSTMCell(8, 4), values(2, 8)),
    "GRUCell": (lambda: nn.GRUCell(8, 4), values(2, 8)),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), several(*THREE)),
    "MultiheadAttention of other widths": (
        lambda: nn.MultiheadAttention(8, 2, kdim=5, vdim=6, add_bias_kv=True, batch_first=True),
        several((2, 3, 8), (2, 4, 5), (2, 4, 6)),
    ),
    "TransformerEncoderLayer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True),
        values(2, 3, 8),
    ),
    "TransformerDecoderLayer": (
        lambda: nn.TransformerDecoderLayer(8, 2, 12, dropout=0.0, batch_first=True),
        several(*THREE[:2]),
    ),
    "Transformer": (
        lambda: nn.Transformer(8, 2, 1, 1, 12, dropout=0.0, batch_first=True),
        several(*THREE[:2]),
    ),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_of_which_each_tensor_is_late_once_learns_what_one_process_learns(kind: str) -> None:
    make, inputs = LAYERS[kind]

    def step(model: nn.Module, number: int, worker: int) -> torch.Tensor:
        arguments = inputs(torch.Generator().manual_seed(number))
        parts = holding.tensors_in(model(*arguments))
        return torch.stack(
            [(part * torch.arange(part.numel()).view_as(part)).pow(2).mean() for part in parts]
        ).sum()

    def gently(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1e-3)

    model = holding.equal(make)
    names = [name for name, _ in model().named_parameters()]
    steps = len(names) + 2
    expected = holding.alone(model, step, steps=steps, optimizer=gently)
    outcome = holding.served(
        model, step, steps=steps, hold=lambda name, time: time == names.index(name) + 1, optimizer=gently
    )
    assert outcome.losses == pytest.approx(expected.losses, rel=1e-5)
    for name, value in expected.parameters.items():
        torch.testing.assert_close(outcome.parameters[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(12))
def test_a_random_module_over_servers_that_hold_tensors_back_learns_what_one_process_learns(
    seed: int,
) -> None:
    assert holding.random_difference(seed) < 1e-5


def test_a_forward_in_another_thread_awaits_its_parameters() -> None:
    model = holding.equal(lambda: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
    inputs = torch.ones(2, 4)

    def step(module: nn.Module, number: int, worker: int) -> torch.Tensor:
        outputs: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: outputs.append(module(inputs)))
        thread.start()
        thread.join()
        return outputs[0].pow(2).sum()

    expected = holding.alone(model, step, steps=3)
    outcome = holding.served(model, step, steps=3, hold=lambda name, time: name == "1.weight")
    assert holding.difference(expected, outcome) < 1e-6


def test_a_layer_that_one_worker_skips_counts_as_zeros_there() -> None:
    model = holding.equal(lambda: nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]))

    def step(module: Any, number: int, worker: int) -> torch.Tensor:
        source = torch.Generator().manual_seed(10 * number + worker)
        out = module[0](torch.randn(2, 4, generator=source))
        return (out if worker else module[1](out)).pow(2).mean()

    expected = holding.alone(model, step, steps=4, workers=2)
    outcome = holding.served(model, step, steps=4, workers=2, hold=lambda name, time: False)
    assert holding.difference(expected, outcome) < 1e-6


def outcome_of_two(*steps: int, timeout: float) -> tuple[str, list[str]]:
    """Why the server and its two workers ended, which want to make so many steps."""
    model = nn.Linear(4, 2)
    running = Servers(model, servers=1, workers=2, timeout=timeout)
    messages = ["", ""]
    go = threading.Event()

    def work(rank: int) -> None:
        replica = copy.deepcopy(model)
        try:
            with ServedModel(replica, running.hosts, worker=rank, workers=2, timeout=20.0):
                for _ in range(steps[rank]):
                    replica(torch.ones(1, 4)).sum().backward()
                if steps[rank] == 0:
                    go.wait(20)
        except InputError as error:
            messages[rank] = str(error)
        finally:
            if steps[rank]:
                go.set()

    workers = [threading.Thread(target=work, args=(rank,)) for rank in (0, 1)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join(60)
    running.join()
    return str(running.failures[0]), messages


def test_a_worker_that_never_sends_a_gradient_is_named_at_the_server_and_at_the_others() -> None:
    server, workers = outcome_of_two(2, 0, timeout=1.0)
    sentence = "worker 1 has not sent the gradient of"
    assert sentence in server
    assert "within 1 s after worker 0; see the log of worker 1" in server
    assert sentence in workers[0]


def test_workers_with_unequal_numbers_of_mini_batches_are_named() -> None:
    server, workers = outcome_of_two(3, 1, timeout=20.0)
    sentence = "worker 1 has ended, and worker 0 goes on with the gradient of"
    assert sentence in server
    assert sentence in workers[0]


def test_a_second_backward_of_one_forward_is_refused_before_it_changes_a_step() -> None:
    model = nn.Linear(4, 2)
    running = Servers(model, servers=1, workers=1, timeout=20.0)
    replica = copy.deepcopy(model)

    def twice() -> None:
        with ServedModel(replica, running.hosts, worker=0, workers=1, timeout=20.0):
            out = replica(torch.ones(1, 4)).sum()
            out.backward(retain_graph=True)
            out.backward()

    with pytest.raises(ModelError, match=r"got a second gradient from one forward; add the losses up"):
        twice()
    running.join()


def test_models_that_cannot_be_served_are_refused_by_name() -> None:
    hosts = [("127.0.0.1", 9)]
    compiled = nn.Sequential(torch.compile(nn.Linear(4, 2)))  # type: ignore[arg-type, unused-ignore]
    with pytest.raises(ModelError, match=r"its module 0 is compiled \(torch.compile\).*before torch.compile"):
        ServedModel(compiled, hosts, worker=0, workers=1)
    scripted = torch.jit.trace(nn.Linear(4, 2), torch.ones(1, 4))
    with pytest.raises(ModelError, match=r"is compiled \(torch.jit\).*before torch.jit"):
        ServedModel(scripted, hosts, worker=0, workers=1)
    with pytest.raises(PlanError, match=r"the parameter weight has no shape yet; call the model"):
        ServedModel(nn.LazyLinear(3), hosts, worker=0, workers=1)


def test_an_optimizer_that_fails_ends_server_and_worker_with_its_reason() -> None:
    class Failing(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            raise ValueError("no such rate")

    def failing(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return Failing(parameters, lr=1.0)

    with pytest.raises(PeerError, match="no such rate"):
        holding.served(
            lambda: nn.Linear(4, 2),
            lambda model, number, worker: model(torch.ones(1, 4)).sum(),
            steps=2,
            hold=lambda name, time: False,
            optimizer=failing,
        )
