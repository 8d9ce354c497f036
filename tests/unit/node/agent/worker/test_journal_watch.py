"""Blocks are registered only while the master says that its journal is the one of their ids."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from tests.support.waiting import eventually_async

from tdcs.alluxio.rpc import Rpc, RpcFailureError
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.transfer import journal_watch
from tdcs.node.agent.transfer.journal_watch import JournalWatch
from tdcs.node.agent.transfer.registrar import Registrar


async def test_another_journal_and_a_silent_master_stop_registrations_until_the_journal_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says: Callable[[], str] = lambda: "old"  # noqa: E731 - it is replaced below
    asked = 0

    async def journal_id(_: Rpc) -> str:
        nonlocal asked
        asked += 1
        return says()

    def silent() -> str:
        raise RpcFailureError(code=grpc.StatusCode.UNAVAILABLE, text="")

    monkeypatch.setattr(journal_watch, "journal_id", journal_id)
    monkeypatch.setattr(journal_watch, "_SECONDS", 0.0)
    monkeypatch.setattr(journal_watch, "pause", lambda failures, most: 0.0)
    registrar = Registrar(worker=None, disk=Disk(tmp_path))
    watch = JournalWatch(registrar=registrar, master=Rpc(target="127.0.0.1:1", patience=0), journal="old")
    assert not registrar.confirmed, "before the master was asked"
    running = asyncio.create_task(watch.run())
    try:
        for answer, confirmed in ((says, True), (silent, False), (says, True), (lambda: "new", False)):
            says, before = answer, asked
            await eventually_async(lambda before=before: asked > before + 1, deadline=30)  # type: ignore[misc]
            assert registrar.confirmed is confirmed
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
