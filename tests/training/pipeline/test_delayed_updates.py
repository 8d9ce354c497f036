"""Weight stashing equals the published delayed update, and flushing equals plain gradient descent."""

import copy

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.pipeline_order import one_forward_one_backward
from tests.training import models, threads
from torch import nn

from tdcs_train.pipeline.order import Act, warm_up
from tdcs_train.pipeline.worker import Settings

STEPS = 200
RATE = 0.05
FOUR = [["node2", "node3"], ["node4", "node5"], ["node6", "node7"], ["node8"]]
TWO = [["node2", "node3", "node4", "node5"], ["node6", "node7", "node8"]]


def optimizer(momentum: float) -> threads.MakeOptimizer:
    return lambda parameters, rate: torch.optim.SGD(parameters, lr=rate, momentum=momentum)


def batches(count: int) -> list[threads.Batch]:
    source = torch.Generator().manual_seed(5)
    return [
        (torch.randn(8, 6, generator=source), torch.randint(4, (8,), generator=source)) for _ in range(count)
    ]


class Simulation:
    """The delayed update in one process, without any code of the pipeline: each group of parameters has a history.

    `groups` are the names of the parameters of each stage, `delays` by how many of its own updates the weights that a
    stage uses lag behind, and `rounds` how many mini-batches one update of it averages.
    """

    def __init__(
        self,
        model: nn.Module,
        groups: list[list[str]],
        *,
        delays: list[int],
        rounds: list[int],
        momentum: float,
    ) -> None:
        self.model = copy.deepcopy(model)
        self.groups, self.delays, self.rounds, self.momentum = groups, delays, rounds, momentum
        start = dict(self.model.named_parameters())
        self.history = [[{name: start[name].detach().clone() for name in group}] for group in groups]
        self.velocity = [{name: torch.zeros_like(start[name]) for name in group} for group in groups]
        self.gathered = [{name: torch.zeros_like(start[name]) for name in group} for group in groups]

    def version(self, stage: int, batch: int) -> int:
        return max(0, batch // self.rounds[stage] - self.delays[stage])

    def step(
        self, batch: int, inputs: torch.Tensor, labels: torch.Tensor, *, versions: list[int] | None = None
    ) -> None:
        used = versions or [self.version(stage, batch) for stage in range(len(self.groups))]
        weights = {
            name: self.history[stage][used[stage]][name].clone().requires_grad_()
            for stage, group in enumerate(self.groups)
            for name in group
        }
        output = torch.func.functional_call(self.model, weights, (inputs,))
        gradients = torch.autograd.grad(models.cross_entropy(output, labels), list(weights.values()))
        by_name = dict(zip(weights, gradients, strict=True))
        for stage, group in enumerate(self.groups):
            for name in group:
                self.gathered[stage][name] += by_name[name] / self.rounds[stage]
            if (batch + 1) % self.rounds[stage] == 0:
                self.update(stage)

    def update(self, stage: int) -> None:
        rate = RATE * self.rounds[stage] / self.rounds[0]
        new = {}
        for name, old in self.history[stage][-1].items():
            self.velocity[stage][name] = (
                self.momentum * self.velocity[stage][name] + self.gathered[stage][name]
            )
            new[name] = old - rate * self.velocity[stage][name]
            self.gathered[stage][name] = torch.zeros_like(old)
        self.history[stage].append(new)

    def newest(self) -> dict[str, torch.Tensor]:
        return {name: value for history in self.history for name, value in history[-1].items()}


def close(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, atol=1e-5, rtol=0)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(
    ("stages", "replicas", "groups", "ahead"),
    [
        (FOUR, [1, 1, 1, 1], [["0"], ["2"], ["4"], ["6"]], 0),
        (TWO, [3, 1], [["0", "2"], ["4", "6"]], 0),
        (TWO, [1, 2], [["0", "2"], ["4", "6"]], 0),
        (FOUR, [1, 1, 1, 1], [["0"], ["2"], ["4"], ["6"]], 1),
        (TWO, [3, 1], [["0", "2"], ["4", "6"]], 2),
    ],
    ids=["1-1-1-1", "3-1", "1-2", "1-1-1-1 and one ahead", "3-1 and two ahead"],
)
def test_stashing_equals_the_delayed_update_of_one_process(
    stages: list[list[str]], replicas: list[int], groups: list[list[str]], ahead: int, momentum: float
) -> None:
    torch.manual_seed(2)
    model = threads.chain([6, 10, 9, 8, 4])
    count = STEPS + -STEPS % replicas[0]
    data = batches(count)
    names = [[f"{layer}.{kind}" for layer in group for kind in ("weight", "bias")] for group in groups]
    delays = [
        warm_up(replicas, stage) + ahead * (len(replicas) - 1 - stage) for stage in range(len(replicas))
    ]
    simulation = Simulation(model, names, delays=delays, rounds=replicas, momentum=momentum)
    for number, (inputs, labels) in enumerate(data):
        simulation.step(number, inputs, labels)

    workers = threads.workers(
        model,
        stages,
        replicas,
        loss=models.cross_entropy,
        settings=Settings(mode="stash"),
        optimizer=optimizer(momentum),
        learning_rate=RATE,
        ahead=ahead,
    )
    threads.run(workers, data, count=count)
    close(threads.weights_of(workers), simulation.newest())
    start = dict(model.named_parameters())
    moved = max(float((value - start[name]).abs().max()) for name, value in simulation.newest().items())
    assert moved > 0.05, "the weights must have changed for the comparison to mean anything"
    for worker in workers:
        assert worker.compute.weights.most_held == worker.depth


def test_with_vertical_sync_all_stages_use_the_version_that_the_input_stage_saw() -> None:
    torch.manual_seed(2)
    model = threads.chain([6, 10, 9, 8, 4])
    data = batches(STEPS)
    names = [[f"{layer}.{kind}" for kind in ("weight", "bias")] for layer in (0, 2, 4, 6)]
    workers = threads.workers(
        model,
        FOUR,
        [1, 1, 1, 1],
        loss=models.cross_entropy,
        settings=Settings(mode="stash", vertical_sync=True),
        optimizer=optimizer(0.9),
        learning_rate=RATE,
    )
    threads.run(workers, data[:80], count=80)
    threads.run(workers, data[80:], count=120)
    lag = 3
    drained = Simulation(model, names, delays=[lag] * 4, rounds=[1, 1, 1, 1], momentum=0.9)
    for number, (inputs, labels) in enumerate(data):
        version = max(0, number - lag) if number < 80 else max(80, number - lag)
        drained.step(number, inputs, labels, versions=[version] * 4)
    close(threads.weights_of(workers), drained.newest())
    assert [worker.compute.weights.most_held for worker in workers] == [lag + 1] * 4


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(
    ("stages", "replicas"), [(FOUR, [1, 1, 1, 1]), (TWO, [2, 1])], ids=["1-1-1-1", "2-1"]
)
def test_flushing_equals_plain_gradient_descent_on_the_whole_batch(
    stages: list[list[str]], replicas: list[int], momentum: float
) -> None:
    torch.manual_seed(2)
    model = threads.chain([6, 10, 9, 8, 4])
    micro, steps = 4, 50
    data = batches(steps * micro)
    plain = copy.deepcopy(model)
    descent = torch.optim.SGD(plain.parameters(), lr=RATE, momentum=momentum)
    for step in range(steps):
        part = data[step * micro : (step + 1) * micro]
        descent.zero_grad()
        inputs, labels = torch.cat([tensor for tensor, _ in part]), torch.cat([tensor for _, tensor in part])
        models.cross_entropy(plain(inputs), labels).backward()
        descent.step()
    workers = threads.workers(
        model,
        stages,
        replicas,
        loss=models.cross_entropy,
        settings=Settings(mode="flush", micro_batches=micro),
        optimizer=optimizer(momentum),
        learning_rate=RATE,
    )
    threads.run(workers, data, count=steps)
    close(threads.weights_of(workers), {name: value.detach() for name, value in plain.named_parameters()})
    assert [worker.compute.weights.most_held for worker in workers] == [1] * len(workers)


def test_a_worker_acts_in_the_order_of_the_formula() -> None:
    torch.manual_seed(2)
    data = batches(30)
    workers = threads.workers(
        threads.chain([6, 10, 9, 8, 4]),
        TWO,
        [3, 1],
        loss=models.cross_entropy,
        settings=Settings(),
        optimizer=optimizer(0.0),
        learning_rate=RATE,
    )
    threads.run(workers, data, count=30)
    for worker in workers:
        numbers = range(worker.place.replica, 30, worker.place.own)
        assert [event.act for event in worker.events] == one_forward_one_backward(
            numbers, warm_up=worker.warm_up
        )
    assert [event.act for event in workers[0].events][:4] == [
        Act("forward", 0),
        Act("forward", 3),
        Act("backward", 0),
        Act("forward", 6),
    ]


WARM_UPS: dict[tuple[int, int], tuple[int, int]] = {
    (1, 1): (1, 1),
    (3, 1): (1, 1),
    (1, 2): (2, 2),
    (2, 2): (1, 1),
}
"""Forwards of the first stage before its first backward: the published number, and how many more for each `ahead`."""


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    replicas=st.sampled_from(sorted(WARM_UPS)),
    delays=st.lists(st.floats(0.0, 0.004), min_size=20, max_size=20),
    alongside=st.integers(0, 2),
)
def test_random_delays_of_links_never_change_the_order(
    replicas: tuple[int, int], delays: list[float], alongside: int
) -> None:
    count = 12
    data = batches(count)
    workers = threads.workers(
        threads.chain([6, 10, 9, 8, 4]),
        TWO,
        replicas,
        loss=models.cross_entropy,
        settings=Settings(),
        optimizer=optimizer(0.0),
        learning_rate=RATE,
        ahead=alongside,
    )
    for worker in workers:
        worker.link = threads.SlowLink(worker.link, delays, worker.place.rank)
    threads.run(workers, data, count=count)
    for worker in workers:
        numbers = list(range(worker.place.replica, count, worker.place.own))
        published, more = WARM_UPS[replicas] if worker.place.is_first else (0, 0)
        ahead = published + more * alongside
        expected = one_forward_one_backward(numbers, warm_up=ahead)
        assert [event.act for event in worker.events] == expected
        assert worker.compute.weights.most_held == min(ahead, len(numbers) - 1) + 1
