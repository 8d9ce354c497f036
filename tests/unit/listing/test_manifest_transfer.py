"""Manifests between processes: served, fetched, waited for."""

from __future__ import annotations

import asyncio
import math
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from tests.support.twins.engine import MemoryEngine
from tests.support.twins.local_lister import LocalLister
from tests.support.waiting import eventually_async
from tests.unit.listing.conftest import MOUNT, Serve, mounted

from tdcs.control.cache_registry import Cache, CachePool, Published
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.transfer import ManifestFetcher, ManifestUnavailableError, manifest_routes, manifest_url
from tdcs.model.agent_state import (
    AgentState,
    Assignment,
    FolderCount,
    FolderLimit,
    MountState,
    SourceCount,
    SourceToCount,
)
from tdcs.model.listing_limit import SourcesSize

MB = 1 << 20
OF_DEFAULT = Published(cluster="default", most=MB)


def obtaining(
    pool: CachePool, versions: set[str], lost: list[str]
) -> Callable[[str], Coroutine[Any, Any, None]]:
    """Gets manifests as the operator does: those of mounts alone; `lost` gets the digests that are nowhere."""

    async def obtain(digest: str) -> None:
        try:
            await pool.obtain(digest, version=OF_DEFAULT if digest in versions else None)
        except ManifestUnavailableError:
            lost.append(digest)

    return obtain


async def test_a_manifest_is_fetched_from_the_first_that_has_it(
    tmp_path: Path, folder: ManifestFolder, serve: Serve, session: aiohttp.ClientSession
) -> None:
    listed = await LocalLister(engine=await mounted({"a": 5}), folder=folder).list(path=MOUNT)
    application = web.Application()
    application.add_routes(manifest_routes(folder))
    empty = web.Application()
    empty.add_routes(manifest_routes(ManifestFolder(tmp_path / "empty")))
    copy = ManifestFolder(tmp_path / "other")
    fetcher = ManifestFetcher(folder=copy, session=session)
    urls = [
        manifest_url(address=address, digest=listed.digest)
        for address in ("127.0.0.1:9", await serve(empty), await serve(application))
    ]

    await asyncio.gather(*(fetcher.fetch(digest=listed.digest, urls=urls) for _ in range(5)))

    assert copy.open(listed.digest).name(0) == b"a"
    assert os.listdir(copy.path) == [listed.digest]
    await fetcher.fetch(digest=listed.digest, urls=[])  # it is there


