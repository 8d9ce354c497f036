"""Learning-rate schedules, running statistics of replicas, and mini-batches of another size."""

import copy
import threading

import pytest
import torch
from tests.training import models, threads
from torch import nn

from tdcs_train.model.errors import PlanError
from tdcs_train.pipeline.local import LocalReducer
from tdcs_train.pipeline.statistics import averaged_statistics
from tdcs_train.pipeline.worker import Settings

TWO = [["node2", "node3", "node4", "node5"], ["node6", "node7", "node8"]]
RATE = 0.05


def sgd(parameters: list[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=rate)


def batches(*sizes: int) -> list[threads.Batch]:
    source = torch.Generator().manual_seed(5)
    return [
        (torch.randn(size, 6, generator=source), torch.randint(4, (size,), generator=source))
        for size in sizes
    ]


def decayed(done: int) -> float:
    return 0.5 ** (done // 2)


def test_a_schedule_counts_the_mini_batches_of_the_whole_pipeline() -> None:
    torch.manual_seed(2)
    model, data = threads.chain([6, 10, 9, 8, 4]), batches(*[8] * 24)
    alone = copy.deepcopy(model)
    optimizer = torch.optim.SGD(alone.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, decayed)
    for first in range(0, 24, 4):
        losses = [models.cross_entropy(alone(inputs), labels) for inputs, labels in data[first : first + 4]]
        (sum(losses) / 4).backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()

    workers = threads.workers(
        model,
        TWO,
        [1, 1],
        loss=models.cross_entropy,
        settings=Settings(mode="flush", micro_batches=4),
        optimizer=sgd,
        learning_rate=RATE,
    )
    for worker in workers:
        worker.schedule = decayed
    threads.run(workers, data, count=6)
    expected = dict(alone.named_parameters())
    for name, value in threads.weights_of(workers).items():
        torch.testing.assert_close(value, expected[name].detach(), atol=1e-6, rtol=0)


def test_with_old_weights_each_stage_has_the_rate_of_the_mini_batches_before_its_update() -> None:
    rates: dict[int, list[float]] = {0: [], 1: []}
    workers = threads.workers(
        threads.chain([6, 10, 9, 8, 4]),
        TWO,
        [2, 1],
        loss=models.cross_entropy,
        settings=Settings(),
        optimizer=sgd,
        learning_rate=RATE,
    )
    for worker in workers:
        optimizer, stage = worker.optimizer, worker.place.stage
        worker.schedule = lambda done: 1 / (1 + done)
        assert optimizer is not None
        if worker.place.replica == 0:
            optimizer.register_step_pre_hook(
                lambda used, *_, stage=stage: rates[stage].append(used.param_groups[0]["lr"])
            )
    threads.run(workers, batches(*[8] * 6), count=6)
    assert rates[0] == pytest.approx([RATE / (1 + done) for done in (0, 2, 4)])
    assert rates[1] == pytest.approx([RATE / 2 / (1 + done) for done in range(6)])


THREE = [["node2", "node3"], ["node4", "node5", "node6"], ["node7", "node8"]]


@pytest.mark.parametrize(
    ("stages", "replicas"), [(TWO, [1, 1]), (TWO, [2, 1]), (TWO, [1, 2]), (THREE, [2, 3, 1])]
)
def test_gradients_are_clipped_by_their_norm_over_all_stages(
    stages: list[list[str]], replicas: list[int]
) -> None:
    torch.manual_seed(2)
    model, most = threads.chain([6, 10, 9, 8, 4]), 0.05
    data = batches(*[8] * 18)
    alone, clipped = copy.deepcopy(model), 0
    optimizer = torch.optim.SGD(alone.parameters(), lr=10 * RATE)
    for first in range(0, 18, 6):
        losses = [models.cross_entropy(alone(inputs), labels) for inputs, labels in data[first : first + 6]]
        (sum(losses) / 6).backward()
        clipped += float(nn.utils.clip_grad_norm_(alone.parameters(), most)) > most
        optimizer.step()
        optimizer.zero_grad()
    assert clipped == 3

    workers = threads.workers(
        model,
        stages,
        replicas,
        loss=models.cross_entropy,
        settings=Settings(mode="flush", micro_batches=6, clip_norm=most),
        optimizer=sgd,
        learning_rate=10 * RATE,
    )
    threads.run(workers, data, count=3)
    expected = dict(alone.named_parameters())
    for name, value in threads.weights_of(workers).items():
        torch.testing.assert_close(value, expected[name].detach(), atol=1e-6, rtol=0)


def test_clipping_is_refused_where_the_gradients_of_all_stages_are_never_there_together() -> None:
    with pytest.raises(PlanError, match=r"clip_norm is 1 in mode stash.* Use mode flush, or clip"):
        Settings(clip_norm=1.0)
    with pytest.raises(PlanError, match=r"clip_norm is 0; give a norm of more than 0"):
        Settings(mode="flush", clip_norm=0.0)


@pytest.mark.parametrize(
    ("replicas", "settings", "sizes", "kind"),
    [
        ([1, 1], Settings(mode="flush", micro_batches=2), [8, 8, 8, 3], "micro-batch"),
        ([2, 1], Settings(), [8, 8, 8, 8, 8, 8, 8, 3], "mini-batch"),
    ],
)
def test_a_mini_batch_of_another_size_is_refused_where_an_update_averages_several(
    replicas: list[int], settings: Settings, sizes: list[int], kind: str
) -> None:
    workers = threads.workers(
        threads.chain([6, 10, 9, 8, 4]),
        TWO,
        replicas,
        loss=models.cross_entropy,
        settings=settings,
        optimizer=sgd,
        learning_rate=RATE,
    )
    for worker in workers:
        worker.link.exchange.timeout = 2.0  # type: ignore[attr-defined]
        worker.reducer.timeout = 2.0  # type: ignore[attr-defined]
    count = len(sizes) // (settings.micro_batches if settings.mode == "flush" else 1)
    with pytest.raises(PlanError, match=rf"{kind} \d has 3 samples, the one before it 8: .*drop_last=True"):
        threads.run(workers, batches(*sizes), count=count)


def test_one_stage_a_worker_takes_a_last_mini_batch_of_another_size() -> None:
    workers = threads.workers(
        threads.chain([6, 10, 9, 8, 4]),
        TWO,
        [1, 1],
        loss=models.cross_entropy,
        settings=Settings(),
        optimizer=sgd,
        learning_rate=RATE,
    )
    threads.run(workers, batches(8, 8, 3), count=3)
    assert len(workers[-1].losses) == 3


def test_statistics_of_a_checkpoint_are_those_of_all_replicas() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Sequential(nn.BatchNorm1d(2, affine=False)))
    copies = [copy.deepcopy(model) for _ in range(3)]
    for number, replica in enumerate(copies):
        replica(torch.randn(16, 3, generator=torch.Generator().manual_seed(number)) + number)
    reducer, statistics = LocalReducer(3), dict[int, dict[str, torch.Tensor]]()
    before = [replica.state_dict()["1.running_mean"].clone() for replica in copies]

    def work(number: int) -> None:
        statistics[number] = averaged_statistics(copies[number], reducer, replicas=3)

    working = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in working:
        thread.start()
    for thread in working:
        thread.join()
    assert sorted(statistics[0]) == ["1.running_mean", "1.running_var", "2.0.running_mean", "2.0.running_var"]
    for name, value in statistics[0].items():
        expected = torch.stack([replica.state_dict()[name] for replica in copies]).mean(0)
        torch.testing.assert_close(value, expected)
    for replica, mean in zip(copies, before, strict=True):
        torch.testing.assert_close(replica.state_dict()["1.running_mean"], mean)
