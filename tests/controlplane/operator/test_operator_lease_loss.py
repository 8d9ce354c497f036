"""`tdcs operator` that loses its Lease, to somebody else or because the API server is away, and gets it back."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.controlplane.operator_holder import Holder
from tests.controlplane.operator_world import World, world
from tests.support.report import Measured

from tdcs.control.operator.startup import SYNC_SECONDS

__all__ = ["world"]

AWAY_SECONDS = int(os.environ.get("TDCS_API_AWAY_SECONDS", "0"))
BACK_SECONDS = 60
"""Within it an operator works again once the API server is back; kubelet would wait for up to five minutes."""


@pytest.fixture
def holder(world: World, tmp_path: Path) -> Iterator[Holder]:
    """The working operator of a cache with one Dataset."""
    world.create_cluster()
    world.create_dataset()
    holder = Holder(world, folder=tmp_path)
    try:
        world.wait_ready()
        yield holder
    finally:
        holder.remove()


@pytest.mark.failure_mode("operator-loses-lease")
def test_one_that_lost_its_lease_writes_nothing_until_it_has_it_again_in_the_same_process(
    world: World, holder: Holder
) -> None:
    audit = world.plane.audit
    assert holder.writes(since=0)
    for number in (1, 2):
        read = holder.process.log.stat().st_size

        def stands_by(read: int = read) -> bool:
            holder.give("thief")
            return "is held by thief" in holder.process.log.read_text()[read:]

        world.wait(stands_by)
        since = audit.size
        name = f"pictures-{number}"
        world.create_dataset(name)

        def has_seen_it() -> bool:
            holder.give("thief")
            return holder.metric("tdcs_operator_queued") > 0

        world.wait(has_seen_it)
        size_before = audit.size

        def has_asked_for_its_lease_again(seen: int = size_before) -> bool:
            holder.give("thief")
            return holder.lease_reads(since=seen) >= 2

        world.wait(has_asked_for_its_lease_again)  # in that time it would have written
        assert holder.writes(since=since) == []
        holder.give("")
        world.wait_ready(name)
        assert holder.writes(since=since)
        assert holder.process.pid == holder.pid
        assert holder.metric("tdcs_operator_lease_losses_total") == number


@pytest.mark.skipif(not AWAY_SECONDS, reason="set TDCS_API_AWAY_SECONDS=150, or what time there is")
@pytest.mark.failure_mode("api-server-away-minutes")
def test_one_without_an_api_server_for_minutes_works_again_soon_after_it_is_back(
    world: World, holder: Holder, measured: Measured
) -> None:
    server = world.plane.process("kube-apiserver")
    second = holder.start("second")
    pid = second.pid
    with server.away():
        time.sleep(AWAY_SECONDS)
        assert (holder.process.pid, second.pid) == (holder.pid, pid)
        if AWAY_SECONDS > SYNC_SECONDS + 30:
            assert "still waiting for the API server" in holder.process.log.read_text()
    world.create_dataset("later")
    begun = time.monotonic()
    world.wait_ready("later")
    took = time.monotonic() - begun
    measured(f"works again {took:.1f} s after an API server that was away for {AWAY_SECONDS} s is back")
    assert took < BACK_SECONDS
    assert (holder.process.pid, second.pid) == (holder.pid, pid)
    assert holder.metric("tdcs_operator_lease_losses_total") == 1
