"""What `tdcs-train run` is made of, without PyTorch: the order of samples, exit codes, and what a pod leaves behind."""

import itertools
import json
from pathlib import Path

import pytest

from tdcs_train.errors import InputError
from tdcs_train.peers.errors import CRASHED, FINAL, PeerError
from tdcs_train.running.exit_codes import exit_code
from tdcs_train.running.last_message import leave_message
from tdcs_train.running.sample_order import SampleOrder


def test_every_epoch_has_each_sample_once_in_another_order_whoever_reads_it() -> None:
    order = SampleOrder(samples=10, size=3, seed=1)
    alone = list(order.indices(first=0, step=1, end=6))
    epochs = [list(itertools.chain.from_iterable(alone[begin : begin + 3])) for begin in (0, 3)]
    assert all(len(set(epoch)) == 9 for epoch in epochs)
    assert epochs[0] != epochs[1]
    two = [list(order.indices(first=first, step=2, end=6)) for first in (0, 1)]
    assert [batch for pair in zip(*two, strict=True) for batch in pair] == alone
    assert list(order.indices(first=4, step=1, end=6)) == alone[4:]
    assert list(SampleOrder(samples=10, size=3, seed=2).indices(first=0, step=1, end=3)) != alone[:3]


def test_a_dataset_smaller_than_a_mini_batch_is_refused() -> None:
    with pytest.raises(
        InputError, match="has 2 samples, which is no mini-batch of 3; give a smaller --batch"
    ):
        SampleOrder(samples=2, size=3, seed=0)


def test_a_lost_worker_is_told_from_what_no_restart_helps_against() -> None:
    assert exit_code(InputError("train.py has no 'loss'")) == 2
    assert exit_code(PeerError("rank 1 has closed the connection")) == 75
    assert exit_code(PeerError(f"rank 1 failed: out of memory ({CRASHED})")) == 1
    assert exit_code(PeerError(f"rank 1 failed: train.py has no 'loss' ({FINAL})")) == 2


def test_a_pod_leaves_its_figure_and_no_other_machine_does(tmp_path: Path) -> None:
    leave_message(0.25, environment={}, file=tmp_path / "message")
    assert not (tmp_path / "message").exists()
    leave_message(0.25, environment={"KUBERNETES_SERVICE_HOST": "x"}, file=tmp_path / "message")
    assert json.loads((tmp_path / "message").read_text()) == {"secondsPerMiniBatch": 0.25}
    pod = {"KUBERNETES_SERVICE_HOST": "x"}
    leave_message(0.25, flushed_micro_batches=8, environment=pod, file=tmp_path / "message")
    flushed = json.loads((tmp_path / "message").read_text())
    assert flushed == {"secondsPerMiniBatch": 0.25, "flushedMicroBatches": 8}
    leave_message(0.25, environment=pod, file=tmp_path / "absent" / "message")
