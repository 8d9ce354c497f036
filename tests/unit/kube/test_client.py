"""Requests and watches over real connections, to servers that answer badly, slowly or not at all."""

import asyncio
import gzip
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.certificates import authority_data
from tests.support.waiting import eventually_async

from tdcs.kube import client as client_module
from tdcs.kube.api import WatchEvent
from tdcs.kube.client import DEEPEST, KubernetesClient, connect
from tdcs.kube.configuration import load_access
from tdcs.kube.errors import KubeError, UnavailableError
from tdcs.model.kube_resources import EVENTS, LEASES, PODS

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Serving = Callable[..., AbstractAsyncContextManager[KubernetesClient]]


def kubeconfig(folder: Path, *, port: int, user: Mapping[str, Any]) -> Path:
    """A kubeconfig for a server on this port."""
    cluster = {"server": f"http://127.0.0.1:{port}", "certificate-authority-data": authority_data()}
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": "me", "user": dict(user)}],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    """A server that answers as a test says, and a client of it."""

    @asynccontextmanager
    async def serving(serve: Serve, **user: object) -> AsyncIterator[KubernetesClient]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        api = await connect(kubeconfig=kubeconfig(tmp_path, port=port, user=user))
        try:
            yield api
        finally:
            await api.close()
            server.close()

    return serving


def answer(body: bytes, *, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(name: str) -> bytes:
    pod = {"metadata": {"name": name, "resourceVersion": "1"}}
    return json.dumps({"type": "ADDED", "object": pod}, ensure_ascii=False).encode() + b"\n"


async def head_of(reader: asyncio.StreamReader) -> str:
    return (await reader.readuntil(b"\r\n\r\n")).decode()


def name_of(event: WatchEvent) -> str:
    return str(event.object["metadata"]["name"])


async def collect(api: KubernetesClient, *, into: list[str]) -> None:
    async for event in api.watch(PODS, resource_version="1"):
        into.append(name_of(event))  # noqa: PERF401  what came before an error counts


async def test_a_server_that_is_not_there_is_named_as_one_that_does_not_answer(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    api = await connect(kubeconfig=kubeconfig(tmp_path, port=port, user={}))
    with pytest.raises(UnavailableError, match="did not answer"):
        await api.get(PODS, name="one", namespace="default")
    await api.close()


async def test_a_server_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch, serving: Serving) -> None:
    monkeypatch.setattr(client_module, "REQUEST_TIMEOUT", 0.2)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with serving(serve) as api:
        with pytest.raises(UnavailableError, match="did not answer"):
            await api.get(PODS, name="one", namespace="default")


async def test_a_connection_that_breaks_in_a_watch_is_an_error_after_what_came_before(
    serving: Serving,
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(event("one")))
        await writer.drain()
        writer.close()

    pod_names: list[str] = []
    async with serving(serve) as api:
        with pytest.raises(UnavailableError):
            await collect(api, into=pod_names)
    assert pod_names == ["one"]


@pytest.mark.parametrize("gather", [0.0, 0.05])
async def test_events_are_whole_however_the_stream_is_cut(gather: float, serving: Serving) -> None:
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
        pod_names = [name_of(event) async for event in api.watch(PODS, resource_version="1", gather=gather)]
    assert pod_names == ["ein-größerer", "two", "three"]


async def test_events_that_follow_each_other_come_together_when_they_may_gather(serving: Serving) -> None:
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


async def test_a_watch_that_is_left_closes_its_connection(serving: Serving) -> None:
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(event("one")))
        await reader.read()
        closed.set()
        writer.close()

    async with serving(serve) as api:
        pod_names: list[str] = []
        watching = asyncio.create_task(collect(api, into=pod_names))
        await eventually_async(lambda: pod_names == ["one"], deadline=60)
        watching.cancel()
        await asyncio.wait_for(closed.wait(), timeout=60)


async def test_whom_the_user_stands_for_is_said_in_every_request(serving: Serving) -> None:
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await head_of(reader)).lower())
        writer.write(answer(b"{}"))
        writer.close()

    async with serving(serve, token="mine", **{"as": "alpha", "as-groups": ["a", "b"]}) as api:
        for _ in range(2):
            await api.get(PODS, name="one", namespace="default")
    assert len(heads) == 2
    for head in heads:
        for line in ("user: alpha", "group: a", "group: b"):
            assert f"impersonate-{line}\r\n" in head
        assert "authorization: bearer mine" in head


async def test_a_netrc_file_is_none_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serving: Serving
) -> None:
    (tmp_path / "netrc").write_text("default login anonymous password me@x\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert "authorization: bearer mine" in (await head_of(reader)).lower()
        writer.write(answer(b"{}"))
        writer.close()

    async with serving(serve, token="mine") as api:
        assert await api.get(PODS, name="one", namespace="default") == {}


async def test_a_packed_list_is_unpacked(serving: Serving) -> None:
    body = gzip.compress(
        json.dumps({"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {}}]}).encode()
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert "accept-encoding: gzip" in (await head_of(reader)).lower()
        writer.write(answer(body, headers="Content-Encoding: gzip\r\nContent-Type: application/json\r\n"))
        writer.close()

    async with serving(serve) as api:
        listing = await api.list(PODS, namespace="default")
    assert (listing.resource_version, len(listing.items)) == ("7", 1)


async def test_a_token_that_was_renewed_is_read_again(tmp_path: Path, serving: Serving) -> None:
    token = tmp_path / "token"
    token.write_text("old")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        good = "authorization: bearer new" in (await head_of(reader)).lower()
        token.write_text("new")
        status = "200 OK" if good else "401 Unauthorized"
        writer.write(answer(b'{"kind": "Pod"}', status=status, headers="Connection: close\r\n"))
        writer.close()

    async with serving(serve, tokenFile=str(token)) as api:
        assert await api.get(PODS, name="one", namespace="default") == {"kind": "Pod"}


async def test_what_a_request_sends_arrives(serving: Serving) -> None:
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


async def test_credentials_that_are_refused_twice_are_an_error(serving: Serving) -> None:
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await head_of(reader))
        body = b'{"kind": "Status", "reason": "Unauthorized", "message": "no"}'
        writer.write(answer(body, status="401 Unauthorized", headers="Connection: close\r\n"))
        writer.close()

    async with serving(serve, token="mine") as api:
        with pytest.raises(KubeError, match=r"cannot list Pod \(all\): no \(HTTP 401 Unauthorized\)"):
            await api.list(PODS)
    assert len(heads) == 2


async def test_an_exec_plugin_is_asked_again_when_its_token_is_refused(
    serving: Serving, tmp_path: Path
) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text(
        f"#!/bin/sh\necho x >> {tmp_path}/runs\n"
        'echo "{\\"apiVersion\\": \\"client.authentication.k8s.io/v1\\", \\"kind\\": \\"ExecCredential\\", '
        f'\\"status\\": {{\\"token\\": \\"t$(wc -l < {tmp_path}/runs | tr -d \' \')\\"}}}}"\n'
    )
    plugin.chmod(0o700)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        good = "authorization: bearer t2" in (await head_of(reader)).lower()
        status = "200 OK" if good else "401 Unauthorized"
        writer.write(answer(b'{"kind": "Pod"}', status=status, headers="Connection: close\r\n"))
        writer.close()

    user = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}
    async with serving(serve, exec=user) as api:
        answers = await asyncio.gather(*(api.get(PODS, name="one", namespace="default") for _ in range(5)))
    assert answers == [{"kind": "Pod"}] * 5
    assert (tmp_path / "runs").read_text() == "x\nx\n"  # once for all five


async def test_an_answer_that_is_no_json_is_named_as_such(serving: Serving) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(answer(b"<html>log in first</html>"))
        writer.close()

    async with serving(serve) as api:
        with pytest.raises(UnavailableError, match="did not answer with JSON"):
            await api.get(PODS, name="one", namespace="default")


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b"null", b'{"items": {}, "metadata": {}}', b'{"items": [null], "metadata": {}}']
)
@pytest.mark.failure_mode("api-server-ends-watches")
async def test_an_answer_that_is_no_list_is_none_and_no_empty_one(body: bytes, serving: Serving) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(answer(body))
        writer.close()

    async with serving(serve) as api:
        with pytest.raises(UnavailableError, match="did not answer with what was asked for"):
            await api.list(PODS)


@pytest.mark.parametrize("line", [b"{}", b"[]", b'{"type": "ADDED"}', b'{"type": "ADDED", "object": {}}'])
async def test_a_line_that_is_no_event_ends_the_watch(line: bytes, serving: Serving) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(answer(line + b"\n"))
        writer.close()

    async with serving(serve) as api:
        with pytest.raises(UnavailableError, match="did not answer with what was asked for"):
            await collect(api, into=[])


@pytest.mark.parametrize(
    "name", ["\0", "..", "../../nodes/a", "a/status", "a?b", "a#b", "%2e%2e", "", "x" * 5000]
)
async def test_what_is_no_name_is_not_there_and_no_request_is_made_of_it(tmp_path: Path, name: str) -> None:
    api = await connect(kubeconfig=kubeconfig(tmp_path, port=9, user={}))  # nothing answers there
    assert await api.get(PODS, name=name, namespace="n") is None
    with pytest.raises(ValueError, match="is no name of a Pod"):
        await api.merge(PODS, name=name, namespace="n", patch={})
    await api.close()


async def test_without_its_lease_a_process_writes_leases_and_events_and_nothing_else(tmp_path: Path) -> None:
    request_lines: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await head_of(reader)
        request_lines.append(" ".join(head.split(" ", 2)[:2]).partition("?")[0])
        writer.write(answer(b"{}", headers="Connection: close\r\n"))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    access = await load_access(kubeconfig=kubeconfig(tmp_path, port=port, user={}))
    held = True
    api = KubernetesClient(access=access, may_write=lambda: held)
    pod = {"metadata": {"name": "p", "namespace": "n"}}
    writes: list[Callable[[], Awaitable[object]]] = [
        lambda: api.create(PODS, obj=pod),
        lambda: api.apply(PODS, obj=pod),
        lambda: api.apply_status(PODS, obj=pod),
        lambda: api.merge(PODS, name="p", namespace="n", patch={}),
        lambda: api.merge_status(PODS, name="p", namespace="n", patch={}),
        lambda: api.delete(PODS, name="p", namespace="n"),
    ]
    try:
        for write in writes:
            await write()
        assert len(request_lines) == len(writes)
        held = False
        for write in writes:
            with pytest.raises(UnavailableError, match="does not hold its Lease"):
                await write()
        await api.get(PODS, name="p", namespace="n")
        await api.create(EVENTS, obj=pod)
        await api.create(LEASES, obj=pod)
    finally:
        await api.close()
        server.close()
    assert request_lines[len(writes) :] == [
        "GET /api/v1/namespaces/n/pods/p",
        "POST /api/v1/namespaces/n/events",
        "POST /apis/coordination.k8s.io/v1/namespaces/n/leases",
    ]


@pytest.mark.parametrize("levels", [1_100, DEEPEST - 10])
async def test_an_object_as_deep_as_the_server_takes_ends_no_list_and_no_watch(
    serving: Serving, levels: int
) -> None:
    """Any author of a TrainingJob can have one."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)  # Python's own
    deep = '{"a":' * levels + "1" + "}" * levels
    item = f'{{"metadata":{{"name":"p","resourceVersion":"2"}},"spec":{deep}}}'
    listed = f'{{"metadata":{{"resourceVersion":"1"}},"items":[{item}]}}'.encode()
    added = f'{{"type":"ADDED","object":{item}}}\n'.encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await head_of(reader)
        writer.write(answer(added if "watch=true" in head else listed, headers="Connection: close\r\n"))
        writer.close()

    try:
        async with serving(serve) as api:
            (pod,) = (await api.list(PODS)).items
            assert pod["metadata"]["name"] == "p"
            pod_names: list[str] = []
            await collect(api, into=pod_names)
            assert pod_names == ["p"]
    finally:
        sys.setrecursionlimit(limit)
