"""`tdcs operator` with a system clock that is stepped forward and back: no timeout depends on a wrong timestamp.

The API server's certificate has been valid for years here. With that of a new cluster, TLS fails while the operator's
clock is behind the certificate's notBefore; the API server is then unreachable until the clock is corrected.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.controlplane.job_world import JobWorld, jobs
from tests.controlplane.operator_holder import Holder
from tests.controlplane.operator_world import World, world
from tests.support.kube import condition

from tdcs_local.containers import faketime
from tdcs_local.progress import Reporter

__all__ = ["jobs", "world"]

DAY = 86_400
JUMPS = (2 * DAY, 0, -2 * DAY, 30 * DAY, -30 * DAY, 3600, -3600, 0)
"""Seconds that the operator's clock is off by, one after the other."""
SLACK_SECONDS = 600
"""The shortest jump is longer by far."""


class Clock:
    """The clock of an operator, which can be set."""

    def __init__(self, folder: Path) -> None:
        self._offset = folder / faketime.OFFSET
        self.set(0)
        library = faketime.ensure(reporter=Reporter())
        self.environment = faketime.environment(str(folder), library=str(library))

    def set(self, seconds: int) -> None:
        """Have it off by so many seconds from now on."""
        written = self._offset.with_suffix(".new")
        written.write_text(f"{seconds:+d}\n")
        written.replace(self._offset)


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


@pytest.fixture
def holder(world: World, tmp_path: Path, clock: Clock) -> Iterator[Holder]:
    """The operator with that clock, which has brought a Dataset into a cache."""
    world.create_cluster()
    world.create_dataset()
    holder = Holder(world, folder=tmp_path, env=clock.environment)
    try:
        world.wait_ready()
        yield holder
    finally:
        holder.remove()


def test_a_program_that_waits_while_its_clock_is_set_goes_on(clock: Clock) -> None:
    # time.sleep is what is tested: libfaketime's own clock_nanosleep fails with EINVAL where a clock is set meanwhile.
    program = "import time\nwhile True: time.sleep(0.05); print(time.time(), flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", program], env=os.environ | clock.environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for seconds in (2 * DAY, -30 * DAY, 3600):
                clock.set(seconds)
                assert any(
                    abs(float(line) - time.time() - seconds) < SLACK_SECONDS for line in process.stdout
                )
        finally:
            process.kill()


def has_jumped(holder: Holder, seconds: int) -> bool:
    """Whether the operator's clock is off by so much, from when it says that it has renewed its Lease."""
    world = holder.world
    lease = world.kube.get("Lease", f"{holder.release}-operator", namespace=world.namespace)
    renewed = datetime.datetime.fromisoformat(lease["spec"]["renewTime"])
    off = (renewed - datetime.datetime.now(datetime.UTC)).total_seconds()
    return abs(off - seconds) < SLACK_SECONDS


def has_succeeded(world: World, job: str) -> bool:
    return condition(world.job(job), "Succeeded") == "True"


def has_only(world: World, names: set[str]) -> bool:
    """Whether there are no other Datasets."""
    return {
        dataset["metadata"]["name"] for dataset in world.kube.list("Dataset", namespace=world.namespace)
    } <= names


@pytest.mark.deep(
    "tests/controlplane/operator/test_operator_clock.py::test_workers_that_go_on_when_the_first_has_ended_are_ended_by_an_operator_whose_clock_is_behind"
)
@pytest.mark.timeout(600)
@pytest.mark.failure_mode("operator-clock-set")
def test_an_operator_whose_clock_is_set_again_and_again_does_all_it_is_asked_at_once(
    world: World, holder: Holder, clock: Clock
) -> None:
    holder.start("standby")
    for number, jump in enumerate(JUMPS):
        clock.set(jump)
        dataset, job = f"pictures-{number}", f"train-{number}"
        world.create_dataset(dataset)
        world.create_job(job)
        world.kube.delete("Dataset", f"pictures-{number - 1}", namespace=world.namespace)
        world.wait(partial(has_jumped, holder, jump))
        world.wait_ready(dataset)
        world.wait(partial(has_succeeded, world, job))
        world.wait(partial(has_only, world, {"pictures", dataset}))
        assert condition(world.dataset(), "Ready") == "True", "the one that nobody changed"

    assert holder.process.pid == holder.pid
    assert holder.metric("tdcs_operator_lease_losses_total") == 0


@pytest.mark.failure_mode("operator-clock-set")
def test_workers_that_go_on_when_the_first_has_ended_are_ended_by_an_operator_whose_clock_is_behind(
    jobs: JobWorld, tmp_path: Path, clock: Clock
) -> None:
    clock.set(-30 * DAY)
    holder = Holder(jobs, folder=tmp_path, env=clock.environment)
    try:
        jobs.gpu_job("train", pods=2, framework="PyTorch")
        first, _ = jobs.run_pods(count=2)
        jobs.end_pod(first)
        jobs.wait(partial(has_succeeded, jobs, "train"))
    finally:
        holder.remove()