async def test_a_manifest_that_is_on_its_way_is_waited_for_only_where_that_is_asked_for(
    tmp_path: Path, folder: ManifestFolder, serve: Serve, session: aiohttp.ClientSession
) -> None:
    listed = await LocalLister(engine=await mounted({"a": 5}), folder=folder).list(path=MOUNT)
    late = ManifestFolder(tmp_path / "late")
    waiting, second = web.Application(), web.Application()
    waiting.add_routes(manifest_routes(late, coming=lambda _: False))
    second.add_routes(manifest_routes(late))
    url = manifest_url(address=await serve(waiting), digest=listed.digest)
    at_once = manifest_url(address=await serve(second), digest=listed.digest)
    copy = ManifestFolder(tmp_path / "taken")
    fetching = asyncio.create_task(
        ManifestFetcher(folder=copy, session=session).fetch(digest=listed.digest, urls=[f"{url}?wait=5"])
    )
    for text, status in ((url, 404), (f"{at_once}?wait=5", 404), (f"{url}?wait=soon", 400)):
        async with session.get(text) as response:
            assert response.status == status
    assert not fetching.done()
    late.path.mkdir()
    late.file(listed.digest).write_bytes(folder.file(listed.digest).read_bytes())
    await fetching
    assert copy.digests() == {listed.digest}


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1e9"])
async def test_a_request_waits_for_a_manifest_for_seconds_at_most(
    text: str,
    folder: ManifestFolder,
    serve: Serve,
    session: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tdcs.listing.transfer.AWAITED_SECONDS", 0.05)
    application = web.Application()
    application.add_routes(manifest_routes(folder, coming=lambda _: False))
    url = manifest_url(address=await serve(application), digest="0" * 32)
    async with asyncio.timeout(5), session.get(f"{url}?wait={text}") as response:
        assert response.status == 404


async def test_agents_get_the_manifest_from_each_other_and_the_operator_sends_it_once(
    tmp_path: Path,
    folder: ManifestFolder,
    serve: Serve,
    session: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tdcs.listing.transfer.AWAITED_SECONDS", 0.02)
    monkeypatch.setattr("tdcs.listing.transfer._AGAIN_SECONDS", 0.01)
    listed = await LocalLister(engine=await mounted({"a": 5}), folder=folder).list(path=MOUNT)
    requests, sent, slow = Counter[str](), 0, asyncio.Event()

    async def give(_: web.Request) -> web.StreamResponse:
        nonlocal sent
        sent += 1
        await slow.wait()
        return web.FileResponse(folder.file(listed.digest))

    operator = web.Application()
    operator.add_routes([web.get("/{path:.*}", give)])
    address = await serve(operator)
    urls, fetchers = [manifest_url(address=address, digest=listed.digest)], list[ManifestFetcher]()
    for name in "abc":  # each is to get it from the one before it
        manifests = ManifestFolder(tmp_path / name)
        fetcher = ManifestFetcher(folder=manifests, session=session)

        @web.middleware
        async def count(
            request: web.Request,
            handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
            name: str = name,
        ) -> web.StreamResponse:
            requests[name] += 1
            return await handler(request)

        agent = web.Application(middlewares=[count])
        agent.add_routes(manifest_routes(manifests, coming=fetcher.fetches))
        fetchers.append(fetcher)
        urls = [f"{manifest_url(address=await serve(agent), digest=listed.digest)}?wait=8", *urls]
    first, second, third = (
        fetcher.fetch(digest=listed.digest, urls=urls[3 - place :]) for place, fetcher in enumerate(fetchers)
    )
    fetching = [asyncio.create_task(first)]
    await eventually_async(lambda: sent == 1, deadline=60)
    fetching.append(asyncio.create_task(second))
    await eventually_async(lambda: requests["a"], deadline=60)
    fetching.append(asyncio.create_task(third))
    await eventually_async(lambda: min(requests["a"], requests["b"]) >= 3, deadline=60)
    slow.set()
    await asyncio.gather(*fetching)
    assert sent == 1
    assert all(ManifestFolder(tmp_path / name).digests() == {listed.digest} for name in "abc")


async def test_an_agent_that_never_gets_the_manifest_is_asked_for_a_bounded_time(
    tmp_path: Path,
    folder: ManifestFolder,
    serve: Serve,
    session: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tdcs.listing.transfer.AWAITED_SECONDS", 0.01)
    monkeypatch.setattr("tdcs.listing.transfer._AGAIN_SECONDS", 0.01)
    monkeypatch.setattr("tdcs.listing.transfer.COMING_SECONDS", 0.1)
    listed = await LocalLister(engine=await mounted({"a": 5}), folder=folder).list(path=MOUNT)
    stuck, operator = web.Application(), web.Application()
    stuck.add_routes(manifest_routes(ManifestFolder(tmp_path / "stuck"), coming=lambda _: True))
    operator.add_routes(manifest_routes(folder))
    first = f"{manifest_url(address=await serve(stuck), digest=listed.digest)}?wait=8"
    copy = ManifestFolder(tmp_path / "taken")
    async with asyncio.timeout(5):
        await ManifestFetcher(folder=copy, session=session).fetch(
            digest=listed.digest,
            urls=[first, first, manifest_url(address=await serve(operator), digest=listed.digest)],
        )
    assert copy.digests() == {listed.digest}


async def test_content_with_another_digest_is_refused_and_not_kept(
    tmp_path: Path, folder: ManifestFolder, serve: Serve, session: aiohttp.ClientSession
) -> None:
    listed = await LocalLister(engine=await mounted({"a": 5}), folder=folder).list(path=MOUNT)
    damaged = bytearray(folder.file(listed.digest).read_bytes())
    damaged[-1] ^= 1
    folder.file(listed.digest).write_bytes(damaged)
    application = web.Application()
    application.add_routes(manifest_routes(folder))
    copy = ManifestFolder(tmp_path / "other")
    url = manifest_url(address=await serve(application), digest=listed.digest)

    with pytest.raises(ManifestUnavailableError, match="another digest"):
        await ManifestFetcher(folder=copy, session=session).fetch(digest=listed.digest, urls=[url])
    assert os.listdir(copy.path) == []


async def test_a_server_that_breaks_off_or_hangs_leaves_nothing_behind(
    folder: ManifestFolder, serve: Serve, session: aiohttp.ClientSession
) -> None:
    async def breaks_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000000"})
        await response.prepare(request)
        await response.write(b"x" * 1000)
        if "hang" in request.path:
            await asyncio.sleep(60)
        assert request.transport is not None
        request.transport.abort()
        return response

    application = web.Application()
    application.add_routes([web.get("/{how}", breaks_off)])
    address = await serve(application)
    fetcher = ManifestFetcher(folder=folder, session=session, idle_seconds=0.3)

    with pytest.raises(
        ManifestUnavailableError, match=r"/breaks.*/hang.*no answer|/breaks.*/hang.*[Tt]imeout"
    ):
        await fetcher.fetch(digest="0" * 32, urls=[f"http://{address}/breaks", f"http://{address}/hang"])
    assert os.listdir(folder.path) == []


async def test_a_url_asks_for_digests_alone(folder: ManifestFolder, serve: Serve) -> None:
    folder.path.mkdir()
    (folder.path / "secret").write_text("secret")
    application = web.Application()
    application.add_routes(manifest_routes(folder))
    address = await serve(application)
    async with aiohttp.ClientSession() as session:
        for name in ("secret", "..%2Fsecret", "0" * 32):
            async with session.get(f"http://{address}/v1/manifests/{name}") as response:
                assert response.status == 404


@pytest.mark.failure_mode("operator-starts-with-empty-disk")
async def test_an_operator_with_an_empty_disk_takes_a_manifest_that_is_asked_for_from_an_agent(
    tmp_path: Path, folder: ManifestFolder, serve: Serve, session: aiohttp.ClientSession
) -> None:
    engine = await mounted({"a": 5})
    listed = await LocalLister(engine=engine, folder=folder).list(path=MOUNT)
    agent = web.Application()
    agent.add_routes(manifest_routes(folder))
    states = {
        node: AgentState(
            node=node,
            instance="1",
            revision=1,
            url=f"http://{address}",
            mounts={MOUNT: MountState(mount=MOUNT, manifest=listed.digest)},
        )
        for node, address in (("gone", "127.0.0.1:9"), ("there", await serve(agent)))
    }
    empty = ManifestFolder(tmp_path / "empty")
    cache = Cache(engine=engine, agents=Followed(states), lister=LocalLister(engine=engine, folder=empty))
    pool = CachePool(
        make=lambda _: cache, folder=empty, fetcher=ManifestFetcher(folder=empty, session=session)
    )
    pool.get(cluster="default")
    lost: list[str] = []

    obtain = obtaining(pool, {listed.digest}, lost)

    operator = web.Application()
    operator.add_routes(manifest_routes(empty, obtain=obtain))
    address = await serve(operator)

    async with session.get(manifest_url(address=address, digest=listed.digest)) as response:
        assert response.status == 200
        assert await response.read() == folder.file(listed.digest).read_bytes()
    async with session.get(manifest_url(address=address, digest="0" * 32)) as response:
        assert response.status == 404
    assert empty.digests() == {listed.digest}
    assert lost == ["0" * 32]


@pytest.mark.threat("agent-endless-manifests")
async def test_an_operator_takes_only_versions_of_mounts_in_turn_and_within_the_caches_limit(
    tmp_path: Path, serve: Serve, session: aiohttp.ClientSession
) -> None:
    requests: list[str] = []
    held = asyncio.Event()

    async def false(request: web.Request) -> web.StreamResponse:
        requests.append(request.path.rpartition("/")[2])
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(bytes(MB // 2))
        await held.wait()
        await answer.write(bytes(MB))
        return answer

    agent = web.Application()
    agent.router.add_get("/{path:.*}", false)
    of_no_mount, first, second = ("0" * 32, "1" * 32, "2" * 32)
    mounts = {f"/{digest}": MountState(mount="", manifest=digest) for digest in (of_no_mount, first, second)}
    url = f"http://{await serve(agent)}"
    state = AgentState(node="n", instance="1", revision=1, url=url, mounts=mounts)
    manifests, engine = ManifestFolder(tmp_path / "own"), await mounted({"a": 5})
    cache = Cache(
        engine=engine, agents=Followed({"n": state}), lister=LocalLister(engine=engine, folder=manifests)
    )
    pool = CachePool(
        make=lambda _: cache, folder=manifests, fetcher=ManifestFetcher(folder=manifests, session=session)
    )
    pool.get(cluster="default")
    lost: list[str] = []

    obtain = obtaining(pool, {first, second}, lost)

    await obtain(of_no_mount)
    assert (requests, lost) == ([], [of_no_mount])
    fetches = [asyncio.create_task(obtain(digest)) for digest in (first, second)]
    await eventually_async(lambda: bool(requests), deadline=20)
    await obtain(of_no_mount)  # a way round: the second one had its turn by now, if it needed none
    assert len(requests) == 1
    held.set()
    await asyncio.gather(*fetches)
    assert sorted(requests) == [first, second]
    assert sorted(lost[2:]) == [first, second]  # each had more than a megabyte
    assert not list(manifests.path.iterdir())


@pytest.mark.threat("agent-endless-manifests")
async def test_an_agent_that_gives_a_manifest_drop_by_drop_is_given_up_for_the_next_one(
    folder: ManifestFolder, tmp_path: Path, serve: Serve, session: aiohttp.ClientSession
) -> None:
    engine = await mounted({"a": 5})
    listed = await LocalLister(engine=engine, folder=folder).list(path=MOUNT)

    async def drop_by_drop(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b"\0")
            await asyncio.sleep(0.02)

    slow, good = web.Application(), web.Application()
    slow.router.add_get("/{path:.*}", drop_by_drop)
    good.add_routes(manifest_routes(folder))
    urls = [manifest_url(address=await serve(app), digest=listed.digest) for app in (slow, good)]
    manifests = ManifestFolder(tmp_path / "own")
    fetcher = ManifestFetcher(folder=manifests, session=session)
    await fetcher.fetch(digest=listed.digest, urls=urls, seconds=0.3)
    assert manifests.digests() == {listed.digest}


class Followed:
    """Agents with these last states."""

    def __init__(self, states: dict[str, AgentState]) -> None:
        self._states = states

    def states(self) -> dict[str, AgentState]:
        return self._states

    async def assign(self, *, node: str, assignments: Sequence[Assignment]) -> None: ...

    async def drop_mounts(self, *, node: str, mounts: Sequence[str]) -> None: ...

    async def count(self, *, node: str, limit: FolderLimit) -> FolderCount:
        return FolderCount()

    async def count_source(self, *, node: str, source: SourceToCount) -> SourceCount:
        raise AssertionError

    async def close(self) -> None: ...


def without_manifests(
    engine: MemoryEngine, folder: ManifestFolder, session: aiohttp.ClientSession
) -> CachePool:
    """The caches of an operator that has lost all manifests."""
    cache = Cache(engine=engine, agents=Followed({}), lister=LocalLister(engine=engine, folder=folder))
    return CachePool(
        make=lambda _: cache, folder=folder, fetcher=ManifestFetcher(folder=folder, session=session)
    )


@pytest.mark.threat("agent-false-sums")
async def test_sums_are_of_the_manifest_that_the_digest_proves_whatever_an_agent_says_of_them(
    folder: ManifestFolder, tmp_path: Path, serve: Serve, session: aiohttp.ClientSession
) -> None:
    engine = await mounted({"a": 5, "b/c": 7})
    true = await LocalLister(engine=engine, folder=folder).list(path=MOUNT)
    size = SourcesSize(files=1 << 62, bytes=-1)
    false = msgspec.msgpack.encode(msgspec.structs.replace(true, size=size, seconds=math.inf))

    async def answer_wrongly(request: web.Request) -> web.Response:
        if request.path.endswith("/totals"):
            return web.Response(body=false)
        return web.Response(body=folder.file(true.digest).read_bytes())

    agent = web.Application()
    agent.router.add_get("/{path:.*}", answer_wrongly)
    url = manifest_url(address=await serve(agent), digest=true.digest)
    manifests = ManifestFolder(tmp_path / "own")
    totals = await without_manifests(engine, manifests, session).totals(
        digest=true.digest, urls=(url,), version=OF_DEFAULT
    )
    assert totals == msgspec.structs.replace(true, seconds=0.0)
    assert manifests.digests() == {true.digest}


async def test_an_operator_asks_itself_for_no_manifest(
    folder: ManifestFolder, tmp_path: Path, serve: Serve, session: aiohttp.ClientSession
) -> None:
    engine = await mounted({"a": 5})
    true = await LocalLister(engine=engine, folder=folder).list(path=MOUNT)
    agent = web.Application()
    agent.add_routes(manifest_routes(folder))
    requests: list[str] = []

    async def ask(request: web.Request) -> web.Response:
        requests.append(request.path)
        raise web.HTTPNotFound

    operator = web.Application()
    operator.router.add_get("/{path:.*}", ask)
    pool = without_manifests(engine, ManifestFolder(tmp_path / "own"), session)
    operator_address = await serve(operator)
    pool.manifest_url = f"http://{operator_address}"
    urls = tuple(
        manifest_url(address=address, digest=true.digest)
        for address in (operator_address, await serve(agent))
    )
    assert (await pool.totals(digest=true.digest, urls=urls, version=OF_DEFAULT)).digest == true.digest
    assert not requests


@pytest.mark.threat("agent-false-sums")
async def test_sums_of_a_manifest_with_another_digest_are_not_to_be_had(
    folder: ManifestFolder, tmp_path: Path, serve: Serve, session: aiohttp.ClientSession
) -> None:
    engine = await mounted({"a": 5})
    true = await LocalLister(engine=engine, folder=folder).list(path=MOUNT)

    async def longer(request: web.Request) -> web.Response:
        return web.Response(body=folder.file(true.digest).read_bytes() + b"\0")

    agent = web.Application()
    agent.router.add_get("/{path:.*}", longer)
    url = manifest_url(address=await serve(agent), digest=true.digest)
    pool = without_manifests(engine, ManifestFolder(tmp_path / "own"), session)
    with pytest.raises(ManifestUnavailableError):
        await pool.totals(digest=true.digest, urls=(url,), version=OF_DEFAULT)
