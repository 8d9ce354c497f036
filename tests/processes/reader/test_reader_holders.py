"""A reader learns from the operator who holds what, follows changes, and reads on while the operator is away."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import aiohttp
import msgspec
import pytest
from tests.support.certificates import TestAuthority
from tests.support.dataplane.node import needs_fuse
from tests.support.dataplane.readers import CLUSTER, Giver, ReaderNode, small_version
from tests.support.programs.ports import free_ports
from tests.support.waiting import eventually_async

from tdcs.control.operator.cache_factory import serve_manifests
from tdcs.engine.holder_service import KnownAgents
from tdcs.engine.holder_table import HOLDERS_PATH, HolderTable
from tdcs.engine.operator_client import OperatorClient, RequestRefusedError
from tdcs.engine.read_reports import READ_FAILURES_PATH, ReadFailure
from tdcs.listing.folder import ManifestFolder
from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS, AgentState, MountState
from tdcs.trust.roles import Role

MOUNT = "/datasets/0123456789abcdef"


def state(giver: Giver, *, complete: bytes = ALL_SLOTS) -> AgentState:
    mount = MountState(mount=MOUNT, version=1, complete=complete, present=complete)
    return AgentState(
        node=giver.name,
        instance="i",
        revision=1,
        address=giver.address.replace("127.0.0.1", "localhost"),
        mounts={MOUNT: mount},
    )


@needs_fuse
async def test_a_reader_follows_the_operators_table_and_keeps_it_while_the_operator_is_away(
    node: ReaderNode, tmp_path: Path
) -> None:
    files = {f"{number:02d}": bytes([number]) * 50_000 for number in range(20)}
    version = small_version(node.folder, files)
    old, new = Giver(node.folder, "old"), Giver(node.folder, "new")
    for giver in (old, new):
        giver.put(version.manifest, node.folder / "source")
        await asyncio.to_thread(giver.process.start)
    (port,) = free_ports(1)
    states = {"old": state(old)}
    node.reader = node.make_reader(f"--operator=127.0.0.1:{port}")
    root = node.register(version)
    table = node.own.holders / f"{CLUSTER}.{version.manifest.digest}"

    def holders() -> list[str]:
        if not table.exists():
            return []
        return [
            holder.node for holder in msgspec.msgpack.decode(table.read_bytes(), type=HolderTable).holders
        ]

    async with serve_manifests(
        ManifestFolder(tmp_path),
        port=port,
        known_agents=lambda cluster: KnownAgents(states if cluster == CLUSTER else {}),
    ):
        await asyncio.to_thread(node.start)
        await eventually_async(lambda: holders() == ["old"], deadline=30)
        assert await asyncio.to_thread((root / "00").read_bytes) == files["00"]
        old.process.kill()
        states["new"] = state(new)
        del states["old"]
        await eventually_async(lambda: holders() == ["new"], deadline=30)
    node.reader.kill()
    await asyncio.to_thread(node.reader.start)  # without an operator

    for name, content in files.items():
        assert await asyncio.to_thread((root / name).read_bytes) == content
    new.process.kill()


async def test_the_operator_answers_when_the_table_changes_and_not_before(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    mount = MountState(mount=MOUNT, version=1, present=NO_SLOTS)
    states = {"a": AgentState(node="a", instance="i", revision=1, address="h:1", mounts={MOUNT: mount})}

    async def ask(revision: int, wait: float) -> HolderTable:
        url = f"http://127.0.0.1:{port}{HOLDERS_PATH}{CLUSTER}"
        query = {"mount": MOUNT, "revision": str(revision), "wait": str(wait)}
        async with aiohttp.ClientSession() as session, session.get(url, params=query) as answer:
            assert answer.status == 200
            return msgspec.msgpack.decode(await answer.read(), type=HolderTable)

    async with serve_manifests(
        ManifestFolder(tmp_path), port=port, known_agents=lambda _: KnownAgents(states)
    ):
        first = await ask(-1, 30)
        assert [(holder.node, holder.reads_source) for holder in first.holders] == [("a", True)]
        waiting = asyncio.create_task(ask(first.revision, 30))
        done, _ = await asyncio.wait([waiting], timeout=1.5)
        assert not done
        began = time.monotonic()
        changed = msgspec.structs.replace(mount, complete=ALL_SLOTS, present=ALL_SLOTS)
        states["a"] = msgspec.structs.replace(states["a"], mounts={MOUNT: changed})
        second = await waiting
        assert time.monotonic() - began < 10
        assert second.revision != first.revision
        assert second.holders[0].complete == ALL_SLOTS
        async with aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{port}{HOLDERS_PATH}{CLUSTER}?revision=x"
            async with session.get(url) as answer:
                assert answer.status == 400


@needs_fuse
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "certificates"])
@pytest.mark.failure_mode("file-available-nowhere")
async def test_a_file_that_cannot_be_read_is_reported_to_the_operator_with_the_reason(
    node: ReaderNode, tmp_path: Path, secure: bool
) -> None:
    (port,) = free_ports(1)
    version = await asyncio.to_thread(small_version, node.folder, {"d/gone": b"x" * 1000})
    authority = TestAuthority()
    trust = [f"--trust={authority.folder(node.folder / 'trust', Role.READER)}"] if secure else []
    tls = authority.contexts(Role.OPERATOR, hosts=()) if secure else None
    node.reader = node.make_reader(f"--operator=127.0.0.1:{port}", "--patience=0.5", *trust)
    root = node.register(version)
    reported: list[ReadFailure] = []

    async def report(failure: ReadFailure) -> None:
        reported.append(failure)

    await asyncio.to_thread(node.start)
    with pytest.raises(OSError, match="Input/output error"):
        await asyncio.to_thread((root / "d/gone").read_bytes)
    async with serve_manifests(ManifestFolder(tmp_path), port=port, report=report, tls=tls):  # it was away
        await eventually_async(lambda: bool(reported), deadline=30)
        client = OperatorClient(
            f"127.0.0.1:{port}", tls=authority.contexts(Role.READER).client if secure else None
        )
        with pytest.raises(RequestRefusedError, match="400"):
            await asyncio.to_thread(client.post, READ_FAILURES_PATH, b"nonsense", seconds=5)
        # The reader removes it once it has the operator's answer.
        await eventually_async(lambda: not list(node.own.failures.iterdir()), deadline=30)
    (failure,) = reported
    assert (failure.cluster, failure.mount, failure.node) == (CLUSTER, version.manifest.path, "here")
    assert (failure.path, failure.stale) == ("d/gone", False)
    assert "no agent is known that has it" in failure.reason
