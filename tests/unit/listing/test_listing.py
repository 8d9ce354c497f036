"""Manifests as files: listed, stored, opened, served, fetched."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import aiohttp
import msgspec
import psutil
import pytest
from aiohttp import web
from tests.support.waiting import eventually_async

from tdcs.cli.caches import alluxio_caches
from tdcs.controllers.caches import Cache, CachePool
from tdcs.controllers.mounts.manifests import STUCK_AT_ONCE
from tdcs.engine.agents import AgentState, Assignment, MountState
from tdcs.engine.memory import MemoryEngine
from tdcs.engine.protocol import (
    EngineError,
    EngineUnavailableError,
    KeysRefusedError,
    LimitExceededError,
    NoSuchPathError,
    Source,
    SourceError,
)
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.lister import LocalLister, ProcessLister
from tdcs.listing.result import Failed, Request
from tdcs.listing.transfer import ManifestFetcher, ManifestUnavailableError, manifest_routes, manifest_url
from tdcs.planning.manifest_format import BadManifestError
from tdcs.trust.identity import Identity

MOUNT = "/datasets/1f"
URI = "s3://bucket/data"


@pytest.fixture
def folder(tmp_path: Path) -> ManifestFolder:
    return ManifestFolder(tmp_path / "manifests")


async def mounted(files: dict[str, int]) -> MemoryEngine:
    engine = MemoryEngine(sources={URI: files}, workers={"a": 1 << 30}, block_size=1 << 20)
    await engine.mount(path=MOUNT, source=Source(uri=URI))
    return engine


Serve = Callable[[web.Application], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serve an application on loopback; its address."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(application: web.Application) -> str:
            runner = web.AppRunner(application, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            return f"{host}:{port}"

        yield start


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_a_listing_writes_the_manifest_and_says_its_sums(folder: ManifestFolder) -> None:
    engine = await mounted({"a/x": 5, "a/y": 3 << 20, "b//bad": 7, "empty": 0})

    listed = await LocalLister(engine=engine, folder=folder).list(path=MOUNT)

    assert folder.digests() == {listed.digest}
    manifest = folder.open(listed.digest)
    assert manifest.header.source == URI
    assert [manifest.file_path(file) for file in range(3)] == [b"empty", b"a/x", b"a/y"]
    assert (listed.totals.files, listed.totals.blocks, listed.totals.block_bytes) == (3, 4, 5 + (3 << 20))
    assert [each.path for each in listed.skipped] == [b"b//bad"]
    assert listed.totals == manifest.totals()


async def test_a_version_that_did_not_change_has_the_same_digest(folder: ManifestFolder) -> None:
    engine = await mounted({"a": 5})
    lister = LocalLister(engine=engine, folder=folder)
    first = await lister.list(path=MOUNT)

    assert (await lister.list(path=MOUNT, refresh=True)).digest == first.digest
    engine.sources[URI] = {"a": 6}
    assert (await lister.list(path=MOUNT, refresh=True)).digest != first.digest


async def test_a_path_that_is_not_mounted_is_refused_by_name(folder: ManifestFolder) -> None:
    with pytest.raises(NoSuchPathError, match="/datasets/2e"):
        await LocalLister(engine=await mounted({"a": 5}), folder=folder).list(path="/datasets/2e")


async def test_a_full_disk_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    lister = LocalLister(engine=await mounted({"a": 5}), folder=ManifestFolder(tmp_path / "file"))

    with pytest.raises(EngineError, match="write the manifest of /datasets/1f"):
        await lister.list(path=MOUNT)


async def test_a_manifest_stays_readable_when_it_is_pruned(folder: ManifestFolder) -> None:
    engine = await mounted({"a": 5})
    lister = LocalLister(engine=engine, folder=folder)
    first = await lister.list(path=MOUNT)
    manifest = folder.open(first.digest)
    engine.sources[URI] = {"a": 6}
    second = await lister.list(path=MOUNT, refresh=True)

    assert folder.prune(keep=[second.digest]) == [first.digest]
    assert manifest.name(0) == b"a"
    assert folder.digests() == {second.digest}


def test_what_a_killed_process_left_is_removed_and_never_opened(folder: ManifestFolder) -> None:
    folder.path.mkdir()
    (folder.path / ".partial-x1").write_bytes(b"half")

    assert folder.digests() == frozenset()
    folder.clear_partial()
    assert os.listdir(folder.path) == []


def test_a_damaged_file_is_refused(folder: ManifestFolder) -> None:
    folder.path.mkdir()
    for content in (b"", b"nonsense"):
        folder.file("0" * 32).write_bytes(content)
        with pytest.raises(BadManifestError):
            folder.open("0" * 32)


@pytest.mark.parametrize("digest", ["../../etc/passwd", "", "0" * 31, "0" * 31 + "G", "0" * 32 + "\n"])
def test_what_is_no_digest_never_becomes_a_path(folder: ManifestFolder, digest: str) -> None:
    with pytest.raises(ValueError, match="no manifest's digest"):
        folder.file(digest)


async def test_a_manifest_is_fetched_from_the_first_that_has_it(
    tmp_path: Path, folder: ManifestFolder, serve: Serve, session: aiohttp.ClientSession
) -> None:
    listed = await LocalLister(engine=await mounted({"a": 5}), folder=folder).list(path=MOUNT)
    application = web.Application()
    application.add_routes(manifest_routes(folder))
    empty = web.Application()
    empty.add_routes(manifest_routes(ManifestFolder(tmp_path / "empty")))
    other = ManifestFolder(tmp_path / "other")
    fetcher = ManifestFetcher(folder=other, session=session)
    urls = [
        manifest_url(address=address, digest=listed.digest)
        for address in ("127.0.0.1:9", await serve(empty), await serve(application))
    ]

    await asyncio.gather(*(fetcher.fetch(digest=listed.digest, urls=urls) for _ in range(5)))

    assert other.open(listed.digest).name(0) == b"a"
    assert os.listdir(other.path) == [listed.digest]
    await fetcher.fetch(digest=listed.digest, urls=[])  # it is there


async def test_a_manifest_that_is_on_its_way_is_waited_for_only_where_that_is_asked_for(
    tmp_path: Path, folder: ManifestFolder, serve: Serve, session: aiohttp.ClientSession
) -> None:
    listed = await LocalLister(engine=await mounted({"a": 5}), folder=folder).list(path=MOUNT)
    late = ManifestFolder(tmp_path / "late")
    waiting, other = web.Application(), web.Application()
    waiting.add_routes(manifest_routes(late, coming=lambda _: False))
    other.add_routes(manifest_routes(late))
    url = manifest_url(address=await serve(waiting), digest=listed.digest)
    at_once = manifest_url(address=await serve(other), digest=listed.digest)
    taken = ManifestFolder(tmp_path / "taken")
    fetching = asyncio.create_task(
        ManifestFetcher(folder=taken, session=session).fetch(digest=listed.digest, urls=[f"{url}?wait=5"])
    )
    for text, status in ((url, 404), (f"{at_once}?wait=5", 404), (f"{url}?wait=soon", 400)):
        async with session.get(text) as response:
            assert response.status == status
    assert not fetching.done()
    late.path.mkdir()
    late.file(listed.digest).write_bytes(folder.file(listed.digest).read_bytes())
    await fetching
    assert taken.digests() == {listed.digest}


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


async def test_agents_ask_those_before_them_until_these_have_the_manifest_and_the_operator_sends_it_once(
    tmp_path: Path,
    folder: ManifestFolder,
    serve: Serve,
    session: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tdcs.listing.transfer.AWAITED_SECONDS", 0.02)
    monkeypatch.setattr("tdcs.listing.transfer._AGAIN_SECONDS", 0.01)
    listed = await LocalLister(engine=await mounted({"a": 5}), folder=folder).list(path=MOUNT)
    asked, sent, slow = Counter[str](), 0, asyncio.Event()

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
        own = ManifestFolder(tmp_path / name)
        fetcher = ManifestFetcher(folder=own, session=session)

        @web.middleware
        async def count(
            request: web.Request,
            handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
            name: str = name,
        ) -> web.StreamResponse:
            asked[name] += 1
            return await handler(request)

        agent = web.Application(middlewares=[count])
        agent.add_routes(manifest_routes(own, coming=fetcher.fetches))
        fetchers.append(fetcher)
        urls = [f"{manifest_url(address=await serve(agent), digest=listed.digest)}?wait=8", *urls]
    first, second, third = (
        fetcher.fetch(digest=listed.digest, urls=urls[3 - place :]) for place, fetcher in enumerate(fetchers)
    )
    fetching = [asyncio.create_task(first)]
    await eventually_async(lambda: sent == 1, deadline=5)
    fetching.append(asyncio.create_task(second))
    await eventually_async(lambda: asked["a"], deadline=5)
    fetching.append(asyncio.create_task(third))
    await eventually_async(lambda: min(asked["a"], asked["b"]) >= 3, deadline=5)
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
    taken = ManifestFolder(tmp_path / "taken")
    async with asyncio.timeout(5):
        await ManifestFetcher(folder=taken, session=session).fetch(
            digest=listed.digest,
            urls=[first, first, manifest_url(address=await serve(operator), digest=listed.digest)],
        )
    assert taken.digests() == {listed.digest}


async def test_content_with_another_digest_is_refused_and_not_kept(
    tmp_path: Path, folder: ManifestFolder, serve: Serve, session: aiohttp.ClientSession
) -> None:
    listed = await LocalLister(engine=await mounted({"a": 5}), folder=folder).list(path=MOUNT)
    damaged = bytearray(folder.file(listed.digest).read_bytes())
    damaged[-1] ^= 1
    folder.file(listed.digest).write_bytes(damaged)
    application = web.Application()
    application.add_routes(manifest_routes(folder))
    other = ManifestFolder(tmp_path / "other")
    url = manifest_url(address=await serve(application), digest=listed.digest)

    with pytest.raises(ManifestUnavailableError, match="another digest"):
        await ManifestFetcher(folder=other, session=session).fetch(digest=listed.digest, urls=[url])
    assert os.listdir(other.path) == []


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


def test_an_error_crosses_processes_and_loses_its_secrets() -> None:
    error = EngineUnavailableError(
        attempted="list /datasets/1f",
        reason="it said key-123",
        remedy="Wait",
        path="/datasets/1f",
        retryable=True,
    )

    again = Failed.of(error).error(secrets=["key-123"])

    assert type(again) is EngineUnavailableError
    assert again.retryable
    assert "key-123" not in str(again)
    assert "list /datasets/1f" in str(again)


@pytest.mark.parametrize(
    "kind",
    [EngineError, EngineUnavailableError, KeysRefusedError, LimitExceededError, NoSuchPathError, SourceError],
)
def test_an_error_keeps_its_class_from_one_process_to_the_other(kind: type[EngineError]) -> None:
    error = kind(attempted="list /datasets/1f", reason="so", remedy="mend it", path="/datasets/1f")
    assert type(Failed.of(error).error()) is kind


async def test_a_master_that_is_away_is_told_by_the_listing_process(folder: ManifestFolder) -> None:
    lister = ProcessLister(master="127.0.0.1:9", folder=folder, gate=asyncio.Semaphore(2), patience=0.2)

    with pytest.raises(EngineUnavailableError, match=r"127\.0\.0\.1:9|master"):
        await lister.list(path=MOUNT)


def listing_processes() -> list[psutil.Process]:
    """Those that this process, or one that it started, has started and that have not ended."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ends at this moment
            if "tdcs.listing" in child.cmdline():
                found.append(child)
    return found


