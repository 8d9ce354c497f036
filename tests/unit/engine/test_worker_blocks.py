"""A worker is asked for blocks over gRPC: a real server plays the worker, and says what it saw."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.certificates import TestAuthority
from tests.support.programs.ports import free_ports
from tests.support.waiting import eventually_async

from tdcs.alluxio.rpc import BLOCK_WORKER, RpcFailureError, method_types
from tdcs.alluxio.worker_blocks import WorkerBlocks
from tdcs.trust.identity import Identity, NoIdentityError
from tdcs.trust.roles import Role

REQUEST, RESPONSE = method_types(BLOCK_WORKER, "CreateLocalBlock")
CODE = grpc.StatusCode


class Worker:
    """Gives paths in a folder, commits what was put there, and breaks a call in the way that a test asks for.

    Attributes:
        committed: content by block, of the calls that came to their end.
        broken: blocks of calls that the other side broke off.
        before: called with each first message and the call.
        reply: whether a path is given.
    """

    def __init__(self, folder: Path, *, port: int, authority: TestAuthority | None = None) -> None:
        self.folder = folder
        self.port = port
        self.authority = authority
        self.committed: dict[int, bytes] = {}
        self.broken: list[int] = []
        self.callers: list[str] = []
        self.reply = True
        self.answers: Callable[[Any, Any], Any] = _nothing
        self.commits: Callable[[Any, Any], Any] = _nothing

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self.server = grpc.aio.server()
        handler: Any = grpc.stream_stream_rpc_method_handler(
            self._create,
            request_deserializer=REQUEST.FromString,
            response_serializer=RESPONSE.SerializeToString,
        )
        self.server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(BLOCK_WORKER, {"CreateLocalBlock": handler})]
        )
        if self.authority is None:
            assert self.server.add_insecure_port(self.target) == self.port
        else:
            identity = self.authority.identity(Role.WORKER)
            credentials = grpc.ssl_server_credentials(
                [(identity.key, identity.certificate)], identity.authorities, require_client_auth=True
            )
            assert self.server.add_secure_port(self.target, credentials) == self.port
        await self.server.start()

    async def _create(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        request = await anext(requests)
        file = self.folder / str(request.block_id)
        try:
            if self.authority is not None:
                (name,) = context.auth_context()["x509_common_name"]
                self.callers.append(name.decode())
            await self.answers(request, context)
            if not self.reply:
                return
            yield RESPONSE(path=str(file))
            async for _ in requests:
                raise AssertionError("a second message came")
            await self.commits(request, context)
            if not file.exists():  # a call that is broken off, too, ends the messages
                await eventually_async(context.cancelled, deadline=5)
                raise asyncio.CancelledError
            assert len(file.read_bytes()) == request.space_to_reserve
            self.committed[request.block_id] = file.read_bytes()
        except asyncio.CancelledError:
            self.broken.append(request.block_id)
            raise


async def _nothing(request: Any, context: Any) -> None:
    pass


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Worker]:
    (port,) = free_ports(1)
    made = Worker(tmp_path, port=port)
    await made.start()
    yield made
    await made.server.stop(None)


@pytest.fixture
async def channel(worker: Worker) -> AsyncIterator[WorkerBlocks]:
    made = WorkerBlocks(target=worker.target, patience=0)
    yield made
    await made.close()


async def create(channel: WorkerBlocks, block: int, *, deadline: float = 10.0, content: bytes = b"") -> None:
    wanted = content or bytes(str(block), "ascii")

    def place(path: str) -> None:
        Path(path).write_bytes(wanted)

    await channel.create(block_id=block, length=len(wanted), place=place, deadline=deadline)


async def test_blocks_are_committed_with_what_was_put_at_their_paths_many_at_a_time(
    worker: Worker, channel: WorkerBlocks
) -> None:
    blocks = [(1 << 40) + number for number in range(100)]
    waiting = list(blocks)

    async def lane() -> None:
        while waiting:
            await create(channel, waiting.pop())

    await asyncio.gather(*(lane() for _ in range(16)))
    assert worker.committed == {block: bytes(str(block), "ascii") for block in blocks}
    assert not worker.broken


@pytest.mark.parametrize("early", [True, False])
async def test_a_refusal_comes_with_its_code_and_text_before_the_path_and_after_it(
    worker: Worker, channel: WorkerBlocks, early: bool
) -> None:
    async def refuse(request: Any, context: Any) -> None:
        await context.abort(CODE.RESOURCE_EXHAUSTED, f"kein Platz für Block {request.block_id}: 100 %\n")

    worker.answers, worker.commits = (refuse, _nothing) if early else (_nothing, refuse)
    with pytest.raises(RpcFailureError) as failed:
        await create(channel, 7)
    assert (failed.value.code, failed.value.text) == (
        CODE.RESOURCE_EXHAUSTED,
        "kein Platz für Block 7: 100 %\n",
    )
    worker.answers = worker.commits = _nothing
    await create(channel, 8)
    assert worker.committed == {8: b"8"}


async def test_a_call_that_ends_without_a_path_is_a_failure(worker: Worker, channel: WorkerBlocks) -> None:
    worker.reply = False
    with pytest.raises(RpcFailureError) as failed:
        await create(channel, 7, deadline=5)
    assert failed.value.code is CODE.ABORTED


async def test_what_the_placing_raises_breaks_the_call_off_and_the_worker_commits_nothing(
    worker: Worker, channel: WorkerBlocks
) -> None:
    def full(path: str) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        await channel.create(block_id=7, length=1, place=full, deadline=10)
    await eventually_async(lambda: worker.broken == [7], deadline=5)
    await create(channel, 8)
    assert worker.committed == {8: b"8"}


async def test_a_worker_that_does_not_answer_in_time_is_given_up_and_the_call_broken_off(
    worker: Worker, channel: WorkerBlocks
) -> None:
    async def hang(request: Any, context: Any) -> None:
        await asyncio.sleep(60)

    worker.answers = hang
    with pytest.raises(RpcFailureError) as failed:
        await create(channel, 7, deadline=0.1)
    assert failed.value.code is CODE.DEADLINE_EXCEEDED
    await eventually_async(lambda: worker.broken == [7], deadline=5)
    worker.answers, worker.commits = _nothing, hang
    task = asyncio.create_task(create(channel, 8))
    await eventually_async(lambda: (worker.folder / "8").exists(), deadline=5)
    task.cancel()
    await eventually_async(lambda: worker.broken == [7, 8], deadline=5)


@pytest.mark.parametrize("grace", [None, 0.2])
async def test_a_worker_that_ends_in_the_middle_is_away_and_one_that_is_back_is_asked_again(
    worker: Worker, channel: WorkerBlocks, grace: float | None
) -> None:
    async def hang(request: Any, context: Any) -> None:
        await asyncio.sleep(60)

    await create(channel, 1)
    worker.commits = hang
    calls = [asyncio.create_task(create(channel, block)) for block in (2, 3)]
    await eventually_async(lambda: (worker.folder / "3").exists(), deadline=5)
    await worker.server.stop(grace)
    for failure in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(failure, RpcFailureError)
        assert failure.starting
    with pytest.raises(RpcFailureError) as failed:
        await create(channel, 4)
    assert failed.value.starting
    worker.commits = _nothing
    await worker.start()

    async def asked_again() -> bool:
        try:
            await create(channel, 4)
        except RpcFailureError as failure:
            # Until the connection is tried again, at most two seconds later.
            return not failure.starting
        return True

    await eventually_async(asked_again, deadline=20)
    assert worker.committed == {1: b"1", 4: b"4"}


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 64, b""])
async def test_something_else_on_the_port_is_a_worker_that_is_away(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(24)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    channel = WorkerBlocks(target=f"{host}:{port}", patience=0)
    with pytest.raises(RpcFailureError) as failed:
        await create(channel, 1, deadline=5)
    assert failed.value.starting
    await channel.close()
    server.close()


async def test_the_certificate_of_the_time_is_shown_and_a_stranger_is_not_believed(tmp_path: Path) -> None:
    authority, (port,) = TestAuthority(), free_ports(1)
    worker = Worker(tmp_path, port=port, authority=authority)
    await worker.start()
    shown: list[Identity] = []

    def identify() -> Identity:
        if not shown:
            raise NoIdentityError("there is no certificate yet")
        return shown[-1]

    channel = WorkerBlocks(target=worker.target, identify=identify, patience=0)
    with pytest.raises(RpcFailureError, match="UNAVAILABLE"):
        await create(channel, 1)
    for role in (Role.AGENT, Role.AGENT, Role.OPERATOR):
        shown.append(authority.identity(role))
        await create(channel, len(shown))
    assert worker.callers == ["agent", "agent", "operator"]
    shown.append(TestAuthority().identity(Role.AGENT))
    with pytest.raises(RpcFailureError) as failed:
        await create(channel, 9)
    assert failed.value.distrusted
    assert set(worker.committed) == {1, 2, 3}
    await channel.close()
    await worker.server.stop(None)
