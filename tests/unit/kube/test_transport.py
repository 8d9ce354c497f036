"""Requests and watches over real connections, to servers that answer badly, slowly or not at all."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import Cluster, User
from lightkube.core.exceptions import ConfigError
from tests.support.waiting import eventually_async

from tdcs.kube import api as api_module
from tdcs.kube.api import LightkubeApi, WatchEvent
from tdcs.kube.errors import UnavailableError
from tdcs.kube.resources import PODS
from tdcs.kube.transport import proxy_for

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def config(*, port: int, user: User | None = None) -> SingleConfig:
    cluster = Cluster(server=f"http://127.0.0.1:{port}")
    found = KubeConfig.from_one(cluster=cluster, user=user or User()).get()
    assert found is not None
    return found


@asynccontextmanager
async def serving(serve: Serve, *, user: User | None = None) -> AsyncIterator[LightkubeApi]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    api = LightkubeApi(config=config(port=server.sockets[0].getsockname()[1], user=user))
    try:
        yield api
    finally:
        await api.close()
        server.close()


def answer(body: bytes, *, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(name: str) -> bytes:
    pod = {"metadata": {"name": name, "resourceVersion": "1"}}
    return json.dumps({"type": "ADDED", "object": pod}, ensure_ascii=False).encode() + b"\n"


async def head_of(reader: asyncio.StreamReader) -> str:
    return (await reader.readuntil(b"\r\n\r\n")).decode()


def name_of(seen: WatchEvent) -> str:
    return str(seen.object["metadata"]["name"])


async def collect(api: LightkubeApi, *, into: list[str]) -> None:
    async for each in api.watch(PODS, resource_version="1"):
        into.append(name_of(each))  # noqa: PERF401  what came before an error counts


async def test_a_server_that_is_not_there_is_named_as_one_that_does_not_answer() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    api = LightkubeApi(config=config(port=port))
    with pytest.raises(UnavailableError, match="did not answer"):
        await api.get(PODS, name="one", namespace="default")
    await api.close()


async def test_a_server_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "REQUEST_TIMEOUT", 0.2)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with serving(serve) as api:
        with pytest.raises(UnavailableError, match="did not answer"):
            await api.get(PODS, name="one", namespace="default")


async def test_a_connection_that_breaks_in_a_watch_is_an_error_after_what_came_before() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(event("one")))
        await writer.drain()
        writer.close()

    seen: list[str] = []
    async with serving(serve) as api:
        with pytest.raises(UnavailableError):
            await collect(api, into=seen)
    assert seen == ["one"]


@pytest.mark.parametrize("gather", [0.0, 0.05])
async def test_events_are_whole_however_the_stream_is_cut(gather: float) -> None:
    stream = event("ein-größerer") + event("two") + b"\n" + event("three")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(stream), 7):
            writer.write(chunk(stream[at : at + 7]))
            await writer.drain()
            await asyncio.sleep(0.001)
        writer.write(chunk(b""))
        writer.close()

    async with serving(serve) as api:
        seen = [name_of(each) async for each in api.watch(PODS, resource_version="1", gather=gather)]
    assert seen == ["ein-größerer", "two", "three"]


async def test_events_that_follow_each_other_come_together_when_they_may_gather() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(4):
            writer.write(chunk(event(str(number))))
            await writer.drain()
            await asyncio.sleep(0.05)
        await reader.read()
        writer.close()

    came: list[float] = []
    async with serving(serve) as api, asyncio.timeout(60):
        async for _ in api.watch(PODS, resource_version="1", gather=2.0):
            came.append(asyncio.get_running_loop().time())
            if len(came) == 4:
                break
    # The first at once, the others after the pause, in one piece.
    assert came[1] - came[0] > 1.5
    assert came[3] - came[1] < 0.04


async def test_a_watch_that_is_left_closes_its_connection() -> None:
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(event("one")))
        await reader.read()
        left.set()
        writer.close()

    async with serving(serve) as api:
        seen: list[str] = []
        watching = asyncio.create_task(collect(api, into=seen))
        await eventually_async(lambda: seen == ["one"], deadline=60)
        watching.cancel()
        await asyncio.wait_for(left.wait(), timeout=60)


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({}, None),
        ({"https_proxy": "http://p:3128"}, "http://p:3128"),
        ({"all_proxy": "http://p:3128"}, "http://p:3128"),
        ({"http_proxy": "http://p:3128"}, None),
        ({"https_proxy": "http://p:3128", "no_proxy": "10.0.0.1,api.example"}, None),
    ],
)
def test_the_proxy_is_that_of_the_environment(
    variables: dict[str, str], proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_for("https://api.example:6443") == proxy


def test_a_proxy_that_cannot_be_used_is_named_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "socks5://p:1080")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(ConfigError, match=r"HTTPS_PROXY \(or ALL_PROXY\), or name api.example in NO_PROXY"):
        proxy_for("https://api.example:6443")


async def test_a_netrc_file_is_none_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("default login anonymous password me@x\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert "authorization: bearer mine" in (await head_of(reader)).lower()
        writer.write(answer(b"{}"))
        writer.close()

    async with serving(serve, user=User(token="mine")) as api:
        assert await api.get(PODS, name="one", namespace="default") == {}


async def test_a_packed_list_is_unpacked() -> None:
    body = gzip.compress(json.dumps({"metadata": {"resourceVersion": "7"}, "items": [{"a": 1}]}).encode())

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert "accept-encoding: gzip" in (await head_of(reader)).lower()
        writer.write(answer(body, headers="Content-Encoding: gzip\r\nContent-Type: application/json\r\n"))
        writer.close()

    async with serving(serve) as api:
        found = await api.list(PODS, namespace="default")
    assert (found.resource_version, len(found.items)) == ("7", 1)


async def test_a_token_that_was_renewed_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        good = "authorization: bearer new" in (await head_of(reader)).lower()
        token.write_text("new")
        status = "200 OK" if good else "401 Unauthorized"
        writer.write(answer(b'{"kind": "Pod"}', status=status, headers="Connection: close\r\n"))
        writer.close()

    async with serving(serve, user=User(token_file=str(token))) as api:
        assert await api.get(PODS, name="one", namespace="default") == {"kind": "Pod"}


async def test_what_a_request_sends_arrives() -> None:
    heads: list[str] = []
    bodies: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await head_of(reader))
        length = next(line for line in heads[0].lower().split("\r\n") if line.startswith("content-length"))
        bodies.append(await reader.readexactly(int(length.partition(":")[2])))
        writer.write(answer(bodies[0]))
        writer.close()

    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": "default"}}
    async with serving(serve) as api:
        assert await api.apply(PODS, obj=pod) == pod
    assert heads[0].startswith("PATCH /api/v1/namespaces/default/pods/one?fieldManager=tdcs&force=true ")
    assert "content-type: application/apply-patch+yaml" in heads[0].lower()
    assert json.loads(bodies[0]) == pod