async def test_only_so_many_listings_run_at_once_and_a_cancelled_one_ends(folder: ManifestFolder) -> None:
    lister = ProcessLister(master="127.0.0.1:9", folder=folder, gate=asyncio.Semaphore(2), patience=60)
    tasks = [asyncio.create_task(lister.list(path=MOUNT)) for _ in range(4)]
    try:
        await eventually_async(lambda: len(listing_processes()) == 2, deadline=30)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert listing_processes() == []


async def test_the_operators_listings_are_bounded_by_its_gate_alone(
    folder: ManifestFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its `ListingGate` gives way to others when a source hangs; a second bound would not."""
    begun = 0

    async def hang(*words: object, **options: object) -> None:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", hang)
    async with aiohttp.ClientSession() as session:
        caches = alluxio_caches(namespace="tdcs", folder=folder, manifest_url="", session=session)
        listers = [caches.get(cluster=name).lister for name in ("one", "other")]
        tasks = [
            asyncio.create_task(lister.list(path=f"{MOUNT}{n}"))
            for n in range(STUCK_AT_ONCE)
            for lister in listers
        ]
        await eventually_async(lambda: begun == len(tasks), deadline=10)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await caches.close()


async def test_a_listing_process_that_is_killed_is_an_error_that_may_be_tried_again(
    folder: ManifestFolder,
) -> None:
    lister = ProcessLister(master="127.0.0.1:9", folder=folder, gate=asyncio.Semaphore(2), patience=60)
    task = asyncio.create_task(lister.list(path=MOUNT))
    await eventually_async(lambda: len(listing_processes()) == 1, deadline=30)
    listing_processes()[0].kill()

    with pytest.raises(EngineError, match="ended with -9") as told:
        await task
    assert told.value.retryable


async def test_a_listing_process_ends_with_whoever_started_it(folder: ManifestFolder) -> None:
    script = (
        "import asyncio, pathlib, sys\n"
        "from tdcs.listing.folder import ManifestFolder\n"
        "from tdcs.listing.lister import ProcessLister\n"
        "lister = ProcessLister(master='127.0.0.1:9', folder=ManifestFolder(pathlib.Path(sys.argv[1])),\n"
        "                       gate=asyncio.Semaphore(2), patience=60)\n"
        "asyncio.run(lister.list(path='/datasets/1f'))\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(folder.path))
    await eventually_async(lambda: len(listing_processes()) == 1, deadline=30)
    child = listing_processes()[0]
    parent.kill()
    await parent.wait()

    def ended() -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            return child.status() == psutil.STATUS_ZOMBIE  # its new parent has not asked for it
        return True

    await eventually_async(ended, deadline=30)


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
    pool.on_lost = lost.append
    operator = web.Application()
    operator.add_routes(manifest_routes(empty, obtain=pool.obtain))
    address = await serve(operator)

    async with session.get(manifest_url(address=address, digest=listed.digest)) as response:
        assert response.status == 200
        assert await response.read() == folder.file(listed.digest).read_bytes()
    async with session.get(manifest_url(address=address, digest="0" * 32)) as response:
        assert response.status == 404
    assert empty.digests() == {listed.digest}
    assert lost == ["0" * 32]


class Followed:
    """Agents with these last states."""

    def __init__(self, states: dict[str, AgentState]) -> None:
        self._states = states

    def states(self) -> dict[str, AgentState]:
        return self._states

    async def assign(self, *, node: str, assignments: Sequence[Assignment]) -> None: ...

    async def forget(self, *, node: str, mounts: Sequence[str]) -> None: ...

    async def close(self) -> None: ...


def test_a_listing_process_gets_the_certificate_that_it_shows() -> None:
    identity = Identity(b"certificate", b"key", b"authorities")
    assert identity.fingerprint
    request = Request(master="m:1", path="/p", folder="/f", refresh=False, patience=1.0, identity=identity)
    found = msgspec.json.decode(msgspec.json.encode(request), type=Request)
    assert found.identity == identity
    assert b"certificate" not in repr(request).encode()
